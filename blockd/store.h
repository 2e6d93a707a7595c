/* The block store of one disk (design section 5).
 *
 * On disk, in one directory: "super" (format version, store id, cluster id,
 * daemon id), "journal" (circular redo file, zero-written at format),
 * "seg-NNNN" (data in 4 KiB units), "index/" (LMDB); while it is made,
 * STORE_UNFINISHED.
 *
 * Invariants
 * - A unit has three places: memory (newest), journal, segment+index. A read
 *   takes the newest; every unit has a CRC32C that is checked when it comes
 *   from disk and that came from the writer.
 * - Acknowledged-durable means: in a journal record that reached the disk
 *   (DSYNC), or in a segment that was flushed before the record that maps it.
 * - LMDB is behind the journal: a journal position is reused only when what it
 *   held is flushed in segments and synced in LMDB (checkpoint).
 * - An extent freed by a change is reused only when that change is durable.
 * - A flush or journal write that fails stops the store: every later write is
 *   refused with -EROFS, reads go on, the state says why. Never retried.
 *
 * Single loop thread; LMDB writes on a thread of the store's own. Memory is
 * bounded by store_options.cache_bytes.
 */
#ifndef BLOCKD_STORE_H
#define BLOCKD_STORE_H

#include "blockd/dev.h"
#include "common/limits.h"
#include "common/wire_blk.h"

struct store;

struct store_options {
	const char *dir; /* for LMDB; dev works in the same directory */
	uint64_t cluster_id;
	uint32_t daemon_id;
	uint64_t capacity_bytes; /* 0: what the file system has; segments grow
				  * on demand */
	uint64_t journal_bytes; /* at format */
	uint64_t cache_bytes; /* units in memory not yet checkpointed */
	uint64_t reserve_bytes; /* for deletes */
	uint64_t object_bytes; /* block objects in memory; 0: 40 MiB */
	uint32_t slice_blocks; /* a checkpoint takes at a time; 0: 64 */
	uint32_t batch_blocks; /* in a transaction of its; 0: 4,096 */
	uint32_t segment_units; /* tests: smaller segments; 0: SEG_UNITS */
	bool read_only; /* store_check: nothing is written, no requests */
	bool inline_worker; /* tests: no thread, so that a run repeats */
};

/* Where there is a file of this name, making a store was cut off. */
#define STORE_UNFINISHED "super.unfinished"
/* Makes an empty store, over what was left of one that is unfinished. -EEXIST
 * when there is one. */
int store_format(struct dev *d, const struct store_options *o);

/* Opens and recovers (replays the journal into memory, checkpoints).
 * Blocking. On error @why gets a sentence naming the file and the next step.
 * -ENOENT no store; -EBADMSG damaged; -EPROTONOSUPPORT from the future;
 * -EXDEV of another cluster or daemon; -errno of I/O. */
int store_open(struct dev *d, const struct store_options *o,
	       struct store **ret, char *why, size_t why_size);
/* Makes all durable, checkpoints, stops the thread; @cb then, and the store is
 * gone. */
void store_close(struct store *s, void (*cb)(void *arg, int err), void *arg);
/* Frees memory and threads at once, as kill -9 would. For tests. */
void store_abort(struct store *s);

struct store_stat {
	uint64_t units_total, units_free, commit, ino_max, session_max;
	uint64_t units_more; /* of both, what the disk could still give */
	uint64_t store_id_hi, store_id_lo;
	int error; /* 0, or why the store stopped: -errno */
	const char *error_text;
	uint64_t journal_commits, journal_bytes, flushes, checkpoints;
	uint64_t units_dirty, reads, writes, checksum_errors;
};
void store_stat(struct store *s, struct store_stat *st);
/* Largest session seen in HELLO; made durable with the next commit. */
void store_note_session(struct store *s, uint64_t session);

/* A request: the caller's memory until @done, which runs on the loop, never
 * before the call returned, exactly once, with 0 or -errno. Requests on one
 * block take effect in the order of the calls. */
struct store_req {
	void (*done)(struct store_req *r, int err);
	int64_t units_delta; /* out: change of the inode's allocated units */
	void *priv[12];
};

/* @data: @w->len bytes, borrowed until done (SYNC or not, the store copies or
 * writes what it needs before). Sums were checked by the caller
 * (crc32c_check) and are stored for whole units.
 * -ESTALE cut older than known; -ENOSPC; -EROFS the store stopped. */
void store_write(struct store *s, struct store_req *r,
		 const struct blk_write *w, const void *data);

/* Fills @buf (4096-aligned, rd->len rounded out to units by the caller's
 * buffer: capacity at least that) and sets @sums for the pieces.
 * @hole_ret: nothing stored, buf untouched. -EIO: checksum wrong or disk
 * error. -ESTALE as above. @buf_ret: where the bytes of rd->off begin inside
 * @buf. */
struct store_read_out {
	void *buf;
	uint32_t buf_cap;
	uint8_t *sums; /* 4 bytes a piece */
	bool hole;
	uint32_t data_off; /* bytes into buf */
};
void store_read(struct store *s, struct store_req *r,
		const struct blk_read *rd, struct store_read_out *out);

/* Durable: all that was done'd before, of inode @ino (0: of all). Shares its
 * journal write with everyone waiting. */
void store_sync(struct store *s, struct store_req *r, uint64_t ino);
void store_cut(struct store *s, struct store_req *r, const struct blk_cut *c);
void store_alloc(struct store *s, struct store_req *r,
		 const struct blk_alloc *a);
/* @inos: @count inodes; borrowed until done. Durable when done. */
void store_purge(struct store *s, struct store_req *r, const uint64_t *inos,
		 size_t count);

/* Immediate answers (memory and LMDB's map). Encode the reply's @entries into
 * @o; return count or -errno. */
int store_map(struct store *s, const struct blk_map *m, struct wire_out *o,
	      uint64_t *next);
int store_end(struct store *s, const struct blk_end *e,
	      struct blk_end_reply *r);
int store_list(struct store *s, const struct blk_list *l, struct wire_out *o,
	       bool *done);

/* Reads and verifies every unit at @bytes_per_s; counts in out. */
void store_scrub(struct store *s, struct store_req *r, uint64_t bytes_per_s,
		 uint64_t *units_read, uint64_t *units_bad);

/* Offline verification (hail-blockd --check): journal, index structure,
 * extents that overlap or leave their segment, checksums when @data. Prints
 * findings as lines to @out. Returns number of defects or -errno. */
int store_check(struct dev *d, const struct store_options *o, bool data,
		FILE *out);

#endif
