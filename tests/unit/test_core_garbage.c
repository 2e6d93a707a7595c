/* Attributes that no inode can have, from metad: they are refused, whatever
 * they came with, and the mount goes on with what it knew.
 *
 * Method: one reply of the mini metad is changed on its way, with its checksum
 * made right; the same request is made again.
 */
#include "tests/lib/core_fix.h"

#include "common/crc32c.h"
#include "common/wire.h"
#include "tests/lib/mini_serve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include <cmocka.h>

#define RHDR 24u

static void (*spoil)(struct meta_attr *a);
static _Atomic(uint16_t) spoil_op; /* of the next reply; 0: none */

static void no_inode(struct meta_attr *a)
{
	a->ino = 0;
}

static void small_blocks(struct meta_attr *a)
{
	a->block_log2 = BLOCK_LOG2_MIN - 1;
}

static void large_blocks(struct meta_attr *a)
{
	a->block_log2 = BLOCK_LOG2_MAX + 1;
}

static void shift_overflow(struct meta_attr *a)
{
	a->block_log2 = 200;
}

static void negative_size(struct meta_attr *a)
{
	a->size = (uint64_t)FILE_SIZE_MAX + 1;
}

static void (*const garbage[])(struct meta_attr *a) = {
	no_inode, small_blocks, large_blocks, shift_overflow, negative_size,
};

/* Attributes that begin at @p are spoilt in place: their size is fixed. */
static void spoil_at(const uint8_t *p, size_t len)
{
	struct meta_attr a;
	struct wire_in in;
	struct wire_out o;

	wire_in_init(&in, p, len);
	meta_attr_decode(&in, &a);
	assert_false(in.bad);
	spoil(&a);
	wire_out_init(&o, (uint8_t *)(uintptr_t)p, len);
	meta_attr_encode(&o, &a);
}

/* On the mini metad's thread. */
static void change(uint8_t *frame, size_t *len)
{
	uint8_t *body = frame + WIRE_HEADER_SIZE;
	struct meta_readdir_reply r;
	struct meta_dirent d;
	struct wire_header h;
	struct wire_in in;

	(void)len;
	assert_int_equal(wire_header_decode(frame, &h), 0);
	if (h.opcode != atomic_load(&spoil_op) || h.body_len <= RHDR)
		return;
	atomic_store(&spoil_op, 0);
	if (h.opcode == WIRE_OP_META_READDIR) {
		assert_int_equal(meta_readdir_reply_parse(
					 body + RHDR, h.body_len - RHDR, &r),
				 0);
		wire_in_init(&in, r.entries.p, r.entries.len);
		meta_dirent_decode(&in, &d);
		spoil_at(in.p, in.len);
	} else {
		spoil_at(body + RHDR, h.body_len - RHDR);
	}
	h.body_crc = crc32c(0, body, h.body_len);
	wire_header_encode(&h, frame);
}

static bool any_dirent(void *arg, const struct meta_dirent *d,
		       const struct meta_attr *a)
{
	(void)arg;
	(void)d;
	(void)a;
	return true;
}

static int list(struct fix *f, uint64_t dir)
{
	struct fix_call *k = fix_call_new();

	core_readdir(f->c, dir, 0, 4096, true, any_dirent, on_err, k);
	return fix_call_end(k, NULL);
}

static void test_impossible_attributes_are_refused(void **state)
{
	struct meta_attr d, a;
	struct fix *f;

	(void)state;
	for (size_t i = 0; i < array_count(garbage); i++) {
		f = fix_new(0);
		assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
		assert_int_equal(op_mkfile(f, d.ino, "f", &a), 0);
		assert_int_equal(op_fsync_dir(f), 0);
		/* Another mount, which knows nothing yet. */
		core_free(f->c);
		f->c = mount_new(f->m, 0);
		spoil = garbage[i];
		atomic_store(&spoil_op, WIRE_OP_META_LOOKUP);
		assert_int_equal(op_lookup(f, ROOT_INO, "d", &a), -EIO);
		assert_int_equal(op_lookup(f, ROOT_INO, "d", &a), 0);
		atomic_store(&spoil_op, WIRE_OP_META_READDIR);
		assert_int_equal(list(f, d.ino), -EIO);
		assert_int_equal(list(f, d.ino), 0);
		assert_int_equal(op_lookup(f, d.ino, "f", &a), 0);
		assert_int_equal(a.block_log2, BLOCK_LOG2_DEFAULT);
		assert_int_equal(atomic_load(&spoil_op), 0);
		fix_stop(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_impossible_attributes_are_refused),
	};

	mini_reply_hook = change;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
