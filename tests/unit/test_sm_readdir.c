/* Listings: pages, cookies that stay, names whose hashes collide. */
#include "tests/lib/sm_fixture.h"

#include "metad/sm_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT ROOT_INO

struct seen {
	uint32_t count;
	uint64_t last;
	uint8_t times[4000]; /* by the number in the name */
	uint64_t cookies[4000];
};

static void on_entry(void *arg, const struct meta_dirent *d,
		     const struct meta_attr *a)
{
	struct seen *s = arg;
	char name[NAME_LEN_MAX + 1];
	unsigned long number;

	memcpy(name, d->name.p, d->name.len);
	name[d->name.len] = '\0';
	number = strtoul(name, NULL, 10);
	assert_true(number < 4000);
	assert_true(d->cookie > s->last && d->cookie > 2 &&
		    d->cookie < INT64_MAX);
	if (a != NULL)
		assert_true(a->ino == d->ino && a->mode == d->mode);
	s->last = d->cookie;
	s->times[number]++;
	s->cookies[number] = d->cookie;
	s->count++;
}

static void make(struct sm_client *c, uint32_t from, uint32_t to)
{
	char name[16];

	for (uint32_t i = from; i < to; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(sm_client_file(c, ROOT, name), 0);
	}
}

static void drop(struct sm_client *c, uint32_t i)
{
	char name[16];

	(void)snprintf(name, sizeof(name), "%u", i);
	assert_int_equal(sm_client_unlink(c, ROOT, name), 0);
}

static void list(struct sm_client *c, uint32_t bytes, bool plus,
		 struct seen *s)
{
	uint64_t cookie = 0;
	bool eof = false;

	memset(s, 0, sizeof(*s));
	while (!eof)
		assert_true(sm_client_readdir(c, ROOT, &cookie, bytes, plus,
					      &eof, on_entry, s) >= 0);
}

static void every_page_size_lists_each_name_once(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 300, 600, 4096, 65536,
					  UINT32_MAX };
	struct sm_client *c = *state;
	static struct seen s;

	make(c, 0, 500);
	for (size_t i = 0; i < 2 * array_count(sizes); i++) {
		list(c, sizes[i / 2], i % 2 == 0, &s);
		assert_int_equal(s.count, 500);
		for (int k = 0; k < 500; k++)
			assert_int_equal(s.times[k], 1);
	}
}

static void pages_stay_within_their_bound(void **state)
{
	struct sm_client *c = *state;
	uint64_t cookie = 0;
	bool eof;

	make(c, 0, 500);
	assert_true(sm_client_readdir(c, ROOT, &cookie, 4096, true, &eof, NULL,
				      NULL) > 20);
	assert_true(c->r.body_len <= 4096 + 9);
	assert_false(eof);
}

static void an_empty_directory_is_at_its_end(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint64_t cookie = 0;
	bool eof = false;

	assert_int_equal(sm_client_readdir(c, d, &cookie, 4096, false, &eof,
					   NULL, NULL), 0);
	assert_true(eof);
	assert_int_equal(sm_client_readdir(c, f, &cookie, 4096, false, &eof,
					   NULL, NULL), -ENOTDIR);
	assert_int_equal(sm_client_readdir(c, 4711, &cookie, 4096, false, &eof,
					   NULL, NULL), -ENOENT);
}

static void a_listing_goes_on_after_any_cookie(void **state)
{
	struct sm_client *c = *state;
	static struct seen s, rest;
	uint64_t last = 0;

	make(c, 0, 50);
	list(c, 4096, false, &s);
	for (int i = 0; i < 50; i++)
		last = u64_max(last, s.cookies[i]);
	for (int i = 0; i < 50; i++) {
		uint64_t cookie = s.cookies[i];
		bool eof = cookie == last;

		memset(&rest, 0, sizeof(rest));
		rest.last = cookie;
		while (!eof)
			assert_true(sm_client_readdir(c, ROOT, &cookie, 512,
						      false, &eof, on_entry,
						      &rest) > 0);
		for (int k = 0; k < 50; k++)
			assert_int_equal(rest.times[k],
					 s.cookies[k] > s.cookies[i]);
	}
}

/* What was there all the time appears exactly once, whatever else comes and
 * goes between the pages. */
static void changes_during_a_listing_hide_nothing(void **state)
{
	struct sm_client *c = *state;
	static struct seen s;
	uint64_t cookie = 0;
	uint32_t gone = 1000, new = 2000;
	bool eof = false;

	make(c, 0, 2000);
	memset(&s, 0, sizeof(s));
	while (!eof) {
		assert_true(sm_client_readdir(c, ROOT, &cookie, 1000, false,
					      &eof, on_entry, &s) >= 0);
		for (int i = 0; i < 20 && gone < 2000; i++)
			drop(c, gone++);
		make(c, new, new + 15);
		new += 15;
		if (new > 3900)
			break;
	}
	while (!eof)
		assert_true(sm_client_readdir(c, ROOT, &cookie, 1000, false,
					      &eof, on_entry, &s) >= 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(s.times[i], 1);
	for (int i = 1000; i < 4000; i++)
		assert_true(s.times[i] <= 1);
}

static void a_cookie_stays_with_its_name(void **state)
{
	struct sm_client *c = *state;
	static struct seen before, after;

	make(c, 0, 500);
	list(c, 65536, false, &before);
	make(c, 500, 1000);
	for (uint32_t i = 0; i < 500; i += 2)
		drop(c, i);
	list(c, 65536, false, &after);
	for (uint32_t i = 1; i < 500; i += 2)
		assert_true(before.cookies[i] == after.cookies[i]);
}

/* ---- collisions ---- */

static void names_with_one_hash_live_side_by_side(void **state)
{
	struct sm_client *c = *state;
	static struct seen s;
	char name[16];

	c->sm->hash_mask = 1;
	make(c, 0, 1000);
	list(c, 1000, true, &s);
	assert_int_equal(s.count, 1000);
	for (uint32_t i = 0; i < 1000; i += 3)
		drop(c, i);
	for (uint32_t i = 0; i < 1000; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(sm_client_lookup(c, ROOT, name),
				 i % 3 == 0 ? -ENOENT : 0);
	}
	make(c, 1000, 1300); /* take the free places */
	list(c, 1000, true, &s);
	assert_int_equal(s.count, 666 + 300);
	assert_int_equal(sm_client_rename(c, ROOT, "1", ROOT, "3999", 0, NULL),
			 0);
	assert_int_equal(sm_client_lookup(c, ROOT, "3999"), 0);
}

static void too_many_names_of_one_hash_are_refused(void **state)
{
	struct sm_client *c = *state;
	char name[16];
	uint64_t f;
	int err = 0;
	uint32_t count = 0;

	c->sm->hash_mask = 0;
	f = SM_INO(c, sm_client_file(c, ROOT, "first"));
	while (err == 0) {
		(void)snprintf(name, sizeof(name), "%u", count++);
		err = sm_client_file(c, ROOT, name);
	}
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(count, 1u << SM_COOKIE_SLOT_BITS);
	assert_int_equal(sm_client_link(c, f, ROOT, name), -ENOSPC);
	assert_int_equal(sm_client_rename(c, ROOT, "first", ROOT, name, 0,
					  NULL), -ENOSPC);
	assert_int_equal(sm_client_rename(c, ROOT, "first", ROOT, "1", 0,
					  NULL), 0);
	assert_int_equal(sm_client_file(c, ROOT, name), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SM_TEST(every_page_size_lists_each_name_once),
		SM_TEST(pages_stay_within_their_bound),
		SM_TEST(an_empty_directory_is_at_its_end),
		SM_TEST(a_listing_goes_on_after_any_cookie),
		SM_TEST(changes_during_a_listing_hide_nothing),
		SM_TEST(a_cookie_stays_with_its_name),
		SM_TEST(names_with_one_hash_live_side_by_side),
		SM_TEST(too_many_names_of_one_hash_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
