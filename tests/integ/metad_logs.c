/* Goal: the real hail-metad knows its log daemons, and no others.
 * Method: the program as a child, log daemons played by hand; TAP.
 *
 * usage: metad_logs [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_client.h"

#include "common/cmap.h"
#include "tests/lib/tap.h"

/* A log daemon. */
struct logd {
	struct blk_raw r;
	uint32_t id;
	uint64_t boot_id, free_bytes;
	uint8_t draining;
	struct meta_lease_reply lease; /* of the last good answer */
};

static int lease_of(struct logd *d, struct frame *f)
{
	struct meta_rhdr h;
	struct wire_in in;

	wire_in_init(&in, f->body, f->h.body_len);
	meta_rhdr_decode(&in, &h);
	meta_lease_reply_decode(&in, &d->lease);
	return in.bad ? -EBADMSG : (int)in.len;
}

static int logd_register(struct logd *d)
{
	struct meta_log_register m = { .daemon_id = d->id,
				       .boot_id = d->boot_id,
				       .addr = { "127.0.0.1", 9 },
				       .port = (uint16_t)(200 + d->id),
				       .total_bytes = 1 << 30,
				       .free_bytes = d->free_bytes };
	struct frame *f = NULL;
	struct wire_out o;
	uint8_t b[256];
	int rv;

	wire_out_init(&o, b, sizeof(b));
	meta_log_register_encode(&o, &m);
	rv = raw_call(&d->r, WIRE_OP_META_LOG_REGISTER, b, o.len, NULL, 0, &f);
	if (rv == 0)
		CHECK_EQ(lease_of(d, f), 0);
	frame_free(f);
	return rv;
}

/* HELLO and REGISTER; 0 or -errno. */
static int logd_start(struct metad_run *x, struct logd *d, uint32_t id,
		      uint64_t boot_id)
{
	int rv;

	*d = (struct logd){ .id = id, .boot_id = boot_id,
			    .free_bytes = 1 << 30 };
	rv = metad_hello(x, &d->r, WIRE_ROLE_LOGD, 0, ++x->incarnation, id);
	return rv < 0 ? rv : logd_register(d);
}

static int logd_beat(struct logd *d)
{
	struct meta_log_heartbeat_reply reply;
	struct frame *f = NULL;
	struct wire_in in;
	int rv = RAW_CALL(&d->r, WIRE_OP_META_LOG_HEARTBEAT, meta_log_heartbeat,
			  &f, { .daemon_id = d->id, .boot_id = d->boot_id,
				.total_bytes = 1 << 30,
				.free_bytes = d->free_bytes,
				.draining = d->draining });

	if (rv == 0) {
		int left = lease_of(d, f);

		CHECK(left > 0);
		wire_in_init(&in, f->body + f->h.body_len - left,
			     (size_t)left);
		meta_log_heartbeat_reply_decode(&in, &reply);
		CHECK_EQ(wire_in_end(&in), 0);
	}
	frame_free(f);
	return rv;
}

/* The map as a log daemon gets it. */
static struct cmap *map_of(struct logd *d)
{
	struct cmap *m = NULL;
	struct frame *f = NULL;
	struct meta_rhdr h;
	struct meta_blob b;
	struct wire_in in;

	CHECK_EQ(raw_call(&d->r, WIRE_OP_META_MAP_GET, NULL, 0, NULL, 0, &f),
		 0);
	wire_in_init(&in, f->body, f->h.body_len);
	meta_rhdr_decode(&in, &h);
	meta_blob_decode(&in, &b);
	CHECK_EQ(cmap_decode(b.value.p, b.value.len, &m), 0);
	frame_free(f);
	return m;
}

static void a_log_daemon_registers(struct metad_run *x)
{
	const struct cmap_log *l;
	struct metad_client c;
	struct logd d, e;
	struct cmap *m;

	metad_client_begin(x, &c);
	CHECK_EQ(logd_start(x, &d, 1, 41), 0);
	CHECK_EQ(d.lease.lease_ms, 6000);
	CHECK_EQ(d.lease.cluster_id, METAD_CLUSTER_ID);
	CHECK_EQ(logd_start(x, &e, 2, 42), 0);
	m = map_of(&d);
	CHECK_EQ(m->log_count, 2);
	l = cmap_find_log(m, 1);
	CHECK(l && l->boot_id == 41 && l->port == 201);
	/* the domain is the address where it tells none */
	CHECK_TEXT(l->domain, "127.0.0.1");
	CHECK_EQ(logd_beat(&d), 0);
	CHECK_EQ(d.lease.lease_ms, 6000);
	CHECK_EQ(d.lease.epoch, m->epoch);
	/* the same again is no change, another boot id is one */
	CHECK_EQ(logd_register(&e), 0);
	CHECK_EQ(e.lease.epoch, m->epoch);
	cmap_free(m);
	m = map_of(&e);
	CHECK_EQ(e.lease.epoch, m->epoch);
	cmap_free(m);
	e.boot_id = 43;
	CHECK_EQ(logd_beat(&e), -ESTALE);
	CHECK_EQ(logd_register(&e), 0);
	CHECK_EQ(logd_beat(&e), 0);
	m = map_of(&e);
	CHECK_EQ(cmap_find_log(m, 2)->boot_id, 43);
	cmap_free(m);
	raw_close(&d.r);
	raw_close(&e.r);
	metad_client_fini(&c);
}

static void strange_log_daemons_are_refused(struct metad_run *x)
{
	struct meta_log_register m = { .daemon_id = 1, .boot_id = 1,
				       .addr = { "::1", 3 }, .port = 7,
				       .total_bytes = 10 };
	struct metad_client c;
	struct blk_raw r;
	struct logd d;
	uint8_t b[256];
	struct wire_out o;

	metad_client_begin(x, &c);
	/* not in the cluster file */
	CHECK_EQ(logd_start(x, &d, METAD_LOGDS_MAX + 1, 1), -ENOENT);
	CHECK_EQ(logd_start(x, &d, 0, 1), -ENOENT);
	/* before it has registered */
	d = (struct logd){ .id = 1, .boot_id = 5 };
	CHECK_EQ(metad_hello(x, &d.r, WIRE_ROLE_LOGD, 0, 100, 1), 0);
	CHECK_EQ(logd_beat(&d), -ESTALE);
	/* another's id, no boot id, an address that is none, memory it cannot
	 * have */
	CHECK_EQ(logd_register(&d), 0);
	d.id = 2;
	CHECK_EQ(logd_register(&d), -EBADMSG);
	CHECK_EQ(logd_beat(&d), -EBADMSG);
	d.id = 1;
	d.boot_id = 0;
	CHECK_EQ(logd_register(&d), -EBADMSG);
	d.boot_id = 5;
	d.free_bytes = 2ull << 30;
	CHECK_EQ(logd_register(&d), -EBADMSG);
	CHECK_EQ(logd_beat(&d), -EBADMSG);
	d.free_bytes = 0;
	d.draining = 2;
	CHECK_EQ(logd_beat(&d), -EBADMSG);
	d.draining = 1;
	CHECK_EQ(logd_beat(&d), 0);
	m.addr = (struct wire_str){ "a\0b", 3 };
	wire_out_init(&o, b, sizeof(b));
	meta_log_register_encode(&o, &m);
	CHECK_EQ(raw_call(&d.r, WIRE_OP_META_LOG_REGISTER, b, o.len, NULL, 0,
			  NULL), -EBADMSG);
	CHECK_EQ(raw_call(&d.r, WIRE_OP_META_LOG_REGISTER, b, o.len - 1, NULL,
			  0, NULL), -EBADMSG);
	/* it is no client, and a block daemon is none of them */
	CHECK_EQ(raw_call(&d.r, WIRE_OP_META_STATFS, NULL, 0, NULL, 0, NULL),
		 -EPERM);
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_BLOCKD, 0, 100, 1), 0);
	CHECK_EQ(raw_call(&r, WIRE_OP_META_LOG_REGISTER, b, o.len, NULL, 0,
			  NULL), -EPERM);
	raw_close(&r);
	/* one of an older incarnation comes late */
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_LOGD, 0, 99, 1), -ESTALE);
	raw_close(&d.r);
	metad_client_fini(&c);
}

/* What was registered is known after a kill, but it lives only when it says so
 * again. */
static void log_daemons_outlive_metad(struct metad_run *x)
{
	struct metad_client c;
	struct cmap *m;
	struct logd d;

	metad_client_begin(x, &c);
	CHECK_EQ(logd_start(x, &d, 1, 41), 0);
	raw_close(&d.r);
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_hello(x, &d.r, WIRE_ROLE_LOGD, 0, ++x->incarnation, 1),
		 0);
	CHECK_EQ(logd_beat(&d), -ESTALE);
	m = map_of(&d);
	CHECK_EQ(m->log_count, 1);
	CHECK_EQ(m->logs[0].boot_id, 41);
	CHECK_EQ(logd_register(&d), 0);
	CHECK_EQ(d.lease.epoch, m->epoch);
	CHECK_EQ(logd_beat(&d), 0);
	cmap_free(m);
	raw_close(&d.r);
	metad_client_fini(&c);
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(a_log_daemon_registers, 1),
		METAD_TEST(strange_log_daemons_are_refused, 1),
		METAD_TEST(log_daemons_outlive_metad, 1),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
