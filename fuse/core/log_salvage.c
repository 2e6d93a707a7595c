/* What a peer has of a log that cannot be recovered. */
#include "fuse/core/log_salvage.h"

struct walk {
	const struct log_salvage_what *what;
	int (*fn)(void *arg, const struct log_rec *r);
	void *arg;
	struct log_salvaged s;
	uint64_t promised; /* by slots */
	bool end; /* what comes now does not follow */
};

/* Broken slots say nothing, and the records may be whole all the same; those of
 * another log say that the records are not ours. */
static void slots_look(struct walk *w, const struct log_salvage_region *r)
{
	struct log_slot s;
	int err = log_slot_newest(r->base, &s);

	if (err == -ENODATA)
		return;
	if (err) {
		w->s.damaged = true;
		return;
	}
	w->end = s.cluster_id != w->what->cluster_id ||
		 s.ino != w->what->ino || s.epoch != w->what->data_epoch ||
		 s.index != r->index;
	w->s.damaged |= w->end;
	if (!w->end)
		w->promised = u64_max(w->promised, s.seq);
}

/* Of any number while there is none yet. Returns what @fn does. */
static int records_walk(struct walk *w, const struct log_salvage_region *r)
{
	uint32_t at = LOG_DATA_OFF, size = 1u << r->log2;

	while (at < size) {
		struct log_rec rec;
		int64_t took = log_rec_decode(r->base + at, size - at, &rec);
		int err;

		if (took == 0)
			break;
		if (took < 0 || (w->s.last && rec.seq != w->s.last + 1)) {
			w->s.damaged = w->end = true;
			break;
		}
		err = w->fn ? w->fn(w->arg, &rec) : 0;
		if (err)
			return err;
		if (!w->s.first)
			w->s.first = rec.seq;
		w->s.last = rec.seq;
		w->s.bytes += rec.len;
		at += (uint32_t)took;
	}
	return 0;
}

int log_salvage_walk(const struct log_salvage_region *regions, uint32_t count,
		     const struct log_salvage_what *what,
		     int (*fn)(void *arg, const struct log_rec *r), void *arg,
		     struct log_salvaged *ret)
{
	struct walk w = { .what = what, .fn = fn, .arg = arg };

	for (uint32_t i = 0; i < count && !w.end; i++) {
		int err = 0;

		slots_look(&w, &regions[i]);
		if (!w.end)
			err = records_walk(&w, &regions[i]);
		if (err)
			return err;
	}
	w.s.damaged |= w.promised > w.s.last;
	*ret = w.s;
	return 0;
}

bool log_salvaged_better(const struct log_salvaged *a,
			 const struct log_salvaged *b)
{
	if (a->last != b->last)
		return a->last > b->last;
	return a->last > 0 && !a->damaged && b->damaged;
}
