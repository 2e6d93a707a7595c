/* A recovery's dealings with the peers of a log: they are fenced, what they
 * hold is read, and what a majority lacks is given to it. */
#include "fuse/core/log_recover.h"

#include <time.h>

#define RECOVER_POLL_MS 2u
#define RECOVER_STAGE_MS 100u
#define RECOVER_LOST_MS 3000u /* who else may have what a majority lost */
#define RECOVER_FENCE_MS 2000u
#define RECOVER_READ_BYTES (1u << 20)

/* NULL: it is not connected. */
static struct rpc_peer *peer_of(struct recovery *r, uint32_t i, bool any)
{
	struct rpc_peer *p = NULL;
	struct log_dev *d;

	core_lock(r->c);
	d = log_dev_of(r->c, r->ids[i].id);
	if (d && (d->up || any))
		p = d->peer;
	core_unlock(r->c);
	return p;
}

/* 0: heard, or to be tried again; -ESTALE: another recovery has come. */
static int fence(struct recovery *r, uint32_t i)
{
	struct log_fence m = {
		.ino = r->e.ino,
		.epoch = r->epoch,
		.data_epoch = r->e.data_epoch,
	};
	const struct log_choose_what what = {
		.cluster_id = r->c->opt.conf->cluster_id,
		.ino = r->e.ino,
		.data_epoch = r->e.data_epoch,
		.boot_id = r->ids[i].boot_id,
	};
	struct rpc_peer *p = peer_of(r, i, false);
	struct log_fence_reply fr;
	struct rpc_frame *f = NULL;
	struct log_reply lr;
	struct wire_out o;
	struct wire_in in;
	uint8_t body[32];
	int err;

	if (!p)
		return 0;
	wire_out_init(&o, body, sizeof(body));
	log_fence_encode(&o, &m);
	err = rpc_call_wait(p, WIRE_OP_LOG_FENCE, body, (uint32_t)o.len,
			    RECOVER_FENCE_MS, &f);
	if (err == -ESTALE)
		return err;
	if (err)
		return 0;
	wire_in_init(&in, f->body, f->h.body_len);
	log_reply_decode(&in, &lr);
	log_fence_reply_decode(&in, &fr);
	if (wire_in_known(&in) == 0)
		err = log_answer_take(&r->answers[i], &what, &lr, &fr);
	rpc_frame_free(f);
	return err;
}

void recovery_nap(uint32_t ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&t, NULL);
}

static int read_piece(struct recovery *r, struct rpc_peer *p, uint32_t index,
		      uint32_t off, uint32_t len, uint8_t *to)
{
	struct log_read m = {
		.ino = r->e.ino,
		.epoch = r->epoch,
		.data_epoch = r->e.data_epoch,
		.index = index,
		.off = off,
		.len = len,
	};
	struct rpc_frame *f = NULL;
	struct wire_out o;
	uint8_t body[48];
	int err;

	wire_out_init(&o, body, sizeof(body));
	log_read_encode(&o, &m);
	err = rpc_call_wait(p, WIRE_OP_LOG_READ, body, (uint32_t)o.len,
			    RECOVER_FENCE_MS, &f);
	if (err)
		return err;
	if (f->h.data_len == len)
		memcpy(to, f->data, len);
	else
		err = -EBADMSG;
	rpc_frame_free(f);
	return err;
}

/* [0, end) of a region; malloc'd. */
static int read_region(struct recovery *r, uint32_t peer,
		       const struct log_answer_region *g, uint8_t **ret)
{
	struct rpc_peer *p = peer_of(r, peer, true);
	uint8_t *base = p ? malloc(g->end) : NULL;
	int err = base ? 0 : -ENOMEM;

	for (uint32_t off = LOG_DATA_OFF; !err && off < g->end;) {
		uint32_t step = g->end - off < RECOVER_READ_BYTES ?
					g->end - off : RECOVER_READ_BYTES;

		err = read_piece(r, p, g->index, off, step, base + off);
		off += step;
	}
	if (err) {
		free(base);
		return err;
	}
	*ret = base;
	return 0;
}

/* Each record is whole and the next one; the last is the one it said. */
static int check_regions(struct recovery *r, const struct log_answer *a)
{
	uint64_t next = 0;
	int err = 0;

	for (uint32_t i = 0; i < a->region_count && !err; i++) {
		const struct log_answer_region *g = &a->regions[i];
		struct log_rec first;

		if (g->seq == 0)
			continue;
		if (next == 0) {
			if (log_rec_decode(r->bases[i] + LOG_DATA_OFF,
					   g->end - LOG_DATA_OFF, &first) <= 0)
				return -EBADMSG;
			next = first.seq;
		}
		err = log_rec_walk(r->bases[i], LOG_DATA_OFF, g->end, next,
				   NULL, NULL, &next);
	}
	return !err && next != a->seq + 1 ? -EBADMSG : err;
}

int recovery_read(struct recovery *r, uint32_t peer)
{
	const struct log_answer *a = &r->answers[peer];
	int err = 0;

	recovery_forget(r);
	r->bases = calloc(a->region_count + 1, sizeof(*r->bases));
	if (!r->bases)
		return -ENOMEM;
	r->base_count = a->region_count;
	for (uint32_t i = 0; i < a->region_count && !err; i++)
		if (a->regions[i].seq > 0)
			err = read_region(r, peer, &a->regions[i],
					  &r->bases[i]);
	return err ? err : check_regions(r, a);
}

void recovery_forget(struct recovery *r)
{
	for (uint32_t i = 0; i < r->base_count; i++)
		free(r->bases[i]);
	free(r->bases);
	r->bases = NULL;
	r->base_count = 0;
}

/* ---- staging ---- */

struct told {
	struct rpc_call call;
	struct iovec iov;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool done;
	int status;
};

static void told(struct rpc_call *call, int status, const struct rpc_frame *f)
{
	struct told *t = container_of(call, struct told, call);

	(void)f;
	pthread_mutex_lock(&t->mutex);
	t->done = true;
	t->status = status;
	pthread_cond_signal(&t->cond);
	pthread_mutex_unlock(&t->mutex);
}

/* A request with data; what is said but for the status does not matter. */
static int tell(struct recovery *r, uint32_t peer, uint16_t op,
		const struct wire_out *o, const uint8_t *data, uint32_t len)
{
	struct rpc_peer *p = peer_of(r, peer, false);
	struct told t = {
		.call = {
			.opcode = op,
			.timeout_ms = RECOVER_FENCE_MS,
			.body = o->p,
			.body_len = (uint32_t)o->len,
			.iov = &t.iov,
			.iov_count = len > 0,
			.data_len = len,
			.cb = told,
		},
		.iov = { (void *)(uintptr_t)data, len },
	};

	if (!p)
		return -EHOSTUNREACH;
	pthread_mutex_init(&t.mutex, NULL);
	pthread_cond_init(&t.cond, NULL);
	rpc_send(p, &t.call);
	pthread_mutex_lock(&t.mutex);
	while (!t.done)
		pthread_cond_wait(&t.cond, &t.mutex);
	pthread_mutex_unlock(&t.mutex);
	pthread_cond_destroy(&t.cond);
	pthread_mutex_destroy(&t.mutex);
	return t.status;
}

static int stage_alloc(struct recovery *r, uint32_t to, uint32_t index,
		       uint8_t log2)
{
	struct log_alloc m = {
		.ino = r->e.ino,
		.epoch = r->epoch,
		.data_epoch = r->e.data_epoch,
		.index = index,
		.log2 = log2,
	};
	struct wire_out o;
	uint8_t body[48];

	wire_out_init(&o, body, sizeof(body));
	log_alloc_encode(&o, &m);
	return tell(r, to, WIRE_OP_LOG_ALLOC, &o, NULL, 0);
}

static int stage_free(struct recovery *r, uint32_t to, uint32_t below)
{
	struct log_free m = {
		.ino = r->e.ino,
		.epoch = r->epoch,
		.data_epoch = r->e.data_epoch,
		.below = below,
	};
	struct wire_out o;
	uint8_t body[32];

	wire_out_init(&o, body, sizeof(body));
	log_free_encode(&o, &m);
	return tell(r, to, WIRE_OP_LOG_FREE, &o, NULL, 0);
}

static int stage_write(struct recovery *r, uint32_t to,
		       const struct log_post *p)
{
	struct log_write m = {
		.ino = r->e.ino,
		.epoch = r->epoch,
		.data_epoch = r->e.data_epoch,
		.index = p->index,
		.off = p->off,
		.slot = { p->slot, LOG_SLOT_SIZE },
	};
	struct wire_out o;
	uint8_t body[128];

	wire_out_init(&o, body, sizeof(body));
	log_write_encode(&o, &m);
	return tell(r, to, WIRE_OP_LOG_WRITE, &o, p->data, p->len);
}

/* The next thing that @to lacks. 1: done; 0: there is nothing. */
static int stage_step(struct recovery *r, struct log_writer *w, uint32_t to)
{
	struct log_post p;
	uint32_t n;
	int err;

	if (log_writer_free_next(w, to, &n)) {
		err = stage_free(r, to, n);
	} else if (log_writer_alloc_next(w, to, &n)) {
		err = stage_alloc(r, to, n, w->log2);
		log_writer_alloc_done(w, to, n, err);
	} else if (log_writer_post_next(w, to, &p)) {
		err = stage_write(r, to, &p);
		if (!err)
			log_writer_acked(w, &p);
	} else {
		return 0;
	}
	return err ? err : 1;
}

static int stage_load(struct recovery *r, struct log_writer *w, uint32_t from)
{
	const struct log_answer *a = &r->answers[from];
	int err = 0;

	for (uint32_t i = 0; i < a->region_count && !err; i++)
		if (a->regions[i].seq > 0)
			err = log_writer_load_region(w, r->bases[i],
						     a->regions[i].index,
						     a->regions[i].end,
						     a->regions[i].length_first);
	return err;
}

static void stage_load_peer(struct recovery *r, struct log_writer *w,
			    uint32_t peer)
{
	const struct log_answer *a = &r->answers[peer];
	struct log_pos at = { .seq = 0 };

	for (uint32_t i = 0; i < a->region_count; i++) {
		const struct log_answer_region *g = &a->regions[i];

		if (g->seq > 0)
			at = (struct log_pos){
				.index = g->index,
				.off = g->end,
				.seq = g->seq,
				.length = g->length,
				.slot = g->slot,
				.slot_end = g->end,
			};
	}
	if (at.seq > 0)
		log_writer_load_peer(w, peer, &at);
	log_writer_up(w, peer, r->ids[peer].boot_id);
}

int recovery_stage(struct recovery *r, uint32_t from)
{
	const struct log_answer *a = &r->answers[from];
	struct log_writer w;
	int err, did = 1;

	log_writer_init(&w, r->c->opt.conf->cluster_id, r->e.ino,
			r->e.data_epoch, r->e.version, a->regions[0].log2,
			r->ids, (uint8_t)r->count, 0);
	err = stage_load(r, &w, from);
	for (uint32_t i = 0; i < r->count && !err; i++)
		if (r->answers[i].state == LOG_ANSWER_CONFIRMED)
			stage_load_peer(r, &w, i);
	while (!err && did && w.committed < w.seq) {
		did = 0;
		for (uint32_t i = 0; i < r->count && err != -ESTALE; i++) {
			if (w.peers[i].state != LOG_PEER_UP)
				continue;
			err = stage_step(r, &w, i);
			did |= err > 0;
			if (err < 0 && err != -ESTALE)
				log_writer_fail(&w, i); /* another may do */
		}
		err = err == -ESTALE ? err : 0;
	}
	if (!err && w.committed < w.seq)
		err = -EAGAIN;
	log_writer_fini(&w);
	return err;
}

/* ---- whose it is ---- */

static bool all_heard(const struct recovery *r)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->answers[i].state == LOG_ANSWER_NONE)
			return false;
	return true;
}

int recovery_choose(struct recovery *r, uint64_t deadline_ms, uint32_t *index)
{
	uint64_t began = core_now_ms();

	for (;;) {
		enum log_choice choice;

		for (uint32_t i = 0; i < r->count; i++) {
			int err = 0;

			if (r->answers[i].state == LOG_ANSWER_NONE &&
			    core_now_ms() >= r->shun_ms[i])
				err = fence(r, i);
			if (err)
				return err;
		}
		choice = log_choose(r->answers, r->count, index);
		if (choice == LOG_CHOICE_PEER)
			return 0;
		/* With the answers of all, a majority may have all of it. */
		if (choice == LOG_CHOICE_STAGE &&
		    core_now_ms() - began >= RECOVER_STAGE_MS)
			return 1;
		if (choice == LOG_CHOICE_TORN &&
		    core_now_ms() - began >= RECOVER_LOST_MS)
			return 1;
		if (choice == LOG_CHOICE_EMPTY)
			return -ENODATA;
		if (choice == LOG_CHOICE_LOST && (all_heard(r) ||
		    core_now_ms() - began >= RECOVER_LOST_MS))
			return -EIO;
		if (recovery_stops(r->c))
			return -ESTALE;
		if (core_now_ms() >= deadline_ms)
			return -EAGAIN;
		recovery_nap(RECOVER_POLL_MS);
	}
}

void recovery_free(struct recovery *r)
{
	struct log_free m = {
		.ino = r->e.ino,
		.epoch = r->epoch,
		.data_epoch = r->e.data_epoch,
		.below = LOG_FREE_ALL,
	};
	struct wire_out o;
	uint8_t body[32];

	wire_out_init(&o, body, sizeof(body));
	log_free_encode(&o, &m);
	for (uint32_t i = 0; i < r->count; i++) {
		struct rpc_peer *p = peer_of(r, i, false);

		/* Who does not hear it asks metad some time. */
		if (p)
			(void)rpc_call_wait(p, WIRE_OP_LOG_FREE, body,
					    (uint32_t)o.len, RECOVER_FENCE_MS,
					    NULL);
	}
}

