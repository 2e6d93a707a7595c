/* The cluster key (hailfs-security(7)): a secret that every daemon, tool and
 * mount of a cluster has in a file, and proves to the other side before it is
 * believed anything.
 *
 * The file, readable by its owner alone:
 *
 *	# comment
 *	key ID SECRET            hexadecimal, 16 and 64 digits
 *
 * Whoever connects shows the first key; any of them is taken. So a key is
 * replaced without a stop: `hailctl key rotate` puts a new one before the one
 * in use, which stays until the next rotation. Who meets somebody that does not
 * have the new one yet tries the next.
 */
#ifndef COMMON_KEY_H
#define COMMON_KEY_H

#include "common/base.h"

#define KEY_SECRET_SIZE 32u
#define KEY_COUNT_MAX 2u
#define KEY_ID_DIGITS 16u

struct key {
	uint64_t id; /* not secret; 0: none */
	uint8_t secret[KEY_SECRET_SIZE];
};

struct keyring {
	uint32_t count; /* > 0; the first is the newest */
	struct key keys[KEY_COUNT_MAX];
};

/* Parses a file's text; pure. @why: for the user, with the line, without any
 * secret. Returns 0 or -EINVAL. */
int keyring_parse(const char *text, size_t len, struct keyring *k, char *why,
		  size_t why_size) must_check;
/* Reads @path. Returns 0; -EINVAL: what is in it; -EPERM: others may read it
 * (or write it, or it belongs to neither root nor the caller); or -errno. @why
 * as above, with the path. */
int keyring_load(const char *path, struct keyring *k, char *why,
		 size_t why_size) must_check;
/* Writes @path anew, durably and at once (another file renamed over it), for
 * the caller alone, or for the owner of the one that was.
 * @exclusive: -EEXIST when there is one. Returns 0 or -errno. */
int keyring_save(const char *path, const struct keyring *k, bool exclusive)
	must_check;
/* One new key of the system's randomness. Returns 0 or -errno. */
int keyring_new(struct keyring *k) must_check;
/* A new key first, then the one that was; older ones are forgotten. */
int keyring_rotate(struct keyring *k) must_check;
const struct key *keyring_find(const struct keyring *k, uint64_t id);
/* Overwrites the secrets. */
void keyring_fini(struct keyring *k);

#endif
