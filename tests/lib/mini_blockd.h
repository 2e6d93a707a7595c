/* A block daemon in a thread, for tests of the client core: wire_blk over
 * loopback, blocks in memory, and two states of each: what was written and
 * what is durable. A restart may lose the difference.
 *
 * As strict as the contract lets a daemon be: a SYNC makes durable only what
 * had been answered when it arrived.
 *
 * Every function may be called from any thread.
 */
#ifndef TESTS_LIB_MINI_BLOCKD_H
#define TESTS_LIB_MINI_BLOCKD_H

#include "common/wire_blk.h"

struct mini_blockd;

/* @port: 0 for any. Starts the thread. Returns 0 or -errno. */
int mini_blockd_new(uint32_t id, uint64_t cluster_id, struct mini_blockd **ret);
void mini_blockd_free(struct mini_blockd *b);
uint16_t mini_blockd_port(struct mini_blockd *b);

/* ---- faults; @op 0: any but HELLO and STAT ---- */
/* Dies and starts again with a new boot id; @lose: without what was not
 * durable. */
void mini_blockd_restart(struct mini_blockd *b, bool lose);
/* Dead (not listening) until mini_blockd_up(). */
void mini_blockd_down(struct mini_blockd *b);
void mini_blockd_up(struct mini_blockd *b, bool lose);
/* Drops every connection. */
void mini_blockd_drop(struct mini_blockd *b);
/* The same, but requests that are held are delayed duplicates from now on:
 * they are executed after all, and answered to nobody, at the latest moment
 * that the contract allows, before the next HELLO is answered. */
void mini_blockd_drop_late(struct mini_blockd *b);
/* While held, requests of @op are not executed; then in order of arrival. */
void mini_blockd_hold(struct mini_blockd *b, uint16_t op, bool hold);
/* While held, replies to @op are kept back; then sent in order. */
void mini_blockd_hold_replies(struct mini_blockd *b, uint16_t op, bool hold);
/* The next @count requests of @op are executed, their replies never sent: the
 * connection breaks instead. */
void mini_blockd_lose_replies(struct mini_blockd *b, uint16_t op, int count);
/* The next @count requests of @op are refused (-1: all until the next call). */
void mini_blockd_fail(struct mini_blockd *b, uint16_t op, int err, int count);
/* The next @count READ replies have a wrong byte. */
void mini_blockd_corrupt(struct mini_blockd *b, int count);
/* Space for so many more units; UINT64_MAX: endless. */
void mini_blockd_set_free(struct mini_blockd *b, uint64_t units);
/* Listens on another port from now on; boots anew. */
void mini_blockd_move(struct mini_blockd *b);
/* HELLO of clients is answered with -ESTALE. */
void mini_blockd_fence(struct mini_blockd *b);

/* ---- of the metadata daemon ---- */
/* Cuts; returns the change of units. */
int64_t mini_blockd_cut(struct mini_blockd *b, const struct blk_cut *cut);
void mini_blockd_purge(struct mini_blockd *b, uint64_t ino);
/* Nothing of @session, or of one before it, is done any more. */
void mini_blockd_fence_session(struct mini_blockd *b, uint64_t session);
/* The end of what is here of an inode, in bytes of the file; adds its units.
 * What it tells is durable. */
uint64_t mini_blockd_end(struct mini_blockd *b, uint64_t ino,
			 uint64_t *units);

/* ---- the truth ---- */
uint64_t mini_blockd_executed(struct mini_blockd *b, uint16_t op);
uint64_t mini_blockd_received(struct mini_blockd *b, uint16_t op);
/* Frames of @op received and not answered. */
uint32_t mini_blockd_held(struct mini_blockd *b);
/* Copies block bytes (zeros where nothing is). Returns whether the block is
 * there. @durable: what would survive. */
bool mini_blockd_peek(struct mini_blockd *b, uint64_t ino, uint64_t index,
		      uint32_t off, uint32_t len, bool durable, void *buf);
/* Units stored for an inode. */
uint64_t mini_blockd_units(struct mini_blockd *b, uint64_t ino);
/* Wrong frames, sums or overlapping writes in work; must stay 0. */
uint64_t mini_blockd_violations(struct mini_blockd *b);

#endif
