/* Purge of blocks whose inode was never durably made. */
#include "metad/sweep.h"

#include <inttypes.h>

#include "common/diag.h"
#include "common/wire_blk.h"
#include "metad/drive.h"
#include "metad/monitor.h"
#include "metad/sm.h"

/* Blocks asked for at a time, of each daemon. */
#define LIST_MAX 4096u
#define INOS_MAX 8192u
#define TRY_MS 1000u

struct sweep {
	struct metad *md;
	void (*done)(void *arg);
	void *arg;
	struct fan fan;
	uint64_t first; /* no inode has this number or a larger one */
	uint64_t ino_max; /* largest found */
	uint64_t purged;
	bool skipped; /* a daemon was not asked */
	uint32_t ino_count;
	uint64_t inos[INOS_MAX];
	uint8_t body[INOS_MAX * 8 + 16];
};

static void list_start(struct sweep *s);

/* A daemon that is away must not keep a mount out: it may be left with blocks
 * that fsck finds, but the numbers of their inodes are not used again. */
static bool excused(struct fan *f, uint32_t daemon_id)
{
	struct sweep *s = container_of(f, struct sweep, fan);

	if (!monitor_lease_over(s->md->monitor, daemon_id))
		return false;
	s->skipped = true;
	return true;
}

static int list_reply(struct fan *f, uint32_t daemon_id,
		      const struct rpc_frame *frame)
{
	struct sweep *s = container_of(f, struct sweep, fan);
	struct blk_list_reply m;
	struct blk_list_entry e;
	struct wire_in in;
	uint32_t i;

	(void)daemon_id;
	if (blk_list_reply_parse(frame->body, frame->h.body_len, &m) < 0)
		return -EBADMSG;
	wire_in_init(&in, m.entries.p, m.entries.len);
	for (i = 0; i < m.count; i++) {
		blk_list_entry_decode(&in, &e);
		if (in.bad || e.ino < s->first)
			return -EBADMSG;
		s->ino_max = u64_max(s->ino_max, e.ino);
		/* In order, so doubles are neighbours. What finds no room is
		 * found again in the next round. */
		if (s->ino_count < INOS_MAX &&
		    (s->ino_count == 0 || s->inos[s->ino_count - 1] != e.ino))
			s->inos[s->ino_count++] = e.ino;
	}
	return wire_in_end(&in);
}

static void purge_done(struct fan *f)
{
	struct sweep *s = container_of(f, struct sweep, fan);

	s->purged += s->ino_count;
	list_start(s);
}

static void purge_start(struct sweep *s)
{
	uint8_t list[INOS_MAX * 8];
	struct wire_out o;
	struct blk_purge m;
	uint32_t i;

	wire_out_init(&o, list, sizeof(list));
	for (i = 0; i < s->ino_count; i++)
		wire_put_u64(&o, s->inos[i]);
	m.inos.p = list;
	m.inos.len = (uint32_t)o.len;
	wire_out_init(&o, s->body, sizeof(s->body));
	blk_purge_encode(&o, &m);
	s->fan = (struct fan){ .op = WIRE_OP_BLK_PURGE,
			       .body = s->body,
			       .body_len = (uint32_t)o.len,
			       .timeout_ms = TRY_MS,
			       .excused = excused,
			       .done = purge_done };
	if (fan_start(s->md, &s->fan) < 0)
		s->md->stop(s->md, "out of memory");
}

static void finish(struct sweep *s)
{
	void (*done)(void *) = s->done;
	void *arg = s->arg;
	struct sm_raise m = { .ino = s->first + CREATES_LOST_MAX };
	struct sm_reply r;

	/* No inode that was made, and lost, has a larger number. */
	if (!s->skipped && s->ino_max < m.ino)
		m.ino = s->ino_max + 1;
	if (s->skipped || s->ino_max >= s->first) {
		METAD_PROPOSE(s->md, WIRE_OP_SM_RAISE, sm_raise, &m, &r);
		diag_info("session", "event=swept inodes=%" PRIu64
			  " first=%" PRIu64 " last=%" PRIu64, s->purged,
			  s->first, s->ino_max);
	}
	free(s);
	done(arg);
}

static void list_done(struct fan *f)
{
	struct sweep *s = container_of(f, struct sweep, fan);

	if (sm_next_ino(s->md->sm) != s->first) {
		/* The counters were raised: what came after these metadata is
		 * not of inodes that were never made. */
		s->first = sm_next_ino(s->md->sm);
		list_start(s);
		return;
	}
	/* Who has not registered yet may show that they are an older copy. */
	if (s->ino_count && !monitor_all_known(s->md->monitor)) {
		s->skipped = true;
		s->ino_count = 0;
	}
	if (s->ino_count)
		purge_start(s);
	else
		finish(s);
}

static void list_start(struct sweep *s)
{
	struct blk_list m = { .ino = s->first - 1,
			      .index = UINT64_MAX,
			      .count_max = LIST_MAX };
	struct wire_out o;

	s->ino_count = 0;
	wire_out_init(&o, s->body, sizeof(s->body));
	blk_list_encode(&o, &m);
	s->fan = (struct fan){ .op = WIRE_OP_BLK_LIST,
			       .body = s->body,
			       .body_len = (uint32_t)o.len,
			       .timeout_ms = TRY_MS,
			       .reply = list_reply,
			       .excused = excused,
			       .done = list_done };
	if (fan_start(s->md, &s->fan) < 0)
		s->md->stop(s->md, "out of memory");
}

struct sweep *sweep_start(struct metad *md, void (*done)(void *arg), void *arg)
{
	struct sweep *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->md = md;
	s->done = done;
	s->arg = arg;
	s->first = sm_next_ino(md->sm);
	list_start(s);
	return s;
}

void sweep_free(struct sweep *s)
{
	if (!s)
		return;
	fan_drop(&s->fan);
	free(s);
}
