/* Goal: nothing wrong reaches a handler, nothing right is refused.
 * Method: one valid request of each kind, then each of its fields made wrong
 * one at a time; every truncation of every body; every role for every opcode.
 */
#include "blockd/serve_validate.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "common/crc32c.h"

#define CLUSTER 0x1234u
#define SESSION 7u

struct request {
	struct wire_header h;
	uint8_t body[8192];
	uint8_t *data;
};

static uint8_t data[FRAME_DATA_MAX];
static uint8_t sums[4 * BLOCK_UNITS_MAX + 4];

static struct serve_who who(uint8_t role)
{
	return (struct serve_who){ .cluster_id = CLUSTER, .role = role,
				   .session = SESSION };
}

static int validate(uint8_t role, const struct request *r)
{
	struct serve_who w = who(role);
	struct serve_msg m;

	return serve_validate(&w, &r->h, r->body, r->data, &m);
}

#define MAKE(r, opcode_, type, ...)                                           \
	do {                                                                  \
		struct type m_ = __VA_ARGS__;                                 \
		struct wire_out o_;                                           \
		memset(&(r)->h, 0, sizeof((r)->h));                           \
		(r)->data = NULL;                                             \
		wire_out_init(&o_, (r)->body, sizeof((r)->body));             \
		type##_encode(&o_, &m_);                                      \
		(r)->h.opcode = opcode_;                                      \
		(r)->h.cluster_id = CLUSTER;                                  \
		(r)->h.session = SESSION;                                     \
		(r)->h.body_len = (uint32_t)o_.len;                           \
	} while (0)

static struct blk_write good_write(uint32_t off, uint32_t len)
{
	struct blk_write w = { .ino = 5, .index = 3, .cut = 1, .off = off,
			       .len = len, .block_log2 = 20,
			       .mtime_ns = -1 };

	crc32c_sums(off, data, len, sums);
	w.sums.p = sums;
	w.sums.len = 4 * crc32c_piece_count(off, len);
	return w;
}

static void make_write(struct request *r, struct blk_write w)
{
	MAKE(r, WIRE_OP_BLK_WRITE, blk_write, w);
	r->h.data_len = w.len;
	r->data = data;
}

static void good_writes_pass(void **state)
{
	static const uint32_t ranges[][2] = {
		{ 0, 1 }, { 0, 4096 }, { 4095, 2 }, { 1048575, 1 },
		{ 0, 1048576 }, { 100, 70000 },
	};
	struct request r;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 31 + i / 4096);
	for (size_t i = 0; i < array_count(ranges); i++) {
		struct blk_write w = good_write(ranges[i][0], ranges[i][1]);

		make_write(&r, w);
		assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), 0);
		w.flags = BLK_WRITE_SYNC;
		make_write(&r, w);
		assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), 0);
	}
}

static void a_wrong_write_is_refused(void **state)
{
	struct blk_write good = good_write(4096, 8192), w;
	struct request r;

	(void)state;
#define REFUSE(err, change)                                                   \
	do {                                                                  \
		w = good;                                                     \
		change;                                                       \
		make_write(&r, w);                                            \
		assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), err);        \
	} while (0)
	REFUSE(0, (void)0);
	REFUSE(-EINVAL, w.ino = 0);
	REFUSE(0, w.ino = INO_MAX);
	REFUSE(-EINVAL, w.ino = INO_MAX + 1);
	REFUSE(-EINVAL, w.len = 0);
	REFUSE(-EINVAL, w.block_log2 = BLOCK_LOG2_MIN - 1);
	REFUSE(-EINVAL, w.block_log2 = BLOCK_LOG2_MAX + 1);
	REFUSE(-EINVAL, w.block_log2 = 255);
	REFUSE(-EINVAL, w.off = (1u << 20) - 8191);
	REFUSE(-EINVAL, w.off = UINT32_MAX);
	REFUSE(-EINVAL, w.flags = 2);
	REFUSE(-EFBIG, w.index = UINT64_MAX);
	REFUSE(-EFBIG, w.index = ((uint64_t)INT64_MAX >> 20) + 1);
	REFUSE(0, w.index = (uint64_t)INT64_MAX >> 20);
	/* The last byte of the last block is beyond the largest file. */
	REFUSE(-EFBIG, w.index = (uint64_t)INT64_MAX >> 20;
	       w.off = (1u << 20) - 8192);
	REFUSE(-EBADMSG, w.sums.len = 4);
	REFUSE(-EBADMSG, w.sums.len = 12);
	REFUSE(-EBADMSG, w.sums.len = 0);
	REFUSE(-EBADMSG, w.off = 4097); /* another split into pieces */
#undef REFUSE
	make_write(&r, good);
	r.h.data_len--;
	assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), -EBADMSG);
}

static void every_flipped_data_bit_is_found(void **state)
{
	struct request r;

	(void)state;
	make_write(&r, good_write(10, 5000));
	for (uint32_t i = 0; i < 5000; i += 37) {
		data[i] ^= 0x10;
		assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), -EBADMSG);
		data[i] ^= 0x10;
	}
	assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), 0);
}

static void a_wrong_read_is_refused(void **state)
{
	const struct blk_read good = { .ino = 1, .len = 65536,
				       .block_log2 = 16 };
	struct blk_read m;
	struct request r;

	(void)state;
#define REFUSE(err, change)                                                   \
	do {                                                                  \
		m = good;                                                     \
		change;                                                       \
		MAKE(&r, WIRE_OP_BLK_READ, blk_read, m);                      \
		assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), err);        \
	} while (0)
	REFUSE(0, (void)0);
	REFUSE(-EINVAL, m.ino = 0);
	REFUSE(-EINVAL, m.len = 0);
	REFUSE(-EINVAL, m.off = 1);
	REFUSE(-EINVAL, m.flags = 1);
	REFUSE(-EINVAL, m.block_log2 = 0);
	REFUSE(-EFBIG, m.index = UINT64_MAX >> 1);
#undef REFUSE
	MAKE(&r, WIRE_OP_BLK_READ, blk_read, good);
	r.h.data_len = 1;
	r.data = data;
	assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), -EBADMSG);
}

/* A valid request of each opcode. Returns false when there are no more. */
static bool nth_request(unsigned n, struct request *r)
{
	static const uint8_t inos[16] = { 1 };
	struct blk_purge purge = { .inos = { inos, 16 } };

	switch (n) {
	case 0:
		make_write(r, good_write(0, 4096));
		return true;
	case 1:
		MAKE(r, WIRE_OP_BLK_READ, blk_read,
		     { .ino = 1, .len = 1, .block_log2 = 20 });
		return true;
	case 2:
		MAKE(r, WIRE_OP_BLK_SYNC, blk_sync, { .ino = 0 });
		return true;
	case 3:
		MAKE(r, WIRE_OP_BLK_CUT, blk_cut,
		     { .ino = 1, .cut = 1, .from = 0, .to = BLK_CUT_TO_END,
		       .block_log2 = 20 });
		return true;
	case 4:
		MAKE(r, WIRE_OP_BLK_ALLOC, blk_alloc,
		     { .ino = 1, .len = 1, .block_log2 = 20 });
		return true;
	case 5:
		MAKE(r, WIRE_OP_BLK_MAP, blk_map,
		     { .ino = 1, .last = UINT64_MAX, .count_max = UINT32_MAX,
		       .block_log2 = 20 });
		return true;
	case 6:
		MAKE(r, WIRE_OP_BLK_END, blk_end,
		     { .ino = 1, .block_log2 = 20 });
		return true;
	case 7:
		MAKE(r, WIRE_OP_BLK_PURGE, blk_purge, purge);
		return true;
	case 8:
		MAKE(r, WIRE_OP_BLK_LIST, blk_list, { .count_max = 1 });
		return true;
	case 9:
		MAKE(r, WIRE_OP_BLK_FENCE, blk_fence, { .session = 1 });
		return true;
	default:
		return false;
	}
}

static void a_truncated_body_is_refused_and_a_longer_one_is_a_later_minors(
	void **state)
{
	struct request r;

	(void)state;
	for (unsigned n = 0; nth_request(n, &r); n++) {
		bool from_metad = validate(WIRE_ROLE_CLIENT, &r) == -EPERM;
		uint8_t role = from_metad ? WIRE_ROLE_METAD : WIRE_ROLE_CLIENT;
		uint32_t len = r.h.body_len;

		assert_int_equal(validate(role, &r), 0);
		for (r.h.body_len = 0; r.h.body_len < len; r.h.body_len++)
			assert_int_equal(validate(role, &r), -EBADMSG);
		r.h.body_len = len + 1;
		assert_int_equal(validate(role, &r), 0);
	}
}

static void roles_may_do_what_is_theirs(void **state)
{
	/* rows as in nth_request(); C lient, M etad, A dmin */
	static const char *const may[] = { "C", "CA", "CMA", "M", "C", "CMA",
					   "CMA", "M", "MA", "M" };
	static const struct { char c; uint8_t role; } roles[] = {
		{ 'C', WIRE_ROLE_CLIENT }, { 'M', WIRE_ROLE_METAD },
		{ 'A', WIRE_ROLE_ADMIN }, { 'B', WIRE_ROLE_BLOCKD },
	};
	struct request r;

	(void)state;
	for (unsigned n = 0; nth_request(n, &r); n++)
		for (size_t i = 0; i < array_count(roles); i++)
			assert_int_equal(validate(roles[i].role, &r),
					 strchr(may[n], roles[i].c) ? 0 :
								      -EPERM);
}

static void an_unknown_operation_is_answered_not_closed(void **state)
{
	struct request r;

	(void)state;
	MAKE(&r, 9999, blk_sync, { .ino = 0 });
	assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), -EOPNOTSUPP);
}

static void the_sender_is_looked_at_first(void **state)
{
	struct request r;

	(void)state;
	nth_request(1, &r);
	r.h.flags = WIRE_F_REPLY;
	assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), -EBADMSG);
	nth_request(1, &r);
	r.h.status = 1;
	assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), -EBADMSG);
	nth_request(1, &r);
	r.h.session = SESSION + 1;
	assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), -EBADMSG);
	nth_request(1, &r);
	r.h.cluster_id = 99;
	assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), -EXDEV);
	r.h.cluster_id = 0;
	assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), -EXDEV);
	assert_int_equal(validate(WIRE_ROLE_ADMIN, &r), 0);
	/* Before HELLO only HELLO. */
	nth_request(1, &r);
	assert_int_equal(validate(0, &r), -EBADMSG);
}

static void make_hello(struct request *r, struct hello h)
{
	MAKE(r, WIRE_OP_HELLO, hello, h);
}

static void hello_comes_once_and_fits(void **state)
{
	const struct hello good = { .version_min = 1, .version_max = 1,
				    .role = WIRE_ROLE_CLIENT,
				    .incarnation = 1 };
	struct hello h = good;
	struct request r;

	(void)state;
	make_hello(&r, h);
	assert_int_equal(validate(0, &r), 0);
	assert_int_equal(validate(WIRE_ROLE_CLIENT, &r), -EBADMSG);
	r.h.session = 0;
	assert_int_equal(validate(0, &r), -EINVAL);
	h.version_min = h.version_max = WIRE_VERSION + 1;
	make_hello(&r, h);
	assert_int_equal(validate(0, &r), -EPROTONOSUPPORT);
	h.version_min = 1;
	make_hello(&r, h);
	assert_int_equal(validate(0, &r), 0);
	h = good;
	h.role = 0;
	make_hello(&r, h);
	assert_int_equal(validate(0, &r), -EBADMSG);
	h.role = 5;
	make_hello(&r, h);
	assert_int_equal(validate(0, &r), -EBADMSG);
	make_hello(&r, good);
	r.h.cluster_id = 0;
	assert_int_equal(validate(0, &r), -EXDEV);
	h = good;
	h.role = WIRE_ROLE_ADMIN;
	make_hello(&r, h);
	r.h.cluster_id = 0;
	assert_int_equal(validate(0, &r), 0);
}

static void wrong_values_of_metad_are_refused(void **state)
{
	static const uint8_t odd[12];
	struct blk_purge p = { .inos = { odd, 12 } };
	struct request r;

	(void)state;
#define REFUSE(op, type, ...)                                                 \
	do {                                                                  \
		MAKE(&r, op, type, __VA_ARGS__);                              \
		assert_in_range(-validate(WIRE_ROLE_METAD, &r), EINVAL,       \
				EFBIG);                                       \
	} while (0)
	REFUSE(WIRE_OP_BLK_CUT, blk_cut, { .ino = 0, .cut = 1, .to = 1,
					   .block_log2 = 20 });
	REFUSE(WIRE_OP_BLK_CUT, blk_cut, { .ino = 1, .cut = 0, .to = 1,
					   .block_log2 = 20 });
	REFUSE(WIRE_OP_BLK_CUT, blk_cut, { .ino = 1, .cut = 1, .from = 2,
					   .to = 1, .block_log2 = 20 });
	REFUSE(WIRE_OP_BLK_CUT, blk_cut, { .ino = 1, .cut = 1,
					   .to = UINT64_MAX - 1,
					   .block_log2 = 20 });
	REFUSE(WIRE_OP_BLK_CUT, blk_cut, { .ino = 1, .cut = 1, .to = 1,
					   .block_log2 = 2 });
	REFUSE(WIRE_OP_BLK_MAP, blk_map, { .ino = 1, .first = 1,
					   .count_max = 1,
					   .block_log2 = 20 });
	REFUSE(WIRE_OP_BLK_MAP, blk_map, { .ino = 1, .block_log2 = 20 });
	REFUSE(WIRE_OP_BLK_END, blk_end, { .ino = 0, .block_log2 = 20 });
	REFUSE(WIRE_OP_BLK_LIST, blk_list, { .count_max = 0 });
	REFUSE(WIRE_OP_BLK_FENCE, blk_fence, { .session = 0 });
	REFUSE(WIRE_OP_BLK_PURGE, blk_purge, p);
#undef REFUSE
}

static void counts_are_brought_within_bounds(void **state)
{
	struct serve_who w = who(WIRE_ROLE_CLIENT);
	struct serve_msg m;
	struct request r;

	(void)state;
	nth_request(5, &r);
	assert_int_equal(serve_validate(&w, &r.h, r.body, NULL, &m), 0);
	assert_int_equal(m.u.map.count_max, SERVE_MAP_COUNT_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_writes_pass),
		cmocka_unit_test(a_wrong_write_is_refused),
		cmocka_unit_test(every_flipped_data_bit_is_found),
		cmocka_unit_test(a_wrong_read_is_refused),
		cmocka_unit_test(
			a_truncated_body_is_refused_and_a_longer_one_is_a_later_minors),
		cmocka_unit_test(roles_may_do_what_is_theirs),
		cmocka_unit_test(an_unknown_operation_is_answered_not_closed),
		cmocka_unit_test(the_sender_is_looked_at_first),
		cmocka_unit_test(hello_comes_once_and_fits),
		cmocka_unit_test(wrong_values_of_metad_are_refused),
		cmocka_unit_test(counts_are_brought_within_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
