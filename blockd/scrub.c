/* Scrub: reads every unit on the disk through the ordinary read path, which
 * checks it, at a bounded rate.
 */
#include <time.h>

#include "blockd/mem.h"
#include "blockd/op.h"

#define SCRUB_KEYS 256u
#define SCRUB_UNITS 32u
#define SCRUB_NAP_MAX_MS 20u

struct scrub {
	struct op *op;
	struct image_key keys[SCRUB_KEYS];
	uint8_t log2s[SCRUB_KEYS];
	uint32_t key_count;
	uint32_t key_next;
	struct image_key from;
	bool all_listed;
	uint32_t unit; /* next of the current block */
	uint32_t single; /* units to be read one by one after an error */
	uint32_t asked; /* units of the read under way */
	uint32_t on_disk; /* of them */
	uint64_t started_ms;
	uint64_t bytes;
	struct store_read_out out;
	uint8_t sums[SCRUB_UNITS * 4];
	struct worker_job nap;
	uint64_t nap_ms;
};

static void scrub_step(struct op *op);

static void scrub_end(struct op *op, int err)
{
	struct scrub *sc = op->u.s.state;

	op->s->scrubs--;
	mem_free(sc->out.buf);
	mem_free(sc);
	op_done(op, err);
}

void store_scrub(struct store *s, struct store_req *r, uint64_t bytes_per_s,
		 uint64_t *units_read, uint64_t *units_bad)
{
	struct scrub *sc;
	struct op *op;

	store_enter(s);
	r->units_delta = 0;
	*units_read = 0;
	*units_bad = 0;
	op = op_new(s, r);
	sc = op == NULL ? NULL : mem_alloc(sizeof(*sc));
	if (sc != NULL)
		sc->out.buf = mem_alloc_io(SCRUB_UNITS * UNIT_SIZE);
	if (sc == NULL || sc->out.buf == NULL) {
		mem_free(sc);
		if (op != NULL)
			op_done(op, -ENOMEM);
	} else {
		s->scrubs++;
		sc->op = op;
		sc->out.buf_cap = SCRUB_UNITS * UNIT_SIZE;
		sc->out.sums = sc->sums;
		sc->started_ms = s->dev->vt->now_ms(s->dev);
		op->u.s.bytes_per_s = bytes_per_s;
		op->u.s.units_read = units_read;
		op->u.s.units_bad = units_bad;
		op->u.s.state = sc;
		op_post(op, scrub_step);
	}
	store_leave(s, true);
}

/* The next keys, so that walks are few. */
static int list_keys(struct store *s, struct scrub *sc)
{
	struct store_walk w;
	int n = walk_begin(s, &w, &sc->from, NULL);

	sc->key_count = 0;
	sc->key_next = 0;
	while (n == 0 && (n = walk_next(&w)) == 1) {
		n = 0;
		sc->from = w.key;
		if (sc->key_count == SCRUB_KEYS)
			goto out;
		sc->log2s[sc->key_count] = w.m->block_log2;
		sc->keys[sc->key_count++] = w.key;
	}
	sc->all_listed = true;
out:
	walk_end(&w);
	return n < 0 ? n : 0;
}

/* ---- pace ---- */
static void nap_run(struct worker_job *j)
{
	struct scrub *sc = container_of(j, struct scrub, nap);
	struct timespec t = { 0, (long)sc->nap_ms * 1000000 };

	(void)nanosleep(&t, NULL);
}

static void nap_done(struct worker_job *j)
{
	struct scrub *sc = container_of(j, struct scrub, nap);
	struct store *s = sc->op->s;

	store_enter(s);
	scrub_step(sc->op);
	store_leave(s, false);
}

/* Ahead of the rate: the worker sleeps a little for us. */
static bool nap(struct op *op)
{
	struct scrub *sc = op->u.s.state;
	struct store *s = op->s;
	uint64_t rate = op->u.s.bytes_per_s;
	uint64_t due, now = s->dev->vt->now_ms(s->dev) - sc->started_ms;

	if (rate == 0 || s->o.inline_worker)
		return false;
	due = sc->bytes * 1000 / rate;
	if (due <= now)
		return false;
	sc->nap_ms = u64_min(due - now, SCRUB_NAP_MAX_MS);
	sc->nap.run = nap_run;
	sc->nap.done = nap_done;
	worker_submit(s->worker, &sc->nap);
	return true;
}

/* ---- reading ---- */
static void piece_read(struct op *op, int err)
{
	struct scrub *sc = op->u.s.state;

	sc->bytes += (uint64_t)sc->on_disk * UNIT_SIZE;
	if (err == -EIO && sc->asked > 1) {
		/* Which of them? */
		sc->single = sc->asked;
	} else {
		*op->u.s.units_read += sc->on_disk;
		*op->u.s.units_bad += err == -EIO;
		sc->unit += sc->asked;
		sc->single -= sc->single > 0;
	}
	op_post(op, scrub_step);
}

static uint32_t count_disk(const struct block *b, uint32_t u, uint32_t count)
{
	uint32_t n = 0;

	for (uint32_t i = u; i < u + count && i < image_units(&b->m); i++)
		n += loc_is_disk(b->m.loc[i]) && b->ubuf[i] == 0;
	return n;
}

/* Whether the piece at sc->unit has anything on disk. */
static uint32_t piece_on_disk(struct op *op, const struct image_key *key,
			      uint8_t log2, uint32_t count)
{
	struct inode *in;
	struct block *b;
	uint32_t n = 0;
	int err;

	in = store_inode_get(op->s, key->ino, &err);
	if (in == NULL)
		return 0;
	if (block_get(op->s, in, key->index, log2, false, &b) == 0) {
		n = count_disk(b, op->u.s.state->unit, count);
		block_put(op->s, b);
	}
	inode_put(op->s, in);
	return n;
}

static void piece_start(struct op *op, const struct image_key *key,
			uint8_t log2)
{
	struct scrub *sc = op->u.s.state;
	struct op *inner = op_new(op->s, NULL);

	if (inner == NULL) {
		scrub_end(op, -ENOMEM);
		return;
	}
	inner->req = op->req;
	inner->parent = op;
	inner->finish = piece_read;
	inner->u.r.rd = (struct blk_read){
		.ino = key->ino,
		.index = key->index,
		.cut = UINT64_MAX,
		.off = sc->unit << UNIT_SHIFT,
		.len = sc->asked << UNIT_SHIFT,
		.block_log2 = log2,
	};
	inner->u.r.out = &sc->out;
	read_inner(inner);
}

/* A piece, or the next keys, or the end. */
static void scrub_step(struct op *op)
{
	struct scrub *sc = op->u.s.state;
	uint32_t skipped = 0;
	int err = 0;

	if (op->s->closing) {
		scrub_end(op, -ECANCELED);
		return;
	}
	if (nap(op))
		return;
	for (;;) {
		uint8_t log2;

		if (sc->key_next == sc->key_count) {
			if (!sc->all_listed)
				err = list_keys(op->s, sc);
			if (err != 0 || sc->key_count == sc->key_next) {
				scrub_end(op, err);
				return;
			}
		}
		log2 = sc->log2s[sc->key_next];
		if (sc->unit == 1u << (log2 - UNIT_SHIFT)) {
			sc->unit = 0;
			sc->key_next++;
			continue;
		}
		sc->asked = sc->single > 0 ? 1 : SCRUB_UNITS;
		if (sc->asked > (1u << (log2 - UNIT_SHIFT)) - sc->unit)
			sc->asked = (1u << (log2 - UNIT_SHIFT)) - sc->unit;
		sc->on_disk = piece_on_disk(op, &sc->keys[sc->key_next], log2,
					    sc->asked);
		if (sc->on_disk > 0)
			break;
		sc->unit += sc->asked;
		sc->single -= sc->single > 0;
		if (++skipped == SCRUB_KEYS) {
			op_post(op, scrub_step);
			return;
		}
	}
	piece_start(op, &sc->keys[sc->key_next], sc->log2s[sc->key_next]);
}
