/* Frames that nobody on the path can change, repeat, leave out or, when they
 * are encrypted, read: one direction of one connection. [pure]
 *
 * A sealed frame is the 64 bytes of its header, a tag, then, if there are any,
 * the bytes of body and data, and a tag of them. AES-256-GCM (RFC 5116, its
 * implementation is OpenSSL's); SEAL_MAC: all bytes are additional data (which
 * is GMAC), SEAL_CRYPT: they are encrypted in place. The header has its own
 * tag because its lengths are believed before the rest has come.
 * The nonce is the direction's own XOR the number of the tag, as in TLS 1.3;
 * numbers begin at 0 with the connection and are not sent: TCP keeps the order.
 * After 2^SEAL_KEY_LOG2 tags (2 TiB of the largest frames) both sides go on to
 * the next key, HKDF-Expand of the one before.
 *
 * So a frame belongs to its place in its connection: a connection that was
 * replaced has other keys.
 */
#ifndef COMMON_SEAL_H
#define COMMON_SEAL_H

#include "common/base.h"

#include <sys/uio.h>

#define SEAL_TAG_SIZE 16u
#define SEAL_KEY_SIZE 32u
#define SEAL_NONCE_SIZE 12u
#define SEAL_KEY_LOG2 20u

enum seal_kind {
	SEAL_MAC,
	SEAL_CRYPT,
};

/* What both sides know, of one direction. */
struct seal_secret {
	uint8_t key[SEAL_KEY_SIZE];
	uint8_t nonce[SEAL_NONCE_SIZE];
};

struct seal;

/* Returns 0 or -ENOMEM. */
int seal_new(enum seal_kind kind, const struct seal_secret *secret,
	     struct seal **ret) must_check;
void seal_free(struct seal *s); /* NULL: no-op */
enum seal_kind seal_kind(const struct seal *s);

/* Seals the next piece, the bytes of @iov in order. SEAL_CRYPT: the encrypted
 * ones are put at @out, as many as came in, which may be where they came from
 * (then @iov has one entry); SEAL_MAC: @out is NULL. @tag: [SEAL_TAG_SIZE].
 * Never fails: OpenSSL reports only misuse, which ends the program. */
void seal_put(struct seal *s, const struct iovec *iov, int iov_count,
	      uint8_t *out, uint8_t *tag);
/* The same of @len bytes at @p, in place, with the tag behind them. */
void seal_piece(struct seal *s, uint8_t *p, size_t len);
/* The same of a piece that lies in many places: between these two one call of
 * seal_more() for each, *out goes on (NULL: SEAL_MAC). */
void seal_begin(struct seal *s);
void seal_more(struct seal *s, const void *p, size_t len, uint8_t **out);
void seal_end(struct seal *s, uint8_t *tag);
/* The other side: @iov is opened in place. Returns 0; -EBADMSG: it is not what
 * was sealed, or not the next; nothing of it may be used, and it stays so. */
int seal_get(struct seal *s, const struct iovec *iov, int iov_count,
	     const uint8_t *tag) must_check;

#endif
