/* The latency of small appends to a log file, by the client core: no FUSE, but
 * the real peers, and the real way to them.
 *
 *	log CLUSTERFILE DIR COUNT BYTES verbs|tcp
 *
 * DIR: a log directory in the root of a file system that is not mounted. One
 * append at a time, waited for without sleeping. Prints microseconds: median,
 * 99th percentile, mean; then the mount's status.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/conf.h"
#include "fuse/core/core.h"

#define WARM_UP 200u

struct call {
	_Atomic bool done;
	int err;
	uint64_t ino;
};

static void end(void *arg, int err)
{
	struct call *k = arg;

	k->err = err;
	atomic_store(&k->done, true);
}

static void end_attr(void *arg, int err, const struct meta_attr *a)
{
	struct call *k = arg;

	k->ino = err ? 0 : a->ino;
	end(arg, err);
}

static void wait_for(struct call *k, const char *what)
{
	while (!atomic_load(&k->done))
		;
	if (!k->err)
		return;
	fprintf(stderr, "log: %s: %s\n", what, strerror(-k->err));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct core_file *make_file(struct core *c, const char *dir)
{
	struct core_create q = {
		.mode = S_IFREG | 0644,
		.open_flags = O_RDWR,
	};
	struct core_file *f = NULL;
	struct call k = { 0 };
	char name[32];

	core_lookup(c, ROOT_INO, dir, end_attr, &k);
	wait_for(&k, dir);
	snprintf(name, sizeof(name), "log.%d", (int)getpid());
	q.parent = k.ino;
	q.name = name;
	k = (struct call){ 0 };
	core_create_open(c, &q, &f, end_attr, &k);
	wait_for(&k, name);
	return f;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void measure(struct core *c, struct core_file *f, uint32_t count,
		    size_t len)
{
	uint64_t *ns = calloc(count, sizeof(*ns)), sum = 0;
	char *data = calloc(1, len);
	struct iovec iov = { data, len };

	if (!ns || !data)
		exit(1);
	for (uint32_t i = 0; i < WARM_UP + count; i++) {
		struct call k = { 0 };
		uint64_t began = now_ns();

		core_write(c, f, i * len, &iov, 1, len, 0, end, &k);
		wait_for(&k, "write");
		if (i >= WARM_UP)
			ns[i - WARM_UP] = now_ns() - began;
	}
	for (uint32_t i = 0; i < count; i++)
		sum += ns[i];
	qsort(ns, count, sizeof(*ns), by_value);
	printf("%.1f %.1f %.1f\n", (double)ns[count / 2] / 1e3,
	       (double)ns[(uint64_t)count * 99 / 100] / 1e3,
	       (double)sum / 1e3 / count);
	free(data);
	free(ns);
}

int main(int argc, char **argv)
{
	struct core_options o = {
		.host = "bench",
		.mountpoint = "log",
		.client_id = (uint64_t)getpid(),
		.wb_bytes_max = 256u << 20,
		.prefetch_bytes_max = 16u << 20,
		.flush_age_ms = 5000,
	};
	struct core_file *f;
	struct conf conf;
	struct core *c;
	char *status;
	int err;

	if (argc != 6) {
		fprintf(stderr, "usage: log CLUSTERFILE DIR COUNT BYTES "
			"verbs|tcp\n");
		return 2;
	}
	o.log_transport = strcmp(argv[5], "tcp") == 0 ? CORE_LOG_TCP :
							CORE_LOG_VERBS;
	if (conf_load(argv[1], &conf) < 0)
		return 1;
	o.conf = &conf;
	err = core_new(&o, &c);
	if (!err)
		err = core_start(c, 15000);
	if (err) {
		fprintf(stderr, "log: cannot start: %s\n", strerror(-err));
		return 1;
	}
	f = make_file(c, argv[2]);
	measure(c, f, (uint32_t)strtoul(argv[3], NULL, 10),
		strtoul(argv[4], NULL, 10));
	status = core_status_json(c);
	printf("%s\n", status ? status : "");
	free(status);
	core_release(c, f);
	err = core_stop(c, 15000);
	core_free(c);
	conf_fini(&conf);
	return err ? 1 : 0;
}
