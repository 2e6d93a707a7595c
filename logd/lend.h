/* What is lent: logs, their regions, and who may change them. [pure] No clock,
 * no socket: the owner tells the time (lend_set_now()) and what was asked, and
 * does what only it can do (struct lend_ops).
 *
 * Invariants
 * - Memory that is not lent is zeros.
 * - Of an inode with fence E nothing of an epoch below E changes any more: what
 *   lend_fence() has shown is only added to, and by who fenced.
 * - In a region records come before the slot that speaks for them: whoever
 *   looks at its memory, at any moment, finds a slot that holds, or none.
 * - What is written from afar has a slot for the first records alone, and for
 *   some behind them (log_writer.h): when that has ended, and before anybody is
 *   told of it, the records that follow are found and get one.
 * - A log whose memory was taken back is remembered as such for as long as
 *   somebody may count on it: it never looks like one that had nothing.
 *
 * Bounds: logs, taken back ones among them (log_max), inodes with a log or a
 * fence (ino_max), regions of a log (LOG_REGION_COUNT_MAX), memory (the pool).
 * At a bound what is there stays, and more is refused with -ENOSPC: to those
 * who ask, this peer has failed.
 */
#ifndef LOGD_LEND_H
#define LOGD_LEND_H

#include "common/log_rec.h"
#include "common/wire_log.h"
#include "common/wire_meta.h"
#include "logd/lend_pool.h"

struct lend;

struct lend_region {
	uint8_t *base; /* 1 << log2 bytes */
	uint32_t index;
	uint32_t end; /* records reach to here */
	uint64_t seq; /* of the last; 0: empty */
	uint8_t log2;
	uint8_t newest; /* slot */
	bool granted; /* for one-sided writes: memory changes by itself */
	bool open; /* ... and that was not revoked yet */
	bool torn; /* something is behind @end that is no record */
	/* of lend_ops->grant() */
	uint64_t addr;
	uint32_t rkey;
	void *grant;
};

/* Named by its inode and the epoch in which it was made. */
struct lend_log {
	uint64_t ino, epoch;
	/* Who may write it: the largest epoch that did, or had memory lent, and
	 * its session. At first that is its maker; later who recovers it. */
	uint64_t writer, session;
	bool given_up; /* no regions; see enum log_held */
	bool reclaimed; /* ... because we wanted it, not metad */
	bool unseen; /* written from afar, maybe, since we looked */
	void *user; /* the owner's */
	/* private */
	bool asked, fenced;
	uint64_t heard_ms, asked_ms;
	struct lend_region **regions; /* by index */
	uint32_t region_count, region_cap;
	struct lend_log *next;
};

/* May be NULL, each. */
struct lend_ops {
	/* Lets @r be written from afar: sets addr, rkey, grant. 0 or -errno. */
	int (*grant)(void *arg, struct lend_log *g, struct lend_region *r);
	/* Ends that; when it returns nobody can write there. */
	void (*revoke)(void *arg, struct lend_log *g, struct lend_region *r);
	/* The log goes, or is fenced: queue pairs made for it end; before its
	 * regions' revoke(). May come twice. */
	void (*end)(void *arg, struct lend_log *g);
	/* It was fenced: its writer is not to be heard any more. */
	void (*fenced)(void *arg, struct lend_log *g);
	/* Has its writer heard that its memory is wanted back, and could act?
	 * NULL: each. */
	bool (*hears)(void *arg, const struct lend_log *g);
};

struct lend_options {
	struct lend_pool *pool; /* zeroed memory */
	uint64_t cluster_id;
	uint32_t log_max, ino_max;
	const struct lend_ops *ops;
	void *arg;
};

struct lend_stats {
	uint64_t allocs, writes, duplicates, fences, frees, reads;
	uint64_t bytes, read_bytes;
	uint64_t cut; /* logs whose writer was fenced */
	uint64_t given_up, collected; /* logs */
	uint64_t reclaimed; /* given up because we wanted the memory */
	uint64_t no_memory, full; /* at a bound */
	uint64_t stale, gone, missing, gaps, damaged; /* refused */
	/* now */
	uint64_t logs, tombs, inos, regions, lent_bytes;
};

/* All borrowed. 0 or -ENOMEM. */
int lend_new(const struct lend_options *o, struct lend **ret) must_check;
/* Frees the table and calls no ops. NULL: no-op. */
void lend_free(struct lend *l);
void lend_set_now(struct lend *l, uint64_t now_ms);
const struct lend_stats *lend_stats(const struct lend *l);
uint64_t lend_free_bytes(const struct lend *l);
uint64_t lend_total_bytes(const struct lend *l);
/* The largest that was told, or lent in. */
uint64_t lend_epoch_max(const struct lend *l);

/* ---- what clients ask: common/wire_log.h, also for errors ---- */
/* *ret: the region. */
int lend_alloc(struct lend *l, uint64_t session, const struct log_alloc *m,
	       const struct lend_region **ret) must_check;
/* @data: @len bytes of records. A write that begins before the end and reaches
 * behind it adds what is new. Ends what was granted of this log: whoever sends
 * this has given up writing from afar, and nothing may still come that way. */
int lend_write(struct lend *l, uint64_t session, const struct log_write *m,
	       const uint8_t *data, uint32_t len) must_check;
/* *ret: the log that @session may write in @epoch, its own. -ENOENT: there is
 * none. */
int lend_writer_log(struct lend *l, uint64_t session, uint64_t ino,
		    uint64_t epoch, struct lend_log **ret) must_check;
/* *ret: the log of m->data_epoch, NULL: none. */
int lend_fence(struct lend *l, const struct log_fence *m,
	       const struct lend_log **ret) must_check;
/* *ret: m->len bytes. */
int lend_read(struct lend *l, const struct log_read *m, const uint8_t **ret)
	must_check;
int lend_release(struct lend *l, const struct log_free *m) must_check;

/* Nothing is written from afar any more: the means are gone. */
void lend_revoke_all(struct lend *l);

/* ---- lists ---- */
/* NULL: none. */
struct lend_log *lend_find(struct lend *l, uint64_t ino, uint64_t epoch);
static inline const struct lend_region *
lend_region_at(const struct lend_log *g, uint32_t i)
{
	return g->regions[i];
}
/* Is something behind its records that is none? */
bool lend_is_torn(const struct lend_log *g);
void lend_each(struct lend *l, void (*fn)(void *arg, struct lend_log *g),
	       void *arg);

/* ---- taking back ---- */
/* From now on nothing is lent, but to who recovers a log that is lent already:
 * he gives a majority what it lacks before he applies it. lend_expire() takes
 * what is left at @until_ms. Again: another deadline. */
void lend_drain(struct lend *l, uint64_t until_ms);
void lend_drain_end(struct lend *l);
bool lend_draining(const struct lend *l);
/* Of the drain; 0: there is none, or it is over. */
uint64_t lend_wanted_ms(const struct lend *l);
/* The deadline has come: gives up every log whose maker has heard of it. Of the
 * others this may be one of few copies until a mount has recovered them.
 * Returns how many. */
uint32_t lend_expire(struct lend *l);
/* Is this one wanted back, or was it taken back? */
bool lend_is_wanted(const struct lend *l, const struct lend_log *g);

/* ---- collecting what nobody owns ---- */
/* Logs, and fences without a log, of which nothing was heard for @idle_ms and
 * that were not named for as long. They count as named. Returns how many. */
uint32_t lend_ask(struct lend *l, uint64_t idle_ms, struct log_name *names,
		  uint32_t max);
/* What metad says of one that was named; nothing when something was heard of
 * it since. */
void lend_judge(struct lend *l, uint64_t ino, uint64_t epoch,
		enum meta_log_verdict verdict);

#endif
