/* Goal: what an administrator, mount(8) or fstab says becomes the options that
 * it means, and what makes no sense is told by name.
 * Method: argument lists as they come, also those of the mount helper.
 */
#include "fuse/options.h"

#include "tests/lib/fail_malloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

#define ARGS_MAX 12

static struct mount_options o;
static char why[200];

/* argv in words, NULL-ended. */
static int parse_words(const char *name, ...)
{
	char *argv[ARGS_MAX + 1] = { (char *)(uintptr_t)name };
	int argc = 1;
	va_list ap;

	va_start(ap, name);
	while (argc < ARGS_MAX && (argv[argc] = va_arg(ap, char *)) != NULL)
		argc++;
	va_end(ap);
	mount_options_fini(&o);
	return mount_options_parse(&o, argc, argv, why, sizeof(why));
}

static int parse(const char *list)
{
	return parse_words("hailfs", "-o", list, "conf", "mnt", NULL);
}

/* Is @word one of the comma-separated words for the kernel? */
static bool kernel_has(const char *word)
{
	size_t len = strlen(word);
	const char *s = o.kernel_opts;

	while (s && *s) {
		size_t n = strcspn(s, ",");

		if (n == len && memcmp(s, word, n) == 0)
			return true;
		s += n + (s[n] == ',');
	}
	return false;
}

static void defaults_are_those_of_the_page(void **state)
{
	(void)state;
	assert_int_equal(parse("defaults"), 0);
	assert_string_equal(o.source, "conf");
	assert_string_equal(o.mountpoint, "mnt");
	assert_true(o.hard && !o.writeback && !o.foreground && !o.read_only);
	assert_int_equal(o.uring, URING_AUTO);
	assert_int_equal(o.wb_size, 64 << 20);
	assert_int_equal(o.prefetch, 32 << 20);
	assert_int_equal(o.timeo_ms, 30000);
	assert_int_equal(o.flush_age_ms, 1000);
	assert_int_equal(o.metrics_port, 0);
	assert_int_equal(o.max_background, 64);
	assert_int_equal(o.allow_other, geteuid() == 0);
}

static void a_root_mount_has_dev_and_suid(void **state)
{
	bool root = geteuid() == 0;

	(void)state;
	assert_int_equal(parse("rw"), 0);
	assert_int_equal(kernel_has("dev"), root);
	assert_int_equal(kernel_has("suid"), root);
	assert_int_equal(kernel_has("nodev"), !root);
	assert_int_equal(kernel_has("allow_other"), root);
	assert_int_equal(parse("nodev,nosuid,noexec"), 0);
	assert_true(kernel_has("nodev") && kernel_has("nosuid") &&
		    kernel_has("noexec") && !kernel_has("dev"));
}

static void the_last_word_wins(void **state)
{
	(void)state;
	assert_int_equal(parse("writeback,nowriteback,soft,hard,ro,rw"), 0);
	assert_true(!o.writeback && o.hard && !o.read_only);
	assert_int_equal(parse("nowriteback,writeback,hard,soft,rw,ro"), 0);
	assert_true(o.writeback && !o.hard && o.read_only &&
		    kernel_has("ro") && !kernel_has("rw"));
}

static void access_times_and_sync_are_told_to_the_core(void **state)
{
	(void)state;
	assert_int_equal(parse("noatime"), 0);
	assert_true(o.noatime && !o.nodiratime && !o.strictatime);
	assert_int_equal(parse("nodiratime,strictatime"), 0);
	assert_true(!o.noatime && o.nodiratime && o.strictatime);
	assert_int_equal(parse("dirsync"), 0);
	assert_true(o.dirsync && kernel_has("dirsync") && !kernel_has("sync"));
	assert_int_equal(parse("sync"), 0);
	assert_true(o.dirsync && kernel_has("sync"));
	assert_int_equal(parse("sync,async"), 0);
	assert_true(!o.dirsync && !kernel_has("sync"));
}

static void backslashes_keep_commas(void **state)
{
	(void)state;
	assert_int_equal(parse("log=/a\\,b/c,pidfile=/x\\\\y,soft"), 0);
	assert_string_equal(o.log, "/a,b/c");
	assert_string_equal(o.pidfile, "/x\\y");
	assert_false(o.hard);
	assert_int_equal(parse("log=a\\b,,soft,"), 0);
	assert_string_equal(o.log, "a\\b");
	assert_false(o.hard);
}

static void subsystems_are_separated_by_colons(void **state)
{
	(void)state;
	assert_int_equal(parse("debug_subsys=fuse:meta:rpc"), 0);
	assert_string_equal(o.debug_list, "fuse,meta,rpc");
}

static void words_of_fstab_are_passed_over(void **state)
{
	(void)state;
	assert_int_equal(parse("auto,noauto,nofail,_netdev,user,nouser,users,"
			       "owner,group,user=me,comment=x,x-systemd.a=b,"
			       "X-mount.mkdir,defaults,soft"), 0);
	assert_false(o.hard);
}

static void mounts_own_letters_are_understood(void **state)
{
	(void)state;
	assert_int_equal(parse_words("/sbin/mount.hailfs", "conf", "mnt", "-n",
				     "-v", "-r", "-o", "soft", NULL), 0);
	assert_true(o.read_only && !o.hard && !o.foreground);
	assert_int_equal(parse_words("mount.fuse.hailfs", "conf", "mnt", "-f",
				     "-t", "fuse.hailfs", NULL), 0);
	assert_true(o.fake && !o.foreground);
	assert_int_equal(parse_words("hailfs", "-f", "conf", "mnt", NULL), 0);
	assert_true(o.foreground && !o.fake);
	/* -s, and a remount, which repeats the kernel's own words */
	assert_int_equal(parse_words("mount.hailfs", "conf", "mnt", "-s", "-o",
				     "quirk,soft", NULL), 0);
	assert_false(o.hard);
	assert_int_equal(parse("rw,relatime,user_id=0,group_id=0,max_read=9,"
			       "default_permissions,allow_other,remount,ro"),
			 0);
	assert_true(o.remount && (o.remount_flags & MS_RDONLY));
	assert_int_equal(parse("remount,sfot"), -EINVAL);
	assert_int_equal(parse("user_id=0"), -EINVAL);
}

static void says(const char *list, const char *text)
{
	assert_int_equal(parse(list), -EINVAL);
	if (!strstr(why, text))
		fail_msg("%s: \"%s\" does not say \"%s\"", list, why, text);
}

static void what_is_wrong_is_named(void **state)
{
	(void)state;
	says("sfot", "unknown mount option 'sfot'");
	says("soft=1", "unknown mount option 'soft'");
	says("remounted", "unknown mount option 'remounted'");
	says("io_uring=maybe", "auto, on or off");
	says("io_uring", "needs a value");
	says("wb_size=1", "out of range");
	says("wb_size=lots", "\"lots\" is not a size");
	says("timeo=10x", "\"10x\" is not a time");
	says("metrics_port=65536", "out of range");
	assert_int_equal(parse_words("hailfs", "conf", NULL), -EINVAL);
	assert_non_null(strstr(why, "usage"));
	assert_int_equal(parse_words("hailfs", "a", "b", "c", NULL), -EINVAL);
	assert_non_null(strstr(why, "too many arguments: 'c'"));
	assert_int_equal(parse_words("hailfs", "a", "b", "-o", NULL), -EINVAL);
	assert_non_null(strstr(why, "-o needs a value"));
}

static void each_failed_allocation_is_told(void **state)
{
	unsigned nth = 1;

	(void)state;
	for (;; nth++) {
		int err;

		mount_options_fini(&o);
		memset(&o, 0, sizeof(o));
		fail_malloc_at(nth);
		err = parse("rw,noatime,log=/x,pidfile=/y,soft,timeo=3s");
		if (!fail_malloc_hit()) {
			assert_int_equal(err, 0);
			break;
		}
		assert_int_equal(err, -ENOMEM);
		assert_string_equal(why, "out of memory");
		*why = '\0';
	}
	assert_true(nth > 4);
	assert_string_equal(o.log, "/x");
}

static int done(void **state)
{
	(void)state;
	mount_options_fini(&o);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_those_of_the_page),
		cmocka_unit_test(a_root_mount_has_dev_and_suid),
		cmocka_unit_test(the_last_word_wins),
		cmocka_unit_test(access_times_and_sync_are_told_to_the_core),
		cmocka_unit_test(backslashes_keep_commas),
		cmocka_unit_test(subsystems_are_separated_by_colons),
		cmocka_unit_test(words_of_fstab_are_passed_over),
		cmocka_unit_test(mounts_own_letters_are_understood),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(each_failed_allocation_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, done);
}
