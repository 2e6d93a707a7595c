/* The same short life of a store again and again, each time with the next I/O
 * or the next allocation failing, until none fails: every error is answered,
 * nothing hangs, and what was synced before is there after a power cut.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "blockd/mem.h"
#include "tests/lib/store_box.h"

#define MIB (1u << 20)
#define BLOCK (1u << STORE_BOX_LOG2)

static uint8_t data[BLOCK] __attribute__((aligned(4096)));
static uint8_t got[BLOCK] __attribute__((aligned(4096)));

/* How far a life came: what it promised. */
struct life {
	int synced; /* rounds whose sync succeeded */
	int tried; /* rounds whose writes may be there */
	bool cut, cut_tried;
	bool purged, purge_tried;
};

static void pattern(int round)
{
	for (uint32_t i = 0; i < BLOCK; i++)
		data[i] = (uint8_t)((uint32_t)round * 50 + 1 + i / 4096 +
				    i % 3);
}

static int round_writes(struct store_box *b, int round)
{
	int err;

	pattern(round);
	err = store_box_write(b, 10, 0, 0, 0, data, BLOCK, false);
	if (err == 0)
		err = store_box_write(b, 10, 1, 0, 5000, data, 9000, false);
	if (err == 0)
		err = store_box_write(b, 11, 0, 0, 0, data, 100, false);
	return err;
}

static int live(struct store_box *b, struct life *l)
{
	int err = 0;

	*l = (struct life){ 0 };
	for (int round = 1; round <= 3 && err == 0; round++) {
		l->tried = round;
		err = round_writes(b, round);
		if (err == 0)
			err = store_box_sync(b, 0);
		if (err == 0)
			l->synced = round;
	}
	if (err == 0) {
		l->cut_tried = true;
		err = store_box_cut(b, 10, 1, 7000, BLK_CUT_TO_END);
		l->cut = err == 0;
	}
	if (err == 0) {
		l->purge_tried = true;
		err = store_box_purge(b, 11);
		l->purged = err == 0;
	}
	return err;
}

static bool unit_is(const uint8_t *p, uint32_t unit, int round)
{
	pattern(round);
	return memcmp(p, data + unit * UNIT_SIZE, UNIT_SIZE) == 0;
}

static bool is_zero(const uint8_t *p, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++) {
		if (p[i] != 0)
			return false;
	}
	return true;
}

static void verify(struct store_box *b, const struct life *l)
{
	assert_int_equal(store_box_read(b, 10, 0, 9, 0, got, BLOCK), 0);
	for (uint32_t u = 0; u < BLOCK / UNIT_SIZE; u++) {
		const uint8_t *p = got + u * UNIT_SIZE;
		bool ok = (l->synced == 0 && is_zero(p, UNIT_SIZE)) ||
			  (l->cut_tried && u >= 1 &&
			   is_zero(p + (u == 1 ? 7000 - 4096 : 0),
				   UNIT_SIZE - (u == 1 ? 7000 - 4096 : 0)));

		if (l->cut && u >= 2)
			assert_true(is_zero(p, UNIT_SIZE));
		for (int r = l->synced > 0 ? l->synced : 1;
		     r <= l->tried && !ok; r++)
			ok = unit_is(p, u, r);
		assert_true(ok);
	}
	assert_int_equal(store_box_read(b, 11, 0, 0, 0, got, 100), 0);
	if (l->purged)
		assert_true(is_zero(got, 100));
	if (l->synced > 0 && !l->purge_tried)
		assert_false(is_zero(got, 100));
}

static void init(struct store_box *b, uint64_t seed)
{
	store_box_init_empty(b, seed, 64 * MIB, MIB, MIB);
	b->o.object_bytes = 1; /* blocks come from the index */
	assert_int_equal(store_format(fake_dev_dev(b->f), &b->o), 0);
}

static void every_io_may_fail(void **state)
{
	(void)state;
	for (int sticky = 0; sticky < 2; sticky++) {
		bool failed = true;

		for (uint64_t k = 1; failed; k++) {
			struct store_box b;
			struct life l;
			int err;

			init(&b, k);
			assert_int_equal(store_box_open(&b), 0);
			fake_dev_fail_at(b.f, k, -EIO, sticky != 0);
			err = live(&b, &l);
			store_box_settle(&b);
			failed = fake_dev_failed(b.f);
			assert_true(failed || err == 0);
			fake_dev_fail_at(b.f, 0, 0, false);
			store_box_power_cut(&b);
			if (store_box_open(&b) != 0)
				fail_msg("k %u: %s", (unsigned)k, b.why);
			verify(&b, &l);
			/* And it works again. */
			assert_int_equal(store_box_write(&b, 12, 0, 0, 0, data,
							 BLOCK, true), 0);
			store_box_fini(&b);
			assert_true(k < 1000);
		}
	}
}

static void every_allocation_may_fail(void **state)
{
	bool failed = true;

	(void)state;
	for (uint64_t k = 1; failed; k++) {
		struct store_box b;
		struct life l;
		int err;

		init(&b, k);
		(void)mem_fail_at(k);
		err = store_box_open(&b);
		if (err == 0) {
			err = live(&b, &l);
			store_box_settle(&b);
		} else {
			assert_int_equal(err, -ENOMEM);
			l = (struct life){ 0 };
		}
		/* In the child that reads the index it fails, too. */
		failed = mem_fail_at(0) == 0 || (b.s == NULL && err != 0);
		assert_true(failed || err == 0);
		if (b.s != NULL) {
			/* What failed did not harm the rest. */
			assert_int_equal(store_box_stat(&b).error, 0);
			verify(&b, &l);
			store_box_power_cut(&b);
		}
		if (store_box_open(&b) != 0)
			fail_msg("k %u: %s", (unsigned)k, b.why);
		verify(&b, &l);
		store_box_fini(&b);
		assert_true(k < 1000);
	}
}

static void formatting_may_fail(void **state)
{
	bool failed = true;

	(void)state;
	for (uint64_t k = 1; failed; k++) {
		struct store_box b;
		int err;

		store_box_init_empty(&b, k, 64 * MIB, MIB, MIB);
		(void)mem_fail_at(k);
		err = store_format(fake_dev_dev(b.f), &b.o);
		failed = mem_fail_at(0) == 0;
		if (failed) {
			assert_int_equal(err, -ENOMEM);
			assert_int_equal(store_box_open(&b), -ENOENT);
			/* Again, over what is there. */
			err = store_format(fake_dev_dev(b.f), &b.o);
		}
		assert_int_equal(err, 0);
		assert_int_equal(store_box_open(&b), 0);
		store_box_fini(&b);
	}
}

/* Whatever is left of it is made anew, or it is a store. */
static void formatting_may_be_cut_off(void **state)
{
	bool dead = true;

	(void)state;
	for (uint64_t k = 0; dead; k++) {
		struct store_box b;
		int err;

		store_box_init_empty(&b, k + 1, 64 * MIB, MIB, MIB);
		fake_dev_die_at(b.f, k / 8 + 1);
		(void)store_format(fake_dev_dev(b.f), &b.o);
		dead = fake_dev_dead(b.f);
		fake_dev_power_cut(b.f);
		err = store_box_open(&b);
		if (dead && err != 0) {
			assert_int_equal(err, -ENOENT);
			err = store_format(fake_dev_dev(b.f), &b.o);
			assert_int_equal(err, 0);
			err = store_box_open(&b);
		}
		assert_int_equal(err, 0);
		store_box_fini(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_io_may_fail),
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(formatting_may_fail),
		cmocka_unit_test(formatting_may_be_cut_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
