/* Snapshots: the same state comes back, damage is found, another thread may
 * read while commands go on; determinism; memory that runs out. */
#include "tests/lib/sm_fixture.h"

#include "common/crc32c.h"
#include "metad/cow_priv.h"
#include "metad/sm_priv.h"
#include "tests/lib/sm_scene.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void play(struct sm_scene *s, uint64_t seed, uint32_t steps)
{
	sm_scene_init(s, sm_new(), seed);
	for (uint32_t i = 0; i < steps; i++)
		(void)sm_scene_step(s); /* errors are part of it */
}

static void assert_equal_state(struct sm *a, struct sm *b)
{
	size_t a_len, b_len;
	uint8_t *a_bytes = sm_client_snapshot(a, &a_len);
	uint8_t *b_bytes = sm_client_snapshot(b, &b_len);

	assert_int_equal(a_len, b_len);
	assert_memory_equal(a_bytes, b_bytes, a_len);
	free(a_bytes);
	free(b_bytes);
}

static void a_restored_machine_is_the_same_and_goes_on_alike(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct sm *copy = sm_new();
		struct sm_scene s;
		struct sm_reply r;
		uint8_t *bytes;
		size_t len;

		play(&s, seed, 700);
		assert_true(sm_verify(s.c.sm));
		bytes = sm_client_snapshot(s.c.sm, &len);
		assert_int_equal(sm_restore(copy, bytes, len), 0);
		free(bytes);
		assert_equal_state(s.c.sm, copy);
		assert_true(sm_pos(copy) == sm_pos(s.c.sm));
		assert_true(sm_inode_count(copy) == sm_inode_count(s.c.sm));
		assert_true(sm_map(copy)->epoch == sm_map(s.c.sm)->epoch);
		for (int i = 0; i < 300; i++) {
			int err = sm_scene_step(&s);
			int again = sm_client_repeat_on(&s.c, copy, &r);

			assert_int_equal(err, again);
		}
		assert_equal_state(s.c.sm, copy);
		sm_free(copy);
		sm_scene_fini(&s);
	}
}

static void two_machines_fed_alike_are_alike(void **state)
{
	struct sm *twin = sm_new();
	struct sm_scene s;
	struct sm_reply r;

	(void)state;
	sm_scene_init(&s, sm_new(), 4242);
	sm_scene_copy(&s, twin);
	for (int i = 0; i < 4000; i++) {
		int err = sm_scene_step(&s);

		assert_int_equal(sm_client_repeat_on(&s.c, twin, &r), err);
		assert_int_equal(r.body_len, s.c.r.body_len);
		assert_memory_equal(r.body, s.c.r.body, r.body_len);
		assert_true(r.pos == s.c.r.pos);
		if (i % 1000 == 0) /* pages differ, bytes must not */
			sm_snap_end(twin, sm_snap_begin(twin));
	}
	assert_equal_state(s.c.sm, twin);
	sm_free(twin);
	sm_scene_fini(&s);
}

static void an_empty_machine_has_a_snapshot(void **state)
{
	struct sm *sm = sm_new(), *copy = sm_new();
	uint8_t *bytes;
	size_t len;

	(void)state;
	sm_set_batch(sm, 5);
	bytes = sm_client_snapshot(sm, &len);
	assert_int_equal(sm_restore(copy, bytes, len), 0);
	assert_int_equal(sm_batch(copy), 5);
	assert_int_equal(sm_pos(copy), 0);
	free(bytes);
	sm_free(sm);
	sm_free(copy);
}

static void pieces_of_any_size_make_the_same_stream(void **state)
{
	static const size_t pieces[] = { 1, 3, 31, 4096, 65535, 1 << 20 };
	struct sm_scene s;
	uint8_t *whole, *part;
	size_t len;

	(void)state;
	play(&s, 7, 1500);
	whole = sm_client_snapshot(s.c.sm, &len);
	part = malloc(len);
	assert_true(len > SM_SNAP_CHUNK_SIZE);
	for (size_t i = 0; i < array_count(pieces); i++) {
		struct sm_snap *snap = sm_snap_begin(s.c.sm);
		size_t at = 0, got;

		do {
			got = sm_snap_next(snap, part + at,
					   u64_min(pieces[i], len - at));
			at += got;
		} while (got > 0);
		assert_int_equal(at, len);
		assert_memory_equal(whole, part, len);
		sm_snap_end(s.c.sm, snap);
	}
	free(whole);
	free(part);
	sm_scene_fini(&s);
}

/* ---- another thread reads ---- */

struct reader {
	struct sm_snap *snap;
	uint8_t *buf;
	size_t len;
};

static void *read_snapshot(void *arg)
{
	struct reader *r = arg;
	size_t got;

	do {
		got = sm_snap_next(r->snap, r->buf + r->len, 777);
		r->len += got;
	} while (got > 0);
	return NULL;
}

static void a_snapshot_is_read_while_commands_go_on(void **state)
{
	struct sm_scene s;

	(void)state;
	play(&s, 11, 500);
	for (int round = 0; round < 10; round++) {
		struct reader r = { 0 };
		struct sm *copy = sm_new();
		pthread_t thread;
		uint64_t pos = sm_pos(s.c.sm);

		r.snap = sm_snap_begin(s.c.sm);
		r.buf = malloc(sm_snap_size(r.snap));
		assert_int_equal(pthread_create(&thread, NULL, read_snapshot,
						&r), 0);
		for (int i = 0; i < 400; i++)
			(void)sm_scene_step(&s);
		pthread_join(thread, NULL);
		assert_int_equal(r.len, sm_snap_size(r.snap));
		sm_snap_end(s.c.sm, r.snap);
		assert_int_equal(sm_restore(copy, r.buf, r.len), 0);
		assert_true(sm_pos(copy) == pos);
		free(r.buf);
		sm_free(copy);
	}
	sm_scene_fini(&s);
}

/* ---- damage ---- */

static void every_damaged_byte_is_found(void **state)
{
	struct sm *victim = sm_new();
	struct sm_client before;
	struct sm_scene s;
	uint8_t *bytes;
	size_t len, step;

	(void)state;
	sm_client_init_in(&before, victim);
	play(&s, 3, 300);
	bytes = sm_client_snapshot(s.c.sm, &len);
	step = len / 1500 + 1;
	for (size_t i = 0; i < len; i += i < 64 ? 1 : step) {
		int err;

		bytes[i] ^= (uint8_t)(1u << i % 8);
		err = sm_restore(victim, bytes, len);
		assert_true(err == -EBADMSG || err == -EPROTONOSUPPORT);
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
	for (size_t i = 0; i < len; i += i < 64 ? 1 : step * 3)
		assert_int_equal(sm_restore(victim, bytes, i), -EBADMSG);
	/* and nothing happened to it */
	assert_int_equal(sm_client_file(&before, ROOT_INO, "f"), 0);
	assert_int_equal(sm_restore(victim, bytes, len), 0);
	free(bytes);
	sm_client_fini(&before);
	sm_scene_fini(&s);
}

static void a_longer_snapshot_is_refused(void **state)
{
	struct sm_scene s;
	uint8_t *bytes;
	size_t len;

	(void)state;
	play(&s, 3, 30);
	bytes = sm_client_snapshot(s.c.sm, &len);
	bytes = realloc(bytes, len + 1);
	bytes[len] = 0;
	assert_int_equal(sm_restore(s.c.sm, bytes, len + 1), -EBADMSG);
	free(bytes);
	sm_scene_fini(&s);
}

static void a_version_from_the_future_is_told_apart(void **state)
{
	struct sm_scene s;
	struct wire_out o;
	uint8_t *bytes;
	size_t len;

	(void)state;
	play(&s, 3, 30);
	bytes = sm_client_snapshot(s.c.sm, &len);
	bytes[8] = SM_SNAP_VERSION + 1;
	wire_out_init(&o, bytes + SM_SNAP_HEADER_SIZE - 4, 4);
	wire_put_u32(&o, crc32c(0, bytes, SM_SNAP_HEADER_SIZE - 4));
	assert_int_equal(sm_restore(s.c.sm, bytes, len), -EPROTONOSUPPORT);
	free(bytes);
	sm_scene_fini(&s);
}

/* Damage that the checksums do not show: either it is refused, or the machine
 * can live with it. */
static void records_that_make_no_sense_never_crash(void **state)
{
	struct sm_scene s, victim;
	uint8_t *snap, *stream;
	size_t snap_len, len;
	uint32_t refused = 0, taken = 0;

	(void)state;
	play(&s, 21, 200);
	snap = sm_client_snapshot(s.c.sm, &snap_len);
	stream = sm_client_unwrap(snap, snap_len, &len);
	free(snap);
	sm_scene_init(&victim, sm_new(), 22);
	for (int i = 0; i < 2000; i++) {
		/* the map is most of the bytes and least of the state */
		size_t at = sm_scene_below(&s, 4) == 0 ?
			    sm_scene_below(&s, len) :
			    len - 1 - sm_scene_below(&s, len / 3);
		uint8_t was = stream[at];

		stream[at] ^= (uint8_t)(1u << sm_scene_below(&s, 8));
		snap = sm_client_wrap(stream, len, &snap_len);
		if (sm_restore(victim.c.sm, snap, snap_len) == 0) {
			taken++;
			victim.c.session = s.c.session;
			victim.c.seq = s.c.seq;
			victim.ino_max = s.ino_max;
			for (int k = 0; k < 30; k++)
				(void)sm_scene_step(&victim);
		} else {
			refused++;
		}
		free(snap);
		stream[at] = was;
	}
	print_message("%u refused, %u taken\n", refused, taken);
	assert_true(refused > 200 && taken > 200);
	free(stream);
	sm_scene_fini(&victim);
	sm_scene_fini(&s);
}

/* ---- memory ---- */

struct meager {
	bool limited;
	uint64_t left; /* allocations that succeed while limited */
};

static void *meager_alloc(void *ctx, size_t size)
{
	struct meager *m = ctx;

	if (m->limited && m->left-- == 0) {
		m->left = 0;
		return NULL;
	}
	return malloc(size);
}

static void meager_release(void *ctx, void *p)
{
	(void)ctx;
	free(p);
}

/* A twin whose memory runs out now and then, does each command at the second
 * try, and is the same in the end. */
static void a_command_without_memory_changes_nothing(void **state)
{
	struct meager mem = { .limited = false };
	struct cow_mem vt = { meager_alloc, meager_release, &mem };
	struct sm *twin = sm_new_mem(&vt);
	struct sm_scene s;
	uint32_t refused = 0, bulk = 0;

	(void)state;
	sm_scene_init(&s, sm_new(), 99);
	sm_scene_copy(&s, twin);
	for (int i = 0; i < 4000; i++) {
		int err = sm_scene_step(&s), got;
		uint64_t pos = sm_pos(twin);
		struct sm_reply r;

		cow_drain(twin->tree);
		mem.left = sm_scene_below(&s, 1200);
		mem.limited = true;
		got = sm_client_repeat_on(&s.c, twin, &r);
		mem.limited = false;
		if (got == -ENOMEM) {
			refused++;
			bulk += s.c.op == WIRE_OP_META_RETURN ||
				s.c.op == WIRE_OP_SM_SESSION_CLOSE;
			assert_true(r.pos == pos && sm_pos(twin) == pos);
			if (refused % 50 == 0)
				assert_true(sm_verify(twin));
			got = sm_client_repeat_on(&s.c, twin, &r);
		}
		assert_int_equal(got, err);
		assert_int_equal(r.body_len, s.c.r.body_len);
		assert_memory_equal(r.body, s.c.r.body, r.body_len);
	}
	assert_true(refused > 200 && bulk > 20);
	assert_equal_state(s.c.sm, twin);
	sm_free(twin);
	sm_scene_fini(&s);
}

/* The commands that touch any number of inodes. */
static void half_done_work_is_undone(void **state)
{
	struct meager mem = { .limited = false };
	struct cow_mem vt = { meager_alloc, meager_release, &mem };
	struct sm *sm = sm_new_mem(&vt);
	struct sm_client c, d;
	char name[16];
	int err = -ENOMEM;
	uint32_t refused = 0;

	(void)state;
	sm_client_init_in(&c, sm);
	sm_client_join(&d, sm);
	for (int i = 0; i < 4000; i++) {
		(void)snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(sm_client_file(&d, ROOT_INO, name), 0);
		assert_int_equal(sm_client_lease(&d, d.attr.ino), 0);
		if (i % 2 != 0)
			continue;
		assert_int_equal(sm_client_unlink(&d, ROOT_INO, name), 0);
		assert_int_equal(sm_client_give_back(&c, d.attr.ino,
						     META_RETURN_ORPHAN), 0);
	}
	for (uint64_t left = 0; err != 0; left += 40) {
		size_t before_len, after_len;
		uint8_t *before = sm_client_snapshot(sm, &before_len), *after;

		cow_drain(sm->tree);
		mem.left = left;
		mem.limited = true;
		err = sm_client_close(&c, d.session, 2);
		mem.limited = false;
		if (err != 0) {
			assert_int_equal(err, -ENOMEM);
			assert_true(cow_check(sm->tree));
			after = sm_client_snapshot(sm, &after_len);
			assert_int_equal(before_len, after_len);
			assert_memory_equal(before, after, after_len);
			free(after);
			refused++;
		}
		free(before);
	}
	assert_true(refused > 10);
	assert_int_equal(sm_inode_count(sm), 1 + 2000);
	assert_true(sm_verify(sm));
	sm_client_leave(&d);
	sm_client_fini(&c);
}

static void a_restore_without_memory_changes_nothing(void **state)
{
	struct meager mem = { .limited = false };
	struct cow_mem vt = { meager_alloc, meager_release, &mem };
	struct sm *victim = sm_new_mem(&vt);
	struct sm_client c;
	struct sm_scene s;
	uint8_t *bytes;
	size_t len;
	int err = -ENOMEM;

	(void)state;
	play(&s, 5, 300);
	bytes = sm_client_snapshot(s.c.sm, &len);
	sm_client_init_in(&c, victim);
	for (uint64_t k = 0; err != 0; k += 1 + k / 16) {
		uint64_t pos = sm_pos(victim);

		mem.left = k;
		mem.limited = true;
		err = sm_restore(victim, bytes, len);
		mem.limited = false;
		if (err == 0)
			break;
		assert_int_equal(err, -ENOMEM);
		assert_true(sm_pos(victim) == pos);
		assert_int_equal(sm_client_getattr(&c, ROOT_INO), 0);
	}
	assert_equal_state(s.c.sm, victim);
	free(bytes);
	sm_client_leave(&c);
	sm_free(victim);
	sm_scene_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_restored_machine_is_the_same_and_goes_on_alike),
		cmocka_unit_test(two_machines_fed_alike_are_alike),
		cmocka_unit_test(an_empty_machine_has_a_snapshot),
		cmocka_unit_test(pieces_of_any_size_make_the_same_stream),
		cmocka_unit_test(a_snapshot_is_read_while_commands_go_on),
		cmocka_unit_test(every_damaged_byte_is_found),
		cmocka_unit_test(a_longer_snapshot_is_refused),
		cmocka_unit_test(a_version_from_the_future_is_told_apart),
		cmocka_unit_test(records_that_make_no_sense_never_crash),
		cmocka_unit_test(a_command_without_memory_changes_nothing),
		cmocka_unit_test(half_done_work_is_undone),
		cmocka_unit_test(a_restore_without_memory_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
