/* Unix sockets beside loopback TCP: which address stands for which, and who
 * is believed. Real sockets; the stranger is a process of another user. */
#include "common/local_sock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct sockaddr *v4(const char *text, uint16_t port)
{
	static struct sockaddr_in a;

	a = (struct sockaddr_in){ .sin_family = AF_INET,
				  .sin_port = htons(port) };
	assert_int_equal(inet_pton(AF_INET, text, &a.sin_addr), 1);
	return (struct sockaddr *)&a;
}

static struct sockaddr *v6(const char *text, uint16_t port)
{
	static struct sockaddr_in6 a;

	a = (struct sockaddr_in6){ .sin6_family = AF_INET6,
				   .sin6_port = htons(port) };
	assert_int_equal(inet_pton(AF_INET6, text, &a.sin6_addr), 1);
	return (struct sockaddr *)&a;
}

/* A port of a TCP socket of this test: the name is nobody else's. */
static uint16_t own_port(int *tcp)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);

	*tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(*tcp, (struct sockaddr *)&a, len), 0);
	assert_int_equal(getsockname(*tcp, (struct sockaddr *)&a, &len), 0);
	return ntohs(a.sin_port);
}

static void loopback_addresses_have_an_abstract_name(void **state)
{
	struct sockaddr_un un;
	socklen_t len;

	(void)state;
	assert_true(local_sock_addr(v4("127.0.0.1", 7), &un, &len));
	assert_int_equal(un.sun_family, AF_UNIX);
	assert_int_equal(un.sun_path[0], 0);
	assert_string_equal(un.sun_path + 1, "hailfs/127.0.0.1:7");
	assert_int_equal(len, offsetof(struct sockaddr_un, sun_path) + 1 +
				      strlen("hailfs/127.0.0.1:7"));
	assert_true(local_sock_addr(v4("127.1.2.3", 65535), &un, &len));
	assert_string_equal(un.sun_path + 1, "hailfs/127.1.2.3:65535");
	assert_true(local_sock_addr(v6("::1", 7), &un, &len));
	assert_string_equal(un.sun_path + 1, "hailfs/::1:7");
}

static void other_addresses_have_none(void **state)
{
	struct sockaddr_un un;
	socklen_t len;

	(void)state;
	assert_false(local_sock_addr(v4("0.0.0.0", 7), &un, &len));
	assert_false(local_sock_addr(v4("10.0.0.1", 7), &un, &len));
	assert_false(local_sock_addr(v4("128.0.0.1", 7), &un, &len));
	assert_false(local_sock_addr(v6("::", 7), &un, &len));
	assert_false(local_sock_addr(v6("fe80::1", 7), &un, &len));
}

static void the_environment_can_forbid_it(void **state)
{
	struct sockaddr_un un;
	socklen_t len;

	(void)state;
	assert_int_equal(setenv("HAILFS_TCP", "1", 1), 0);
	assert_false(local_sock_addr(v4("127.0.0.1", 7), &un, &len));
	assert_int_equal(unsetenv("HAILFS_TCP"), 0);
	assert_true(local_sock_addr(v4("127.0.0.1", 7), &un, &len));
}

static void bytes_travel_both_ways(void **state)
{
	int tcp, lfd, a, b;
	uint16_t port = own_port(&tcp);
	char c = 0;

	(void)state;
	/* nobody there yet */
	assert_int_equal(local_sock_connect(v4("127.0.0.1", port)), -1);
	lfd = local_sock_listen(v4("127.0.0.1", port), 4);
	assert_true(lfd >= 0);
	/* taken */
	assert_int_equal(local_sock_listen(v4("127.0.0.1", port), 4), -1);
	a = local_sock_connect(v4("127.0.0.1", port));
	assert_true(a >= 0);
	b = accept(lfd, NULL, NULL);
	assert_true(b >= 0);
	local_sock_tune(b);
	assert_int_equal(write(a, "x", 1), 1);
	assert_int_equal(read(b, &c, 1), 1);
	assert_int_equal(c, 'x');
	assert_int_equal(write(b, "y", 1), 1);
	assert_int_equal(read(a, &c, 1), 1);
	assert_int_equal(c, 'y');
	close(a);
	close(b);
	close(lfd);
	/* gone with its process, or here with its socket */
	assert_int_equal(local_sock_connect(v4("127.0.0.1", port)), -1);
	close(tcp);
}

/* Listens as another user until its pipe is closed. */
static void stranger(uint16_t port, int ready, int end)
{
	char c;

	if (setresgid(65534, 65534, 65534) < 0 ||
	    setresuid(65534, 65534, 65534) < 0 ||
	    local_sock_listen(v4("127.0.0.1", port), 4) < 0)
		_exit(1);
	if (write(ready, "r", 1) != 1 || read(end, &c, 1) != 0)
		_exit(1);
	_exit(0);
}

static void another_users_socket_is_not_believed(void **state)
{
	int tcp, ready[2], end[2], status;
	uint16_t port = own_port(&tcp);
	pid_t pid;
	char c;

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(end), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(end[1]);
		stranger(port, ready[1], end[0]);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(local_sock_connect(v4("127.0.0.1", port)), -1);
	close(end[0]);
	close(end[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(ready[0]);
	close(tcp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loopback_addresses_have_an_abstract_name),
		cmocka_unit_test(other_addresses_have_none),
		cmocka_unit_test(the_environment_can_forbid_it),
		cmocka_unit_test(bytes_travel_both_ways),
		cmocka_unit_test(another_users_socket_is_not_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
