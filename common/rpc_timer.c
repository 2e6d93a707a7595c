/* Timers of a net: a list by due time. They are few, and most are started for
 * later than all others, so insertion walks from the end. */
#include "common/rpc_priv.h"

#include "common/clock.h"

/* Timers a pass runs, so that one that always starts itself anew with no delay
 * cannot keep the loop from its sockets. */
#define PASS_MAX 64

uint64_t rpc_now_ms(void)
{
	return clock_now_ms(CLOCK_MONOTONIC);
}

static void timer_unlink(struct rpc_net *n, struct rpc_timer *t)
{
	if (t->priv_prev)
		t->priv_prev->priv_next = t->priv_next;
	else
		n->timers_head = t->priv_next;
	if (t->priv_next)
		t->priv_next->priv_prev = t->priv_prev;
	else
		n->timers_tail = t->priv_prev;
	t->priv_next = t->priv_prev = NULL;
	t->priv_armed = false;
}

static void timer_link(struct rpc_net *n, struct rpc_timer *t)
{
	struct rpc_timer *after = n->timers_tail;

	while (after && after->priv_due_ms > t->priv_due_ms)
		after = after->priv_prev;
	t->priv_prev = after;
	t->priv_next = after ? after->priv_next : n->timers_head;
	if (after)
		after->priv_next = t;
	else
		n->timers_head = t;
	if (t->priv_next)
		t->priv_next->priv_prev = t;
	else
		n->timers_tail = t;
	t->priv_armed = true;
}

void rpc_timer_start(struct rpc_net *n, struct rpc_timer *t, uint64_t delay_ms)
{
	uint64_t due_ms = rpc_now_ms() + delay_ms;

	pthread_mutex_lock(&n->lock);
	if (t->priv_armed)
		timer_unlink(n, t);
	t->priv_due_ms = due_ms;
	timer_link(n, t);
	pthread_mutex_unlock(&n->lock);
	rpc_net_wake(n, due_ms);
}

bool rpc_timer_stop(struct rpc_net *n, struct rpc_timer *t)
{
	bool armed;

	pthread_mutex_lock(&n->lock);
	armed = t->priv_armed;
	if (armed)
		timer_unlink(n, t);
	pthread_mutex_unlock(&n->lock);
	return armed;
}

void rpc_timers_run(struct rpc_net *n, uint64_t now_ms)
{
	struct rpc_timer *t;

	for (int i = 0; i < PASS_MAX; i++) {
		pthread_mutex_lock(&n->lock);
		t = n->timers_head;
		if (t && t->priv_due_ms <= now_ms)
			timer_unlink(n, t);
		else
			t = NULL;
		pthread_mutex_unlock(&n->lock);
		if (!t)
			return;
		t->fn(t);
	}
}

uint64_t rpc_timers_due(struct rpc_net *n)
{
	uint64_t due_ms;

	pthread_mutex_lock(&n->lock);
	due_ms = n->timers_head ? n->timers_head->priv_due_ms : RPC_FOREVER;
	pthread_mutex_unlock(&n->lock);
	return due_ms;
}
