/* Who is one of the group: taking a metad in, doing without one, handing over
 * to one (WIRE_OP_ADMIN_METAD). One change at a time.
 */
#include <inttypes.h>

#include "common/diag.h"
#include "common/wire_admin.h"
#include "metad/admin.h"
#include "metad/group.h"

/* A change under way; its answer goes when it is through. */
static struct change {
	struct metad *md; /* NULL: none is under way */
	uint64_t boot_id; /* of the life it belongs to */
	struct reply_to to;
	uint32_t id;
	uint8_t what; /* enum admin_metad_what */
} change;

static void changed(void *arg, int status)
{
	struct change *c = arg;
	struct metad *md = c->md;

	diag_info("member", "event=changed metad=%" PRIu32 " what=%u status=%d",
		  c->id, c->what, status);
	c->md = NULL;
	serve_reply_plain(md, &c->to, status, NULL, 0);
}

static const struct group_member *other(struct metad *md, uint32_t id)
{
	for (uint32_t i = 0; i < group_count(md->group); i++)
		if (group_other(md->group, i)->id == id)
			return group_other(md->group, i);
	return NULL;
}

/* Everything that can be told before. Returns 0 or -errno. */
static int judge(struct metad *md, const struct admin_metad *m)
{
	const struct group_member *o;

	if (!md->group)
		return -EOPNOTSUPP;
	if (change.md && change.boot_id == md->boot_id)
		return -EAGAIN;
	o = other(md, m->id);
	switch (m->what) {
	case ADMIN_METAD_ADD:
		if (m->id == md->self->id || metaraft_is_voter(md->raft, m->id))
			return -EALREADY;
		if (!o)
			return -ENOENT;
		/* It has to have asked what it is, or it would vote with a log
		 * that it does not know to be new. */
		return !o->up || (o->state != DATADIR_JOINED &&
				  o->state != DATADIR_OK) ? -ENOTCONN : 0;
	case ADMIN_METAD_REMOVE:
		if (m->id == md->self->id)
			return -EBUSY;
		return metaraft_is_member(md->raft, m->id) ? 0 : -ENOENT;
	case ADMIN_METAD_TRANSFER:
		if (m->id == md->self->id)
			return -EALREADY;
		if (!o || !metaraft_is_voter(md->raft, m->id))
			return -ENOENT;
		return o->up ? 0 : -ENOTCONN;
	default:
		return -EINVAL;
	}
}

void member_run(struct request *r)
{
	struct metad *md = r->md;
	struct admin_metad m;
	int rv = admin_metad_parse(r->body, r->body_len, &m);

	if (rv == 0)
		rv = judge(md, &m);
	if (rv == 0) {
		change = (struct change){ .md = md, .boot_id = md->boot_id,
					  .to = r->to, .id = m.id,
					  .what = m.what };
		diag_info("member", "event=change metad=%" PRIu32 " what=%u",
			  m.id, m.what);
		if (m.what == ADMIN_METAD_ADD)
			rv = metaraft_add(md->raft, m.id, changed, &change);
		else if (m.what == ADMIN_METAD_REMOVE)
			rv = metaraft_remove(md->raft, m.id, changed, &change);
		else
			rv = metaraft_transfer(md->raft, m.id, changed,
					       &change);
		if (rv == 0)
			return;
		change.md = NULL;
	}
	serve_reply_plain(md, &r->to, rv, NULL, 0);
}
