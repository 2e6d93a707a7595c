/* Messages of log daemons, the one function that judges a request
 * (logd/validate.c), and what a request that it let through does to a table
 * with one log in it (logd/lend.c).
 *
 * Input: a byte that chooses the message, the opcode's place in requests[],
 * the role, a byte for what else the header says, two for the body's length,
 * the body, and the data.
 */
#include "logd/lend.h"
#include "logd/validate.h"

#include "common/crc32c.h"
#include "tests/fuzz/messages.h"

#define CLUSTER 1u
#define INO 5u
#define EPOCH 3u
#define HEAD 5u
#define DATA_MAX 2048u
#define REGION (1u << LOG_REGION_LOG2_MIN)

WIRE_LIST_LOG(FUZZ_DEFINE)
static const struct fuzz_message messages[] = { WIRE_LIST_LOG(FUZZ_ENTRY) };

static const struct {
	uint16_t op;
	const char *message;
} requests[] = {
	{ WIRE_OP_LOG_WRITE, "log_write" }, { WIRE_OP_LOG_ALLOC, "log_alloc" },
	{ WIRE_OP_LOG_FENCE, "log_fence" }, { WIRE_OP_LOG_READ, "log_read" },
	{ WIRE_OP_LOG_FREE, "log_free" },
	{ WIRE_OP_LOG_CONNECT, "log_connect" },
	/* These have no fields, or others; any message will do. */
	{ WIRE_OP_LOG_PING, "log_name" }, { WIRE_OP_PING, "log_name" },
	{ WIRE_OP_ADMIN_DRAIN, "log_name" }, { WIRE_OP_HELLO, "log_name" },
	{ WIRE_OP_META_CREATE, "log_name" },
};

static uint8_t memory[3 * REGION];

struct world {
	struct lend_pool pool;
	struct lend *lend;
	uint8_t before[REGION]; /* of the log's region */
	uint32_t end;
};

static void encode_records(uint8_t *to, uint64_t seq, uint32_t count)
{
	static const uint8_t content[40];
	struct log_rec r = { .kind = LOG_REC_WRITE, .seq = seq, .len = 40,
			     .data = content };

	for (uint32_t i = 0; i < count; i++, r.seq++)
		log_rec_encode(&r, to + i * log_rec_size(40));
}

static void encode_slot(uint8_t *to, uint64_t seq, uint32_t end)
{
	struct log_slot s = { .cluster_id = CLUSTER, .ino = INO,
			      .epoch = EPOCH, .seq = seq, .end = end };

	log_slot_encode(&s, to);
}

/* One log of session 1 with one region and two records. */
static void world_init(struct world *w)
{
	struct lend_options o = { .pool = &w->pool, .cluster_id = CLUSTER,
				  .log_max = 2, .ino_max = 3 };
	struct log_alloc a = { .ino = INO, .epoch = EPOCH,
			       .data_epoch = EPOCH,
			       .log2 = LOG_REGION_LOG2_MIN };
	uint8_t slot[LOG_SLOT_SIZE], data[2 * (LOG_REC_HEADER + 40)];
	struct log_write m = { .ino = INO, .epoch = EPOCH,
			       .data_epoch = EPOCH, .off = LOG_DATA_OFF,
			       .slot = { slot, sizeof(slot) } };
	const struct lend_region *r = NULL;

	fuzz_expect(lend_pool_init(&w->pool, memory, sizeof(memory)) == 0);
	fuzz_expect(lend_new(&o, &w->lend) == 0);
	fuzz_expect(lend_alloc(w->lend, 1, &a, &r) == 0);
	w->end = LOG_DATA_OFF + sizeof(data);
	encode_records(data, 1, 2);
	encode_slot(slot, 2, w->end);
	fuzz_expect(lend_write(w->lend, 1, &m, data, sizeof(data)) == 0);
	memcpy(w->before, r->base, REGION);
}

/* Gives all back, and finds zeros. */
static void world_fini(struct world *w)
{
	lend_free(w->lend);
	fuzz_expect(lend_pool_free(&w->pool) == sizeof(memory));
	lend_pool_fini(&w->pool);
	fuzz_expect(memory[0] == 0);
	fuzz_expect(memcmp(memory, memory + 1, sizeof(memory) - 1) == 0);
}

/* Whatever was asked: what was there is there, and what is there is whole. */
static void world_check(struct world *w)
{
	const struct lend_log *g = lend_find(w->lend, INO, EPOCH);
	const struct lend_region *r;
	struct log_slot s;

	if (!g || g->region_count == 0)
		return;
	r = lend_region_at(g, 0);
	fuzz_expect(r->index == 0 && r->end >= w->end && r->end <= REGION);
	fuzz_expect(memcmp(r->base + LOG_DATA_OFF, w->before + LOG_DATA_OFF,
			   w->end - LOG_DATA_OFF) == 0);
	fuzz_expect(log_slot_newest(r->base, &s) == 0);
	fuzz_expect(s.end == r->end && s.seq == r->seq);
	fuzz_expect(log_rec_walk(r->base, LOG_DATA_OFF, s.end, 1, NULL, NULL,
				 NULL) == 0);
	fuzz_expect(memcmp(r->base + r->end, w->before + r->end,
			   REGION - r->end) == 0);
}

static void serve(struct world *w, const struct lend_msg *m,
		  const uint8_t *data, uint32_t len)
{
	const struct lend_region *r;
	const struct lend_log *g;
	const uint8_t *p;

	switch (m->op) {
	case WIRE_OP_LOG_WRITE:
		(void)!lend_write(w->lend, 1, &m->u.write, data, len);
		break;
	case WIRE_OP_LOG_ALLOC:
		if (lend_alloc(w->lend, 1, &m->u.alloc, &r) == 0)
			fuzz_expect(r->log2 == m->u.alloc.log2);
		break;
	case WIRE_OP_LOG_FENCE:
		(void)!lend_fence(w->lend, &m->u.fence, &g);
		break;
	case WIRE_OP_LOG_READ:
		if (lend_read(w->lend, &m->u.read, &p) == 0)
			fuzz_expect(p >= memory && p + m->u.read.len <=
					memory + sizeof(memory));
		break;
	case WIRE_OP_LOG_FREE:
		(void)!lend_release(w->lend, &m->u.free);
		break;
	default:
		break;
	}
}

static void check_request(const uint8_t *in, size_t size)
{
	static struct world w;
	size_t body_len = in[3] | (size_t)in[4] << 8;
	const uint8_t *body = in + HEAD;
	struct lend_who who = { .cluster_id = CLUSTER, .role = in[1] % 6,
				.session = 1 };
	struct wire_header h = {
		.version = WIRE_VERSION,
		.opcode = requests[in[0] % array_count(requests)].op,
		.cluster_id = in[2] % 16 != 1,
		.session = in[2] % 16 != 2,
	};
	struct lend_msg m;

	body_len = u64_min(body_len, size - HEAD);
	h.body_len = (uint32_t)body_len;
	h.data_len = (uint32_t)(size - HEAD - body_len);
	if (h.opcode != WIRE_OP_LOG_WRITE && in[2] % 16 != 3)
		h.data_len = 0;
	if (lend_validate(&who, &h, body, &m) != 0)
		return;
	fuzz_expect(m.op == h.opcode);
	world_init(&w);
	serve(&w, &m, body + body_len, h.data_len);
	world_check(&w);
	world_fini(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1 + HEAD)
		return 0;
	messages[data[0] % array_count(messages)].check(data + 1 + HEAD,
							size - 1 - HEAD);
	check_request(data + 1, size - 1);
	return 0;
}

/* A write that is right but for what fuzz_main.c does to it. Returns the
 * length of its data, which goes to @data. */
static uint32_t good_write(struct fuzz_rng *rng, struct wire_out *o,
			   uint8_t *data)
{
	uint32_t size = log_rec_size(40), from = fuzz_below(rng, 3);
	uint32_t to = from + 1 + fuzz_below(rng, 5);
	uint8_t slot[LOG_SLOT_SIZE];
	struct log_write m = { .ino = INO, .epoch = EPOCH,
			       .data_epoch = EPOCH,
			       .off = LOG_DATA_OFF + from * size,
			       .slot = { slot, sizeof(slot) } };

	encode_records(data, 1 + from, to - from);
	encode_slot(slot, to, LOG_DATA_OFF + to * size);
	log_write_encode(o, &m);
	return (to - from) * size;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	uint32_t i = fuzz_below(rng, 3) ? 0 :
		     fuzz_below(rng, array_count(requests));
	uint8_t data[DATA_MAX];
	uint32_t data_len = 0;
	struct wire_out o;

	memset(buf, 0, 1 + HEAD);
	buf[0] = (uint8_t)fuzz_u64(rng);
	buf[1] = (uint8_t)i;
	buf[2] = requests[i].op == WIRE_OP_HELLO ? 0 : WIRE_ROLE_CLIENT;
	buf[3] = (uint8_t)fuzz_u64(rng);
	wire_out_init(&o, buf + 1 + HEAD, cap - 1 - HEAD - DATA_MAX);
	if (requests[i].op == WIRE_OP_LOG_WRITE && fuzz_below(rng, 4))
		data_len = good_write(rng, &o, data);
	else if (fuzz_below(rng, 3) == 0)
		messages[buf[0] % array_count(messages)].encode(rng, &o);
	else
		fuzz_find(messages, requests[i].message)->encode(rng, &o);
	buf[4] = (uint8_t)o.len;
	buf[5] = (uint8_t)(o.len >> 8);
	memcpy(buf + 1 + HEAD + o.len, data, data_len);
	return 1 + HEAD + o.len + data_len;
}
