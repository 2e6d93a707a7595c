/* One metad among others: being elected, being sure of it, and no longer so. */
#include "metad/raft_priv.h"

#include <inttypes.h>

#include "common/clock.h"
#include "common/diag.h"
#include "common/status.h"

void metaraft_address(char address[METARAFT_ADDRESS_SIZE], uint32_t id)
{
	/* libraft holds to the one that the log has: never to be changed. */
	(void)snprintf(address, METARAFT_ADDRESS_SIZE, "metad-%" PRIu32, id);
}

/* ---- batches ---- */

void metaraft_committed(struct metaraft *m, uint64_t number)
{
	pthread_mutex_lock(&m->lock);
	m->committed = u64_max(m->committed, number);
	m->no_more |= number == 0;
	pthread_cond_broadcast(&m->cond);
	pthread_mutex_unlock(&m->lock);
}

bool metaraft_await(struct metaraft *m, uint64_t number)
{
	bool there;

	/* Alone, nothing else could become of it. */
	if (!m->group)
		return true;
	pthread_mutex_lock(&m->lock);
	while (m->committed < number && !m->no_more)
		pthread_cond_wait(&m->cond, &m->lock);
	there = m->committed >= number;
	pthread_mutex_unlock(&m->lock);
	return there;
}

uint64_t metaraft_last_batch(const struct metaraft *m)
{
	const struct raft_log *l = &m->raft.log;
	size_t at = l->back;

	/* From the newest entry on, in libraft's ring. */
	while (l->size > 0 && at != l->front) {
		const struct raft_entry *e;
		struct wire_in in;

		at = (at == 0 ? l->size : at) - 1;
		e = &l->entries[at];
		if (e->type != RAFT_COMMAND || e->buf.len < METARAFT_BATCH_HEAD)
			continue;
		wire_in_init(&in, e->buf.base, METARAFT_BATCH_HEAD);
		return u64_max(wire_get_u64(&in), sm_batch(m->sm));
	}
	return sm_batch(m->sm);
}

/* ---- being sure ---- */

void metaraft_heard(struct metaraft *m, uint64_t start_ns)
{
	m->heard_ns = u64_max(m->heard_ns, start_ns);
}

/* Returns false when libraft did not take it. */
static bool ask(struct metaraft *m, struct metaraft_ask *a, raft_barrier_cb cb)
{
	int rv;

	a->req.data = m;
	a->start_ns = clock_now_ns(CLOCK_BOOTTIME);
	a->asked = true;
	rv = raft_barrier(&m->raft, &a->req, cb);
	if (rv == 0)
		return true;
	a->asked = false;
	metaraft_fail(m, rv);
	return false;
}

static void on_confirmed(struct raft_barrier *req, int status)
{
	struct metaraft *m = req->data;

	m->confirm.asked = false;
	if (status == 0)
		metaraft_heard(m, m->confirm.start_ns);
	else
		metaraft_fail(m, status);
}

bool metaraft_confirmed(struct metaraft *m)
{
	uint64_t lease_ns = METARAFT_LEASE_MS * UINT64_C(1000000);

	if (!m->group)
		return true;
	if (!m->leads || m->deposed || m->failed || m->closing ||
	    raft_state(&m->raft) != RAFT_LEADER)
		return false;
	/* Who takes over is voted for without waiting. */
	if (m->raft.transfer)
		return false;
	if (clock_now_ns(CLOCK_BOOTTIME) < m->heard_ns + lease_ns)
		return true;
	/* A batch under way says the same. */
	if (!m->confirm.asked && m->in_flight == 0)
		(void)ask(m, &m->confirm, on_confirmed);
	return false;
}

/* ---- leading ---- */

bool metaraft_is_deposing(const struct metaraft *m, int error)
{
	return m->group && (error == RAFT_NOTLEADER ||
			    error == RAFT_LEADERSHIPLOST);
}

void metaraft_depose(struct metaraft *m)
{
	/* Who was not told that it leads has executed nothing. */
	if (!m->leads || m->deposed || m->closing)
		return;
	m->deposed = true;
	metaraft_committed(m, 0);
	diag_warn("raft", "event=deposed term=%" PRIu64 " leader=%" PRIu32,
		  metaraft_term(m), metaraft_leader(m));
	m->ops->deposed(m->arg);
}

static void on_barrier(struct raft_barrier *req, int status)
{
	struct metaraft *m = req->data;

	m->barrier.asked = false;
	if (status != 0) {
		metaraft_fail(m, status);
		return;
	}
	m->elected = true;
	metaraft_heard(m, m->barrier.start_ns);
}

void metaraft_group_look(struct metaraft *m)
{
	int state = raft_state(&m->raft);

	if (!m->group)
		return;
	if (state == RAFT_UNAVAILABLE) {
		metaraft_fail(m, m->load_error ? RAFT_MALFORMED : RAFT_IOERR);
		return;
	}
	if (state != RAFT_LEADER) {
		m->elected = false;
		metaraft_depose(m);
		return;
	}
	if (!m->leads && !m->elected && !m->barrier.asked)
		(void)ask(m, &m->barrier, on_barrier);
}

bool metaraft_elected(const struct metaraft *m)
{
	return m->elected && !m->deposed && !m->failed && !m->closing;
}

bool metaraft_leads(const struct metaraft *m)
{
	return m->leads && !m->deposed;
}

uint32_t metaraft_leader(struct metaraft *m)
{
	const char *address;
	raft_id id = 0;

	if (!m->running || m->closing)
		return 0;
	raft_leader(&m->raft, &id, &address);
	return (uint32_t)id;
}

uint64_t metaraft_term(const struct metaraft *m)
{
	return m->inited ? m->raft.current_term : 0;
}

bool metaraft_is_started(const struct metaraft *m)
{
	return m->running && !m->closing;
}

/* ---- changes of the group ---- */

static const struct raft_server *server(const struct metaraft *m, uint32_t id)
{
	const struct raft_configuration *c = &m->raft.configuration;

	for (unsigned i = 0; m->started && i < c->n; i++)
		if (c->servers[i].id == id)
			return &c->servers[i];
	return NULL;
}

bool metaraft_is_voter(const struct metaraft *m, uint32_t id)
{
	const struct raft_server *s = server(m, id);

	return s && s->role == RAFT_VOTER;
}

bool metaraft_is_member(const struct metaraft *m, uint32_t id)
{
	return server(m, id) != NULL;
}

static void change_done(struct metaraft *m, int status)
{
	metaraft_change_cb cb = m->change.cb;

	m->change.cb = NULL;
	cb(m->change.arg, status);
}

static void on_change(struct raft_change *req, int status)
{
	change_done(req->data, status_from_raft(status));
}

static void on_added(struct raft_change *req, int status)
{
	struct metaraft *m = req->data;

	if (status == 0)
		status = raft_assign(&m->raft, req, m->change.id, RAFT_VOTER,
				     on_change);
	if (status != 0)
		change_done(m, status_from_raft(status));
}

/* Returns 0 or -errno. */
static int change_begin(struct metaraft *m, uint32_t id, metaraft_change_cb cb,
			void *arg)
{
	if (m->change.cb)
		return -EAGAIN;
	if (!metaraft_leads(m))
		return -EREMCHG;
	m->change.cb = cb;
	m->change.arg = arg;
	m->change.id = id;
	m->change.req.data = m;
	m->change.transfer.data = m;
	return 0;
}

static int change_begun(struct metaraft *m, int raft_err)
{
	if (raft_err != 0)
		m->change.cb = NULL;
	return status_from_raft(raft_err);
}

int metaraft_add(struct metaraft *m, uint32_t id, metaraft_change_cb cb,
		 void *arg)
{
	char address[METARAFT_ADDRESS_SIZE];
	int rv = change_begin(m, id, cb, arg);

	if (rv < 0)
		return rv;
	metaraft_address(address, id);
	return change_begun(m, server(m, id) ?
		raft_assign(&m->raft, &m->change.req, id, RAFT_VOTER,
			    on_change) :
		raft_add(&m->raft, &m->change.req, id, address, on_added));
}

int metaraft_remove(struct metaraft *m, uint32_t id, metaraft_change_cb cb,
		    void *arg)
{
	int rv = change_begin(m, id, cb, arg);

	return rv < 0 ? rv :
			change_begun(m, raft_remove(&m->raft, &m->change.req,
						    id, on_change));
}

static void on_transferred(struct raft_transfer *req)
{
	struct metaraft *m = req->data;

	change_done(m, raft_state(&m->raft) == RAFT_LEADER ? -ETIMEDOUT : 0);
}

int metaraft_transfer(struct metaraft *m, uint32_t id, metaraft_change_cb cb,
		      void *arg)
{
	int rv = change_begin(m, id, cb, arg);

	return rv < 0 ? rv :
			change_begun(m, raft_transfer(&m->raft,
						      &m->change.transfer, id,
						      on_transferred));
}
