/* The mini block daemon: what a test does to it and asks. */
#include "tests/lib/mini_blockd_priv.h"

uint16_t mini_blockd_port(struct mini_blockd *b)
{
	return b->s.port;
}

/* ---- faults ---- */

static void reborn(struct mini_blockd *b, bool lose)
{
	b->boot_id += 1000;
	mb_late_forget(b);
	if (lose)
		mb_each(b, 0, mb_lose);
}

void mini_blockd_restart(struct mini_blockd *b, bool lose)
{
	mini_serve_lock(&b->s);
	mini_conns_close(&b->s);
	reborn(b, lose);
	mini_serve_kick(&b->s);
}

void mini_blockd_down(struct mini_blockd *b)
{
	mini_serve_lock(&b->s);
	mini_conns_close(&b->s);
	mini_serve_down(&b->s);
	mini_serve_kick(&b->s);
}

void mini_blockd_up(struct mini_blockd *b, bool lose)
{
	mini_serve_lock(&b->s);
	reborn(b, lose);
	mini_serve_up(&b->s);
	mini_serve_kick(&b->s);
}

void mini_blockd_move(struct mini_blockd *b)
{
	mini_blockd_down(b);
	mini_serve_lock(&b->s);
	b->s.port = 0;
	mini_serve_unlock(&b->s);
	mini_blockd_up(b, true);
}

void mini_blockd_drop(struct mini_blockd *b)
{
	mini_serve_lock(&b->s);
	mb_late_run(b);
	mini_conns_close(&b->s);
	mini_serve_kick(&b->s);
}

void mini_blockd_drop_late(struct mini_blockd *b)
{
	mini_serve_lock(&b->s);
	for (struct mb_pend *p = b->pend; p; p = p->next)
		p->late |= p->f && mini_conn_find(&b->s, p->conn_id);
	mini_conns_close(&b->s);
	mini_serve_kick(&b->s);
}

void mini_blockd_hold(struct mini_blockd *b, uint16_t op, bool hold)
{
	mini_serve_lock(&b->s);
	b->hold_op = op;
	b->hold = hold;
	mini_serve_kick(&b->s);
}

void mini_blockd_hold_replies(struct mini_blockd *b, uint16_t op, bool hold)
{
	mini_serve_lock(&b->s);
	b->hold_reply_op = op;
	b->hold_replies = hold;
	mini_serve_kick(&b->s);
}

void mini_blockd_lose_replies(struct mini_blockd *b, uint16_t op, int count)
{
	mini_serve_lock(&b->s);
	b->lose_op = op;
	b->lose_count = count;
	mini_serve_unlock(&b->s);
}

void mini_blockd_fail(struct mini_blockd *b, uint16_t op, int err, int count)
{
	mini_serve_lock(&b->s);
	b->fail_op = op;
	b->fail_err = err;
	b->fail_count = count;
	mini_serve_unlock(&b->s);
}

void mini_blockd_corrupt(struct mini_blockd *b, int count)
{
	mini_serve_lock(&b->s);
	b->corrupt_count = count;
	mini_serve_unlock(&b->s);
}

void mini_blockd_set_free(struct mini_blockd *b, uint64_t units)
{
	mini_serve_lock(&b->s);
	b->free_units = units;
	mini_serve_unlock(&b->s);
}

void mini_blockd_fence(struct mini_blockd *b)
{
	mini_serve_lock(&b->s);
	b->fenced = true;
	mini_conns_close(&b->s);
	mini_serve_kick(&b->s);
}

void mini_blockd_fence_session(struct mini_blockd *b, uint64_t session)
{
	mini_serve_lock(&b->s);
	b->fenced_session = u64_max(b->fenced_session, session);
	mini_serve_unlock(&b->s);
}

/* ---- the truth ---- */

static uint64_t read_counter(struct mini_blockd *b, const uint64_t *v)
{
	uint64_t n;

	mini_serve_lock(&b->s);
	n = *v;
	mini_serve_unlock(&b->s);
	return n;
}

uint64_t mini_blockd_executed(struct mini_blockd *b, uint16_t op)
{
	return read_counter(b, &b->executed[op & 255]);
}

uint64_t mini_blockd_received(struct mini_blockd *b, uint16_t op)
{
	return read_counter(b, &b->received[op & 255]);
}

uint64_t mini_blockd_violations(struct mini_blockd *b)
{
	return read_counter(b, &b->violations);
}

uint32_t mini_blockd_held(struct mini_blockd *b)
{
	uint32_t count = 0;

	mini_serve_lock(&b->s);
	for (struct mb_pend *p = b->pend; p; p = p->next)
		count++;
	mini_serve_unlock(&b->s);
	return count;
}
