/* Names and addresses: what is numeric is not looked up, what is not is looked
 * up aside, and nobody waits for it.
 */
#include "common/resolve.h"
#include "tests/lib/fail_malloc.h"
#include "tests/lib/fake_names.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

static const char *text(const struct resolved *a)
{
	static char buf[INET6_ADDRSTRLEN + 8];
	char host[INET6_ADDRSTRLEN];
	uint16_t port;

	if (a->ss.ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)&a->ss;

		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		port = ntohs(in6->sin6_port);
		assert_int_equal(a->len, sizeof(*in6));
	} else {
		const struct sockaddr_in *in = (const void *)&a->ss;

		assert_int_equal(a->ss.ss_family, AF_INET);
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		port = ntohs(in->sin_port);
		assert_int_equal(a->len, sizeof(*in));
	}
	snprintf(buf, sizeof(buf), "%s %u", host, port);
	return buf;
}

static void pause_ms(unsigned ms)
{
	struct timespec t = { .tv_nsec = ms * 1000000L };

	nanosleep(&t, NULL);
}

static int look_up(const char *host, uint16_t port, struct resolved_list *ret)
{
	struct resolve *r;
	int rv;

	assert_int_equal(resolve_start(host, port, &r), 0);
	while ((rv = resolve_poll(r, ret)) == -EINPROGRESS)
		pause_ms(1);
	assert_int_equal(resolve_poll(r, ret), rv);
	resolve_free(r);
	return rv;
}

static void what_is_numeric_needs_nobody(void **state)
{
	struct resolved_list l;

	(void)state;
	assert_true(resolve_numeric("10.1.2.3", 7000, &l));
	assert_int_equal(l.count, 1);
	assert_string_equal(text(&l.addrs[0]), "10.1.2.3 7000");
	assert_true(resolve_numeric("fd00::1", 65535, &l));
	assert_int_equal(l.count, 1);
	assert_string_equal(text(&l.addrs[0]), "fd00::1 65535");
	assert_false(resolve_numeric("localhost", 1, &l));
	assert_false(resolve_numeric("10.1.2.300", 1, &l));
	assert_false(resolve_numeric("", 1, &l));
}

static void names_are_looked_up(void **state)
{
	struct resolved_list l;

	(void)state;
	assert_int_equal(look_up("localhost", 80, &l), 0);
	assert_true(l.count >= 1);
	assert_true(strcmp(text(&l.addrs[0]), "127.0.0.1 80") == 0 ||
		    strcmp(text(&l.addrs[0]), "::1 80") == 0);
	assert_int_equal(look_up("no..name", 80, &l), -EHOSTUNREACH);
}

static void a_name_may_have_many_addresses(void **state)
{
	struct resolved_list l;

	(void)state;
	fake_names_set("many.test", "10.0.0.1 fd00::2 10.0.0.3");
	assert_int_equal(look_up("many.test", 5, &l), 0);
	assert_int_equal(l.count, 3);
	assert_string_equal(text(&l.addrs[0]), "10.0.0.1 5");
	assert_string_equal(text(&l.addrs[1]), "fd00::2 5");
	assert_string_equal(text(&l.addrs[2]), "10.0.0.3 5");
	fake_names_set("many.test", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 "
		       "10.0.0.5 10.0.0.6 10.0.0.7 10.0.0.8 10.0.0.9");
	assert_int_equal(look_up("many.test", 5, &l), 0);
	assert_int_equal(l.count, RESOLVE_ADDRS_MAX);
	assert_string_equal(text(&l.addrs[7]), "10.0.0.8 5");
}

static void nobody_waits_for_a_silent_service(void **state)
{
	struct resolved_list l;
	struct resolve *r, *given_up;

	(void)state;
	fake_names_set("slow.test", FAKE_NAMES_SILENT);
	assert_int_equal(resolve_start("slow.test", 5, &r), 0);
	assert_int_equal(resolve_start("slow.test", 5, &given_up), 0);
	assert_int_equal(resolve_poll(r, &l), -EINPROGRESS);
	resolve_free(given_up);
	fake_names_set("slow.test", "10.0.0.1");
	while (resolve_poll(r, &l) == -EINPROGRESS)
		pause_ms(1);
	assert_int_equal(resolve_poll(r, &l), 0);
	assert_string_equal(text(&l.addrs[0]), "10.0.0.1 5");
	resolve_free(r);
	fake_names_idle();
}

static void without_memory_nothing_begins(void **state)
{
	struct resolve *r;

	(void)state;
	fail_malloc_at(1);
	assert_int_equal(resolve_start("localhost", 5, &r), -ENOMEM);
	assert_true(fail_malloc_hit());
	resolve_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_numeric_needs_nobody),
		cmocka_unit_test(names_are_looked_up),
		cmocka_unit_test(a_name_may_have_many_addresses),
		cmocka_unit_test(nobody_waits_for_a_silent_service),
		cmocka_unit_test(without_memory_nothing_begins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
