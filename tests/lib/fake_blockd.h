/* A block daemon as metad sees it, in threads of a test: registers, sends
 * heartbeats, answers metad's calls with what the test said, and remembers
 * them. It stores nothing and serves no clients.
 *
 * Every function may be called from any thread. A failed system call ends the
 * test program.
 */
#ifndef TESTS_LIB_FAKE_BLOCKD_H
#define TESTS_LIB_FAKE_BLOCKD_H

#include "common/wire_blk.h"

struct fake_blockd;

struct fake_blockd_id {
	uint32_t id;
	uint64_t cluster_id;
	uint16_t metad_port;
	uint64_t store_id; /* the low half */
	uint64_t commit;
	uint64_t ino_max, session_max;
};

/* Starts its threads; it registers by itself, again and again. */
struct fake_blockd *fake_blockd_new(const struct fake_blockd_id *id);
void fake_blockd_free(struct fake_blockd *b); /* NULL: no-op */

/* Down: neither answers metad's calls nor sends heartbeats. */
void fake_blockd_set_down(struct fake_blockd *b, bool down);
/* Mute: the same, but its connections stay, as of a process that hangs. */
void fake_blockd_set_mute(struct fake_blockd *b, bool mute);
/* Calls of @op (0: of none) are not answered until that changes. */
void fake_blockd_hold(struct fake_blockd *b, uint16_t op);
/* Calls of operation @op fail with @error, -errno; 0: none does. */
void fake_blockd_fail(struct fake_blockd *b, uint16_t op, int error);
/* Registers as another process of the same store. */
void fake_blockd_restart(struct fake_blockd *b);
void fake_blockd_set_commit(struct fake_blockd *b, uint64_t commit);
/* What BLK_END says of every inode; what each cut frees. */
void fake_blockd_set_end(struct fake_blockd *b, uint64_t end, uint64_t units,
			 int64_t mtime_ns);
void fake_blockd_set_cut_delta(struct fake_blockd *b, int64_t delta);
/* BLK_LIST shows a block of this inode, until that is purged. */
void fake_blockd_set_stray(struct fake_blockd *b, uint64_t ino);

/* Of the last registration: 0 or -errno; -ENOTCONN: none yet. */
int fake_blockd_registered(struct fake_blockd *b);
/* The last lease it got, ms; the largest epoch metad told. */
uint32_t fake_blockd_lease_ms(struct fake_blockd *b);
uint64_t fake_blockd_epoch(struct fake_blockd *b);
/* Calls of @op that arrived, answered or not. */
uint64_t fake_blockd_calls(struct fake_blockd *b, uint16_t op);
/* The last of each kind. */
struct blk_cut fake_blockd_last_cut(struct fake_blockd *b);
uint64_t fake_blockd_last_fence(struct fake_blockd *b);
/* The inode after which BLK_LIST was to begin. */
uint64_t fake_blockd_listed_from(struct fake_blockd *b);
/* How often @ino was purged. */
uint64_t fake_blockd_purged(struct fake_blockd *b, uint64_t ino);

#endif
