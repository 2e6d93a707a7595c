#include "tests/lib/metad_run.h"

#include "common/status.h"
#include "common/wire_admin.h"
#include "tests/lib/tap.h"

#define RECV_MS 20000

static noreturn_fn void die(const char *what)
{
	fprintf(stderr, "metad_run: %s: %s\n", what, strerror(errno));
	abort();
}

static void run_init(struct metad_run *x, uint32_t blockd_count)
{
	uint32_t i;
	FILE *f;

	memset(x, 0, sizeof(*x));
	child_init(&x->child, "metad_run");
	x->blockd_count = blockd_count;
	f = child_conf(&x->child);
	fprintf(f, "cluster test\nid %#x\nreplicas 1\n"
		"metad 1 127.0.0.1:%u data=%s/data\n", METAD_CLUSTER_ID,
		x->child.port, x->child.dir);
	/* Their real ports are what they register. */
	for (i = 0; i < blockd_count; i++)
		fprintf(f, "blockd %u 127.0.0.1:%u\n", i + 1, i + 1);
	for (i = 0; i < METAD_LOGDS_MAX; i++)
		fprintf(f, "logd %u 127.0.0.1:%u\n", i + 1, i + 101);
	if (fclose(f) != 0)
		die("cluster.conf");
}

static void run_fini(struct metad_run *x)
{
	uint32_t i;

	child_fini(&x->child);
	for (i = 0; i < METAD_BLOCKDS_MAX; i++)
		fake_blockd_free(x->blockd[i]);
}

int metad_tests_run(int argc, char **argv, const struct metad_test *tests,
		    size_t count)
{
	struct metad_run x;

	tap_init(argc, argv);
	for (size_t i = 0; i < count; i++) {
		if (!tap_begin(tests[i].name))
			continue;
		run_init(&x, tests[i].blockds);
		tests[i].fn(&x);
		run_fini(&x);
		tap_end();
	}
	return tap_done();
}

void metad_run_blockd(struct metad_run *x, uint32_t i, uint64_t store_id,
		      uint64_t commit)
{
	struct fake_blockd_id id = { .id = i + 1,
				     .cluster_id = METAD_CLUSTER_ID,
				     .metad_port = x->child.port,
				     .store_id = store_id,
				     .commit = commit,
				     .ino_max = x->ino_max * (i + 1),
				     .session_max = x->session_max *
						    (i + 1) };
	uint64_t until = now_ms() + CHILD_START_MS;

	x->blockd[i] = fake_blockd_new(&id);
	while (fake_blockd_registered(x->blockd[i]) == -ENOTCONN) {
		if (now_ms() > until)
			child_die(&x->child, "a block daemon is not heard");
		sleep_ms(5);
	}
}

void metad_run_blockd_end(struct metad_run *x, uint32_t i)
{
	fake_blockd_free(x->blockd[i]);
	x->blockd[i] = NULL;
}

void metad_run_start(struct metad_run *x, const char *const *args)
{
	uint64_t until = now_ms() + CHILD_START_MS;
	struct blk_raw r;

	child_spawn(&x->child, "hail-metad", NULL, args);
	while (metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, 1, 0) != 0) {
		if (!child_runs(&x->child))
			child_die(&x->child, "hail-metad has ended");
		if (now_ms() > until)
			child_die(&x->child, "hail-metad does not answer");
		sleep_ms(2);
	}
	raw_close(&r);
}

int metad_run_to_end(struct metad_run *x, const char *const *args)
{
	child_spawn(&x->child, "hail-metad", NULL, args);
	return child_wait(&x->child);
}

int metad_hello(struct metad_run *x, struct blk_raw *r, uint8_t role,
		uint64_t session, uint64_t incarnation, uint32_t peer_id)
{
	uint8_t body[128];
	struct frame *f;
	size_t len;
	int rv;

	if (!raw_connect(r, x->child.port, METAD_CLUSTER_ID))
		return -ECONNREFUSED;
	r->session = session;
	len = METAD_BODY(body, hello, { .version_min = 1, .version_max = 1,
					.role = role,
					.incarnation = incarnation,
					.peer_id = peer_id,
					.name = { "raw", 3 } });
	raw_send(r, WIRE_OP_HELLO, body, len, NULL, 0);
	f = raw_recv(r, RECV_MS);
	rv = f ? status_from_wire(f->h.status) : -errno;
	if (f)
		r->epoch = f->h.epoch;
	frame_free(f);
	if (rv < 0)
		raw_close(r);
	return rv;
}

char *metad_admin(struct metad_run *x, uint16_t op)
{
	struct admin_text m;
	struct blk_raw r;
	struct frame *f = NULL;
	char *text;

	if (metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, 1, 0) < 0 ||
	    raw_call(&r, op, NULL, 0, NULL, 0, &f) < 0 ||
	    admin_text_parse(f->body, f->h.body_len, &m) < 0)
		die("admin request");
	text = strndup(m.json.p, m.json.len);
	frame_free(f);
	raw_close(&r);
	return text;
}

int metad_admin_call(struct metad_run *x, uint16_t op, const void *body,
		     size_t len)
{
	struct blk_raw r;
	int rv = metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, ++x->incarnation, 0);

	if (rv == 0) {
		rv = raw_call(&r, op, body, len, NULL, 0, NULL);
		raw_close(&r);
	}
	return rv;
}

void metad_run_backup(struct metad_run *x, const char *path)
{
	struct admin_backup_reply m = { .handle = 0 };
	struct blk_raw r;
	struct frame *f;
	uint8_t b[32];
	uint64_t off = 0;
	FILE *out = fopen(path, "w");

	CHECK(out != NULL);
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, 1, 0), 0);
	do {
		size_t len = METAD_BODY(b, admin_backup,
					{ .handle = m.handle, .off = off });

		if (raw_call(&r, WIRE_OP_ADMIN_BACKUP, b, len, NULL, 0, &f)) {
			CHECK(!"backup");
			break;
		}
		CHECK_EQ(admin_backup_reply_parse(f->body, f->h.body_len, &m),
			 0);
		CHECK_EQ(fwrite(m.piece.p, 1, m.piece.len, out), m.piece.len);
		off += m.piece.len;
		frame_free(f);
	} while (off < m.total);
	CHECK_EQ(off, m.total);
	raw_close(&r);
	CHECK_EQ(fclose(out), 0);
}

uint64_t metad_admin_number(struct metad_run *x, uint16_t op, const char *key)
{
	char *text = metad_admin(x, op), want[64];
	const char *at;
	uint64_t v = UINT64_MAX;

	snprintf(want, sizeof(want), "\"%s\":", key);
	at = strstr(text, want);
	if (!at) {
		snprintf(want, sizeof(want), "\"%s\": ", key);
		at = strstr(text, want);
	}
	if (at)
		v = strtoull(at + strlen(want), NULL, 10);
	free(text);
	return v;
}
