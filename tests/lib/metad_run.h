/* The real hail-metad program as a child of a test, with fake block daemons
 * and a data directory of its own, and sessions played by hand. A failed step
 * ends the test program.
 *
 * The program is $BIN/hail-metad, $BIN by default build/bin.
 */
#ifndef TESTS_LIB_METAD_RUN_H
#define TESTS_LIB_METAD_RUN_H

#include "common/wire_meta.h"
#include "tests/lib/blk_raw.h"
#include "tests/lib/fake_blockd.h"

#define METAD_CLUSTER_ID 0x4712u
#define METAD_BLOCKDS_MAX 4u

struct metad_run {
	char dir[64]; /* scratch: cluster.conf, data/, log */
	uint16_t port;
	pid_t pid; /* 0: not running */
	uint32_t blockd_count;
	struct fake_blockd *blockd[METAD_BLOCKDS_MAX];
	uint64_t incarnation; /* last one used */
};

/* Scratch directory and cluster file with so many block daemons, none of them
 * started. */
void metad_run_init(struct metad_run *x, uint32_t blockd_count);
void metad_run_fini(struct metad_run *x);
/* Starts block daemon @i (from 0) with this store; waits until registered. */
void metad_run_blockd(struct metad_run *x, uint32_t i, uint64_t store_id,
		      uint64_t commit);
void metad_run_blockd_end(struct metad_run *x, uint32_t i);
/* Starts metad with more options (NULL-ended); waits until it answers HELLO. */
void metad_run_start(struct metad_run *x, const char *const *args);
/* Runs it until it ends by itself; returns its exit status. */
int metad_run_to_end(struct metad_run *x, const char *const *args);
void metad_run_kill9(struct metad_run *x);
int metad_run_term(struct metad_run *x); /* SIGTERM; the exit status */
int metad_run_wait(struct metad_run *x); /* asked to end by other means */
bool metad_run_log_has(const struct metad_run *x, const char *text);

/* Connects and says HELLO; 0, -errno of the answer, -ECONNRESET: closed.
 * After an error the connection is closed. */
int metad_hello(struct metad_run *x, struct blk_raw *r, uint8_t role,
		uint64_t session, uint64_t incarnation, uint32_t peer_id);

/* ---- a session; blocking, one request at a time ---- */
struct metad_client {
	struct metad_run *x;
	struct blk_raw r;
	bool connected;
	uint64_t session;
	uint64_t seq; /* last one used */
	uint64_t seq_low;
	struct meta_rhdr rhdr; /* of the last good reply */
	struct meta_attr attr; /* of the last reply that had one */
	uint8_t *reply; /* the last good one's body after rhdr */
	size_t reply_len;
};

/* Opens a session; 0 or -errno. @c is zeroed. */
int metad_client_open(struct metad_run *x, struct metad_client *c,
		      uint64_t client_id);
void metad_client_fini(struct metad_client *c);
void metad_client_disconnect(struct metad_client *c);
/* HELLO with the session; the status. */
int metad_client_reconnect(struct metad_client *c);

/* Sends without waiting; @fields: the body after meta_mhdr for mutations (then
 * it gets c->seq + 1 and c->seq grows), else the whole body. Returns the
 * request's id. */
uint64_t metad_client_send(struct metad_client *c, uint16_t op,
			   const void *fields, size_t len);
/* The same sequence again. */
uint64_t metad_client_send_seq(struct metad_client *c, uint16_t op,
			       uint64_t seq, const void *fields, size_t len);
/* Waits for the answer to @id. Returns 0 or -errno (-ETIMEDOUT: none came in
 * @timeout_ms; -ECONNRESET). */
int metad_client_recv(struct metad_client *c, uint64_t id, int timeout_ms);
int metad_client_call(struct metad_client *c, uint16_t op, const void *fields,
		      size_t len);

/* c->attr is set by these. */
int metad_client_create(struct metad_client *c, uint64_t dir, const char *name,
			uint32_t flags);
int metad_client_mkdir(struct metad_client *c, uint64_t dir, const char *name);
int metad_client_unlink(struct metad_client *c, uint64_t dir,
			const char *name);
int metad_client_rename(struct metad_client *c, uint64_t dir, const char *name,
			uint64_t newdir, const char *newname);
int metad_client_lookup(struct metad_client *c, uint64_t dir,
			const char *name);
int metad_client_getattr(struct metad_client *c, uint64_t ino);
int metad_client_lease(struct metad_client *c, uint64_t ino);
int metad_client_give_back(struct metad_client *c, uint64_t ino,
			   uint32_t what);
uint64_t metad_client_cut_begin(struct metad_client *c, uint64_t ino,
				uint64_t size_now, uint64_t size);
int metad_client_sync(struct metad_client *c);
/* All names of @dir, sorted, one a line, malloc'd. */
char *metad_client_list(struct metad_client *c, uint64_t dir);

/* JSON text of an ADMIN_* request without fields, malloc'd. */
char *metad_admin(struct metad_run *x, uint16_t op);

#define METAD_BODY(buf, type, ...)                                            \
	({                                                                    \
		struct type m_ = __VA_ARGS__;                                 \
		struct wire_out o_;                                           \
		wire_out_init(&o_, buf, sizeof(buf));                         \
		type##_encode(&o_, &m_);                                      \
		assert(!o_.overflow);                                         \
		o_.len;                                                       \
	})

#endif
