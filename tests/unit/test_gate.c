/* Whether a connection may begin, and with which key: without a key on this
 * machine only, keys of the file that is there now.
 */
#include "common/gate.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/hailfs-test.XXXXXX";
static char file[64], conf_file[64];
static char key_name[] = "key"; /* beside the cluster file */

static int setup_all(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/key", dir);
	snprintf(conf_file, sizeof(conf_file), "%s/cluster.conf", dir);
	return 0;
}

static int teardown_all(void **state)
{
	(void)state;
	(void)unlink(file);
	return rmdir(dir);
}

static struct gate *gate_make(char *key, enum wire_guard wire)
{
	struct conf c = { .key = key, .wire = wire };
	struct gate *g;

	assert_int_equal(gate_new(&c, conf_file, &g), 0);
	return g;
}

static void key_make(struct keyring *k)
{
	(void)unlink(file);
	assert_int_equal(keyring_new(k), 0);
	assert_int_equal(keyring_save(file, k, true), 0);
}

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage ss = { .ss_family = AF_UNSPEC };
	struct sockaddr_in *in = (void *)&ss;
	struct sockaddr_in6 *in6 = (void *)&ss;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1)
		ss.ss_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1)
		ss.ss_family = AF_INET6;
	else
		ss.ss_family = AF_UNIX;
	return ss;
}

/* What gate_connect() says; *begun: with a handshake. */
static int connects(struct gate *g, const char *to, unsigned try, bool *begun)
{
	struct sockaddr_storage ss = address(to);
	struct greet *greet;
	int rv = gate_connect(g, (struct sockaddr *)&ss, try, &greet);

	*begun = greet != NULL;
	greet_free(greet);
	return rv;
}

static int listens(const struct gate *g, const char *at)
{
	struct sockaddr_storage ss = address(at);

	return gate_listen(g, (struct sockaddr *)&ss);
}

static void without_a_key_nothing_leaves_the_machine(void **state)
{
	static const char *const here[] = { "127.0.0.1", "127.9.9.9", "::1",
					    "unix" };
	static const char *const there[] = { "10.0.0.1", "0.0.0.0", "::",
					     "192.0.2.7", "fe80::1" };
	struct gate *g = gate_make(NULL, GUARD_PLAIN);
	bool begun;

	(void)state;
	for (size_t i = 0; i < array_count(here); i++) {
		assert_int_equal(listens(g, here[i]), 0);
		assert_int_equal(connects(g, here[i], 0, &begun), 0);
		assert_false(begun);
		/* Who is refused has no other key to try. */
		assert_int_equal(connects(g, here[i], 1, &begun),
				 -EKEYREJECTED);
	}
	for (size_t i = 0; i < array_count(there); i++) {
		assert_int_equal(listens(g, there[i]), -ENOKEY);
		assert_int_equal(connects(g, there[i], 0, &begun), -ENOKEY);
		assert_false(begun);
	}
	gate_free(g);
	/* No gate: of tests, and of programs that ask no key. */
	assert_int_equal(listens(NULL, "10.0.0.1"), 0);
	assert_int_equal(connects(NULL, "10.0.0.1", 0, &begun), 0);
	assert_false(begun);
}

static void plain_frames_stay_on_the_machine(void **state)
{
	struct keyring k;
	struct gate *g;
	bool begun;

	(void)state;
	key_make(&k);
	g = gate_make(key_name, GUARD_PLAIN);
	assert_int_equal(connects(g, "::1", 0, &begun), 0);
	assert_true(begun);
	assert_int_equal(connects(g, "10.0.0.1", 0, &begun), -EPROTONOSUPPORT);
	gate_free(g);
	g = gate_make(key_name, GUARD_MAC);
	assert_int_equal(connects(g, "10.0.0.1", 0, &begun), 0);
	assert_true(begun);
	assert_int_equal(listens(g, "10.0.0.1"), 0);
	gate_free(g);
}

static void each_key_is_tried_once(void **state)
{
	struct keyring k;
	struct gate *g;
	bool begun;

	(void)state;
	key_make(&k);
	g = gate_make(key_name, GUARD_CRYPT);
	assert_int_equal(connects(g, "::1", 0, &begun), 0);
	assert_int_equal(connects(g, "::1", 1, &begun), -EKEYREJECTED);
	assert_int_equal(keyring_rotate(&k), 0);
	assert_int_equal(keyring_save(file, &k, false), 0);
	/* As it runs. */
	assert_int_equal(connects(g, "::1", 1, &begun), 0);
	assert_true(begun);
	assert_int_equal(connects(g, "::1", 2, &begun), -EKEYREJECTED);
	gate_free(g);
}

/* A file that is not there, or bad, costs a process that runs nothing; one that
 * starts is told. */
static void keys_from_before_outlive_their_file(void **state)
{
	struct conf c = { .key = key_name, .wire = GUARD_CRYPT };
	struct keyring k;
	struct gate *g, *none;
	bool begun;
	FILE *f;

	(void)state;
	key_make(&k);
	g = gate_make(key_name, GUARD_CRYPT);
	(void)unlink(file);
	assert_int_equal(connects(g, "::1", 0, &begun), 0);
	assert_true(begun);
	assert_int_equal(gate_new(&c, conf_file, &none), -ENOENT);
	f = fopen(file, "we");
	assert_non_null(f);
	fputs("nonsense\n", f);
	fclose(f);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(connects(g, "::1", 0, &begun), 0);
		assert_true(begun);
	}
	assert_true(gate_new(&c, conf_file, &none) < 0);
	key_make(&k);
	assert_int_equal(keyring_rotate(&k), 0);
	assert_int_equal(keyring_save(file, &k, false), 0);
	assert_int_equal(connects(g, "::1", 1, &begun), 0);
	assert_true(begun);
	gate_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_key_nothing_leaves_the_machine),
		cmocka_unit_test(plain_frames_stay_on_the_machine),
		cmocka_unit_test(each_key_is_tried_once),
		cmocka_unit_test(keys_from_before_outlive_their_file),
	};

	return cmocka_run_group_tests(tests, setup_all, teardown_all);
}
