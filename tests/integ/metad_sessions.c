/* Goal: the real hail-metad serves one session at a time, refuses peers that
 * are wrong or old, and fences and recovers a session that is replaced.
 * Method: the program as a child, fake block daemons, peers and sessions played
 * by hand; TAP.
 *
 * usage: metad_sessions [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_client.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/status.h"
#include "tests/lib/tap.h"

#define LONG_MS 15000

static void wrong_peers_are_refused(struct metad_run *x)
{
	struct metad_client c;
	struct blk_raw r;
	uint8_t junk[256], b[64];
	size_t i, len;
	struct frame *f;

	metad_client_begin(x, &c);
	/* another cluster */
	CHECK(raw_connect(&r, x->child.port, METAD_CLUSTER_ID + 1));
	CHECK_EQ(raw_hello(&r, WIRE_ROLE_CLIENT, 0, 1, LONG_MS), -EXDEV);
	CHECK(raw_closed(&r, LONG_MS));
	raw_close(&r);
	/* no HELLO */
	CHECK(raw_connect(&r, x->child.port, METAD_CLUSTER_ID));
	raw_send(&r, WIRE_OP_PING, NULL, 0, NULL, 0);
	CHECK(raw_closed(&r, LONG_MS));
	raw_close(&r);
	/* garbage */
	for (i = 0; i < sizeof(junk); i++)
		junk[i] = (uint8_t)tap_random();
	CHECK(raw_connect(&r, x->child.port, METAD_CLUSTER_ID));
	CHECK_EQ(send(r.fd, junk, sizeof(junk), MSG_NOSIGNAL), sizeof(junk));
	CHECK(raw_closed(&r, LONG_MS));
	raw_close(&r);
	/* a session that is not */
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_CLIENT, 99, 1, 0), -ESTALE);
	/* a block daemon that is not in the map */
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_BLOCKD, 0, 1, 77), -ENOENT);
	/* a metad that is not in the cluster file */
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_METAD, 0, 1, 77), -ENOENT);
	/* roles: tools do not change anything, commands of metad's own are
	 * nobody's, unknown ones neither */
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, 1, 0), 0);
	CHECK_EQ(raw_call(&r, WIRE_OP_META_CREATE, junk, 100, NULL, 0, &f),
		 -EPERM);
	raw_close(&r);
	len = METAD_BODY(b, meta_ino, { .ino = c.session });
	CHECK_EQ(metad_client_call(&c, WIRE_OP_SM_SESSION_CLOSE, b, len),
		 -EOPNOTSUPP);
	CHECK_EQ(metad_client_call(&c, 250, b, len), -EOPNOTSUPP);
	/* bodies that do not decode; the session goes on */
	CHECK_EQ(metad_client_call(&c, WIRE_OP_META_LOOKUP, junk, 7), -EBADMSG);
	CHECK(metad_client_call(&c, WIRE_OP_META_CREATE, junk, 50) < 0);
	CHECK_EQ(metad_client_call(&c, WIRE_OP_META_SYNC, junk, 3), -EBADMSG);
	c.seq_low = c.seq;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	metad_client_fini(&c);
}

static void strangers_are_shown_the_door(struct metad_run *x)
{
	const struct wire_header big[] = {
		{ .version = WIRE_VERSION, .opcode = WIRE_OP_HELLO,
		  .cluster_id = METAD_CLUSTER_ID, .body_len = FRAME_BODY_MAX },
		{ .version = WIRE_VERSION, .opcode = WIRE_OP_HELLO,
		  .cluster_id = METAD_CLUSTER_ID, .data_len = FRAME_DATA_MAX },
	};
	struct blk_raw r, silent[20];
	struct metad_client c;
	uint8_t bytes[WIRE_HEADER_SIZE];
	size_t i;

	metad_client_begin(x, &c);
	for (i = 0; i < array_count(silent); i++)
		CHECK(raw_connect(&silent[i], x->child.port, 0));
	/* No memory for a large frame. */
	for (i = 0; i < array_count(big); i++) {
		CHECK(raw_connect(&r, x->child.port, METAD_CLUSTER_ID));
		wire_header_encode(&big[i], bytes);
		CHECK_EQ(write(r.fd, bytes, sizeof(bytes)), sizeof(bytes));
		CHECK(raw_closed(&r, 5000));
		raw_close(&r);
	}
	/* No place for ever. */
	for (i = 0; i < array_count(silent); i++) {
		CHECK(raw_closed(&silent[i], 20000));
		raw_close(&silent[i]);
	}
	/* Who has said HELLO may be silent. */
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	CHECK_EQ(c.attr.nlink, 1);
	metad_client_fini(&c);
}

static void later_releases_are_told_apart(struct metad_run *x)
{
	struct metad_client c;

	metad_client_begin(x, &c);
	CHECK_EQ(raw_later_hello(x->child.port, METAD_CLUSTER_ID, LONG_MS),
		 -EPROTONOSUPPORT);
	CHECK_EQ(raw_later_frame(x->child.port, METAD_CLUSTER_ID, LONG_MS),
		 -EPROTONOSUPPORT);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	metad_client_fini(&c);
}

static void an_old_connection_is_closed(struct metad_run *x)
{
	struct metad_client c;
	struct blk_raw old, r;

	metad_client_begin(x, &c);
	old = c.r;
	CHECK_EQ(metad_hello(x, &c.r, WIRE_ROLE_CLIENT, c.session,
			     x->incarnation + 10, 0), 0);
	CHECK(raw_closed(&old, LONG_MS));
	raw_close(&old);
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_CLIENT, c.session,
			     x->incarnation + 9, 0), -ESTALE);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	metad_client_fini(&c);
}

static void a_frame_cut_anywhere_harms_nobody(struct metad_run *x)
{
	struct metad_client c;
	struct blk_raw r;
	uint8_t b[128];
	size_t len, cut;

	metad_client_begin(x, &c);
	len = METAD_BODY(b, hello, { .version_min = 1, .version_max = 1,
				     .role = WIRE_ROLE_ADMIN,
				     .name = { "cut", 3 } });
	for (cut = 1; cut < len + 64; cut += 5) {
		uint8_t frame[256];

		CHECK(raw_connect(&r, x->child.port, METAD_CLUSTER_ID));
		memset(frame, 0, sizeof(frame));
		memcpy(frame, b, len);
		CHECK(send(r.fd, frame, cut, MSG_NOSIGNAL) > 0);
		raw_close(&r);
	}
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	metad_client_fini(&c);
}

static void a_second_mount_is_refused_by_name(struct metad_run *x)
{
	struct metad_client c, d;
	struct blk_raw r;
	uint8_t b[128];
	struct frame *f;
	struct meta_blob m;
	uint64_t id;
	size_t len;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_open(x, &d, 2), -EBUSY);
	metad_client_fini(&d);
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_CLIENT, 0, ++x->incarnation, 0),
		 0);
	len = METAD_BODY(b, meta_session_open, { .client_id = 3,
						 .host = { "h", 1 },
						 .mountpoint = { "/m", 2 } });
	id = raw_send(&r, WIRE_OP_META_SESSION_OPEN, b, len, NULL, 0);
	f = raw_recv(&r, LONG_MS);
	CHECK(f && f->h.request_id == id);
	CHECK_EQ(status_from_wire(f->h.status), -EBUSY);
	CHECK_EQ(meta_blob_parse(f->body, f->h.body_len, &m), 0);
	CHECK(m.value.len == 10 && memcmp(m.value.p, "box:/mnt/x", 10) == 0);
	frame_free(f);
	raw_close(&r);
	/* The first is not disturbed, and may close; then there is room. */
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	CHECK_EQ(metad_client_call(&c, WIRE_OP_META_SESSION_CLOSE, NULL, 0), 0);
	CHECK_EQ(metad_client_open(x, &d, 2), 0);
	metad_client_check_list(&d, ROOT_INO, "f\n");
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void a_replaced_session_is_fenced_and_recovered(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t ino, orphan, epoch;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	metad_run_blockd(x, 1, 12, 1);
	fake_blockd_set_end(x->blockd[0], 123456, 20, 7000000000000000000);
	fake_blockd_set_end(x->blockd[1], 100000, 11, 6000000000000000000);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	ino = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "o", META_CREATE_LEASE), 0);
	orphan = c.attr.ino;
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "o"), 0);
	epoch = fake_blockd_epoch(x->blockd[0]);
	/* The same mount point again: its process is dead. */
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	CHECK(d.session > c.session);
	CHECK_EQ(fake_blockd_last_fence(x->blockd[0]), c.session);
	CHECK_EQ(fake_blockd_last_fence(x->blockd[1]), c.session);
	CHECK_EQ(metad_client_lookup(&d, ROOT_INO, "f"), 0);
	CHECK_EQ(d.attr.ino, ino);
	CHECK_EQ(d.attr.size, 123456);
	CHECK_EQ(d.attr.units, 31);
	CHECK_EQ(d.attr.mtime_ns, 7000000000000000000);
	CHECK(!(d.attr.flags & META_ATTR_LEASED));
	EVENTUALLY(fake_blockd_purged(x->blockd[0], orphan) == 1);
	EVENTUALLY(fake_blockd_purged(x->blockd[1], orphan) == 1);
	EVENTUALLY(fake_blockd_epoch(x->blockd[0]) > epoch);
	/* The old one is out. */
	CHECK(raw_closed(&c.r, LONG_MS));
	CHECK_EQ(metad_client_reconnect(&c), -ESTALE);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void recovery_goes_on_after_a_kill(struct metad_run *x)
{
	struct metad_client c, d;
	uint8_t b[128];
	size_t len;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	fake_blockd_set_end(x->blockd[0], 5000, 2, 1);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_END);
	CHECK_EQ(metad_hello(x, &d.r, WIRE_ROLE_CLIENT, 0, ++x->incarnation,
			     0), 0);
	len = METAD_BODY(b, meta_session_open, { .client_id = 1,
						 .host = { "h", 1 },
						 .mountpoint = { "/m", 2 } });
	raw_send(&d.r, WIRE_OP_META_SESSION_OPEN, b, len, NULL, 0);
	EVENTUALLY(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_END) == 1);
	child_kill9(&x->child);
	raw_close(&d.r);
	fake_blockd_hold(x->blockd[0], 0);
	metad_run_start(x, NULL);
	/* Nobody had to ask: the dead session is ended at the start. */
	CHECK_EQ(metad_client_reconnect(&c), -ESTALE);
	EVENTUALLY(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_END) == 2);
	CHECK_EQ(metad_client_open(x, &d, 9), 0);
	CHECK_EQ(metad_client_lookup(&d, ROOT_INO, "f"), 0);
	CHECK_EQ(d.attr.size, 5000);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* What a dead mount wrote where no file can be is nobody's: metad takes neither
 * its size nor its number, and starts again from what it has logged. */
static void nonsense_of_a_dead_mount_is_not_logged(struct metad_run *x)
{
	static const uint64_t inos[] = { UINT64_C(1) << 63, UINT64_MAX,
					 UINT64_C(1) << 40 };
	struct metad_client c;
	uint64_t ino;
	unsigned i;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	ino = c.attr.ino;
	fake_blockd_set_end(x->blockd[0], UINT64_C(1) << 63, 20, 1);
	for (i = 0; i < array_count(inos); i++) {
		fake_blockd_set_stray(x->blockd[0], inos[i]);
		metad_client_fini(&c);
		CHECK_EQ(metad_client_open(x, &c, 1), 0);
		CHECK_EQ(fake_blockd_purged(x->blockd[0], inos[i]), 1);
	}
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "f"), 0);
	CHECK_EQ(c.attr.size, FILE_SIZE_MAX);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "g", 0), 0);
	CHECK(c.attr.ino < ino + 100000);
	metad_client_fini(&c);
}

static void a_silent_daemon_delays_a_fence_by_its_lease(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t start, took;

	metad_client_begin(x, &c);
	CHECK_EQ(fake_blockd_lease_ms(x->blockd[1]), 6000);
	/* One is gone, one hangs, and is connected all the while. */
	EVENTUALLY(fake_blockd_calls(x->blockd[2], WIRE_OP_HELLO) == 1);
	fake_blockd_set_down(x->blockd[1], true);
	fake_blockd_set_mute(x->blockd[2], true);
	sleep_ms(200);
	start = now_ms();
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	took = now_ms() - start;
	printf("# took %llu ms\n", (unsigned long long)took);
	CHECK(took > 5000 && took < 12000);
	/* It comes back with the old map: no right to serve before it has read
	 * the new one (the fake never reads it, so its epoch counts). */
	fake_blockd_set_down(x->blockd[1], false);
	EVENTUALLY(fake_blockd_registered(x->blockd[1]) == 0 &&
		   fake_blockd_lease_ms(x->blockd[1]) == 6000);
	/* Its heartbeat of before is no right either; the next ones tell that
	 * it has read the map. */
	fake_blockd_set_mute(x->blockd[2], false);
	EVENTUALLY(fake_blockd_last_fence(x->blockd[2]) == c.session);
	EVENTUALLY(fake_blockd_lease_ms(x->blockd[2]) == 6000);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void a_silent_session_may_be_replaced_after_ten_seconds(
	struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t start;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	metad_client_disconnect(&c);
	start = now_ms();
	CHECK_EQ(metad_client_open(x, &d, 2), -EBUSY);
	metad_client_fini(&d);
	while (metad_client_open(x, &d, 2) == -EBUSY &&
	       now_ms() - start < 20000) {
		metad_client_fini(&d);
		sleep_ms(100);
	}
	CHECK(now_ms() - start > 9000 && now_ms() - start < 12000);
	metad_client_check_list(&d, ROOT_INO, "f\n");
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* What a session sent while metad was stopped counts, also when somebody who
 * wants its place is heard first. */
static void nobody_is_silent_while_metad_is(struct metad_run *x)
{
	struct metad_client c;
	struct blk_raw r;
	struct frame *f;
	uint8_t b[64];
	uint64_t id;
	size_t len;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_CLIENT, 0, ++x->incarnation, 0),
		 0);
	CHECK_EQ(kill(x->child.pid, SIGSTOP), 0);
	sleep_ms(10500);
	len = METAD_BODY(b, meta_session_open, { .client_id = 2,
						 .host = { "h", 1 },
						 .mountpoint = { "/m", 2 } });
	id = raw_send(&r, WIRE_OP_META_SESSION_OPEN, b, len, NULL, 0);
	sleep_ms(50);
	len = METAD_BODY(b, meta_keepalive, { .status = { "", 0 } });
	(void)raw_send(&c.r, WIRE_OP_META_KEEPALIVE, b, len, NULL, 0);
	CHECK_EQ(kill(x->child.pid, SIGCONT), 0);
	f = raw_recv(&r, LONG_MS);
	CHECK(f && f->h.request_id == id);
	CHECK_EQ(f ? status_from_wire(f->h.status) : -errno, -EBUSY);
	frame_free(f);
	raw_close(&r);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	metad_client_fini(&c);
}

#ifndef __SANITIZE_ADDRESS__ /* which wants to be preloaded first */
static char slow_path[128];

static void preload_slow_read(void)
{
	setenv("SLOW_READ", slow_path, 1);
	child_preload("slowread.so");
}

/* A daemon counts its lease from when it asked. However late metad is to read
 * that, it must not take the lease for over earlier. */
static void a_lease_asked_for_while_metad_was_busy_counts(struct metad_run *x)
{
	struct blk_raw r;
	struct frame *f;
	uint8_t b[128];
	uint64_t sent;
	size_t len;
	char *text;
	int fd;

	snprintf(slow_path, sizeof(slow_path), "%s/slow", x->child.dir);
	x->child.before_exec = preload_slow_read;
	metad_run_start(x, NULL);
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_BLOCKD, 0, 1, 1), 0);
	len = METAD_BODY(b, meta_register, { .daemon_id = 1,
					     .boot_id = 5,
					     .store_id_lo = 11,
					     .addr = { "127.0.0.1", 9 },
					     .port = 1 });
	CHECK_EQ(raw_call(&r, WIRE_OP_META_REGISTER, b, len, NULL, 0, NULL),
		 0);
	/* Something of it is there to be read, and then comes the beat. */
	fd = open(slow_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && close(fd) == 0);
	(void)raw_send(&r, WIRE_OP_PING, NULL, 0, NULL, 0);
	EVENTUALLY(access(slow_path, F_OK) < 0);
	sleep_ms(2500);
	sent = now_ms();
	len = METAD_BODY(b, meta_heartbeat, { .daemon_id = 1, .boot_id = 5 });
	(void)raw_send(&r, WIRE_OP_META_HEARTBEAT, b, len, NULL, 0);
	for (int i = 0; i < 2; i++) {
		f = raw_recv(&r, LONG_MS);
		CHECK(f && f->h.status == 0);
		frame_free(f);
	}
	while (now_ms() < sent + 5000)
		sleep_ms(10);
	text = metad_admin(x, WIRE_OP_ADMIN_STATUS);
	CHECK_TEXT(text, "\"lease\":true");
	free(text);
	raw_close(&r);
}

static char trigger[128];

static void preload_failing_malloc(void)
{
	child_preload("failmalloc.so");
	setenv("FAIL_MALLOC", trigger, 1);
}

/* Libuv stops listening after a connection that is not accepted. */
static void without_memory_a_connection_is_refused(struct metad_run *x)
{
	struct metad_client c;
	struct blk_raw r[3];
	int fd;

	snprintf(trigger, sizeof(trigger), "%s/no-memory", x->child.dir);
	x->child.before_exec = preload_failing_malloc;
	metad_client_begin(x, &c);
	fd = open(trigger, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && close(fd) == 0);
	/* Together, so that one is refused while another one is. */
	CHECK_EQ(kill(x->child.pid, SIGSTOP), 0);
	for (int i = 0; i < 3; i++)
		CHECK(raw_connect(&r[i], x->child.port, METAD_CLUSTER_ID));
	CHECK_EQ(kill(x->child.pid, SIGCONT), 0);
	for (int i = 0; i < 3; i++) {
		CHECK(raw_closed(&r[i], LONG_MS));
		raw_close(&r[i]);
	}
	CHECK_EQ(unlink(trigger), 0);
	CHECK_EQ(metad_hello(x, &r[0], WIRE_ROLE_ADMIN, 0, 1, 0), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	raw_close(&r[0]);
	metad_client_fini(&c);
}
#endif

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(wrong_peers_are_refused, 0),
		METAD_TEST(strangers_are_shown_the_door, 0),
		METAD_TEST(later_releases_are_told_apart, 0),
		METAD_TEST(an_old_connection_is_closed, 0),
		METAD_TEST(a_frame_cut_anywhere_harms_nobody, 0),
		METAD_TEST(a_second_mount_is_refused_by_name, 0),
		METAD_TEST(a_replaced_session_is_fenced_and_recovered, 2),
		METAD_TEST(nonsense_of_a_dead_mount_is_not_logged, 1),
		METAD_TEST(recovery_goes_on_after_a_kill, 1),
		METAD_TEST(a_silent_daemon_delays_a_fence_by_its_lease, 3),
		METAD_TEST(a_silent_session_may_be_replaced_after_ten_seconds,
			   0),
		METAD_TEST(nobody_is_silent_while_metad_is, 0),
#ifndef __SANITIZE_ADDRESS__
		METAD_TEST(a_lease_asked_for_while_metad_was_busy_counts, 1),
		METAD_TEST(without_memory_a_connection_is_refused, 0),
#endif
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
