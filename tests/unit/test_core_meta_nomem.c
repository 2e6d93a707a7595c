/* The metadata half of the client core when memory is short.
 *
 * Method: each operation is started with its k-th allocation failing, k from 1
 * until none fails; it says -ENOMEM or does without, and works afterwards. Only
 * allocations of the calling thread fail.
 */
#include "tests/lib/core_fix.h"

#include "tests/lib/fail_malloc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

static bool no_dirent(void *arg, const struct meta_dirent *d,
		      const struct meta_attr *a)
{
	(void)arg;
	(void)d;
	(void)a;
	return true;
}

/* Starts operation @which; false: there are no more. */
static bool start_op(struct fix *f, unsigned which, uint64_t dir,
		     struct core_file **file, struct fix_call *k)
{
	struct core_create p = { .parent = dir, .name = "new",
				 .mode = S_IFREG | 0600,
				 .open_flags = O_RDWR };
	struct meta_setattr s = { .ino = dir, .valid = META_SET_MODE,
				  .mode = 0711 };
	switch (which) {
	case 0:
		core_lookup(f->c, dir, "old", on_attr, k);
		break;
	case 1:
		core_create(f->c, &p, on_attr, k);
		break;
	case 2:
		core_create_open(f->c, &p, file, on_attr, k);
		break;
	case 3:
		core_rename(f->c, &(struct core_rename){ .parent = dir,
							 .name = "new",
							 .newparent = dir,
							 .newname = "newer" },
			    on_err, k);
		break;
	case 4:
		core_unlink(f->c, dir, "newer", false, on_err, k);
		break;
	case 5:
		core_setattr(f->c, &s, on_attr, k);
		break;
	case 6:
		core_setxattr(f->c, dir, "user.x", "y", 1, 0, on_err, k);
		break;
	case 7:
		core_readdir(f->c, dir, 0, 4096, true, no_dirent, on_err, k);
		break;
	case 8:
		core_fsync_dir(f->c, dir, on_err, k);
		break;
	case 9:
		core_open(f->c, dir, O_RDONLY, file, on_err, k);
		break;
	default:
		return false;
	}
	return true;
}

static void test_each_failing_allocation_is_just_an_error(
	void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr d;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	assert_int_equal(op_mkfile(f, d.ino, "old", NULL), 0);
	for (unsigned which = 0;; which++) {
		bool more = true;
		for (unsigned nth = 1; more; nth++) {
			struct core_file *file = NULL;
			struct fix_call *k = fix_call_new();
			assert_true(nth < 50);
			fail_malloc_at(nth);
			more = start_op(f, which, d.ino, &file, k);
			bool hit = fail_malloc_hit();
			if (!more) {
				k->done = true;
				(void)fix_call_end(k, NULL);
				fix_stop(f);
				return;
			}
			int err = fix_call_end(k, NULL);
			if (file)
				core_release(f->c, file);
			/* some do without what they could not get */
			assert_true(err == 0 || err == -ENOMEM ||
				    (which == 2 && err == -EEXIST));
			/* until none fails, or it is done and over */
			more = hit && (err != 0 || which == 0);
			check_truth(f);
		}
		if (which == 1)
			assert_int_equal(op_unlink(f, d.ino, "new", false), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_each_failing_allocation_is_just_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
