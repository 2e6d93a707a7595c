/* The key file: what is taken, what is refused and why, who may read it, and
 * that a rotation keeps one old key and never leaves half a file.
 */
#include "common/key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ID "0123456789abcdef"
#define SECRET \
	"00112233445566778899aabbccddeeff" \
	"0123456789abcdef0123456789abcdef"

static char dir[64], path[96], why[256];

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/test_key.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/key", dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	(void)unlink(path);
	assert_int_equal(rmdir(dir), 0);
	return 0;
}

static int parse(const char *text, struct keyring *k)
{
	return keyring_parse(text, strlen(text), k, why, sizeof(why));
}

static void a_file_is_read(void **state)
{
	struct keyring k;

	(void)state;
	assert_int_equal(parse("# mine\n\n key " ID "  " SECRET " \r\n", &k),
			 0);
	assert_int_equal(k.count, 1);
	assert_true(k.keys[0].id == 0x0123456789abcdef);
	assert_int_equal(k.keys[0].secret[1], 0x11);
	assert_int_equal(k.keys[0].secret[31], 0xef);
	/* The last line has no end. */
	assert_int_equal(parse("key 0000000000000001 " SECRET "\nkey " ID " "
			       SECRET, &k), 0);
	assert_int_equal(k.count, 2);
	assert_true(k.keys[0].id == 1);
	assert_ptr_equal(keyring_find(&k, 0x0123456789abcdef), &k.keys[1]);
	assert_null(keyring_find(&k, 2));
}

static void what_is_wrong_is_told_without_the_secret(void **state)
{
	static const struct {
		const char *text, *why;
	} wrong[] = {
		{ "", "line 0: no key" },
		{ "# nothing\n", "no key" },
		{ "\nkeys " ID " " SECRET, "line 2: 'key ID SECRET'" },
		{ "ke", "'key ID SECRET'" },
		{ "key", "'key ID SECRET'" },
		{ "key 0123456789abcde " SECRET, "the id has" },
		{ "key 0123456789abcdeff " SECRET, "the id has" },
		{ "key 0123456789abcdeg " SECRET, "the id has" },
		{ "key 0123456789ABCDEF " SECRET, "the id has" },
		{ "key " ID, "the id has" },
		{ "key " ID " ", "the secret has" },
		{ "key " ID " 00", "the secret has" },
		{ "key " ID " " SECRET "0", "follows" },
		{ "key " ID " " SECRET " x", "follows" },
		{ "key 0000000000000000 " SECRET, "zero" },
		{ "key " ID " " SECRET "\nkey " ID " " SECRET, "line 2: two" },
		{ "key " ID " " SECRET "\nkey 0000000000000001 " SECRET
		  "\nkey 0000000000000002 " SECRET, "line 3: there are more" },
	};
	struct keyring k;

	(void)state;
	for (size_t i = 0; i < array_count(wrong); i++) {
		assert_int_equal(parse(wrong[i].text, &k), -EINVAL);
		assert_non_null(strstr(why, wrong[i].why));
		assert_null(strstr(why, "00112233"));
		assert_int_equal(k.count, 0);
	}
	/* A NUL ends nothing. */
	assert_int_equal(keyring_parse("key \0", 5, &k, why, sizeof(why)),
			 -EINVAL);
}

static void a_new_one_is_saved_for_its_owner_alone(void **state)
{
	struct keyring k, again;
	struct stat st;

	(void)state;
	assert_int_equal(keyring_new(&k), 0);
	assert_int_equal(keyring_save(path, &k, true), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(keyring_load(path, &again, why, sizeof(why)), 0);
	assert_memory_equal(&k, &again, sizeof(k));
	/* One that is there is not overwritten by mistake. */
	assert_int_equal(keyring_new(&again), 0);
	assert_true(again.keys[0].id != k.keys[0].id);
	assert_int_equal(keyring_save(path, &again, true), -EEXIST);
	assert_int_equal(keyring_load(path, &again, why, sizeof(why)), 0);
	assert_memory_equal(&k, &again, sizeof(k));
}

static void a_rotation_keeps_the_last_one(void **state)
{
	struct keyring k, again;
	struct key first;

	(void)state;
	assert_int_equal(keyring_new(&k), 0);
	first = k.keys[0];
	assert_int_equal(keyring_save(path, &k, true), 0);
	assert_int_equal(keyring_rotate(&k), 0);
	assert_int_equal(keyring_save(path, &k, false), 0);
	assert_int_equal(keyring_load(path, &again, why, sizeof(why)), 0);
	assert_int_equal(again.count, 2);
	assert_memory_equal(&again.keys[1], &first, sizeof(first));
	assert_true(again.keys[0].id != first.id);
	assert_int_equal(keyring_rotate(&again), 0);
	assert_int_equal(again.count, 2);
	assert_null(keyring_find(&again, first.id));
	assert_ptr_equal(keyring_find(&again, k.keys[0].id), &again.keys[1]);
}

static void what_others_may_read_is_no_secret(void **state)
{
	struct keyring k;

	(void)state;
	assert_int_equal(keyring_load(path, &k, why, sizeof(why)), -ENOENT);
	assert_non_null(strstr(why, path));
	assert_int_equal(keyring_new(&k), 0);
	assert_int_equal(keyring_save(path, &k, true), 0);
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(keyring_load(path, &k, why, sizeof(why)), -EPERM);
	assert_non_null(strstr(why, "chmod 600"));
	assert_int_equal(chmod(path, 0400), 0);
	assert_int_equal(keyring_load(path, &k, why, sizeof(why)), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 1, 1), 0);
		assert_int_equal(keyring_load(path, &k, why, sizeof(why)),
				 -EPERM);
	}
	assert_int_equal(keyring_load(dir, &k, why, sizeof(why)), -EPERM);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(keyring_load(path, &k, why, sizeof(why)), -EPERM);
}

static void a_large_file_is_none(void **state)
{
	struct keyring k;
	FILE *f;

	(void)state;
	assert_int_equal(keyring_new(&k), 0);
	assert_int_equal(keyring_save(path, &k, true), 0);
	f = fopen(path, "a");
	assert_non_null(f);
	for (int i = 0; i < 4096; i++)
		fputs("\n", f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(keyring_load(path, &k, why, sizeof(why)), -EFBIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_read),
		cmocka_unit_test(what_is_wrong_is_told_without_the_secret),
		cmocka_unit_test_setup_teardown(
			a_new_one_is_saved_for_its_owner_alone, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(a_rotation_keeps_the_last_one,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			what_others_may_read_is_no_secret, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_large_file_is_none, set_up,
						tear_down),
	};

	return cmocka_run_group_tests_name("key", tests, NULL, NULL);
}
