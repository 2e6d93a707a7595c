/* The handshake with which a connection begins: both sides prove that they
 * have the cluster key and agree on what protects the frames. [pure]
 *
 * It is TLS 1.3 (RFC 8446, its implementation is OpenSSL's) with the cluster
 * key as external pre-shared key and a fresh Diffie-Hellman exchange, so that a
 * key that is lost later opens nothing recorded before. No certificates. The
 * key's id is the PSK identity; what protects the frames is agreed on by ALPN,
 * "hail/1 crypt", "hail/1 mac" or "hail/1 plain", and so cannot be talked down.
 * TLS ends there: frames are sealed (common/seal.h) with secrets exported from
 * it (RFC 8446, 7.5).
 *
 *	while ((rv = greet_feed(g, bytes, len, &used)) == 0) {
 *		send what greet_out() gives;
 *		receive more bytes (the rest of @bytes first);
 *	}
 *	rv == 1: send greet_out(), then greet_seals(); bytes[used..] are frames
 *
 * Before the other side has proved itself it is sent what TLS says, and a
 * refusal is an alert of some bytes. At most GREET_IN_MAX bytes are taken in.
 */
#ifndef COMMON_GREET_H
#define COMMON_GREET_H

#include "common/key.h"
#include "common/seal.h"

#define GREET_IN_MAX 16384u

enum wire_guard {
	GUARD_PLAIN = 1, /* checksums only: the bytes stay within the machine */
	GUARD_MAC = 2,
	GUARD_CRYPT = 4,
};

struct greet;

/* Who connects: shows @key, and would do with any of @guards (enum wire_guard,
 * ORed). Returns 0 or -ENOMEM. */
int greet_connect(const struct key *key, uint32_t guards, struct greet **ret)
	must_check;
/* Who is connected to: takes any key of @ring, which is copied, and the
 * strongest of @guards that both have. */
int greet_accept(const struct keyring *ring, uint32_t guards,
		 struct greet **ret) must_check;
void greet_free(struct greet *g); /* NULL: no-op */

/* Takes in what came (@len may be 0: who connects begins so) and sets *used:
 * all of it, but for what follows the end. Returns 1: it has ended well;
 * 0: more is wanted; else the connection is over once greet_out() is sent:
 *   -EKEYREJECTED  another key, or none that is known here or there
 *   -EPROTONOSUPPORT  nothing protects frames that both would have
 *   -EBADMSG       that is no handshake
 *   -ENOMEM */
int greet_feed(struct greet *g, const void *bytes, size_t len, size_t *used)
	must_check;
/* What is to be sent now; taken with this. Returns its length; *ret is valid
 * until the next call of @g. */
size_t greet_out(struct greet *g, const void **ret);
/* After a good end. NULL: GUARD_PLAIN, or -ENOMEM, which is returned. */
int greet_seals(struct greet *g, struct seal **in, struct seal **out)
	must_check;
enum wire_guard greet_guard(const struct greet *g);
/* The key it was: its id. */
uint64_t greet_key(const struct greet *g);

#endif
