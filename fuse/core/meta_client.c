/* Requests to metad: queries, and the session's ordered stream of mutations.
 *
 * A mutation gets its sequence when it is queued (under the core's lock, so
 * that the stream's order is the order of decisions) and stays in the list
 * until metad says that its position is durable. When the connection breaks,
 * those without an answer go out again, first and in order, on the next; when
 * metad itself has restarted (another boot id) the answered ones too, because
 * metad may have lost them. metad answers what it already has from the
 * session's kept replies, so nothing is executed twice.
 */
#include "fuse/core/early.h"
#include "fuse/core/meta_priv.h"
#include "fuse/core/share.h"

#include "common/diag.h"

struct meta_call *meta_call_new(struct core *c, uint16_t op, size_t body_cap,
				struct wire_out *o)
{
	size_t prefix = meta_is_mutation(op) ? META_MHDR_LEN : 0;
	struct meta_call *mc = malloc(sizeof(*mc) + prefix + body_cap);
	if (!mc)
		return NULL;
	memset(mc, 0, sizeof(*mc));
	mc->c = c;
	mc->op = op;
	mc->buf = (uint8_t *)(mc + 1);
	mc->buf_len = (uint32_t)prefix;
	wire_out_init(o, mc->buf + prefix, body_cap);
	return mc;
}

void meta_call_free(struct meta_call *mc)
{
	free(mc);
}

void meta_calls_free(struct meta_call *list)
{
	while (list) {
		struct meta_call *next = list->next;
		free(list);
		list = next;
	}
}

/* ---- ends ---- */

static void call_end_deferred(struct core_deferred *d)
{
	struct meta_call *mc = container_of(d, struct meta_call, def);
	bool dead = mc->state == META_DEAD;
	mc->done(mc, -EIO, NULL, 0);
	if (dead)
		free(mc);
}

/* The user hears -EIO; the call itself stays where it is. Lock held. */
static void call_tell_eio(struct meta_call *mc)
{
	if (mc->told)
		return;
	mc->told = true;
	mc->def.fn = call_end_deferred;
	core_defer(mc->c, &mc->def);
}

static void query_unlink(struct meta_client *m, struct meta_call *mc)
{
	if (mc->prev)
		mc->prev->next = mc->next;
	else
		m->queries = mc->next;
	if (mc->next)
		mc->next->prev = mc->prev;
}

static void query_replied(struct meta_call *mc, int status,
			  const uint8_t *body, uint32_t len)
{
	struct core *c = mc->c;
	bool tell;

	core_lock(c);
	query_unlink(c->meta, mc);
	tell = !mc->told;
	mc->told = true;
	core_unlock(c);
	if (tell)
		mc->done(mc, status, body, len);
	free(mc);
}

/* A replay after metad's restart must end as the first execution did, or what
 * users were told is not true any more. */
static void replay_compare(struct meta_client *m, struct meta_call *mc,
			   int status, uint64_t ino)
{
	if (mc->status == status && mc->reply_ino == ino)
		return;
	m->count.differ++;
	diag_err("meta",
		 "event=replay_differs op=%u seq=%llu status=%d was=%d "
		 "ino=%llu was_ino=%llu",
		 mc->op, (unsigned long long)mc->seq, status, mc->status,
		 (unsigned long long)ino, (unsigned long long)mc->reply_ino);
}

static void mutation_replied(struct meta_call *mc, int status,
			     const struct meta_rhdr *rh, const uint8_t *body,
			     uint32_t len)
{
	struct core *c = mc->c;
	struct meta_client *m = c->meta;
	struct meta_call *gone = NULL;
	uint64_t ino = 0;
	bool first;

	if (mc->op == WIRE_OP_META_CREATE && status == 0) {
		struct wire_in in;
		wire_in_init(&in, body, len);
		ino = wire_get_u64(&in);
	}
	core_lock(c);
	first = !mc->told;
	mc->told = true;
	mc->pos = status == 0 ? rh->pos : 0;
	core_unlock(c);
	if (first)
		mc->done(mc, status, body, len);

	core_lock(c);
	if (!first && mc->answered) {
		m->count.replays++;
		replay_compare(m, mc, status, ino);
	}
	mc->answered = true;
	mc->state = META_ANSWERED;
	mc->status = status;
	mc->reply_ino = ino;
	if (status) {
		meta_kept_remove(m, mc, &gone);
	} else {
		meta_note_reply(m, rh);
		/* answered when durable, with a position of much later */
		if (mc->op == WIRE_OP_META_CUT)
			mc->pos = u64_min(mc->pos, m->durable);
		meta_note_answer(m, mc);
	}
	meta_progress(m, &gone);
	core_unlock(c);
	meta_calls_free(gone);
}

/* The connection broke under it. The list keeps it; meta_up() goes on. */
static void mutation_reset(struct meta_call *mc)
{
	struct core *c = mc->c;
	core_lock(c);
	mc->state = META_RESET;
	if (c->meta->fenced)
		call_tell_eio(mc);
	core_unlock(c);
}

static void call_replied(struct rpc_call *rc, int status,
			 const struct rpc_frame *f)
{
	struct meta_call *mc = container_of(rc, struct meta_call, rpc);
	struct meta_rhdr rh = { 0 };
	struct wire_in in = { 0 };

	if (!f && status == -ECONNRESET && mc->seq) {
		mutation_reset(mc);
		return;
	}
	if (f && status == 0) {
		wire_in_init(&in, f->body, f->h.body_len);
		meta_rhdr_decode(&in, &rh);
		if (in.bad)
			status = -EIO;
	} else if (f && status == -ESTALE) {
		meta_suspect(mc->c);
	} else if (!f && status == -ECANCELED) {
		status = -EIO;
	}
	if (mc->seq)
		mutation_replied(mc, status, &rh, in.p, (uint32_t)in.len);
	else
		query_replied(mc, status, in.p, (uint32_t)in.len);
}

/* ---- sending ---- */

static void call_send(struct meta_client *m, struct meta_call *mc)
{
	mc->rpc.opcode = mc->op;
	mc->rpc.body = mc->buf;
	mc->rpc.body_len = mc->buf_len;
	mc->rpc.cb = call_replied;
	rpc_queue(m->peer, &mc->rpc);
	if (!early_may_wait(mc))
		core_kick_later(m->c, m->peer);
}

static bool window_open(const struct meta_client *m, const struct meta_call *mc)
{
	return mc->seq - m->head->seq < SESSION_WINDOW_MAX &&
	       (mc == m->head || m->kept_bytes <= META_KEPT_BYTES_MAX);
}

void meta_stream_push(struct meta_client *m)
{
	while (m->local && !m->fenced) {
		struct meta_call *mc = m->local;
		if (!window_open(m, mc)) {
			m->count.window_full++;
			break;
		}
		m->local = mc->next;
		m->kept_bytes += sizeof(*mc) + mc->buf_len;
		struct meta_mhdr h = {
			.seq = mc->seq,
			.seq_low = m->head->seq,
			.now_ns = mc->now_ns,
		};
		struct wire_out o;
		wire_out_init(&o, mc->buf, META_MHDR_LEN);
		meta_mhdr_encode(&o, &h);
		mc->state = META_SENT;
		call_send(m, mc);
	}
	/* what stands in the way must become durable, or be answered */
	if (m->local)
		meta_sync_kick(m);
}

static void mutation_queue(struct meta_client *m, struct meta_call *mc)
{
	mc->seq = ++m->seq;
	mc->state = META_LOCAL;
	mc->now_ns = core_now_ns();
	mc->prev = m->tail;
	mc->next = NULL;
	if (m->tail)
		m->tail->next = mc;
	else
		m->head = mc;
	m->tail = mc;
	if (!m->local)
		m->local = mc;
	m->kept_count++;
	m->count.mutations++;
	m->count.kept_max = u64_max(m->count.kept_max, m->kept_count);
	meta_stream_push(m);
}

void meta_call_queue(struct meta_call *mc, struct wire_out *o)
{
	struct core *c = mc->c;
	struct meta_client *m = c->meta;

	assert(!o->overflow);
	mc->buf_len += (uint32_t)o->len;
	early_queued(mc);
	if (m->fenced || m->closed || !m->peer) {
		mc->state = META_DEAD;
		if (meta_is_mutation(mc->op))
			mc->seq = m->seq; /* durable as what was before */
		call_tell_eio(mc);
		return;
	}
	if (c->opt.timeout_ms)
		mc->due_ms = core_now_ms() + c->opt.timeout_ms;
	if (meta_is_mutation(mc->op)) {
		mutation_queue(m, mc);
		return;
	}
	mc->state = META_QUERY;
	mc->after = m->seq;
	mc->rpc.flags = RPC_F_RETRY;
	mc->rpc.timeout_ms = mc->patient ? 0 : c->opt.timeout_ms;
	mc->prev = NULL;
	mc->next = m->queries;
	if (m->queries)
		m->queries->prev = mc;
	m->queries = mc;
	m->count.queries++;
	call_send(m, mc);
}

uint64_t meta_last_seq(struct core *c)
{
	return c->meta->seq;
}

/* ---- the connection ---- */

/* Runs before anything else is sent over the new connection. */
void meta_up(struct rpc_peer *p, const struct hello_reply *hr, void *arg)
{
	struct core *c = arg;
	struct meta_client *m = c->meta;

	core_lock(c);
	bool boot = m->boot_id != 0 && m->boot_id != hr->boot_id;
	m->up = true;
	m->count.connects++;
	m->boot_id = hr->boot_id;
	if (boot) {
		/* its count of positions may have gone back */
		m->durable = 0;
		m->ok_seq = m->ok_pos = 0;
		m->count.boots++;
	}
	for (struct meta_call *mc = m->head; mc && mc != m->local;
	     mc = mc->next) {
		if (mc->state == META_SENT ||
		    (mc->state == META_ANSWERED && !boot))
			continue;
		mc->state = META_SENT;
		mc->pos = 0;
		m->count.resent++;
		mc->rpc.flags |= RPC_F_RESENT;
		rpc_send_first(p, &mc->rpc);
	}
	/* Waiters with everything answered hear nothing by themselves. */
	meta_sync_kick(m);
	core_unlock(c);
	if (boot)
		diag_info("meta", "event=metad_restarted boot=%llx",
			  (unsigned long long)hr->boot_id);
}

void meta_down(struct rpc_peer *p, int err, void *arg)
{
	struct core *c = arg;
	core_lock(c);
	if (c->meta->up && !c->meta->resetting)
		diag_warn("meta", "event=metad_lost error=\"%s\"",
			  strerror(-err));
	if (!c->meta->resetting)
		c->meta->down_err = err;
	c->meta->up = false;
	c->meta->resetting = false;
	if (err == -ESTALE && c->meta->closing)
		c->meta->gone = true;
	if (err == -ESTALE && c->meta->session && !c->meta->closing)
		meta_fence(c->meta, "refused at HELLO");
	/* It will not change its mind. */
	if (c->meta->fenced)
		rpc_peer_rest(p, META_FENCED_REST_MS);
	core_unlock(c);
}

/* ---- fence and soft time-outs ---- */

void meta_fence(struct meta_client *m, const char *why)
{
	if (m->fenced)
		return;
	m->fenced = true;
	diag_err("meta",
		 "event=fenced session=%llu mount=%s why=\"%s\" "
		 "next=\"unmount and mount again\"",
		 (unsigned long long)m->session, m->c->opt.mountpoint, why);
	for (struct meta_call *mc = m->head; mc; mc = mc->next)
		call_tell_eio(mc);
	for (struct meta_call *mc = m->queries; mc; mc = mc->next)
		call_tell_eio(mc);
	meta_waiters_end(m, -EIO, 0);
	blk_client_fence(m->c);
	inode_invalidate_all(m->c);
	share_fence(m->c);
}

bool meta_fenced(struct core *c)
{
	return c->meta->fenced;
}

static void call_timed_out(struct core_deferred *d)
{
	struct meta_call *mc = container_of(d, struct meta_call, def);
	mc->timed_out(mc);
}

void meta_expire(struct meta_client *m, uint64_t now_ms)
{
	for (struct meta_call *mc = m->head; mc; mc = mc->next) {
		if (mc->told || mc->timed || !mc->timed_out || !mc->due_ms ||
		    mc->due_ms > now_ms)
			continue;
		mc->timed = true;
		m->count.timeouts++;
		mc->def.fn = call_timed_out;
		core_defer(m->c, &mc->def);
	}
	meta_waiters_end(m, -ETIMEDOUT, now_ms);
}

/* ---- life ---- */

int meta_client_new(struct core *c, struct meta_client **ret)
{
	struct meta_client *m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->c = c;
	m->ops.up = meta_up;
	m->ops.down = meta_down;
	m->ops.epoch = meta_epoch;
	m->keepalive_ms = 1000;
	for (unsigned i = 0; i < META_SYNC_COUNT_MAX; i++)
		m->sync[i].m = m;
	*ret = m;
	return 0;
}

void meta_client_cancel(struct meta_client *m)
{
	core_lock(m->c);
	m->closing = true;
	m->closed = true;
	/* LOCAL and RESET ones: the net did not have them */
	for (struct meta_call *mc = m->head; mc; mc = mc->next)
		call_tell_eio(mc);
	meta_waiters_end(m, -EIO, 0);
	core_unlock(m->c);
}

void meta_client_free(struct meta_client *m)
{
	if (!m)
		return;
	meta_calls_free(m->head);
	assert(!m->queries);
	free(m->keepalive_body);
	free(m);
}
