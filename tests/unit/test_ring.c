/* Goal: the loop and the real device do what blockd/ring.h and dev.h promise.
 * Method: a ring of its own for each test, files in a scratch directory,
 * a socket pair where one is needed.
 */
#include "blockd/ring.h"

#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
	char dir[64];
	struct ring *ring;
	struct dev *dev;
	bool flag;
	int res;
	int count;
};

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof(*x));
	char why[256] = "";

	snprintf(x->dir, sizeof(x->dir), "/tmp/test_ring.XXXXXX");
	assert_non_null(mkdtemp(x->dir));
	if (ring_new(50, &x->ring, why, sizeof(why)) < 0)
		fail_msg("%s", why);
	assert_int_equal(ring_dev_new(x->ring, x->dir, false, &x->dev), 0);
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;
	static const char *const names[] = { "a", "b", "short" };
	char path[128];

	ring_dev_free(x->dev);
	ring_free(x->ring);
	for (size_t i = 0; i < array_count(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", x->dir, names[i]);
		(void)unlink(path); /* may not exist */
	}
	assert_int_equal(rmdir(x->dir), 0);
	free(x);
	return 0;
}

static void io_done(struct dev_io *io, int res)
{
	struct fixture *x = io->priv[0];

	x->res = res;
	x->flag = true;
}

static int run_io(struct fixture *x, enum dev_op op, int file, uint64_t off,
		  void *buf, uint32_t len)
{
	struct dev_io io = { .op = op, .file = file, .off = off, .buf = buf,
			     .len = len, .done = io_done, .priv = { x } };

	x->flag = false;
	x->dev->vt->submit(x->dev, &io);
	assert_false(x->flag); /* never before submit() returned */
	assert_int_equal(ring_run_until(x->ring, &x->flag), 0);
	return x->res;
}

static void a_write_is_read_back(void **state)
{
	static const enum dev_op ops[] = { DEV_WRITE, DEV_WRITE_DSYNC };
	struct fixture *x = *state;
	char *buf = aligned_alloc(4096, 65536);
	char *got = aligned_alloc(4096, 65536);
	int f = x->dev->vt->open(x->dev, "a", true);

	assert_true(f >= 0);
	for (size_t i = 0; i < array_count(ops); i++) {
		memset(buf, 'a' + (int)i, 65536);
		assert_int_equal(run_io(x, ops[i], f, 8192, buf, 65536), 0);
		assert_int_equal(run_io(x, DEV_FLUSH, f, 0, NULL, 0), 0);
		memset(got, 0, 65536);
		assert_int_equal(run_io(x, DEV_READ, f, 8192, got, 65536), 0);
		assert_memory_equal(buf, got, 65536);
	}
	free(buf);
	free(got);
}

static void a_read_beyond_the_end_fails(void **state)
{
	struct fixture *x = *state;
	char *buf = aligned_alloc(4096, 8192);
	int f = x->dev->vt->open(x->dev, "short", true);

	memset(buf, 1, 8192);
	assert_int_equal(x->dev->vt->write_now(x->dev, f, 0, buf, 5000), 0);
	assert_int_equal(run_io(x, DEV_READ, f, 0, buf, 8192), -EIO);
	assert_int_equal(run_io(x, DEV_READ, f, 0, buf, 4096), 0);
	assert_int_equal(x->dev->vt->read_now(x->dev, f, 4990, buf, 10), 0);
	assert_int_equal(x->dev->vt->read_now(x->dev, f, 4991, buf, 10), -EIO);
	free(buf);
}

static void odd_offsets_work_in_blocking_io(void **state)
{
	struct fixture *x = *state;
	const size_t len = (2u << 20) + 123;
	char *buf = malloc(len), *got = malloc(len);
	int f = x->dev->vt->open(x->dev, "a", true);
	uint64_t size;

	for (size_t i = 0; i < len; i++)
		buf[i] = (char)(i * 7 + i / 251);
	assert_int_equal(x->dev->vt->write_now(x->dev, f, 777, buf, len), 0);
	assert_int_equal(x->dev->vt->sync_now(x->dev, f), 0);
	assert_int_equal(x->dev->vt->read_now(x->dev, f, 777, got, len), 0);
	assert_memory_equal(buf, got, len);
	assert_int_equal(x->dev->vt->size(x->dev, f, &size), 0);
	assert_int_equal(size, 777 + len);
	free(buf);
	free(got);
}

static void files_are_numbered_resized_and_closed(void **state)
{
	struct fixture *x = *state;
	const struct dev_vtable *vt = x->dev->vt;
	int files[40];
	uint64_t v;

	char name[16], path[128];

	assert_int_equal(vt->open(x->dev, "b", false), -ENOENT);
	for (size_t i = 0; i < array_count(files); i++) {
		(void)snprintf(name, sizeof(name), "b%zu", i);
		files[i] = vt->open(x->dev, name, true);
		assert_true(files[i] >= 0);
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(files[i], files[j]);
	}
	assert_int_equal(vt->resize(x->dev, files[0], 1u << 20), 0);
	assert_int_equal(vt->size(x->dev, files[0], &v), 0);
	assert_int_equal(v, 1u << 20);
	assert_int_equal(vt->resize(x->dev, files[0], 4096), 0);
	assert_int_equal(vt->size(x->dev, files[0], &v), 0);
	assert_int_equal(v, 4096);
	for (size_t i = 0; i < array_count(files); i++) {
		vt->close(x->dev, files[i]);
		(void)snprintf(path, sizeof(path), "%s/b%zu", x->dir, i);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(vt->sync_dir(x->dev), 0);
	assert_int_equal(vt->space(x->dev, &v), 0);
	assert_true(v > 0);
}

static void counted(struct dev_io *io, int res)
{
	struct fixture *x = io->priv[0];

	assert_int_equal(res, 0);
	x->flag = ++x->count == 2000;
}

static void many_in_flight_all_complete(void **state)
{
	enum { COUNT = 2000 };
	struct fixture *x = *state;
	struct dev_io *io = calloc(COUNT, sizeof(*io));
	char *buf = aligned_alloc(4096, 4096);
	int f = x->dev->vt->open(x->dev, "a", true);

	memset(buf, 3, 4096);
	x->flag = false;
	for (int i = 0; i < COUNT; i++) {
		io[i] = (struct dev_io){ .op = DEV_WRITE, .file = f,
			.off = (uint64_t)i * 4096, .buf = buf, .len = 4096,
			.done = counted, .priv = { x } };
		x->dev->vt->submit(x->dev, &io[i]);
	}
	assert_int_equal(ring_run_until(x->ring, &x->flag), 0);
	for (int i = 0; i < COUNT; i += 100) {
		memset(buf, 0, 4096);
		assert_int_equal(run_io(x, DEV_READ, f, (uint64_t)i * 4096,
					buf, 4096), 0);
		assert_int_equal(buf[0], 3);
	}
	free(io);
	free(buf);
}

static void count_up(void *arg)
{
	struct fixture *x = arg;

	x->count++;
	x->flag = x->count == 30000;
}

static void *poster(void *arg)
{
	struct fixture *x = arg;

	for (int i = 0; i < 10000; i++)
		x->dev->vt->post(x->dev, count_up, x);
	return NULL;
}

static void what_threads_post_runs_once_each(void **state)
{
	struct fixture *x = *state;
	pthread_t t[3];

	x->flag = false;
	for (size_t i = 0; i < array_count(t); i++)
		pthread_create(&t[i], NULL, poster, x);
	assert_int_equal(ring_run_until(x->ring, &x->flag), 0);
	for (size_t i = 0; i < array_count(t); i++)
		pthread_join(t[i], NULL);
	assert_int_equal(x->count, 30000);
}

struct named_timer {
	struct ring_timer t;
	struct fixture *x;
	int at;
};

static void timer_fired(struct ring_timer *t)
{
	struct named_timer *n = container_of(t, struct named_timer, t);

	n->at = ++n->x->count;
	n->x->flag = n->x->count == 2;
}

static void timers_fire_in_order_and_can_be_stopped(void **state)
{
	struct fixture *x = *state;
	struct named_timer a = { .t.fn = timer_fired, .x = x };
	struct named_timer b = a, c = a;
	uint64_t start = ring_now_ms();

	x->flag = false;
	ring_timer_start(x->ring, &a.t, 20);
	ring_timer_start(x->ring, &b.t, 5);
	ring_timer_start(x->ring, &c.t, 10);
	ring_timer_stop(x->ring, &c.t);
	assert_int_equal(ring_run_until(x->ring, &x->flag), 0);
	assert_int_equal(b.at, 1);
	assert_int_equal(a.at, 2);
	assert_int_equal(c.at, 0);
	assert_true(ring_now_ms() - start >= 20);
}

struct deferred {
	struct ring_defer d;
	struct fixture *x;
};

static void deferred_ran(struct ring_defer *d)
{
	struct deferred *p = container_of(d, struct deferred, d);

	p->x->count++;
	p->x->flag = true;
}

static void deferred_work_runs_once_a_turn(void **state)
{
	struct fixture *x = *state;
	struct deferred p = { .d.fn = deferred_ran, .x = x };

	x->flag = false;
	ring_defer(x->ring, &p.d);
	ring_defer(x->ring, &p.d);
	assert_int_equal(x->count, 0);
	assert_int_equal(ring_run_until(x->ring, &x->flag), 0);
	assert_int_equal(x->count, 1);
}

struct recv_op {
	struct ring_op op;
	struct fixture *x;
};

static void received(struct ring_op *op, int res, uint32_t flags)
{
	struct recv_op *r = container_of(op, struct recv_op, op);

	(void)flags;
	r->x->res = res;
	r->x->flag = true;
}

static void sockets_share_the_ring(void **state)
{
	struct fixture *x = *state;
	struct recv_op r = { .op.done = received, .x = x };
	char buf[16];
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	io_uring_prep_recv(ring_sqe(x->ring, &r.op), sv[0], buf, sizeof(buf),
			   0);
	assert_int_equal(write(sv[1], "hello", 5), 5);
	x->flag = false;
	assert_int_equal(ring_run_until(x->ring, &x->flag), 0);
	assert_int_equal(x->res, 5);
	close(sv[0]);
	close(sv[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_write_is_read_back, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_read_beyond_the_end_fails,
						setup, teardown),
		cmocka_unit_test_setup_teardown(odd_offsets_work_in_blocking_io,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			files_are_numbered_resized_and_closed, setup, teardown),
		cmocka_unit_test_setup_teardown(many_in_flight_all_complete,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			what_threads_post_runs_once_each, setup, teardown),
		cmocka_unit_test_setup_teardown(
			timers_fire_in_order_and_can_be_stopped, setup,
			teardown),
		cmocka_unit_test_setup_teardown(deferred_work_runs_once_a_turn,
						setup, teardown),
		cmocka_unit_test_setup_teardown(sockets_share_the_ring, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
