/* Goal: whatever a name's bytes are, there is a JSON string of it, the same
 * where it is UTF-8. Method: strings by hand, and every pair of bytes.
 */
#include "common/json_bytes.h"
#include "tests/lib/fail_malloc.h"

#include "common/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void becomes(const char *from, const char *to)
{
	json_t *j = json_bytes(from);

	assert_non_null(j);
	assert_string_equal(json_string_value(j), to);
	json_decref(j);
}

static void utf8_stays_as_it_is(void **state)
{
	(void)state;
	becomes("", "");
	becomes("/srv/hail", "/srv/hail");
	becomes("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x92\xbe",
		"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x92\xbe");
}

static void other_bytes_are_replaced_one_by_one(void **state)
{
	(void)state;
	becomes("gr\xfc\xdf", "gr\xef\xbf\xbd\xef\xbf\xbd");
	becomes("\xff/\xc3\xbc", "\xef\xbf\xbd/\xc3\xbc");
	becomes("cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd");
	becomes("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

static void any_two_bytes_can_be_shown(void **state)
{
	(void)state;
	for (unsigned i = 0x101; i <= 0xffff; i++) {
		char s[3] = { (char)(i >> 8), (char)i, '\0' };
		json_t *j = json_bytes(s);
		char *text;

		assert_non_null(j);
		text = json_dumps(j, JSON_ENCODE_ANY);
		assert_non_null(text);
		free(text);
		json_decref(j);
	}
}

static void without_memory_there_is_no_text(void **state)
{
	(void)state;
	fail_malloc_at(1);
	assert_null(json_bytes("\xff"));
	assert_true(fail_malloc_hit());
	becomes("\xff", "\xef\xbf\xbd");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(utf8_stays_as_it_is),
		cmocka_unit_test(other_bytes_are_replaced_one_by_one),
		cmocka_unit_test(any_two_bytes_can_be_shown),
		cmocka_unit_test(without_memory_there_is_no_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
