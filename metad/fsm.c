/* libraft's view of the state machine: entries to execute, snapshots.
 *
 * Commands are executed before they are committed (raft.h). So when libraft
 * counts a snapshot as of entry i, the state already has later batches, and
 * says so by sm_batch(): replay skips them. They are in the snapshot or in the
 * log or in both, and never needed twice. The open batch is sealed first, for
 * half a batch could not be told from a whole one. In a group a batch may never
 * be committed: the snapshot is of it, but is written only when it is.
 */
#include "metad/raft_priv.h"

#include <sys/mman.h>

#include "common/diag.h"
#include "common/stats.h"

#define CHUNK_BYTES ((size_t)4 << 20)

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *buf,
		     void **result)
{
	struct metaraft *m = fsm->data;
	int rv;

	*result = NULL;
	/* Its state has what may never be committed, and is done with. */
	if (m->deposed)
		return 0;
	if (m->load_error)
		return RAFT_MALFORMED;
	rv = metaraft_batch_apply(m->sm, buf->base, buf->len);
	if (!m->leads)
		m->stats.log_bytes += buf->len;
	if (rv < 0) {
		m->load_error = rv;
		return RAFT_MALFORMED;
	}
	if (m->running && !m->leads) {
		metaraft_committed(m, sm_batch(m->sm));
		m->ops->applied(m->arg, sm_batch(m->sm));
		metaraft_snapshot_check(m);
	}
	return 0;
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
	struct metaraft *m = fsm->data;
	int rv = m->deposed ? 0 : sm_restore(m->sm, buf->base, buf->len);

	if (rv < 0) {
		m->load_error = rv;
		return RAFT_CORRUPT;
	}
	m->snapshot_last = buf->len;
	raft_free(buf->base);
	if (m->running) {
		metaraft_committed(m, sm_batch(m->sm));
		diag_info("raft", "event=snapshot-received bytes=%llu",
			  (unsigned long long)m->snapshot_last);
	}
	return 0;
}

/* On the loop, between two commands. */
static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[],
			unsigned *n_bufs)
{
	struct metaraft *m = fsm->data;

	raft_set_snapshot_threshold(&m->raft, METARAFT_THRESHOLD_NEVER);
	if (m->deposed)
		return RAFT_BUSY;
	if (m->leads)
		metaraft_seal(m);
	m->job.batch = sm_batch(m->sm);
	m->job.snap = sm_snap_begin(m->sm);
	if (!m->job.snap)
		return RAFT_BUSY;
	m->job.index = m->raft.last_applied;
	m->job.size = sm_snap_size(m->job.snap);
	m->job.log_bytes = m->stats.log_bytes;
	m->job.start_ns = uv_hrtime();
	*bufs = NULL;
	*n_bufs = 0;
	return 0;
}

static void bufs_free(struct raft_buffer *bufs, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		(void)munmap(bufs[i].base, CHUNK_BYTES);
	raft_free(bufs);
}

/* On a thread of libuv's pool. The chunks are mapped, so that their memory goes
 * back at once. */
static int fsm_snapshot_async(struct raft_fsm *fsm, struct raft_buffer *ret[],
			      unsigned *n_ret)
{
	struct metaraft *m = fsm->data;
	size_t count = 0, max = (size_t)(m->job.size / CHUNK_BYTES) + 1;
	struct raft_buffer *bufs = raft_calloc(max, sizeof(*bufs));

	if (!bufs)
		return RAFT_NOMEM;
	if (!metaraft_await(m, m->job.batch)) {
		raft_free(bufs);
		return RAFT_CANCELED;
	}
	for (;;) {
		size_t len = 0, got;
		uint8_t *p;

		p = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED) {
			bufs_free(bufs, count);
			return RAFT_NOMEM;
		}
		while (len < CHUNK_BYTES &&
		       (got = sm_snap_next(m->job.snap, p + len,
					   CHUNK_BYTES - len)) > 0)
			len += got;
		if (len == 0) {
			(void)munmap(p, CHUNK_BYTES);
			break;
		}
		assert(count < max);
		bufs[count].base = p;
		bufs[count].len = len;
		count++;
	}
	*ret = bufs;
	*n_ret = (unsigned)count;
	return 0;
}

/* On the loop; libraft has shortened its log when it was written. */
static int fsm_snapshot_finalize(struct raft_fsm *fsm,
				 struct raft_buffer *bufs[], unsigned *n_bufs)
{
	struct metaraft *m = fsm->data;
	uint64_t ms = (uv_hrtime() - m->job.start_ns) / 1000000;

	if (*bufs)
		bufs_free(*bufs, *n_bufs);
	*bufs = NULL;
	*n_bufs = 0;
	if (!m->job.snap)
		return 0;
	sm_snap_end(m->sm, m->job.snap);
	m->job.snap = NULL;
	metaraft_trim(m);
	if (m->raft.log.snapshot.last_index >= m->job.index) {
		m->stats.log_bytes -= m->job.log_bytes;
		m->snapshot_last = m->job.size;
		m->snapshot_retry = 0;
		stats_count(&m->stats.snapshots, 1);
		m->stats.snapshot_last_bytes = m->job.size;
		m->stats.snapshot_last_ms = ms;
		diag_info("raft", "event=snapshot bytes=%llu ms=%llu",
			  (unsigned long long)m->job.size,
			  (unsigned long long)ms);
	} else if (!m->closing) {
		/* The log still has everything. */
		const char *why = m->raft.errmsg;

		/* libraft keeps the reason of a failed write to itself. */
		if (metaraft_disk_full(m))
			why = "the disk is full: make room";
		else if (!why[0])
			why = m->io.errmsg[0] ? m->io.errmsg :
						"it cannot be written";
		stats_count(&m->stats.snapshots_failed, 1);
		m->snapshot_retry = m->stats.log_bytes + m->snapshot_bytes / 4;
		diag_warn("raft", "event=snapshot-failed dir=%s error=\"%s\"",
			  m->dir, why);
	}
	return 0;
}

void metaraft_snapshot_check(struct metaraft *m)
{
	uint64_t due = u64_max(m->snapshot_bytes, m->snapshot_last);

	if (m->job.snap || m->raft.snapshot.pending.term != 0)
		return;
	due = u64_max(due, m->snapshot_retry);
	if (!m->snapshot_soon && m->stats.log_bytes < due)
		return;
	m->snapshot_soon = false;
	/* libraft looks at it when it is through with the entry that we are
	 * being told about. */
	raft_set_snapshot_threshold(&m->raft, 1);
}

void metaraft_snapshot_soon(struct metaraft *m)
{
	m->snapshot_soon = true;
}

void metaraft_fsm_init(struct metaraft *m)
{
	m->fsm.version = 3;
	m->fsm.data = m;
	m->fsm.apply = fsm_apply;
	m->fsm.restore = fsm_restore;
	m->fsm.snapshot = fsm_snapshot;
	m->fsm.snapshot_async = fsm_snapshot_async;
	m->fsm.snapshot_finalize = fsm_snapshot_finalize;
}
