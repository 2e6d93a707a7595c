/* The writer of one log: which bytes are where, what may be acknowledged, and
 * what is to be done next. [pure] No clock, no I/O, no lock: the owner tells
 * events and asks, after any of them, for the next actions of each peer, until
 * there is none: log_writer_free_next(), _alloc_next(), _post_next(), in this
 * order (what is not needed goes before what is new).
 *
 * Positions are (region, offset) in one stream of records (common/log_rec.h);
 * each peer holds a prefix of it and acknowledges prefixes. A record is
 * committed when a majority of the published list has acknowledged it, and
 * while a peer is being replaced, a majority of the list as it will be, too.
 * Committed never goes back.
 *
 * A peer that was down and comes back with the boot id it is listed with has
 * what it acknowledged: it is sent the rest, what was in flight first and in
 * the same portions, since it may have that already. Any other has nothing,
 * and has failed: it counts for no acknowledgement until it is replaced.
 *
 * Recovery takes the longest log that a majority shows. So a peer that shows
 * the end of what is committed goes on doing so: what is not committed is not
 * trimmed; the last region with a record is not trimmed; at a peer a region is
 * freed when a record in a later one is acknowledged there, or when the peer
 * was behind what is trimmed and starts again with the first region alive.
 */
#ifndef FUSE_CORE_LOG_WRITER_H
#define FUSE_CORE_LOG_WRITER_H

#include "common/log_rec.h"

#define LOG_WRITER_PEER_MAX (LOG_PEER_COUNT_MAX + 1u) /* one is replaced */
/* Posts of one peer in flight: one on the way, one behind it. What is appended
 * meanwhile goes along with the next. */
#define LOG_WRITER_POST_MAX 2u
/* A post carries so many bytes of records at most, or one record. */
#define LOG_WRITER_POST_BYTES (1u << 20)
/* Records behind a slot: with so many bytes of them there is a new one. */
#define LOG_WRITER_SLOT_BYTES (64u << 10)

enum log_peer_state {
	LOG_PEER_UNUSED = 0,
	LOG_PEER_DOWN, /* not connected (yet) */
	LOG_PEER_UP,
	LOG_PEER_FAILED, /* nothing of it counts any more */
};

struct log_region_mirror {
	uint8_t *base; /* 1 << log2 bytes, the caller's */
	uint32_t index;
	uint32_t end; /* records reach to here */
	uint64_t seq_first, seq_last; /* seq_last < seq_first: empty */
	uint64_t length_first; /* of the file before its first record */
};

/* A position in the stream: behind record @seq, at offset @off of region
 * @index, where the file has @length bytes. The newest slot of the region is
 * @slot, and tells of records up to @slot_end. */
struct log_pos {
	uint32_t index, off;
	uint64_t seq, length;
	uint32_t slot, slot_end;
};

struct log_writer_peer {
	enum log_peer_state state;
	bool in_old, in_new; /* lists it is on */
	uint32_t id;
	uint64_t boot_id;
	uint32_t alloc_next; /* regions below are lent there */
	bool alloc_busy; /* one is being asked for */
	struct log_pos acked; /* seq 0: it shows nothing of the stream */
	/* Behind what was posted last; goes back to what was acknowledged when
	 * the connection breaks. */
	struct log_pos sent;
	/* The ends of posts: of those in flight, then of those that were and
	 * are to be repeated. */
	struct log_pos posts[LOG_WRITER_POST_MAX];
	uint32_t post_count, again_count;
	uint32_t freed_below; /* it was told to free these, since it is up */
};

struct log_writer {
	uint64_t cluster_id, ino, epoch;
	uint32_t version; /* of the published list */
	uint8_t log2;
	uint8_t peer_count; /* of a list: 2f+1 where so many are there */
	bool sealed;
	bool replacing;
	uint64_t seq; /* last appended */
	uint64_t length; /* of the file after it */
	uint64_t committed;
	uint32_t region_first; /* regions[0].index */
	uint32_t region_count, region_cap;
	struct log_region_mirror *regions;
	struct log_writer_peer peers[LOG_WRITER_PEER_MAX];
};

/* One write to a peer: first the records, then the slot, if that is due. Where
 * the peer itself puts it in place it is sent always. */
struct log_post {
	uint32_t peer; /* index in peers */
	uint32_t index; /* region */
	uint32_t off, len; /* of the records in it; data: in the mirror */
	const uint8_t *data;
	bool slot_due;
	uint32_t slot_off;
	uint8_t slot[LOG_SLOT_SIZE];
	uint64_t seq; /* last record in it */
	uint64_t length; /* of the file after it */
};

/* ---- life ---- */
/* A new log with an empty stream: @peer_count peers, all DOWN. @length:
 * the file's now. */
struct log_writer_peer_id {
	uint32_t id;
	uint64_t boot_id;
};
void log_writer_init(struct log_writer *w, uint64_t cluster_id, uint64_t ino,
		     uint64_t epoch, uint32_t version, uint8_t log2,
		     const struct log_writer_peer_id *peers, uint8_t peer_count,
		     uint64_t length);
/* Frees what it has itself; the mirrors' memory is the caller's. */
void log_writer_fini(struct log_writer *w);

/* ---- the stream ---- */
/* Shall the caller give the mirror of another region? When there is none, or
 * the last is half full, and it may have one more. */
bool log_writer_region_wanted(const struct log_writer *w);
/* @base: zeroed, 1 << log2 bytes, until log_writer_trim() gives it back.
 * 0, -ENOMEM, -ENOSPC (LOG_REGION_COUNT_MAX). */
int log_writer_region_add(struct log_writer *w, uint8_t *base);
/* Appends; r->seq is set here. Never splits. Returns 0; -ENOSPC: no region has
 * room (add one); -EMSGSIZE: larger than a region takes; -EIO: sealed. */
int log_writer_append(struct log_writer *w, struct log_rec *r);
/* How much data a WRITE record may have now to fit in without another region;
 * 0: none, or sealed. */
uint32_t log_writer_room(const struct log_writer *w);
/* Records up to @seq, as far as they are committed, are durable elsewhere.
 * Gives back the mirrors of regions that hold none but such, are not the last
 * that has any, and are not being sent from: one a call; NULL: no more now (ask
 * again after acknowledgements). */
uint8_t *log_writer_trim(struct log_writer *w, uint64_t seq);
/* No more appends and no more posts; committed stays as it is, whoever
 * acknowledges. */
void log_writer_seal(struct log_writer *w);

/* ---- peers: what happened ---- */
/* -ENOENT: not one of them. While one is being replaced by a newer boot of
 * itself: the newer. */
int log_writer_find(const struct log_writer *w, uint32_t id);
/* Connected. With another boot id it has failed. */
void log_writer_up(struct log_writer *w, uint32_t peer, uint64_t boot_id);
/* The connection is gone, with all in flight. */
void log_writer_down(struct log_writer *w, uint32_t peer);
/* It has refused, lost or given up what it had. For good. */
void log_writer_fail(struct log_writer *w, uint32_t peer);
/* @err: it is asked for again, unless log_writer_fail() is said first. */
void log_writer_alloc_done(struct log_writer *w, uint32_t peer, uint32_t index,
			   int err);
/* The oldest post in flight of that peer is complete. Not after
 * log_writer_down(), _fail(): those have forgotten it. */
void log_writer_acked(struct log_writer *w, const struct log_post *p);

/* ---- peers: what is to be done ---- */
/* The region to ask this peer for. True: it counts as asked for. */
bool log_writer_alloc_next(struct log_writer *w, uint32_t peer,
			   uint32_t *index);
/* The next post. True: it counts as in flight. */
bool log_writer_post_next(struct log_writer *w, uint32_t peer,
			  struct log_post *p);
/* Is there a majority without it whose acknowledgements reach as far? Of equal
 * peers those of the higher indices are spare. Not while one is replaced. */
bool log_writer_spare(const struct log_writer *w, uint32_t peer);
/* Bytes of records that it has not been sent, if they are in the region it is
 * in; UINT32_MAX: there are more. */
uint32_t log_writer_behind(const struct log_writer *w, uint32_t peer);
/* Has it regions that it can free? True: it counts as told. */
bool log_writer_free_next(struct log_writer *w, uint32_t peer, uint32_t *below);
/* Could records be committed with those that are connected now? */
bool log_writer_majority(const struct log_writer *w);

/* ---- replacing one ---- */
/* The peer @victim of the list shall become @with, which may be @victim with
 * another boot id (then the old one has failed). Returns the index of the new
 * one (DOWN); -EBUSY: one is being replaced; -EEXIST: it is on the list; -EIO:
 * sealed. */
int log_writer_replace(struct log_writer *w, uint32_t victim,
		       struct log_writer_peer_id with);
/* Has the new one all that is committed? Then the new list may be published. */
bool log_writer_replace_ready(const struct log_writer *w);
/* The list as it will be: peer_count entries. */
void log_writer_list_new(const struct log_writer *w,
			 struct log_writer_peer_id *ids);
/* The outcome of the publication (@version: of the new list), or, before any
 * was tried, @published false: given up. Until it is known both lists count.
 * The index of the one that went is free after this. */
void log_writer_replace_end(struct log_writer *w, bool published,
			    uint32_t version);

/* ---- a log that was read ---- */
/* A recovery gives the others what they lack of the log it has chosen, under
 * the epoch in which they are fenced: a writer of the log's own epoch is loaded
 * with its regions, in order, and then with the positions of the peers that
 * have confirmed. When all of it is committed it may be applied. Peers that
 * have not confirmed are left alone; those that have are told
 * log_writer_up().
 *
 * @base: of a region that has records, up to @end. @length_first: the slots'.
 * 0; -EBADMSG: a record is damaged, or is not the next; -ENOMEM, -ENOSPC. */
int log_writer_load_region(struct log_writer *w, uint8_t *base, uint32_t index,
			   uint32_t end, uint64_t length_first) must_check;
/* @at: behind the last record that it shows, in the slot that says so. Not for
 * one that shows none. */
void log_writer_load_peer(struct log_writer *w, uint32_t peer,
			  const struct log_pos *at);

#endif
