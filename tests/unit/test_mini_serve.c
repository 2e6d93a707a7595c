/* The servers of the tests themselves. */
#include "tests/lib/mini_serve.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void nothing(struct mini_serve *s)
{
	(void)s;
}

static int sock(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	return fd;
}

/* Else a connection or a server of a test beside it may get it, and it does
 * not come up again: tests that take a server down failed now and then. */
static void test_the_port_of_one_that_is_down_stays_its_own(void **state)
{
	const struct mini_serve_ops ops = { .on_turn = nothing };
	struct mini_serve s;
	struct sockaddr_in a = { .sin_family = AF_INET };
	int fd;

	(void)state;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	mini_serve_init(&s, &ops);
	a.sin_port = htons(s.port);
	mini_serve_start(&s);
	mini_serve_lock(&s);
	mini_serve_down(&s);
	mini_serve_unlock(&s);
	fd = sock();
	assert_int_equal(bind(fd, (void *)&a, sizeof(a)), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(connect(fd, (void *)&a, sizeof(a)), -1);
	assert_int_equal(errno, ECONNREFUSED);
	close(fd);
	mini_serve_lock(&s);
	mini_serve_up(&s);
	mini_serve_kick(&s);
	assert_int_equal(ntohs(a.sin_port), s.port);
	fd = sock();
	assert_int_equal(connect(fd, (void *)&a, sizeof(a)), 0);
	close(fd);
	mini_serve_stop(&s);
	mini_serve_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_the_port_of_one_that_is_down_stays_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
