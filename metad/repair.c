/* Repairs. */
#include "metad/repair.h"

#include <inttypes.h>
#include <sys/stat.h>

#include "common/diag.h"
#include "common/wire_admin.h"
#include "metad/cut.h"
#include "metad/drive.h"

#define REPAIRS_MAX 64u

struct repair {
	struct metad *md;
	struct repair *next;
	struct reply_to to;
	struct meta_attr attr; /* when it began; counting */
	uint64_t ino, units;
	struct durable_wait durable;
	struct fan fan;
	uint8_t body[16];
};

static bool attr_get(struct metad *md, uint64_t ino, struct meta_attr *a)
{
	return sm_inode_list(md->sm, ino - 1, a, 1) == 1 && a->ino == ino;
}

static void repair_end(struct repair *p, int status)
{
	struct repair **at = &p->md->repairs;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	request_reply_at(p->md, &p->to, status < 0 ? 0 : sm_pos(p->md->sm),
			 status, NULL, 0);
	free(p);
}

static void repair_fan(struct repair *p)
{
	if (fan_start(p->md, &p->fan) < 0)
		p->md->stop(p->md, "out of memory");
}

/* ---- an inode that is gone ---- */

static void purged(struct fan *f)
{
	struct repair *p = container_of(f, struct repair, fan);

	diag_info("repair", "event=purged ino=%" PRIu64, p->ino);
	repair_end(p, 0);
}

/* That it is gone will be so after a crash, too. */
static void gone_for_good(struct durable_wait *w)
{
	struct repair *p = container_of(w, struct repair, durable);
	struct blk_purge m;
	struct wire_out o;
	uint8_t list[8];

	wire_out_init(&o, list, sizeof(list));
	wire_put_u64(&o, p->ino);
	m.inos = (struct wire_str){ list, sizeof(list) };
	wire_out_init(&o, p->body, sizeof(p->body));
	blk_purge_encode(&o, &m);
	p->fan = (struct fan){ .op = WIRE_OP_BLK_PURGE,
			       .body = p->body,
			       .body_len = (uint32_t)o.len,
			       .done = purged };
	repair_fan(p);
}

/* ---- one that exists ---- */

static int count_reply(struct fan *f, uint32_t daemon_id,
		       const struct rpc_frame *frame)
{
	struct repair *p = container_of(f, struct repair, fan);
	struct blk_end_reply m;

	(void)daemon_id;
	if (blk_end_reply_parse(frame->body, frame->h.body_len, &m) < 0)
		return -EBADMSG;
	p->units += m.units;
	return 0;
}

/* Nobody holds the right to write it, nor did since it was looked at. */
static bool at_rest(struct metad *md, const struct meta_attr *a,
		    const struct meta_attr *was)
{
	return !(a->flags & META_ATTR_LEASED) && !cut_pending(md, a->ino) &&
	       a->units == was->units && a->size == was->size &&
	       a->cut == was->cut && a->mtime_ns == was->mtime_ns &&
	       a->ctime_ns == was->ctime_ns;
}

static void counted(struct fan *f)
{
	struct repair *p = container_of(f, struct repair, fan);
	struct sm_size_set m = { .ino = p->ino, .units = p->units,
				 .mtime_ns = INT64_MIN };
	struct meta_attr a;
	struct sm_reply r;

	if (!attr_get(p->md, p->ino, &a) || !at_rest(p->md, &a, &p->attr)) {
		repair_end(p, -EBUSY);
		return;
	}
	diag_info("repair", "event=recounted ino=%" PRIu64 " units=%" PRIu64
		  " was=%" PRIu64, p->ino, p->units, a.units);
	METAD_PROPOSE(p->md, WIRE_OP_SM_SIZE_SET, sm_size_set, &m, &r);
	repair_end(p, r.status);
}

static void count_start(struct repair *p)
{
	struct blk_end m = { .ino = p->ino,
			     .block_log2 = p->attr.block_log2 };
	struct wire_out o;

	wire_out_init(&o, p->body, sizeof(p->body));
	blk_end_encode(&o, &m);
	p->fan = (struct fan){ .op = WIRE_OP_BLK_END,
			       .body = p->body,
			       .body_len = (uint32_t)o.len,
			       .reply = count_reply,
			       .done = counted };
	repair_fan(p);
}

/* ---- beginning ---- */

/* May it be repaired? *exists: its units are counted, else it is purged. */
static int judge(struct metad *md, uint64_t ino, struct meta_attr *a,
		 bool *exists)
{
	const struct repair *p;
	uint32_t count = 0;

	for (p = md->repairs; p; p = p->next)
		count++;
	if (count == REPAIRS_MAX)
		return -EAGAIN;
	if (ino == 0 || ino >= sm_next_ino(md->sm))
		return -EINVAL;
	*exists = attr_get(md, ino, a);
	if (*exists && !S_ISREG(a->mode))
		return -EOPNOTSUPP;
	/* A cut that came after the purge would stay for ever. */
	if (cut_pending(md, ino) || (*exists && !at_rest(md, a, a)))
		return -EBUSY;
	return 0;
}

static int begin(struct request *r, uint64_t ino)
{
	struct metad *md = r->md;
	struct meta_attr a;
	bool exists = false;
	int rv = judge(md, ino, &a, &exists);
	struct repair *p;

	if (rv < 0)
		return rv;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->md = md;
	p->to = r->to;
	p->ino = ino;
	p->next = md->repairs;
	md->repairs = p;
	if (exists) {
		p->attr = a;
		count_start(p);
	} else {
		p->durable.fn = gone_for_good;
		metad_when_durable(md, &p->durable, sm_pos(md->sm));
	}
	return 0;
}

void repair_run(struct request *r)
{
	struct admin_repair m;
	int rv = admin_repair_parse(r->body, r->body_len, &m);

	if (rv == 0)
		rv = begin(r, m.ino);
	if (rv < 0)
		serve_reply_plain(r->md, &r->to, rv, NULL, 0);
}

void repair_free_all(struct metad *md)
{
	struct repair *p;

	while ((p = md->repairs)) {
		md->repairs = p->next;
		fan_drop(&p->fan);
		free(p);
	}
}
