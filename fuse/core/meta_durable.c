/* What of our stream is durable, and who waits for it.
 *
 * metad counts mutations ("position") and says with each reply up to where
 * they are durable. Positions of one stream ascend with its sequences, so one
 * answered mutation at a durable position settles all before it, also one
 * that is still being answered (a cut waits for the block daemons). A mutation
 * that ended in an error changed nothing: it is forgotten with its answer.
 */
#include "fuse/core/early.h"
#include "fuse/core/meta_priv.h"

#include "common/diag.h"

void meta_note_reply(struct meta_client *m, const struct meta_rhdr *rh)
{
	if (rh->boot_id == m->boot_id)
		m->durable = u64_max(m->durable, rh->durable);
}

/* Largest sequence up to which nothing can be lost any more. */
static uint64_t durable_seq(const struct meta_client *m)
{
	const struct meta_call *first = NULL; /* that can */

	for (const struct meta_call *mc = m->head; mc; mc = mc->next) {
		bool answered = mc->state == META_ANSWERED;
		if (answered && mc->pos <= m->durable)
			first = NULL;
		else if (!first)
			first = mc;
		if (mc->seq > m->answered_seq ||
		    (answered && mc->pos > m->durable))
			break;
	}
	return first ? u64_max(m->durable_seq, first->seq - 1) : m->seq;
}

void meta_kept_remove(struct meta_client *m, struct meta_call *mc,
		      struct meta_call **gone)
{
	if (mc->prev)
		mc->prev->next = mc->next;
	else
		m->head = mc->next;
	if (mc->next)
		mc->next->prev = mc->prev;
	else
		m->tail = mc->prev;
	m->kept_count--;
	m->kept_bytes -= sizeof(*mc) + mc->buf_len;
	mc->next = *gone;
	*gone = mc;
}

static void kept_prune(struct meta_client *m, struct meta_call **gone)
{
	struct meta_call *mc = m->head, *next;
	for (; mc && mc->seq <= m->answered_seq; mc = next) {
		next = mc->next;
		if (mc->state != META_ANSWERED)
			continue;
		if (mc->pos > m->durable)
			break;
		meta_kept_remove(m, mc, gone);
	}
}

void meta_progress(struct meta_client *m, struct meta_call **gone)
{
	struct core_waiter **pw = &m->waiters, *ready = NULL;

	m->durable_seq = durable_seq(m);
	kept_prune(m, gone);
	meta_stream_push(m);
	while (*pw) {
		struct core_waiter *w = *pw;
		if (w->seq > m->durable_seq) {
			pw = &w->next;
			continue;
		}
		*pw = w->next;
		w->next = ready;
		ready = w;
	}
	core_waiters_run(ready, 0);
	meta_sync_kick(m);
}

void meta_waiters_end(struct meta_client *m, int err, uint64_t due_ms)
{
	struct core_waiter **pw = &m->waiters, *ready = NULL;
	while (*pw) {
		struct core_waiter *w = *pw;
		if (due_ms && (!w->due_ms || w->due_ms > due_ms)) {
			pw = &w->next;
			continue;
		}
		*pw = w->next;
		w->next = ready;
		ready = w;
	}
	core_waiters_run(ready, err);
}

bool meta_durable(struct core *c, uint64_t seq, struct core_waiter *w)
{
	struct meta_client *m = c->meta;

	m->durable_seq = durable_seq(m);
	if (!m->fenced && seq <= m->durable_seq)
		return true;
	w->seq = seq;
	w->due_ms = c->opt.timeout_ms ? core_now_ms() + c->opt.timeout_ms : 0;
	w->next = m->waiters;
	m->waiters = w;
	early_kick(c);
	if (m->fenced)
		meta_waiters_end(m, -EIO, 0);
	else
		meta_sync_kick(m);
	return false;
}

/* ---- META_SYNC: shared by all who wait ---- */

static void sync_replied(struct rpc_call *rc, int status,
			 const struct rpc_frame *f)
{
	struct meta_sync_call *s = container_of(rc, struct meta_sync_call, rpc);
	struct meta_client *m = s->m;
	struct meta_call *gone = NULL;
	struct meta_rhdr rh;

	core_lock(m->c);
	s->busy = false;
	if (f && status == 0 &&
	    meta_rhdr_parse(f->body, f->h.body_len, &rh) == 0) {
		meta_note_reply(m, &rh);
		meta_progress(m, &gone);
	} else if (f) {
		diag_warn("meta", "event=sync_failed error=\"%s\"",
			  strerror(-status));
		if (status != -ESTALE)
			meta_waiters_end(m, -EIO, 0);
	}
	/* Without an answer the connection broke: meta_up() asks again. */
	core_unlock(m->c);
	meta_calls_free(gone);
	if (f && status == -ESTALE)
		meta_suspect(m->c);
}

void meta_note_answer(struct meta_client *m, const struct meta_call *mc)
{
	m->answered_seq = u64_max(m->answered_seq, mc->seq);
	if (mc->seq >= m->ok_seq) {
		m->ok_seq = mc->seq;
		m->ok_pos = mc->pos;
	}
}

/* The position that settles all that has an answer, if somebody waits for
 * that; else 0. Everything up to it has been executed and goes into one
 * commit, so asking for less would not be faster. */
static uint64_t sync_target(const struct meta_client *m)
{
	bool wanted = m->local != NULL;
	if (m->ok_pos <= m->durable)
		return 0;
	for (const struct core_waiter *w = m->waiters; w && !wanted;
	     w = w->next)
		wanted = w->seq <= m->ok_seq;
	return wanted ? m->ok_pos : 0;
}

void meta_sync_kick(struct meta_client *m)
{
	struct meta_sync_call *s = NULL;
	struct wire_out o;
	uint64_t target;

	if (!m->up || m->fenced || (!m->waiters && !m->local))
		return;
	target = sync_target(m);
	if (target == 0)
		return;
	for (unsigned i = 0; i < META_SYNC_COUNT_MAX; i++) {
		/* one for an earlier metad's positions may never be answered */
		if (m->sync[i].busy && m->sync[i].boot_id == m->boot_id &&
		    m->sync[i].target >= target)
			return;
		if (!m->sync[i].busy)
			s = &m->sync[i];
	}
	if (!s)
		return;
	s->busy = true;
	s->target = target;
	s->boot_id = m->boot_id;
	m->count.syncs++;
	wire_out_init(&o, s->body, sizeof(s->body));
	wire_put_u64(&o, target);
	memset(&s->rpc, 0, sizeof(s->rpc));
	s->rpc.opcode = WIRE_OP_META_SYNC;
	s->rpc.body = s->body;
	s->rpc.body_len = (uint32_t)o.len;
	s->rpc.cb = sync_replied;
	rpc_queue(m->peer, &s->rpc);
	core_kick_later(m->c, m->peer);
}
