/* Messages of block daemons and tools, and the one function that judges a
 * request (blockd/serve_validate.c).
 *
 * Input: a byte that chooses the message, the opcode's place in requests[],
 * the role, a byte for what else the header says, then the body.
 */
#include "blockd/serve_validate.h"

#include "common/crc32c.h"
#include "tests/fuzz/messages.h"

WIRE_LIST_BLK(FUZZ_DEFINE)
WIRE_LIST_ADMIN(FUZZ_DEFINE)
static const struct fuzz_message messages[] = { WIRE_LIST_BLK(FUZZ_ENTRY)
						WIRE_LIST_ADMIN(FUZZ_ENTRY) };

/* What handlers rely on. */
static void check_write(const struct blk_write *w, uint32_t data_len)
{
	uint64_t block = 1ull << w->block_log2;

	fuzz_expect(w->block_log2 >= BLOCK_LOG2_MIN &&
		    w->block_log2 <= BLOCK_LOG2_MAX);
	fuzz_expect(w->len > 0 && w->len == data_len);
	fuzz_expect((uint64_t)w->off + w->len <= block);
	fuzz_expect(w->sums.len == 4 * crc32c_piece_count(w->off, w->len));
	fuzz_expect(w->index <= (uint64_t)FILE_SIZE_MAX >> w->block_log2);
}

static const struct {
	uint16_t op;
	const char *message;
} requests[] = {
	{ WIRE_OP_HELLO, "hello" }, { WIRE_OP_BLK_WRITE, "blk_write" },
	{ WIRE_OP_BLK_READ, "blk_read" }, { WIRE_OP_BLK_SYNC, "blk_sync" },
	{ WIRE_OP_BLK_CUT, "blk_cut" }, { WIRE_OP_BLK_ALLOC, "blk_alloc" },
	{ WIRE_OP_BLK_MAP, "blk_map" }, { WIRE_OP_BLK_END, "blk_end" },
	{ WIRE_OP_BLK_PURGE, "blk_purge" }, { WIRE_OP_BLK_LIST, "blk_list" },
	{ WIRE_OP_BLK_FENCE, "blk_fence" },
	/* These have no fields; any message will do. */
	{ WIRE_OP_BLK_STAT, "blk_sync" }, { WIRE_OP_BLK_SCRUB, "blk_sync" },
	{ WIRE_OP_PING, "blk_sync" }, { WIRE_OP_ADMIN_STATUS, "blk_sync" },
	{ WIRE_OP_META_CREATE, "meta_create" },
};

static uint32_t data_len_of(uint8_t choice)
{
	return 1 + choice * 16u;
}

static void check_request(const uint8_t *in, size_t size)
{
	static uint8_t data[UNIT_SIZE];
	const uint8_t *body = in + 3;
	struct serve_who who = { .cluster_id = 1, .role = in[1] % 5,
				 .session = 1 };
	struct wire_header h = {
		.version = WIRE_VERSION,
		.opcode = requests[in[0] % array_count(requests)].op,
		.cluster_id = in[2] % 16 != 1,
		.session = in[2] % 16 != 2,
		.body_len = (uint32_t)(size - 3),
		.body_crc = crc32c(0, body, size - 3),
	};
	struct serve_msg m;

	if (h.opcode == WIRE_OP_BLK_WRITE || in[2] % 16 == 3)
		h.data_len = data_len_of(in[2]);
	if (serve_validate(&who, &h, body, data, &m) != 0)
		return;
	fuzz_expect(m.op == h.opcode);
	switch (m.op) {
	case WIRE_OP_BLK_WRITE:
		check_write(&m.u.write, h.data_len);
		break;
	case WIRE_OP_BLK_READ:
		fuzz_expect((uint64_t)m.u.read.off + m.u.read.len <=
			    1ull << m.u.read.block_log2);
		break;
	case WIRE_OP_BLK_MAP:
		fuzz_expect(m.u.map.count_max <= SERVE_MAP_COUNT_MAX);
		break;
	case WIRE_OP_BLK_PURGE:
		fuzz_expect(m.u.purge.inos.len > 0 &&
			    m.u.purge.inos.len % 8 == 0);
		break;
	case WIRE_OP_BLK_LIST:
		fuzz_expect(m.u.list.count_max <= SERVE_LIST_COUNT_MAX);
		break;
	default:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 4)
		return 0;
	messages[data[0] % array_count(messages)].check(data + 4, size - 4);
	check_request(data + 1, size - 1);
	return 0;
}

/* A write that is right but for what fuzz_main.c does to it. */
static void encode_good_write(struct fuzz_rng *rng, struct wire_out *o,
			      uint32_t len)
{
	static uint8_t zeros[UNIT_SIZE];
	uint8_t sums[4 * 2];
	struct blk_write w = {
		.ino = 1 + fuzz_below(rng, 9),
		.index = fuzz_below(rng, 9),
		.off = fuzz_below(rng, 10000),
		.len = len,
		.block_log2 = BLOCK_LOG2_DEFAULT,
		.flags = fuzz_below(rng, 2),
		.sums = { sums, 0 },
	};

	w.sums.len = 4 * crc32c_piece_count(w.off, w.len);
	crc32c_sums(w.off, zeros, w.len, sums);
	blk_write_encode(o, &w);
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	uint32_t i = fuzz_below(rng, array_count(requests));
	struct wire_out o;

	wire_out_init(&o, buf, cap);
	wire_put_u8(&o, (uint8_t)fuzz_u64(rng));
	wire_put_u8(&o, (uint8_t)i);
	/* HELLO is nobody's yet, cuts and fences are metad's, the rest mostly
	 * clients'. */
	wire_put_u8(&o, requests[i].op == WIRE_OP_HELLO ? 0 :
			(uint8_t)(1 + 2 * fuzz_below(rng, 2)));
	wire_put_u8(&o, (uint8_t)fuzz_u64(rng));
	if (fuzz_below(rng, 3) == 0) {
		messages[buf[0] % array_count(messages)].encode(rng, &o);
	} else if (requests[i].op == WIRE_OP_BLK_WRITE) {
		encode_good_write(rng, &o, data_len_of(buf[3]));
	} else if (requests[i].op == WIRE_OP_HELLO) {
		struct hello m = { .version_min = 1, .version_max = 1,
				   .role = (uint8_t)fuzz_below(rng, 6) };

		hello_encode(&o, &m);
	} else if (requests[i].op == WIRE_OP_BLK_PURGE) {
		wire_put_u32(&o, 16);
		wire_put_u64(&o, 5);
		wire_put_u64(&o, fuzz_number(rng, 9));
	} else if (requests[i].op != WIRE_OP_META_CREATE) {
		fuzz_find(messages, requests[i].message)->encode(rng, &o);
	}
	return o.len;
}
