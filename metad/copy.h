/* A continuous copy of the metadata in a directory of another disk, by which
 * the loss of metad's own disk is not the loss of everything.
 *
 * A generation G is "base-G", a state as of `hailctl metad backup`, and
 * "log-G", the batches that came after it, each as COPY_MAGIC, u32 length, u32
 * CRC32C, bytes (metad/raft.h). It begins at a start, when the log has become
 * longer than the base (and 64 MiB), and after an error; the ones before are
 * removed once it is whole. The copy follows within moments and nobody waits
 * for it: what it misses is the end.
 *
 * What is in it is durable in metad's own log: it is a state that there was.
 *
 * A thread writes; everything else runs on the loop's.
 */
#ifndef METAD_COPY_H
#define METAD_COPY_H

#include <stdio.h>

#include "metad/raft.h"

#define COPY_MAGIC 0x474c4348u /* "HCLG" */

struct copy;

struct copy_options {
	uv_loop_t *loop;
	struct metaraft *raft;
	struct sm *sm;
	const char *path; /* a directory that no other copy uses; borrowed */
	uint64_t cluster_id;
	/* May a generation begin, and take the place of the last one? Not
	 * before it is sure that this state is the newest there is. */
	bool (*may_begin)(void *arg);
	void *arg;
};
/* Returns 0 or -errno with a sentence in @why (-EXDEV: another cluster's copy
 * is there). */
int copy_new(const struct copy_options *o, struct copy **ret, char *why,
	     size_t why_size);
/* The next batch, in order. It is copied once it is durable: a crash may take
 * it back before, and what comes then in its place is another. Never fails:
 * without memory, or far behind, it begins anew. NULL: no-op. */
void copy_batch(struct copy *c, const void *buf, size_t len);
/* Batches up to number @batch are durable. NULL: no-op. */
void copy_durable(struct copy *c, uint64_t batch);
/* Writes what it was given, for some seconds at most, and ends; the loop must
 * run once more after it. False: a write hangs, and the thread goes on with
 * what it uses, the state machine too, which must stay then. NULL: no-op. */
bool copy_free(struct copy *c) must_check;
/* "ok", "beginning" or what is wrong; for people, into @buf. */
const char *copy_state(struct copy *c, char *buf, size_t size);

/* Executes the log @f, of name @path, of the base that is in @sm; a torn end is
 * left out. Returns 0 or -errno with a sentence in @why. */
int copy_read_log(struct sm *sm, FILE *f, const char *path, char *why,
		  size_t why_size);
/* Largest G of a whole base in @path; 0: none, -errno. */
int64_t copy_newest(const char *path);

#endif
