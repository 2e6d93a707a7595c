/* Goal: the real hail-metad knows its log daemons, and no others; its registry
 * of logs outlives kills, and nothing in it is told before it is durable; a
 * journal is there until a mount has done what it says; a log daemon is told
 * what it need not keep, and nothing else.
 * Method: the program as a child, log daemons and sessions played by hand; TAP.
 *
 * usage: metad_logs [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_client.h"

#include <time.h>

#include "common/cmap.h"
#include "common/status.h"
#include "common/wire_log.h"
#include "tests/lib/tap.h"

/* A log daemon. */
struct logd {
	struct blk_raw r;
	uint32_t id;
	uint64_t boot_id, free_bytes;
	uint8_t draining;
	uint64_t log_epoch;
	const char *domain;
	struct meta_lease_reply lease; /* of the last good answer */
	/* of the last heartbeat: what it need not keep */
	uint32_t gone_count;
	struct meta_log_gone gone[8];
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
				       .free_bytes = d->free_bytes,
				       .log_epoch = d->log_epoch };
	struct frame *f = NULL;
	struct wire_out o;
	uint8_t b[256];
	int rv;

	if (d->domain)
		m.domain = (struct wire_str){ d->domain,
					      (uint32_t)strlen(d->domain) };
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

/* A heartbeat that tells of @count logs; d->gone has the answer. */
static int logd_beat_logs(struct logd *d, const struct log_name *names,
			  size_t count)
{
	struct meta_log_heartbeat m = { .daemon_id = d->id,
					.boot_id = d->boot_id,
					.total_bytes = 1 << 30,
					.free_bytes = d->free_bytes,
					.draining = d->draining };
	struct meta_log_heartbeat_reply reply;
	uint8_t list[256], b[512];
	struct frame *f = NULL;
	struct wire_out o;
	struct wire_in in;
	int left, rv;

	wire_out_init(&o, list, sizeof(list));
	while (count-- > 0)
		log_name_encode(&o, names++);
	m.logs = (struct wire_str){ list, (uint32_t)o.len };
	wire_out_init(&o, b, sizeof(b));
	meta_log_heartbeat_encode(&o, &m);
	rv = raw_call(&d->r, WIRE_OP_META_LOG_HEARTBEAT, b, o.len, NULL, 0,
		      &f);
	if (rv < 0) {
		frame_free(f);
		return rv;
	}
	left = lease_of(d, f);
	CHECK(left > 0);
	wire_in_init(&in, f->body + f->h.body_len - left, (size_t)left);
	meta_log_heartbeat_reply_decode(&in, &reply);
	CHECK_EQ(wire_in_end(&in), 0);
	CHECK(reply.count <= array_count(d->gone));
	d->gone_count = reply.count;
	wire_in_init(&in, reply.gone.p, reply.gone.len);
	for (uint32_t i = 0; i < reply.count; i++)
		meta_log_gone_decode(&in, &d->gone[i]);
	CHECK_EQ(wire_in_end(&in), 0);
	frame_free(f);
	return 0;
}

static int logd_beat(struct logd *d)
{
	return logd_beat_logs(d, NULL, 0);
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

/* ---- the registry ---- */

/* Three log daemons with boot ids 41 to 43. */
static void start_three(struct metad_run *x, struct logd d[3])
{
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ(logd_start(x, &d[i], i + 1, 41 + i), 0);
}

static void stop_three(struct logd d[3])
{
	for (uint32_t i = 0; i < 3; i++)
		raw_close(&d[i].r);
}

static const struct meta_log_peer abc[] = { { 1, 41 }, { 2, 42 }, { 3, 43 } };

static size_t set_body(uint8_t b[256], uint64_t ino, uint64_t epoch,
		       uint32_t version, const struct meta_log_peer *peers,
		       size_t count)
{
	struct meta_log_set m = { ino, epoch, version, { NULL, 0 } };
	struct wire_out o, list;
	uint8_t buf[128];

	wire_out_init(&list, buf, sizeof(buf));
	while (count-- > 0)
		meta_log_peer_encode(&list, peers++);
	m.peers = (struct wire_str){ buf, (uint32_t)list.len };
	wire_out_init(&o, b, 256);
	meta_log_set_encode(&o, &m);
	return o.len;
}

static struct meta_log_entry entry_of(struct metad_client *c)
{
	struct meta_log_entry e = { 0 };

	CHECK_EQ(meta_log_entry_parse(c->reply, c->reply_len, &e), 0);
	return e;
}

static int log_set(struct metad_client *c, uint64_t ino, uint64_t epoch,
		   uint32_t version, const struct meta_log_peer *peers,
		   size_t count)
{
	uint8_t b[256];
	size_t len = set_body(b, ino, epoch, version, peers, count);

	return metad_client_call(c, WIRE_OP_META_LOG_SET, b, len);
}

static int log_raise(struct metad_client *c, uint64_t ino)
{
	uint8_t b[8];
	size_t len = METAD_BODY(b, meta_ino, { .ino = ino });

	return metad_client_call(c, WIRE_OP_META_LOG_RAISE, b, len);
}

static int log_drop(struct metad_client *c, uint64_t ino, uint64_t epoch)
{
	uint8_t b[16];
	size_t len = METAD_BODY(b, meta_log_drop, { ino, epoch });

	return metad_client_call(c, WIRE_OP_META_LOG_DROP, b, len);
}

/* How many entries there are; the first one's in *e. */
static uint32_t log_list(struct metad_client *c, struct meta_log_entry *e)
{
	struct meta_log_list_reply r = { 0 };
	struct wire_in in;
	uint8_t b[32];
	size_t len = METAD_BODY(b, meta_log_list, { .count_max = 100 });

	CHECK_EQ(metad_client_call(c, WIRE_OP_META_LOG_LIST, b, len), 0);
	CHECK_EQ(meta_log_list_reply_parse(c->reply, c->reply_len, &r), 0);
	CHECK_EQ(r.done, 1);
	wire_in_init(&in, r.entries.p, r.entries.len);
	*e = (struct meta_log_entry){ 0 };
	if (r.count > 0)
		meta_log_entry_decode(&in, e);
	return r.count;
}

static uint64_t leased_file(struct metad_client *c, const char *name)
{
	CHECK_EQ(metad_client_create(c, ROOT_INO, name, META_CREATE_LEASE), 0);
	return c->attr.ino;
}

/* metad is killed as soon as it was asked: what it was asked once more gives
 * one entry, whether it had it or not. */
static void a_kill_between_question_and_answer(struct metad_run *x)
{
	struct metad_client c;
	struct meta_log_entry e;
	struct logd d[3];
	uint64_t ino, id, epoch = 0;
	uint8_t b[256];
	size_t len;

	metad_client_begin(x, &c);
	start_three(x, d);
	ino = leased_file(&c, "wal");
	CHECK_EQ(metad_client_sync(&c), 0);
	for (unsigned i = 0; i < 6; i++) {
		c.seq_low = c.seq + 1;
		len = set_body(b, ino, 0, 0, abc, 3);
		id = metad_client_send(&c, WIRE_OP_META_LOG_SET, b, len);
		sleep_ms((unsigned)(tap_random() % 3));
		child_kill9(&x->child);
		metad_run_start(x, NULL);
		CHECK_EQ(metad_client_reconnect(&c), 0);
		id = metad_client_send_seq(&c, WIRE_OP_META_LOG_SET, c.seq, b,
					   len);
		CHECK_EQ(metad_client_recv(&c, id, 20000), 0);
		e = entry_of(&c);
		CHECK(e.epoch > epoch && e.data_epoch == e.epoch);
		epoch = e.epoch;
		/* what was answered is there after the next kill */
		child_kill9(&x->child);
		metad_run_start(x, NULL);
		CHECK_EQ(metad_client_reconnect(&c), 0);
		CHECK_EQ(log_list(&c, &e), 1);
		CHECK(e.ino == ino && e.epoch == epoch && e.version == 1);
		CHECK_EQ(e.flags, META_LOG_LIVE);
		CHECK_EQ(log_drop(&c, ino, epoch), 0);
		child_kill9(&x->child);
		metad_run_start(x, NULL);
		CHECK_EQ(metad_client_reconnect(&c), 0);
		CHECK_EQ(log_list(&c, &e), 0);
	}
	stop_three(d);
	metad_client_fini(&c);
}

/* Two changes of one version on the way at once: one wins. */
static void a_race_of_two_changes_has_one_winner(struct metad_run *x)
{
	struct metad_client c;
	struct meta_log_entry e;
	struct logd d[3];
	unsigned won = 0, lost = 0;
	uint8_t b[256];
	uint64_t ino;
	size_t len;

	metad_client_begin(x, &c);
	start_three(x, d);
	/* the lease and the entry are in one batch */
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "wal", 0), 0);
	ino = c.attr.ino;
	len = METAD_BODY(b, meta_ino, { .ino = ino });
	(void)metad_client_send(&c, WIRE_OP_META_LEASE, b, len);
	CHECK_EQ(log_set(&c, ino, 0, 0, abc, 3), 0);
	e = entry_of(&c);
	CHECK_EQ(e.session, c.session);
	CHECK_EQ(log_set(&c, ino, 0, 0, abc, 3), -EEXIST);
	for (unsigned i = 2; i <= 3; i++) {
		len = set_body(b, ino, e.epoch, e.version, abc, i);
		(void)metad_client_send(&c, WIRE_OP_META_LOG_SET, b, len);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct frame *f = raw_recv(&c.r, 15000);

		CHECK(f);
		won += f && f->h.status == 0;
		lost += f && status_from_wire(f->h.status) == -ESTALE;
		frame_free(f);
	}
	CHECK(won == 1 && lost == 1);
	CHECK_EQ(log_list(&c, &e), 1);
	CHECK_EQ(e.version, 2);
	stop_three(d);
	metad_client_fini(&c);
}

static void a_dead_sessions_log_is_raised_by_the_next(struct metad_run *x)
{
	struct metad_client c, e;
	struct meta_log_entry l;
	struct logd d[3];
	uint64_t ino, gone;

	metad_client_begin(x, &c);
	start_three(x, d);
	ino = leased_file(&c, "wal");
	CHECK_EQ(log_set(&c, ino, 0, 0, abc, 3), 0);
	/* one that nobody will miss */
	gone = leased_file(&c, "gone");
	CHECK_EQ(log_set(&c, gone, 0, 0, abc, 3), 0);
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "gone"), 0);
	CHECK_EQ(metad_client_sync(&c), 0);
	CHECK_EQ(log_list(&c, &l), 2);
	/* another mount, while this one lives */
	CHECK_EQ(metad_client_open(x, &e, 2), -EBUSY);
	metad_client_fini(&e);
	/* the same again: it has crashed */
	CHECK_EQ(metad_client_open(x, &e, 1), 0);
	CHECK_EQ(log_list(&e, &l), 1);
	CHECK(l.ino == ino && l.epoch == 1 && l.flags == 0);
	CHECK_EQ(l.session, c.session);
	CHECK_EQ(log_set(&e, ino, 1, 1, abc, 3), -ESTALE);
	CHECK_EQ(log_drop(&e, ino, 1), -ESTALE);
	CHECK_EQ(log_raise(&e, ino), 0);
	l = entry_of(&e);
	CHECK(l.epoch == 3 && l.data_epoch == 1 && l.session == e.session);
	CHECK_EQ(l.flags, META_LOG_LIVE);
	CHECK_EQ(metad_client_reconnect(&c), -ESTALE);
	CHECK_EQ(log_raise(&e, gone), -ENOENT);
	CHECK_EQ(log_drop(&e, ino, 3), 0);
	CHECK_EQ(log_list(&e, &l), 0);
	stop_three(d);
	metad_client_fini(&c);
	metad_client_fini(&e);
}

static uint64_t unnamed_file(struct metad_client *c)
{
	CHECK_EQ(metad_client_create(c, ROOT_INO, "", META_CREATE_TMPFILE |
							      META_CREATE_OPEN |
							      META_CREATE_LEASE),
		 0);
	return c->attr.ino;
}

static void restart(struct metad_run *x)
{
	child_kill9(&x->child);
	metad_run_start(x, NULL);
}

/* The session of a mount that crashed; metad is killed before the next one
 * comes, and after. The journal stays, with all that the block daemons have of
 * it, until it is dropped; other files without a name go. */
static void a_journal_outlives_mounts_and_metad(struct metad_run *x)
{
	struct metad_client c, d, e;
	struct meta_log_entry l;
	uint64_t ino, other;

	metad_client_begin(x, &c);
	fake_blockd_set_end(x->blockd[0], 123456, 20, 7000000000000000000);
	other = unnamed_file(&c);
	ino = unnamed_file(&c);
	CHECK_EQ(log_set(&c, ino, 0, 0, NULL, 0), 0);
	CHECK_EQ(entry_of(&c).peers.len, 0);
	restart(x);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(log_list(&c, &l), 1);
	CHECK(l.ino == ino && l.flags == META_LOG_LIVE && l.peers.len == 0);
	/* the mount has crashed */
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	EVENTUALLY(fake_blockd_purged(x->blockd[0], other) == 1);
	CHECK_EQ(metad_client_getattr(&d, other), -ENOENT);
	CHECK_EQ(metad_client_getattr(&d, ino), 0);
	CHECK_EQ(d.attr.size, 123456);
	CHECK(d.attr.nlink == 0 && !(d.attr.flags & META_ATTR_LEASED));
	CHECK_EQ(log_list(&d, &l), 1);
	CHECK(l.ino == ino && l.flags == 0 && l.peers.len == 0);
	restart(x);
	CHECK_EQ(metad_client_reconnect(&d), 0);
	CHECK_EQ(log_raise(&d, ino), 0);
	CHECK(entry_of(&d).epoch == 2 && entry_of(&d).session == d.session);
	CHECK_EQ(metad_client_lease(&d, ino), 0);
	/* and so has the next one, which had not done all of it */
	CHECK_EQ(metad_client_open(x, &e, 1), 0);
	restart(x);
	CHECK_EQ(metad_client_reconnect(&e), 0);
	CHECK_EQ(log_raise(&e, ino), 0);
	l = entry_of(&e);
	CHECK_EQ(metad_client_getattr(&e, ino), 0);
	CHECK_EQ(e.attr.size, 123456);
	CHECK_EQ(fake_blockd_purged(x->blockd[0], ino), 0);
	CHECK_EQ(log_drop(&e, ino, l.epoch), 0);
	CHECK_EQ(metad_client_give_back(&e, ino, META_RETURN_ORPHAN), 0);
	CHECK_EQ(metad_client_sync(&e), 0);
	EVENTUALLY(fake_blockd_purged(x->blockd[0], ino) == 1);
	CHECK_EQ(log_list(&e, &l), 0);
	metad_client_fini(&c);
	metad_client_fini(&d);
	metad_client_fini(&e);
}

/* A mount may end well and leave one; a backup has it, too. */
static void a_journal_is_in_a_backup(struct metad_run *x)
{
	char backup[128], data[128];
	const char *args[] = { "--restore", backup, "--data", data, NULL };
	struct metad_client c, d;
	struct meta_log_entry l;
	uint64_t ino;

	snprintf(backup, sizeof(backup), "%s/backup", x->child.dir);
	snprintf(data, sizeof(data), "%s/restored", x->child.dir);
	metad_client_begin(x, &c);
	ino = unnamed_file(&c);
	CHECK_EQ(log_set(&c, ino, 0, 0, NULL, 0), 0);
	CHECK_EQ(metad_client_give_back(&c, ino, META_RETURN_LEASE), 0);
	CHECK_EQ(metad_client_call(&c, WIRE_OP_META_SESSION_CLOSE, NULL, 0), 0);
	metad_client_fini(&c);
	metad_run_backup(x, backup);
	metad_run_blockd_end(x, 0);
	child_term(&x->child);
	metad_run_start(x, args);
	metad_run_blockd(x, 0, 11, 5);
	while (metad_client_open(x, &d, 1) < 0) {
		metad_client_fini(&d);
		sleep_ms(20);
	}
	CHECK_EQ(log_list(&d, &l), 1);
	CHECK(l.ino == ino && l.flags == 0 && l.peers.len == 0);
	CHECK_EQ(log_raise(&d, ino), 0);
	l = entry_of(&d);
	CHECK(l.epoch > 1 && l.data_epoch == 1 && l.session == d.session);
	CHECK_EQ(metad_client_getattr(&d, ino), 0);
	CHECK_EQ(log_drop(&d, ino, l.epoch), 0);
	metad_client_fini(&d);
}

/* ---- what a log daemon need not keep ---- */

static void only_what_nobody_owns_is_given_up(struct metad_run *x)
{
	struct log_name names[4];
	struct metad_client c;
	struct meta_log_entry e;
	struct logd d[3];
	uint64_t ino, other;

	metad_client_begin(x, &c);
	start_three(x, d);
	ino = leased_file(&c, "wal");
	other = leased_file(&c, "other");
	CHECK_EQ(log_set(&c, ino, 0, 0, abc, 3), 0);
	CHECK_EQ(log_set(&c, other, 0, 0, abc, 2), 0);
	names[0] = (struct log_name){ ino, 1 }; /* its own */
	names[1] = (struct log_name){ other, 2 }; /* not on the list */
	names[2] = (struct log_name){ other, 1 }; /* of no such epoch */
	names[3] = (struct log_name){ 999, 2 }; /* no entry */
	CHECK_EQ(logd_beat_logs(&d[2], names, 4), 0);
	CHECK_EQ(d[2].gone_count, 3);
	CHECK(d[2].gone[0].ino == other && d[2].gone[0].epoch == 2);
	CHECK_EQ(d[2].gone[0].verdict, META_LOG_UNLISTED);
	CHECK(d[2].gone[1].ino == other && d[2].gone[1].epoch == 1);
	CHECK_EQ(d[2].gone[1].verdict, META_LOG_UNKNOWN);
	CHECK_EQ(d[2].gone[2].ino, 999);
	CHECK_EQ(d[2].gone[2].verdict, META_LOG_UNKNOWN);
	/* an epoch that was raised is another one's to keep, with its data */
	CHECK_EQ(log_raise(&c, ino), 0);
	e = entry_of(&c);
	CHECK_EQ(logd_beat_logs(&d[2], names, 1), 0);
	CHECK_EQ(d[2].gone_count, 0);
	/* the daemon that restarted is another one */
	CHECK_EQ(logd_beat_logs(&d[0], names, 2), 0);
	CHECK_EQ(d[0].gone_count, 0);
	d[0].boot_id = 51;
	CHECK_EQ(logd_register(&d[0]), 0);
	CHECK_EQ(logd_beat_logs(&d[0], names, 2), 0);
	CHECK_EQ(d[0].gone_count, 2);
	CHECK_EQ(d[0].gone[0].verdict, META_LOG_UNLISTED);
	/* given up by its owner */
	CHECK_EQ(log_drop(&c, ino, e.epoch), 0);
	CHECK_EQ(logd_beat_logs(&d[2], names, 1), 0);
	CHECK_EQ(d[2].gone_count, 1);
	CHECK_EQ(d[2].gone[0].verdict, META_LOG_UNKNOWN);
	/* An epoch that never was: who knows what it is. */
	names[0].epoch = 4;
	CHECK_EQ(logd_beat_logs(&d[2], names, 1), 0);
	CHECK_EQ(d[2].gone_count, 0);
	stop_three(d);
	metad_client_fini(&c);
}

/* Without its block daemon metad cannot know that it is no older copy; one that
 * is an older copy does not know what was made since. */
static void an_older_copy_judges_nothing(struct metad_run *x)
{
	struct log_name name = { 999, 1 };
	struct metad_client c;
	struct logd d[3];
	uint64_t ino;
	char *text;

	metad_client_begin(x, &c);
	start_three(x, d);
	ino = leased_file(&c, "wal");
	CHECK_EQ(log_set(&c, ino, 0, 0, abc, 3), 0);
	CHECK_EQ(logd_beat_logs(&d[0], &name, 1), 0);
	CHECK_EQ(d[0].gone_count, 1);
	stop_three(d);
	metad_run_blockd_end(x, 0);
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	start_three(x, d);
	CHECK_EQ(logd_beat_logs(&d[0], &name, 1), 0);
	CHECK_EQ(d[0].gone_count, 0);
	metad_run_blockd(x, 0, 11, 1);
	CHECK_EQ(logd_beat_logs(&d[0], &name, 1), 0);
	CHECK_EQ(d[0].gone_count, 1);
	/* more logs than it ever gave */
	d[1].log_epoch = 70;
	CHECK_EQ(logd_register(&d[1]), 0);
	CHECK_EQ(logd_beat_logs(&d[0], &name, 1), 0);
	CHECK_EQ(d[0].gone_count, 0);
	text = metad_admin(x, WIRE_OP_ADMIN_STATUS);
	CHECK_TEXT(text, "\"state\":\"older\"");
	free(text);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(log_raise(&c, ino), 0);
	CHECK(entry_of(&c).epoch > 70);
	/* one that is not to be believed */
	d[1].log_epoch = UINT64_MAX - 5000;
	CHECK(logd_register(&d[1]) < 0);
	stop_three(d);
	metad_client_fini(&c);
}

/* After a restore no epoch is given that may have been given after the backup,
 * also when no log daemon is there to tell. */
static void a_restore_goes_on_beyond_all_epochs(struct metad_run *x)
{
	char backup[128], data[128];
	const char *args[] = { "--restore", backup, "--data", data, NULL };
	struct metad_client c, e;
	struct logd d[3];
	uint64_t ino, now_us = (uint64_t)time(NULL) * 1000000;

	snprintf(backup, sizeof(backup), "%s/backup", x->child.dir);
	snprintf(data, sizeof(data), "%s/restored", x->child.dir);
	metad_client_begin(x, &c);
	start_three(x, d);
	ino = leased_file(&c, "wal");
	CHECK_EQ(log_set(&c, ino, 0, 0, abc, 3), 0);
	metad_run_backup(x, backup);
	CHECK_EQ(log_raise(&c, ino), 0);
	CHECK_EQ(entry_of(&c).epoch, 2);
	stop_three(d);
	metad_run_blockd_end(x, 0);
	child_term(&x->child);
	metad_run_start(x, args);
	metad_run_blockd(x, 0, 11, 5);
	while (metad_client_open(x, &e, 1) < 0) {
		metad_client_fini(&e);
		sleep_ms(20);
	}
	CHECK_EQ(log_raise(&e, ino), 0);
	CHECK(entry_of(&e).epoch > now_us);
	CHECK_EQ(entry_of(&e).data_epoch, 1);
	/* a log daemon that knows what came after the backup shows nothing */
	d[0].log_epoch = 2;
	CHECK_EQ(metad_hello(x, &d[0].r, WIRE_ROLE_LOGD, 0, ++x->incarnation,
			     1), 0);
	CHECK_EQ(logd_register(&d[0]), 0);
	CHECK(!child_log_has(&x->child, "older-metadata"));
	raw_close(&d[0].r);
	metad_client_fini(&c);
	metad_client_fini(&e);
}

/* ---- log directories ---- */

static int set_options(struct metad_client *c, uint64_t ino, const char *text)
{
	uint8_t b[256];
	size_t len = METAD_BODY(b, meta_setxattr, {
		.ino = ino,
		.name = { META_XATTR_LOG, sizeof(META_XATTR_LOG) - 1 },
		.value = { text, (uint32_t)strlen(text) } });

	return metad_client_call(c, WIRE_OP_META_SETXATTR, b, len);
}

static int get_options(struct metad_client *c, uint64_t ino, const char *want)
{
	struct meta_blob m;
	uint8_t b[8];
	size_t len = METAD_BODY(b, meta_ino, { .ino = ino });
	int rv = metad_client_call(c, WIRE_OP_META_LOG_OPTS, b, len);

	if (rv < 0)
		return rv;
	CHECK_EQ(meta_blob_parse(c->reply, c->reply_len, &m), 0);
	CHECK(m.value.len == strlen(want) &&
	      memcmp(m.value.p, want, m.value.len) == 0);
	return 0;
}

static void log_files_outlive_metad(struct metad_run *x)
{
	struct meta_rename_reply r;
	struct metad_client c;
	uint64_t dir, wal;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_mkdir(&c, ROOT_INO, "db"), 0);
	dir = c.attr.ino;
	CHECK_EQ(set_options(&c, dir, "match=*-wal peers=4"), -EINVAL);
	c.seq_low = c.seq + 1;
	CHECK_EQ(set_options(&c, dir, "match=*-wal"), 0);
	CHECK_EQ(metad_client_create(&c, dir, "x-wal", 0), 0);
	CHECK(c.attr.flags & META_ATTR_LOG);
	wal = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, dir, "x", 0), 0);
	CHECK(!(c.attr.flags & META_ATTR_LOG));
	CHECK_EQ(get_options(&c, c.attr.ino, ""), -ENODATA);
	CHECK_EQ(metad_client_sync(&c), 0);
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_getattr(&c, wal), 0);
	CHECK(c.attr.flags & META_ATTR_LOG);
	CHECK_EQ(get_options(&c, wal, "match=*-wal"), 0);
	CHECK_EQ(metad_client_rename(&c, dir, "x-wal", ROOT_INO, "x-wal"), 0);
	CHECK_EQ(meta_rename_reply_parse(c.reply, c.reply_len, &r), 0);
	CHECK(r.ino == wal && !(r.flags & META_ATTR_LOG));
	CHECK_EQ(get_options(&c, wal, ""), -ENODATA);
	metad_client_fini(&c);
}

/* ---- who lends ---- */

/* Ids of the answer, as a number of decimal digits; *shared too. */
static uint64_t peers(struct metad_client *c, uint32_t count_max,
		      uint64_t bytes, const struct meta_log_peer *without,
		      size_t count, bool *shared)
{
	struct meta_log_peers q = { .count_max = count_max, .bytes = bytes };
	struct meta_log_peers_reply r = { 0 };
	struct meta_log_peer p;
	uint8_t b[256], list[128];
	struct wire_out o;
	struct wire_in in;
	uint64_t ids = 0;
	int rv;

	wire_out_init(&o, list, sizeof(list));
	while (count-- > 0)
		meta_log_peer_encode(&o, without++);
	q.without = (struct wire_str){ list, (uint32_t)o.len };
	wire_out_init(&o, b, sizeof(b));
	meta_log_peers_encode(&o, &q);
	rv = metad_client_call(c, WIRE_OP_META_LOG_PEERS, b, o.len);
	if (rv < 0)
		return (uint64_t)rv;
	CHECK_EQ(meta_log_peers_reply_parse(c->reply, c->reply_len, &r), 0);
	*shared = r.shared;
	wire_in_init(&in, r.peers.p, r.peers.len);
	for (uint32_t i = 0; i < r.count; i++) {
		meta_log_peer_decode(&in, &p);
		CHECK(p.boot_id == 40 + p.id || p.boot_id == 51);
		ids = ids * 10 + p.id;
	}
	CHECK_EQ(wire_in_end(&in), 0);
	return ids;
}

static void those_who_live_and_have_memory_lend(struct metad_run *x)
{
	struct metad_client c;
	struct logd d[4];
	bool shared;

	metad_client_begin(x, &c);
	CHECK_EQ(peers(&c, 3, 0, NULL, 0, &shared), 0);
	for (uint32_t i = 0; i < 4; i++) {
		d[i] = (struct logd){ .id = i + 1, .boot_id = 41 + i,
				      .free_bytes = 1000 * (i + 1),
				      .domain = i < 2 ? "a" : i == 2 ? "b" :
								       "c" };
		CHECK_EQ(metad_hello(x, &d[i].r, WIRE_ROLE_LOGD, 0, 1, i + 1),
			 0);
		CHECK_EQ(logd_register(&d[i]), 0);
	}
	CHECK_EQ(peers(&c, 3, 0, NULL, 0, &shared), 432);
	CHECK(!shared);
	CHECK_EQ(peers(&c, 9, 0, NULL, 0, &shared), 4321);
	CHECK(shared);
	CHECK_EQ(peers(&c, 9, 3000, NULL, 0, &shared), 43);
	CHECK_EQ(peers(&c, 9, 5000, NULL, 0, &shared), 0);
	/* in place of one of 4, 3, 2: the only one that is left */
	CHECK_EQ(peers(&c, 1, 0, (struct meta_log_peer[]){
					 { 4, 44 }, { 3, 43 }, { 2, 42 } },
		       3, &shared), 1);
	/* rather not in the domain of one that lives */
	CHECK_EQ(peers(&c, 2, 0, (struct meta_log_peer[]){ { 2, 42 } }, 1,
		       &shared), 43);
	CHECK_EQ(peers(&c, 3, 0, (struct meta_log_peer[]){ { 2, 42 } }, 1,
		       &shared), 431);
	/* its free memory, its wish and its death count at once */
	d[3].free_bytes = 1;
	CHECK_EQ(logd_beat(&d[3]), 0);
	CHECK_EQ(peers(&c, 9, 0, NULL, 0, &shared), 3241);
	d[2].draining = 1;
	CHECK_EQ(logd_beat(&d[2]), 0);
	CHECK_EQ(peers(&c, 9, 0, NULL, 0, &shared), 241);
	/* one that restarted is another one */
	d[1].boot_id = 51;
	CHECK_EQ(logd_register(&d[1]), 0);
	CHECK_EQ(peers(&c, 9, 0, (struct meta_log_peer[]){ { 2, 42 } }, 1,
		       &shared), 241);
	CHECK_EQ(peers(&c, 9, 0, (struct meta_log_peer[]){ { 2, 51 } }, 1,
		       &shared), 41);
	/* nonsense */
	CHECK_EQ(peers(&c, 0, 0, NULL, 0, &shared), (uint64_t)-EINVAL);
	CHECK_EQ(peers(&c, LOG_DAEMON_COUNT_MAX + 1, 0, NULL, 0, &shared),
		 (uint64_t)-EINVAL);
	/* who is silent is not offered */
	for (uint64_t until = now_ms() + 15000; now_ms() < until;) {
		CHECK_EQ(logd_beat(&d[0]), 0);
		if (peers(&c, 9, 0, NULL, 0, &shared) == 1)
			break;
		sleep_ms(100);
	}
	CHECK_EQ(peers(&c, 9, 0, NULL, 0, &shared), 1);
	for (uint32_t i = 0; i < 4; i++)
		raw_close(&d[i].r);
	metad_client_fini(&c);
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(a_log_daemon_registers, 1),
		METAD_TEST(strange_log_daemons_are_refused, 1),
		METAD_TEST(log_daemons_outlive_metad, 1),
		METAD_TEST(a_kill_between_question_and_answer, 1),
		METAD_TEST(a_race_of_two_changes_has_one_winner, 1),
		METAD_TEST(a_dead_sessions_log_is_raised_by_the_next, 1),
		METAD_TEST(a_journal_outlives_mounts_and_metad, 1),
		METAD_TEST(a_journal_is_in_a_backup, 1),
		METAD_TEST(only_what_nobody_owns_is_given_up, 1),
		METAD_TEST(an_older_copy_judges_nothing, 1),
		METAD_TEST(a_restore_goes_on_beyond_all_epochs, 1),
		METAD_TEST(log_files_outlive_metad, 1),
		METAD_TEST(those_who_live_and_have_memory_lend, 1),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
