/* Which peer's log is the log. */
#include "fuse/core/log_choose.h"

/* Reads the slots of a region: those that are not zeros have to be whole and
 * this region's. 0, or -EBADMSG. */
static int region_slots(struct log_answer_region *r,
			const struct log_choose_what *what, const uint8_t *p)
{
	r->end = LOG_DATA_OFF;
	r->slot = LOG_SLOT_COUNT - 1;
	r->seq = r->length = r->length_first = 0;
	for (uint8_t i = 0; i < LOG_SLOT_COUNT; i++) {
		struct log_slot s;
		int err = log_slot_decode(p + i * LOG_SLOT_SIZE, &s);

		if (err == -ENODATA)
			continue;
		if (err < 0 || s.cluster_id != what->cluster_id ||
		    s.ino != what->ino || s.epoch != what->data_epoch ||
		    s.index != r->index || s.end > 1u << r->log2)
			return -EBADMSG;
		if (s.seq <= r->seq)
			continue;
		r->slot = i;
		r->end = s.end;
		r->seq = s.seq;
		r->length = s.length;
		r->length_first = s.length_first;
	}
	return 0;
}

/* 0, or -EBADMSG: this cannot follow @before (NULL: the first). */
static int region_take(struct log_answer_region *r,
		       const struct log_answer_region *before,
		       const struct log_choose_what *what,
		       const struct log_region *m)
{
	if (m->slots.len != LOG_SLOT_COUNT * LOG_SLOT_SIZE ||
	    m->log2 < LOG_REGION_LOG2_MIN || m->log2 > LOG_REGION_LOG2_MAX)
		return -EBADMSG;
	r->index = m->index;
	r->log2 = m->log2;
	if (region_slots(r, what, (const uint8_t *)m->slots.p) < 0)
		return -EBADMSG;
	if (!before)
		return 0;
	if (r->index != before->index + 1 || r->log2 != before->log2)
		return -EBADMSG;
	/* Records after an empty one, or before those of an earlier one. */
	return r->seq > 0 && (before->seq == 0 || r->seq <= before->seq) ?
		       -EBADMSG :
		       0;
}

static int regions_take(struct log_answer *a,
			const struct log_choose_what *what,
			const struct log_fence_reply *r)
{
	struct wire_in in;

	wire_in_init(&in, r->regions.p, r->regions.len);
	for (uint32_t i = 0; i < r->count; i++) {
		struct log_answer_region *to = &a->regions[a->region_count];
		struct log_region m;

		log_region_decode(&in, &m);
		if (in.bad || region_take(to, a->region_count ? to - 1 : NULL,
					  what, &m) < 0)
			return -EBADMSG;
		/* Asked for over a connection that is gone, when it was not
		 * needed any more. */
		if (a->region_count == 0 && to->seq == 0)
			continue;
		a->region_count++;
		if (to->seq > 0) {
			a->seq = to->seq;
			a->length = to->length;
		}
	}
	return wire_in_end(&in);
}

int log_answer_take(struct log_answer *a, const struct log_choose_what *what,
		    const struct log_reply *lr, const struct log_fence_reply *r)
{
	struct log_answer b = { .state = LOG_ANSWER_LOST };

	if (a->state == LOG_ANSWER_LOST)
		return 0;
	if (lr->boot_id == what->boot_id && r->count <= LOG_REGION_COUNT_MAX &&
	    (r->held == LOG_HELD || r->held == LOG_HELD_TORN ||
	     (r->held == LOG_HELD_NONE && !r->count))) {
		b.regions = calloc(r->count + 1, sizeof(*b.regions));
		if (!b.regions)
			return -ENOMEM;
		if (regions_take(&b, what, r) == 0)
			b.state = LOG_ANSWER_CONFIRMED;
		b.torn = r->held == LOG_HELD_TORN;
	}
	log_answer_fini(a);
	*a = b;
	if (a->state == LOG_ANSWER_LOST)
		log_answer_fini(a);
	return 0;
}

void log_answer_fini(struct log_answer *a)
{
	free(a->regions);
	a->regions = NULL;
	a->region_count = 0;
	a->seq = a->length = 0;
}

int log_choose_salvage(const struct log_answer *answers, uint32_t count)
{
	int best = -ENOENT;

	for (uint32_t i = 0; i < count; i++) {
		const struct log_answer *a = &answers[i];

		if (a->state == LOG_ANSWER_CONFIRMED && a->seq > 0 &&
		    (best < 0 || a->seq > answers[best].seq))
			best = (int)i;
	}
	return best;
}

/* The one that reaches furthest of those than which a majority reaches no less
 * far; all are confirmed. */
static uint32_t majority_has(const struct log_answer *answers, uint32_t count)
{
	uint32_t best = count;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t have = 0;

		for (uint32_t j = 0; j < count; j++)
			have += answers[j].seq >= answers[i].seq;
		if (have > count / 2 &&
		    (best == count || answers[i].seq > answers[best].seq))
			best = i;
	}
	return best;
}

enum log_choice log_choose(const struct log_answer *answers, uint32_t count,
			   uint32_t *index)
{
	uint32_t majority = count / 2 + 1;
	uint32_t confirmed = 0, lost = 0, have = 0, sure = 0;
	int best = log_choose_salvage(answers, count);

	for (uint32_t i = 0; i < count; i++) {
		const struct log_answer *a = &answers[i];

		lost += a->state == LOG_ANSWER_LOST;
		confirmed += a->state == LOG_ANSWER_CONFIRMED;
		sure += a->state == LOG_ANSWER_CONFIRMED && !a->torn;
		have += a->state == LOG_ANSWER_CONFIRMED && best >= 0 &&
			a->seq == answers[best].seq;
	}
	if (confirmed < majority)
		return lost > count - majority ? LOG_CHOICE_LOST :
						 LOG_CHOICE_WAIT;
	if (best < 0)
		return LOG_CHOICE_EMPTY;
	/* Nobody was told of what fewer have. It is left, rather than given to
	 * others that may have no memory for it. */
	if (sure == count)
		*index = majority_has(answers, count);
	if (sure == count)
		return answers[*index].seq ? LOG_CHOICE_PEER : LOG_CHOICE_EMPTY;
	*index = (uint32_t)best;
	if (sure < majority && confirmed + lost < count)
		return LOG_CHOICE_TORN;
	return have < majority ? LOG_CHOICE_STAGE : LOG_CHOICE_PEER;
}
