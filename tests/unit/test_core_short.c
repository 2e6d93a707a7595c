/* The client core while memory is short everywhere: in its callers, on the
 * thread that receives and in the flusher. Nothing hangs, every call is
 * answered once with success or -ENOMEM, and what was acknowledged is there.
 *
 * Method: one allocation in so many fails in every thread but the daemons'.
 * An operation is tried until it succeeds; then it counts in a model.
 */
#include "tests/lib/data_fix.h"
#include "tests/lib/fail_malloc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

#define FILES 3u
#define LEN (3u << 20)
#define STEPS 400u
#define TRIES 500u

struct one {
	struct core_file *f;
	uint64_t size;
	uint8_t bytes[LEN];
};

struct storm {
	struct dfix *d;
	uint64_t seed;
	struct one file[FILES];
	unsigned new_count; /* of files that replace others */
	unsigned failed; /* operations */
	uint8_t got[LEN];
	size_t got_len;
	struct fix_call *k;
	/* the operation under way */
	struct one *o;
	uint64_t off;
	uint32_t len, flags;
	char name[16];
	struct core_file *made;
	unsigned entries;
};

static uint32_t rnd(struct storm *s, uint32_t below)
{
	s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((s->seed >> 33) % below);
}

/* Tries until it succeeds. */
static void must(struct storm *s, void (*start)(struct storm *s))
{
	for (unsigned i = 0; i < TRIES; i++) {
		int err;

		s->k = fix_call_new();
		fail_malloc_spared = false;
		start(s);
		fail_malloc_spared = true;
		err = fix_call_end(s->k, NULL);
		if (err == 0)
			return;
		s->failed++;
		assert_int_equal(err, -ENOMEM);
	}
	fail();
}

/* ---- operations ---- */

static void start_write(struct storm *s)
{
	struct iovec iov = { s->o->bytes + s->off, s->len };

	core_write(s->d->f.c, s->o->f, s->off, &iov, 1, s->len, s->flags,
		   on_err, s->k);
}

static void start_fsync(struct storm *s)
{
	core_fsync(s->d->f.c, core_file_ino(s->o->f), true, on_err, s->k);
}

static void start_sync(struct storm *s)
{
	core_sync_all(s->d->f.c, on_err, s->k);
}

static void start_truncate(struct storm *s)
{
	core_truncate(s->d->f.c, core_file_ino(s->o->f), s->off, false,
		      on_attr, s->k);
}

static void on_got(void *arg, int err, const struct iovec *iov, int iov_count,
		   size_t len)
{
	struct storm *s = arg;

	s->got_len = 0;
	for (int i = 0; i < iov_count; i++) {
		memcpy(s->got + s->got_len, iov[i].iov_base, iov[i].iov_len);
		s->got_len += iov[i].iov_len;
	}
	assert_int_equal(s->got_len, len);
	fix_call_done(s->k, err);
}

static void start_read(struct storm *s)
{
	core_read(s->d->f.c, s->o->f, s->off, s->len, on_got, s);
}

static void start_create(struct storm *s)
{
	struct core_create p = { .parent = ROOT_INO, .name = s->name,
				 .mode = S_IFREG | 0600,
				 .open_flags = O_RDWR };

	core_create_open(s->d->f.c, &p, &s->made, on_attr, s->k);
}

static void start_rename(struct storm *s)
{
	char to[16];

	snprintf(to, sizeof(to), "f%u", (unsigned)(s->o - s->file));
	core_rename(s->d->f.c,
		    &(struct core_rename){ .parent = ROOT_INO,
					   .name = s->name,
					   .newparent = ROOT_INO,
					   .newname = to }, on_err, s->k);
}

static bool on_entry(void *arg, const struct meta_dirent *e,
		     const struct meta_attr *a)
{
	struct storm *s = arg;

	(void)e;
	(void)a;
	s->entries++;
	return true;
}

static void on_listed(void *arg, int err)
{
	fix_call_done(((struct storm *)arg)->k, err);
}

static void start_list(struct storm *s)
{
	s->entries = 0;
	core_readdir(s->d->f.c, ROOT_INO, 0, 65536, s->flags != 0, on_entry,
		     on_listed, s);
}

/* ---- steps ---- */

static void check_bytes(struct storm *s, uint64_t off, uint32_t len)
{
	size_t want = off < s->o->size ? u64_min(len, s->o->size - off) : 0;

	s->off = off;
	s->len = len;
	must(s, start_read);
	assert_int_equal(s->got_len, want);
	assert_memory_equal(s->got, s->o->bytes + off, want);
}

static void step_write(struct storm *s)
{
	static const uint32_t sizes[] = { 10, 4096, 70000, LEN / 2 };

	s->off = rnd(s, 2) ? s->o->size % LEN : rnd(s, LEN);
	s->len = 1 + rnd(s, sizes[rnd(s, 4)]);
	s->len = (uint32_t)u64_min(s->len, LEN - s->off);
	s->flags = rnd(s, 5) ? 0 : CORE_WRITE_DIRECT;
	d_fill(s->o->bytes + s->off, s->len, s->seed);
	must(s, start_write);
	s->o->size = u64_max(s->o->size, s->off + s->len);
}

static void step_truncate(struct storm *s)
{
	s->off = rnd(s, LEN);
	must(s, start_truncate);
	if (s->off < s->o->size)
		memset(s->o->bytes + s->off, 0, s->o->size - s->off);
	s->o->size = s->off;
}

/* Another file takes the name: what it has is durable first. */
static void step_replace(struct storm *s)
{
	struct one *o = s->o;
	uint8_t *durable = s->got;

	snprintf(s->name, sizeof(s->name), "new%u", s->new_count++);
	must(s, start_create);
	core_release(s->d->f.c, o->f);
	o->f = s->made;
	memset(o->bytes, 0, LEN);
	o->size = 0;
	step_write(s);
	must(s, start_rename);
	d_peek(s->d, o->f, 0, LEN, true, durable);
	assert_memory_equal(durable, o->bytes, LEN);
}

static void step_list(struct storm *s)
{
	s->flags = rnd(s, 2);
	must(s, start_list);
	assert_int_equal(s->entries, FILES);
}

static void step_sequential(struct storm *s)
{
	for (uint64_t off = 0; off < s->o->size; off += 100000)
		check_bytes(s, off, 100000);
}

static void step(struct storm *s)
{
	uint32_t what = rnd(s, 100);

	s->o = &s->file[rnd(s, FILES)];
	if (what < 45)
		step_write(s);
	else if (what < 60)
		check_bytes(s, rnd(s, LEN), LEN / 2);
	else if (what < 65)
		step_sequential(s);
	else if (what < 75)
		step_truncate(s);
	else if (what < 85)
		must(s, start_fsync);
	else if (what < 88)
		must(s, start_sync);
	else if (what < 94)
		step_replace(s);
	else
		step_list(s);
}

static void storm_run(uint64_t seed, unsigned every)
{
	struct storm *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	fail_malloc_spared = true;
	s->seed = seed;
	s->d = dfix_new(&(struct dfix_options){
		.wb_bytes_max = 4u << 20, .flush_age_ms = 10,
		.prefetch_bytes_max = 2u << 20 });
	for (unsigned i = 0; i < FILES; i++) {
		snprintf(s->name, sizeof(s->name), "f%u", i);
		s->file[i].f = d_create(s->d, s->name);
	}
	(void)fail_malloc_all(every);
	for (unsigned i = 0; i < STEPS; i++)
		step(s);
	assert_true(fail_malloc_all(0) > 10);
	assert_true(s->failed > 0);
	assert_int_equal(d_sync(s->d), 0);
	for (unsigned i = 0; i < FILES; i++) {
		s->o = &s->file[i];
		d_peek(s->d, s->o->f, 0, LEN, true, s->got);
		assert_memory_equal(s->got, s->o->bytes, LEN);
		check_bytes(s, 0, LEN);
		assert_int_equal(d_size(s->d, s->o->f), s->o->size);
		d_close(s->d, s->o->f);
	}
	dfix_stop(s->d);
	free(s);
}

static void test_nothing_is_lost_where_every_hundredth_fails(void **state)
{
	const char *more = getenv("SHORT_SEEDS");
	uint64_t seeds = more ? strtoull(more, NULL, 10) : 3;

	(void)state;
	for (uint64_t seed = 1; seed <= seeds; seed++)
		storm_run(seed, seed % 2 ? 100 : 30);
}

static void test_nothing_is_lost_where_every_seventh_fails(void **state)
{
	(void)state;
	storm_run(11, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_nothing_is_lost_where_every_hundredth_fails),
		cmocka_unit_test(
			test_nothing_is_lost_where_every_seventh_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
