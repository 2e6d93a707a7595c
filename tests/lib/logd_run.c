#include "tests/lib/logd_run.h"

#include <dirent.h>

#include "common/status.h"
#include "common/wire_admin.h"
#include "tests/lib/tap.h"

static const char *const options[] = { "--memory", "16m", NULL };

static noreturn_fn void die(const char *what)
{
	fprintf(stderr, "logd_run: %s: %s\n", what, strerror(errno));
	abort();
}

static void run_init(struct logd_run *x)
{
	static const uint64_t sessions[] = { 1, 2 };
	FILE *f;

	memset(x, 0, sizeof(*x));
	child_init(&x->child, "logd_run");
	x->metad = fake_metad_new(LRUN_CLUSTER_ID);
	fake_metad_set_sessions(x->metad, sessions, array_count(sessions));
	f = child_conf(&x->child);
	fprintf(f, "cluster test\nid %#x\nreplicas 1\n"
		"metad 1 127.0.0.1:%u\nlogd 1 127.0.0.1:%u domain=rack1\n",
		LRUN_CLUSTER_ID, fake_metad_port(x->metad), x->child.port);
	if (fclose(f) != 0)
		die("cluster.conf");
}

static void run_fini(struct logd_run *x)
{
	child_fini(&x->child);
	fake_metad_free(x->metad);
}

int logd_tests_run(int argc, char **argv, const struct logd_test *tests,
		   size_t count)
{
	struct logd_run x;

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

void lrun_start(struct logd_run *x, const char *const *args)
{
	unsigned before = fake_metad_registrations(x->metad, NULL);
	uint64_t until = now_ms() + CHILD_START_MS;
	struct blk_raw r;
	int status;

	child_spawn(&x->child, "hail-logd", options, args);
	while (now_ms() < until) {
		if (!child_runs(&x->child))
			child_die(&x->child, "hail-logd has ended");
		sleep_ms(10);
		if (fake_metad_registrations(x->metad, NULL) == before ||
		    !raw_connect(&r, x->child.port, LRUN_CLUSTER_ID))
			continue;
		status = raw_hello(&r, WIRE_ROLE_ADMIN, 0, 1, CHILD_START_MS);
		raw_close(&r);
		if (status == 0)
			return;
	}
	child_die(&x->child, "hail-logd does not answer");
}

static void say_hello(const struct logd_run *x, struct blk_raw *r,
		      uint8_t role, uint64_t session, uint64_t incarnation)
{
	int rv;

	if (!raw_connect(r, x->child.port, LRUN_CLUSTER_ID))
		die("connect");
	rv = raw_hello(r, role, session, incarnation, CHILD_START_MS);
	if (rv < 0) {
		errno = -rv;
		die("HELLO");
	}
}

void lrun_client(const struct logd_run *x, struct blk_raw *r, uint64_t session,
		 uint64_t incarnation)
{
	say_hello(x, r, WIRE_ROLE_CLIENT, session, incarnation);
}

void lrun_admin(const struct logd_run *x, struct blk_raw *r)
{
	say_hello(x, r, WIRE_ROLE_ADMIN, 0, 1);
}

static long long number_in(const struct logd_run *x, uint16_t op,
			   const char *name)
{
	long long v = -1;
	struct blk_raw r;
	struct frame *f;
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\"%s\":", name);
	lrun_admin(x, &r);
	if (raw_call(&r, op, NULL, 0, NULL, 0, &f) == 0) {
		at = memmem(f->body, f->h.body_len, key, strlen(key));
		if (at)
			v = strtoll(at + strlen(key), NULL, 10);
		frame_free(f);
	}
	raw_close(&r);
	return v;
}

long long lrun_counter(const struct logd_run *x, const char *name)
{
	return number_in(x, WIRE_OP_ADMIN_STATS, name);
}

long long lrun_status(const struct logd_run *x, const char *name)
{
	return number_in(x, WIRE_OP_ADMIN_STATUS, name);
}

bool lrun_state_is(const struct logd_run *x, const char *state)
{
	struct blk_raw r;
	struct frame *f;
	bool is = false;
	char want[64];

	snprintf(want, sizeof(want), "\"state\":\"%s\"", state);
	lrun_admin(x, &r);
	if (raw_call(&r, WIRE_OP_ADMIN_STATUS, NULL, 0, NULL, 0, &f) == 0) {
		is = memmem(f->body, f->h.body_len, want, strlen(want));
		frame_free(f);
	}
	raw_close(&r);
	return is;
}

uint64_t lrun_cpu_us(const struct logd_run *x)
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

/* ---- a log ---- */

int lrun_alloc(struct blk_raw *r, const struct log_stream *g)
{
	return RAW_CALL(r, WIRE_OP_LOG_ALLOC, log_alloc, NULL,
			{ .ino = g->ino, .epoch = g->writer,
			  .data_epoch = g->epoch, .index = g->index,
			  .log2 = g->log2 });
}

static size_t encode_write(const struct log_write *m, uint8_t *body, size_t cap)
{
	struct wire_out o;

	wire_out_init(&o, body, cap);
	log_write_encode(&o, m);
	return o.len;
}

uint64_t lrun_post(struct blk_raw *r, const struct log_stream *g, uint32_t from)
{
	uint8_t slot[LOG_SLOT_SIZE], body[256];
	struct log_write m = { .ino = g->ino, .epoch = g->writer,
			       .data_epoch = g->epoch,
			       .index = g->index, .off = from,
			       .slot = { slot, sizeof(slot) } };

	log_stream_slot(g, slot);
	return raw_send(r, WIRE_OP_LOG_WRITE, body,
			encode_write(&m, body, sizeof(body)), g->mirror + from,
			g->end - from);
}

int lrun_write_odd(struct blk_raw *r, const struct log_write *m,
		   const void *data, uint32_t len)
{
	uint8_t body[256];

	return raw_call(r, WIRE_OP_LOG_WRITE, body,
			encode_write(m, body, sizeof(body)), data, len, NULL);
}

int lrun_write(struct blk_raw *r, const struct log_stream *g, uint32_t from)
{
	uint8_t slot[LOG_SLOT_SIZE];
	struct log_write m = { .ino = g->ino, .epoch = g->writer,
			       .data_epoch = g->epoch,
			       .index = g->index, .off = from,
			       .slot = { slot, sizeof(slot) } };

	log_stream_slot(g, slot);
	return lrun_write_odd(r, &m, g->mirror + from, g->end - from);
}

static void take_regions(const struct log_fence_reply *m, uint64_t *seq)
{
	struct log_region reg;
	struct log_slot slot;
	struct wire_in in;

	*seq = 0;
	wire_in_init(&in, m->regions.p, m->regions.len);
	for (uint32_t i = 0; i < m->count; i++) {
		log_region_decode(&in, &reg);
		if (reg.slots.len != LOG_SLOT_COUNT * LOG_SLOT_SIZE)
			die("slots");
		if (log_slot_newest(reg.slots.p, &slot) == 0)
			*seq = slot.seq;
	}
	if (wire_in_end(&in) < 0)
		die("regions");
}

int lrun_fence(struct blk_raw *r, uint64_t ino, uint64_t epoch,
	       uint64_t data_epoch, uint8_t *held, uint32_t *count,
	       uint64_t *seq)
{
	struct log_fence_reply m;
	struct log_reply reply;
	struct frame *f;
	struct wire_in in;
	int rv = RAW_CALL(r, WIRE_OP_LOG_FENCE, log_fence, &f,
			  { .ino = ino, .epoch = epoch,
			    .data_epoch = data_epoch });

	if (rv < 0)
		return rv;
	wire_in_init(&in, f->body, f->h.body_len);
	log_reply_decode(&in, &reply);
	log_fence_reply_decode(&in, &m);
	if (wire_in_end(&in) < 0)
		die("fence reply");
	if (held)
		*held = m.held;
	if (count)
		*count = m.count;
	if (seq)
		take_regions(&m, seq);
	frame_free(f);
	return 0;
}

int lrun_read(struct blk_raw *r, const struct log_read *m, void *to)
{
	struct frame *f;
	int rv = RAW_CALL(r, WIRE_OP_LOG_READ, log_read, &f, *m);

	if (rv < 0)
		return rv;
	if (f->h.data_len != m->len)
		die("read reply");
	memcpy(to, f->data, m->len);
	frame_free(f);
	return 0;
}

int lrun_free(struct blk_raw *r, uint64_t ino, uint64_t epoch,
	      uint64_t data_epoch, uint32_t below)
{
	return RAW_CALL(r, WIRE_OP_LOG_FREE, log_free, NULL,
			{ .ino = ino, .epoch = epoch, .data_epoch = data_epoch,
			  .below = below });
}

int lrun_ping(struct blk_raw *r, uint32_t *count, struct log_name *first)
{
	struct log_ping_reply m;
	struct log_reply reply;
	struct wire_in in;
	struct frame *f;
	int rv = raw_call(r, WIRE_OP_LOG_PING, NULL, 0, NULL, 0, &f);

	if (rv < 0)
		return rv;
	wire_in_init(&in, f->body, f->h.body_len);
	log_reply_decode(&in, &reply);
	log_ping_reply_decode(&in, &m);
	if (wire_in_end(&in) < 0)
		die("ping reply");
	*count = m.count;
	wire_in_init(&in, m.wanted.p, m.wanted.len);
	for (uint32_t i = 0; i < m.count; i++) {
		struct log_name n;

		log_name_decode(&in, &n);
		if (i == 0 && first)
			*first = n;
	}
	if (wire_in_end(&in) < 0)
		die("ping names");
	frame_free(f);
	return 0;
}

int lrun_drain(struct blk_raw *admin, bool on, uint32_t deadline_ms)
{
	return RAW_CALL(admin, WIRE_OP_ADMIN_DRAIN, admin_drain, NULL,
			{ .on = on, .deadline_ms = deadline_ms });
}
