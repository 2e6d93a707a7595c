/* The real hail-metad program as a child of a test, with fake block daemons
 * and a data directory of its own. A failed step ends the test program.
 */
#ifndef TESTS_LIB_METAD_RUN_H
#define TESTS_LIB_METAD_RUN_H

#include "common/wire_meta.h"
#include "tests/lib/blk_raw.h"
#include "tests/lib/child.h"
#include "tests/lib/fake_blockd.h"

#define METAD_CLUSTER_ID 0x4712u
#define METAD_BLOCKDS_MAX 4u
#define METAD_LOGDS_MAX 5u /* always in the cluster file */

struct metad_run {
	struct child child;
	uint32_t blockd_count;
	struct fake_blockd *blockd[METAD_BLOCKDS_MAX];
	uint64_t incarnation; /* last one used */
	/* what the stores of those started next have seen; 0: they are new */
	uint64_t ino_max, session_max;
};

/* A test and the block daemons in its cluster file. */
struct metad_test {
	const char *name;
	void (*fn)(struct metad_run *x);
	uint32_t blockds;
};
#define METAD_TEST(fn, blockds) { #fn, fn, blockds }

/* main() of a program of such tests: each gets a scratch directory of its own
 * and nothing started. */
int metad_tests_run(int argc, char **argv, const struct metad_test *tests,
		    size_t count);

/* Starts block daemon @i (from 0) with this store; waits until registered. */
void metad_run_blockd(struct metad_run *x, uint32_t i, uint64_t store_id,
		      uint64_t commit);
void metad_run_blockd_end(struct metad_run *x, uint32_t i);
/* Starts metad with more options (NULL-ended); waits until it answers HELLO. */
void metad_run_start(struct metad_run *x, const char *const *args);
/* Runs it until it ends by itself; returns its exit status. */
int metad_run_to_end(struct metad_run *x, const char *const *args);

/* Connects and says HELLO; 0, -errno of the answer, -ECONNRESET: closed.
 * After an error the connection is closed. */
int metad_hello(struct metad_run *x, struct blk_raw *r, uint8_t role,
		uint64_t session, uint64_t incarnation, uint32_t peer_id);

/* JSON text of an ADMIN_* request without fields, malloc'd. */
char *metad_admin(struct metad_run *x, uint16_t op);
/* One with fields; 0 or -errno. */
int metad_admin_call(struct metad_run *x, uint16_t op, const void *body,
		     size_t len);
/* As hailctl metad backup. */
void metad_run_backup(struct metad_run *x, const char *path);
/* A number of the text; UINT64_MAX: there is none. */
uint64_t metad_admin_number(struct metad_run *x, uint16_t op, const char *key);

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
