/* Counters and histograms, and both texts they are shown as. */
#include "common/stats.h"
#include "tests/lib/fail_malloc.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int64_t minus_three(void *arg)
{
	(void)arg;
	return -3;
}

static uint64_t external = 41;

static struct stats *filled(void)
{
	struct stats *s = stats_new("hail_test");
	struct stats_hist *h;

	assert_non_null(s);
	stats_add(stats_counter(s, "bytes", NULL, "Bytes."), 7);
	stats_add(stats_counter(s, "ops", "op=\"read\"", "Operations."), 1);
	stats_add(stats_counter(s, "ops", "op=\"write\"", "Operations."), 2);
	assert_int_equal(stats_counter_ref(s, "outside", NULL, "Elsewhere.",
					   &external), 0);
	assert_int_equal(stats_gauge(s, "level", NULL, "A level.",
				     minus_three, NULL), 0);
	h = stats_hist(s, "wait_seconds", NULL, "Waiting.");
	for (int i = 0; i < 90; i++)
		stats_hist_add(h, 1000); /* [512, 1024) */
	for (int i = 0; i < 10; i++)
		stats_hist_add(h, 1000000); /* [524288, 1048576) */
	return s;
}

static void buckets_are_powers_of_two(void **state)
{
	(void)state;
	assert_int_equal(stats_bucket(0), 0);
	assert_int_equal(stats_bucket(1), 0);
	assert_int_equal(stats_bucket(2), 1);
	assert_int_equal(stats_bucket(3), 1);
	assert_int_equal(stats_bucket(4), 2);
	assert_int_equal(stats_bucket(1023), 9);
	assert_int_equal(stats_bucket(1024), 10);
	assert_int_equal(stats_bucket(UINT64_MAX), STATS_BUCKETS - 1);
}

static json_int_t number(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	assert_true(json_is_integer(v));
	return json_integer_value(v);
}

static void json_has_every_metric(void **state)
{
	struct stats *s = filled();
	char *text = stats_json(s);
	json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *h;

	(void)state;
	assert_non_null(o);
	assert_int_equal(number(o, "bytes"), 7);
	assert_int_equal(number(o, "ops{op=\"read\"}"), 1);
	assert_int_equal(number(o, "ops{op=\"write\"}"), 2);
	assert_int_equal(number(o, "outside"), 41);
	assert_int_equal(number(o, "level"), -3);
	h = json_object_get(o, "wait_seconds");
	assert_int_equal(number(h, "count"), 100);
	assert_int_equal(number(h, "sum_ns"), 10090000);
	assert_int_equal(number(h, "mean_ns"), 100900);
	assert_int_equal(number(h, "p50_ns"), 1024);
	assert_int_equal(number(h, "p90_ns"), 1024);
	assert_int_equal(number(h, "p99_ns"), 1048576);
	assert_int_equal(number(h, "max_ns"), 1048576);
	json_decref(o);
	free(text);
	stats_free(s);
}

static const char expected_head[] =
	"# TYPE hail_test_bytes counter\n"
	"# HELP hail_test_bytes Bytes.\n"
	"hail_test_bytes_total 7\n"
	"# TYPE hail_test_ops counter\n"
	"# HELP hail_test_ops Operations.\n"
	"hail_test_ops_total{op=\"read\"} 1\n"
	"hail_test_ops_total{op=\"write\"} 2\n"
	"# TYPE hail_test_outside counter\n"
	"# HELP hail_test_outside Elsewhere.\n"
	"hail_test_outside_total 41\n"
	"# TYPE hail_test_level gauge\n"
	"# HELP hail_test_level A level.\n"
	"hail_test_level -3\n"
	"# TYPE hail_test_wait_seconds histogram\n"
	"# HELP hail_test_wait_seconds Waiting.\n"
	"hail_test_wait_seconds_bucket{le=\"2e-09\"} 0\n";
static const char expected_tail[] =
	"hail_test_wait_seconds_bucket{le=\"0.001048576\"} 100\n"
	"hail_test_wait_seconds_bucket{le=\"+Inf\"} 100\n"
	"hail_test_wait_seconds_count 100\n"
	"hail_test_wait_seconds_sum 0.010090000\n"
	"# EOF\n";

static void openmetrics_text_is_as_specified(void **state)
{
	struct stats *s = filled();
	char *text = stats_openmetrics(s);
	size_t len = strlen(text);

	(void)state;
	assert_memory_equal(text, expected_head, sizeof(expected_head) - 1);
	assert_string_equal(text + len - (sizeof(expected_tail) - 1),
			    expected_tail);
	assert_non_null(strstr(text, "{le=\"1.024e-06\"} 90\n"));
	free(text);
	stats_free(s);
}

/* Returns the whole answer. */
static char *http_get(uint16_t port, const char *path)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char *text = calloc(1, 65536);
	size_t len = 0;
	ssize_t n;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_true(dprintf(fd, "GET %s HTTP/1.1\r\nHost: x\r\n"
			    "Connection: close\r\n\r\n", path) > 0);
	while ((n = read(fd, text + len, 65535 - len)) > 0)
		len += (size_t)n;
	close(fd);
	return text;
}

static void metrics_are_served_over_http(void **state)
{
	struct stats *s = filled();
	struct stats_http *h, *other;
	char *text;

	(void)state;
	assert_int_equal(stats_http_start(stats_http_text, s, 0, &h), 0);
	assert_int_not_equal(stats_http_port(h), 0);
	text = http_get(stats_http_port(h), "/metrics");
	assert_memory_equal(text, "HTTP/1.1 200 ", 13);
	assert_non_null(strstr(text, "application/openmetrics-text"));
	assert_non_null(strstr(text, expected_head));
	free(text);
	text = http_get(stats_http_port(h), "/");
	assert_memory_equal(text, "HTTP/1.1 404 ", 13);
	free(text);
	assert_int_equal(stats_http_start(stats_http_text, s,
					  stats_http_port(h), &other),
			 -EADDRINUSE);
	stats_http_stop(h);
	stats_http_stop(NULL);
	stats_free(s);
}

static struct stats_counter *shared_counter;
static struct stats_hist *shared_hist;

static void *count_up(void *arg)
{
	(void)arg;
	for (int i = 0; i < 100000; i++) {
		stats_add(shared_counter, 1);
		stats_hist_add(shared_hist, (uint64_t)i);
	}
	return NULL;
}

static void threads_lose_no_count(void **state)
{
	struct stats *s = stats_new("x");
	pthread_t t[4];
	char *text;
	json_t *o;

	(void)state;
	shared_counter = stats_counter(s, "n", NULL, "N.");
	shared_hist = stats_hist(s, "h", NULL, "H.");
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, count_up, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	text = stats_json(s);
	o = json_loads(text, 0, NULL);
	assert_int_equal(number(o, "n"), 400000);
	assert_int_equal(number(json_object_get(o, "h"), "count"), 400000);
	json_decref(o);
	free(text);
	stats_free(s);
}

/* (JSON is not tried: jansson itself drops what it has no memory for.) */
static void no_memory_gives_no_half_text(void **state)
{
	struct stats *s;
	char *whole, *text;

	(void)state;
	s = filled();
	whole = stats_openmetrics(s);
	for (unsigned nth = 1;; nth++) {
		fail_malloc_at(nth);
		text = stats_openmetrics(s);
		if (!fail_malloc_hit())
			break;
		/* the C library may do without what failed */
		if (text)
			assert_string_equal(text, whole);
		free(text);
	}
	assert_string_equal(text, whole);
	free(text);
	free(whole);
	stats_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_are_powers_of_two),
		cmocka_unit_test(json_has_every_metric),
		cmocka_unit_test(openmetrics_text_is_as_specified),
		cmocka_unit_test(metrics_are_served_over_http),
		cmocka_unit_test(threads_lose_no_count),
		cmocka_unit_test(no_memory_gives_no_half_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
