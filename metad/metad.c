/* Proposing commands, and what happens when they are durable. */
#include "metad/metad.h"

#include <time.h>

#include "common/diag.h"
#include "metad/drive.h"
#include "metad/group.h"
#include "metad/mark.h"
#include "metad/purge.h"

void metad_propose(struct metad *md, uint16_t op, uint64_t session,
		   const void *body, size_t len, struct sm_reply *r)
{
	md->activity++;
	/* A session's was checked when it came. Ours may be made of what a
	 * block daemon told: were it logged, the next start would not take the
	 * log for ours. */
	if (session == 0) {
		int rv = sm_validate(op, body, len);

		if (rv < 0) {
			diag_err("metad", "event=bad-command op=%u "
				 "error=\"%s\"", op, strerror(-rv));
			*r = (struct sm_reply){ .status = rv,
						.pos = sm_pos(md->sm) };
			return;
		}
	}
	/* What not all members know none may execute. A session may know more
	 * than this metad, too. */
	len = sm_body_known(op, body, len, group_proto(md->group).minor);
	metaraft_propose(md->raft, op, session, body, len, r);
	if (r->map_changed)
		md->map_pos = sm_pos(md->sm);
	/* What other sessions are told may rest on the end of one, or on the
	 * lock of one that waited. */
	if (r->replayed || (session == 0 && op != WIRE_OP_SM_SESSION_CLOSE &&
			    op != WIRE_OP_SM_LOCK))
		return;
	if (md->last[0].session != session) {
		md->last[1] = md->last[0];
		md->last[0].session = session;
	}
	md->last[0].pos = sm_pos(md->sm);
}

uint64_t metad_durable(const struct metad *md)
{
	return metaraft_durable(md->raft);
}

int64_t metad_realtime_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

uint64_t metad_foreign_pos(const struct metad *md, uint64_t session)
{
	return md->last[0].session == session ? md->last[1].pos :
						md->last[0].pos;
}

void metad_when_durable(struct metad *md, struct durable_wait *w, uint64_t pos)
{
	struct durable_wait **p = &md->durable_waits;

	w->pos = pos;
	if (pos <= metad_durable(md)) {
		w->fn(w);
		return;
	}
	metaraft_want(md->raft, pos);
	/* In order of position, which is nearly always the end. */
	if (*p && md->durable_last->pos <= pos)
		p = &md->durable_last->next;
	while (*p && (*p)->pos <= pos)
		p = &(*p)->next;
	w->next = *p;
	*p = w;
	if (!w->next)
		md->durable_last = w;
}

void metad_became_durable(void *arg, uint64_t pos, uint64_t batch)
{
	struct metad *md = arg;
	struct durable_wait *w;

	mark_set(md->mark, batch);
	md->activity++;
	if (md->map_pos <= pos && md->epoch != sm_map(md->sm)->epoch) {
		md->epoch = sm_map(md->sm)->epoch;
		drive_map_changed(md->drive);
	}
	while ((w = md->durable_waits) && w->pos <= pos) {
		md->durable_waits = w->next;
		w->fn(w);
	}
	purge_kick(md->purge);
}
