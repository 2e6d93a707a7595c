/* The cluster file (hailfs.conf(5)): who the daemons are.
 *
 *	# comment
 *	cluster rack1            name, for people
 *	id 0x1122334455667788    cluster id, chosen once
 *	replicas 1
 *	key cluster.key          file of the cluster's key, hailctl key new
 *	wire tls                 what protects frames: tls, mac or plain
 *	metad  1 127.0.0.1:7000 data=/srv/meta [key=value ...]
 *	blockd 1 127.0.0.1:7101 data=/srv/disk1 [domain=NAME] ...
 *	logd   1 ...             (kept for later; accepted, checked)
 *
 * Words are parted by blanks; a word with blanks is quoted in whole or in
 * part, data="/srv/disk 1", where \" and \\ stand for themselves.
 */
#ifndef COMMON_CONF_H
#define COMMON_CONF_H

#include "common/cmap.h"
#include "common/greet.h"

struct gate;

/* A place in the file, counted from 1. */
struct conf_at {
	unsigned line, column;
};

struct conf_daemon {
	uint32_t id;
	char addr[CMAP_ADDR_LEN_MAX + 1];
	uint16_t port;
	char *data; /* directory; may be NULL */
	char *domain; /* failure domain; NULL: the address */
	uint32_t opt_count; /* other key=value pairs, for the program's table */
	char **opt_keys, **opt_values;
	struct conf_at *opt_at;
};

struct conf {
	char *name;
	uint64_t cluster_id;
	uint32_t replicas;
	char *key; /* file; NULL: none */
	enum wire_guard wire; /* GUARD_PLAIN without a key */
	struct gate *gate; /* of conf_load(): common/gate.h */
	struct conf_daemon *metads, *blockds, *logds;
	uint32_t metad_count, blockd_count, logd_count;
};

/* Where an error is, for the user. Line and column count from 1. */
struct conf_error {
	unsigned line, column;
	char text[160];
};

/* Parses a whole file's text; pure. Returns 0, -EINVAL with @err, -ENOMEM. */
int conf_parse(const char *text, size_t len, struct conf *c,
	       struct conf_error *err) must_check;
/* Reads and parses, and reads the keys of the key file; on error prints
 * "FILE:LINE:COL: text" or what is wrong with the keys to stderr.
 * Returns 0 or -errno. */
int conf_load(const char *path, struct conf *c) must_check;
void conf_fini(struct conf *c);
const struct conf_daemon *conf_find(const struct conf_daemon *list,
				    uint32_t count, uint32_t id);

#endif
