/* A log daemon in a thread, for tests of the client core: wire_log over
 * loopback before the real table of what is lent (logd/lend.h). Sessions live
 * until a fence ends their connections.
 *
 * Every function may be called from any thread.
 */
#ifndef TESTS_LIB_MINI_LOGD_H
#define TESTS_LIB_MINI_LOGD_H

#include "logd/lend.h"

struct mini_logd;

/* Starts the thread; ports are its own choice. @memory: bytes to lend. */
struct mini_logd *mini_logd_new(uint32_t id, uint64_t cluster_id,
				uint64_t memory);
void mini_logd_free(struct mini_logd *b);
uint16_t mini_logd_port(struct mini_logd *b);
uint64_t mini_logd_boot_id(struct mini_logd *b);

/* ---- faults; @op 0: any, HELLO, too ---- */
/* Dies and starts again with a new boot id: what it had is gone. */
void mini_logd_restart(struct mini_logd *b);
/* Dead (not listening) until mini_logd_up(). @lose: its memory, as if it had
 * died; else it was not to be reached. */
void mini_logd_down(struct mini_logd *b);
void mini_logd_up(struct mini_logd *b, bool lose);
/* Drops every connection, and requests that are held. */
void mini_logd_drop(struct mini_logd *b);
/* While held, requests of @op are not executed; then in order of arrival. */
void mini_logd_hold(struct mini_logd *b, uint16_t op, bool hold);
/* While held, replies to @op are kept back; then sent in order. */
void mini_logd_hold_replies(struct mini_logd *b, uint16_t op, bool hold);
/* Of what is held now, lets the oldest @count go. */
void mini_logd_let(struct mini_logd *b, uint32_t count);
/* The next @count requests of @op are executed, their replies never sent: the
 * connection breaks instead. */
void mini_logd_lose_replies(struct mini_logd *b, uint16_t op, int count);
/* The next @count requests of @op are refused (-1: all until the next call). */
void mini_logd_fail(struct mini_logd *b, uint16_t op, int err, int count);
/* The bodies of the next @count good replies to @op are not what they should
 * be. */
enum mini_logd_lie {
	MINI_LOGD_EMPTY,
	MINI_LOGD_SHORT, /* the last byte is missing */
	MINI_LOGD_LONG, /* by a byte */
	MINI_LOGD_RANDOM,
	MINI_LOGD_DATA, /* the body is right; a byte of data is not */
	MINI_LOGD_NO_DATA, /* the body is right, there is no data */
};
void mini_logd_lie(struct mini_logd *b, uint16_t op, enum mini_logd_lie how,
		   int count);
/* It wants its memory back, or does not any more; takes it. */
void mini_logd_drain(struct mini_logd *b, bool on);
void mini_logd_reclaim(struct mini_logd *b);
/* As a recovery of @epoch would. 0 or -errno. */
int mini_logd_fence(struct mini_logd *b, uint64_t ino, uint64_t epoch,
		    uint64_t data_epoch);
/* As after the next heartbeat to metad: logs, and fences, that @known does not
 * know go. It is called with the daemon's lock held. */
void mini_logd_collect(struct mini_logd *b,
		       bool (*known)(void *arg, uint64_t ino, uint64_t epoch),
		       void *arg);

/* ---- the truth ---- */
uint64_t mini_logd_executed(struct mini_logd *b, uint16_t op);
uint64_t mini_logd_received(struct mini_logd *b, uint16_t op);
/* Requests and replies that are held. */
uint32_t mini_logd_held(struct mini_logd *b);
void mini_logd_stats(struct mini_logd *b, struct lend_stats *ret);
uint64_t mini_logd_free_bytes(struct mini_logd *b);
/* The last record of the inode's newest log; 0: none. */
uint64_t mini_logd_seq(struct mini_logd *b, uint64_t ino);
/* Frames that are none, or that nobody may send; must stay 0. */
uint64_t mini_logd_violations(struct mini_logd *b);

#endif
