#include "tests/lib/blockd_run.h"

#include <dirent.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/lib/tap.h"

static const char *const options[] = { "--journal", "16m", NULL };

static noreturn_fn void die(const char *what)
{
	fprintf(stderr, "blockd_run: %s: %s\n", what, strerror(errno));
	abort();
}

void run_init(struct blockd_run *x)
{
	static const uint64_t sessions[] = { 1 };
	FILE *f;

	memset(x, 0, sizeof(*x));
	child_init(&x->child, "blockd_run");
	x->metad = fake_metad_new(RUN_CLUSTER_ID);
	fake_metad_set_sessions(x->metad, sessions, 1);
	f = child_conf(&x->child);
	fprintf(f, "cluster test\nid %#x\nreplicas 1\n"
		"metad 1 127.0.0.1:%u\nblockd 1 127.0.0.1:%u data=%s/data\n",
		RUN_CLUSTER_ID, fake_metad_port(x->metad), x->child.port,
		x->child.dir);
	if (fclose(f) != 0)
		die("cluster.conf");
}

void run_fini(struct blockd_run *x)
{
	child_fini(&x->child);
	fake_metad_free(x->metad);
}

int blockd_tests_run(int argc, char **argv, const struct blockd_test *tests,
		     size_t count)
{
	struct blockd_run x;

	tap_init(argc, argv);
	for (size_t i = 0; i < count; i++) {
		if (!tap_begin(tests[i].name))
			continue;
		run_init(&x);
		tests[i].fn(&x);
		run_fini(&x);
		tap_end();
	}
	return tap_done();
}

/* What a container's default profile does. */
static void forbid_io_uring(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { array_count(f), f };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		die("seccomp");
}

void run_forbid_io_uring(struct blockd_run *x, bool forbid)
{
	x->child.before_exec = forbid ? forbid_io_uring : NULL;
}

int run_to_end(struct blockd_run *x, const char *const *args)
{
	child_spawn(&x->child, "hail-blockd", options, args);
	return child_wait(&x->child);
}

void run_start(struct blockd_run *x, const char *const *args)
{
	unsigned before = fake_metad_registrations(x->metad, NULL);
	uint64_t until = now_ms() + CHILD_START_MS;
	struct blk_raw r;
	int status;

	child_spawn(&x->child, "hail-blockd", options, args);
	while (now_ms() < until) {
		if (!child_runs(&x->child))
			child_die(&x->child, "hail-blockd has ended");
		sleep_ms(10);
		if (fake_metad_registrations(x->metad, NULL) == before ||
		    !raw_connect(&r, x->child.port, RUN_CLUSTER_ID))
			continue;
		status = raw_hello(&r, WIRE_ROLE_ADMIN, 0, 1, CHILD_START_MS);
		raw_close(&r);
		if (status == 0)
			return;
	}
	child_die(&x->child, "hail-blockd does not answer");
}

uint64_t run_anon_bytes(const struct blockd_run *x)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)x->child.pid);
	f = fopen(path, "r");
	if (!f)
		die(path);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %llu", &kib) == 1)
			break;
	fclose(f);
	return kib * 1024;
}

uint64_t run_cpu_us(const struct blockd_run *x)
{
	char path[320], text[128];
	unsigned long long ns;
	uint64_t sum = 0;
	struct dirent *e;
	FILE *f;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)x->child.pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat",
			 (int)x->child.pid, e->d_name);
		f = fopen(path, "r");
		if (f && fgets(text, sizeof(text), f) &&
		    sscanf(text, "%llu", &ns) == 1)
			sum += ns / 1000;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return sum;
}

static void say_hello(const struct blockd_run *x, struct blk_raw *r,
		      uint8_t role, uint64_t session, uint64_t incarnation)
{
	int rv;

	if (!raw_connect(r, x->child.port, RUN_CLUSTER_ID))
		die("connect");
	rv = raw_hello(r, role, session, incarnation, CHILD_START_MS);
	if (rv < 0) {
		errno = -rv;
		die("HELLO");
	}
}

void run_client(const struct blockd_run *x, struct blk_raw *r,
		uint64_t session, uint64_t incarnation)
{
	say_hello(x, r, WIRE_ROLE_CLIENT, session, incarnation);
}

void run_as(const struct blockd_run *x, struct blk_raw *r, uint8_t role)
{
	say_hello(x, r, role, 0, 1);
}

long long run_counter(const struct blockd_run *x, const char *name)
{
	long long v = -1;
	struct blk_raw r;
	struct frame *f;
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\"%s\":", name);
	run_as(x, &r, WIRE_ROLE_ADMIN);
	if (raw_call(&r, WIRE_OP_ADMIN_STATS, NULL, 0, NULL, 0, &f) == 0) {
		at = memmem(f->body, f->h.body_len, key, strlen(key));
		if (at)
			v = strtoll(at + strlen(key), NULL, 10);
		frame_free(f);
	}
	raw_close(&r);
	return v;
}

void run_fill(uint8_t *p, size_t len, unsigned seed)
{
	uint64_t v = seed * 0x9e3779b97f4a7c15u + 1;

	for (size_t i = 0; i < len; i++) {
		v ^= v << 13;
		v ^= v >> 7;
		v ^= v << 17;
		p[i] = (uint8_t)v;
	}
}

void run_check_holds(struct blk_raw *r, uint64_t ino, uint64_t index,
		     uint32_t off, const uint8_t *want, uint32_t len)
{
	static uint8_t got[1u << 20];
	bool hole = false;

	assert(len <= sizeof(got));
	memset(got, 0x55, len);
	CHECK_EQ(raw_read(r, ino, index, off, got, len, &hole), 0);
	CHECK(!hole);
	CHECK(memcmp(got, want, len) == 0);
}
