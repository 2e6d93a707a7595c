/* Goal: the real hail-metad keeps its promises to sessions, block daemons and
 * tools, over kills, lost connections, full disks and damaged files.
 * Method: the program as a child, fake block daemons, sessions played by hand.
 * One function a fact, each with a data directory of its own; TAP.
 *
 * usage: metad_rim [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_run.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/status.h"
#include "common/wire_admin.h"

static int failures_here;

#define CHECK(cond)                                                           \
	do {                                                                  \
		if (!(cond)) {                                                \
			printf("# %s:%d: not so: %s\n", __FILE__, __LINE__,   \
			       #cond);                                        \
			failures_here++;                                      \
		}                                                             \
	} while (0)
#define CHECK_EQ(a, b)                                                        \
	do {                                                                  \
		long long a_ = (long long)(a), b_ = (long long)(b);           \
		if (a_ != b_) {                                               \
			printf("# %s:%d: %s is %lld, not %lld\n", __FILE__,   \
			       __LINE__, #a, a_, b_);                         \
			failures_here++;                                      \
		}                                                             \
	} while (0)
#define CHECK_TEXT(text, part)                                                \
	do {                                                                  \
		if (!strstr(text, part)) {                                    \
			printf("# %s:%d: no '%s' in: %s\n", __FILE__,         \
			       __LINE__, part, text);                         \
			failures_here++;                                      \
		}                                                             \
	} while (0)
#define EVENTUALLY(cond)                                                      \
	do {                                                                  \
		uint64_t until_ = now_ms() + 15000;                           \
		while (!(cond) && now_ms() < until_)                          \
			sleep_ms(2);                                          \
		CHECK(cond);                                                  \
	} while (0)

#define SOON_MS 300 /* nothing came: it waits */
#define LONG_MS 15000

static void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static uint64_t now_ms(void)
{
	return now_us() / 1000;
}

static uint64_t random_state = 1;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void check_list(struct metad_client *c, uint64_t dir, const char *want)
{
	char *have = metad_client_list(c, dir);

	if (strcmp(have, want) != 0) {
		printf("# names are '%s', not '%s'\n", have, want);
		failures_here++;
	}
	free(have);
}

static uint64_t status_number(struct metad_run *x, uint16_t op,
			      const char *key)
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

/* ---- life ---- */

static void state_survives_stop_and_kill(struct metad_run *x)
{
	struct metad_client c;

	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_mkdir(&c, ROOT_INO, "d"), 0);
	CHECK_EQ(metad_client_create(&c, c.attr.ino, "f", 0), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "a", 0), 0);
	/* An orderly stop writes what nobody waited for. */
	CHECK_EQ(metad_run_term(x), 0);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	check_list(&c, ROOT_INO, "a\nd\n");
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "b", 0), 0);
	CHECK_EQ(metad_client_sync(&c), 0);
	CHECK(c.rhdr.durable >= c.rhdr.pos);
	metad_run_kill9(x);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	check_list(&c, ROOT_INO, "a\nb\nd\n");
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "d"), 0);
	check_list(&c, c.attr.ino, "f\n");
	metad_client_fini(&c);
}

static void a_repeated_request_is_answered_once(struct metad_run *x)
{
	struct metad_client c;
	uint8_t b[256];
	uint64_t ino, id;
	size_t len;

	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_EXCL), 0);
	ino = c.attr.ino;
	len = METAD_BODY(b, meta_create, { .parent = ROOT_INO,
					   .name = { "f", 1 },
					   .mode = S_IFREG | 0644,
					   .flags = META_CREATE_EXCL });
	id = metad_client_send_seq(&c, WIRE_OP_META_CREATE, c.seq, b, len);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
	CHECK_EQ(c.attr.ino, ino);
	/* Also by the next process; and a new number is a new request. */
	CHECK_EQ(metad_client_sync(&c), 0);
	metad_run_kill9(x);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	id = metad_client_send_seq(&c, WIRE_OP_META_CREATE, c.seq, b, len);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
	CHECK_EQ(c.attr.ino, ino);
	CHECK_EQ(metad_client_call(&c, WIRE_OP_META_CREATE, b, len), -EEXIST);
	c.seq_low = c.seq;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "g", 0), 0);
	c.seq_low = 1;
	id = metad_client_send_seq(&c, WIRE_OP_META_CREATE, 1, b, len);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), -ESTALE);
	metad_client_fini(&c);
}

static void lost_mutations_come_back_when_sent_again(struct metad_run *x)
{
	struct metad_client c;
	uint8_t b[256];
	uint64_t id;
	size_t len;
	unsigned round;

	for (round = 0; round < 3; round++) {
		metad_run_start(x, NULL);
		if (round == 0)
			CHECK_EQ(metad_client_open(x, &c, 1), 0);
		else
			CHECK_EQ(metad_client_reconnect(&c), 0);
		c.seq_low = c.seq + 1;
		len = METAD_BODY(b, meta_create, { .parent = ROOT_INO,
						   .name = { "abc" + round, 1 },
						   .mode = S_IFREG | 0644 });
		/* Answered before it is durable, then killed. */
		CHECK_EQ(metad_client_call(&c, WIRE_OP_META_CREATE, b, len), 0);
		metad_run_kill9(x);
		metad_run_start(x, NULL);
		CHECK_EQ(metad_client_reconnect(&c), 0);
		id = metad_client_send_seq(&c, WIRE_OP_META_CREATE, c.seq, b,
					   len);
		CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
		CHECK_EQ(metad_client_sync(&c), 0);
		metad_run_kill9(x);
	}
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	check_list(&c, ROOT_INO, "a\nb\nc\n");
	metad_client_fini(&c);
}

/* ---- a stream of mutations, a model, and kills ---- */

#define STREAM_NAMES 64u
#define STREAM_WINDOW 48u

/* One mutation kept until it is durable. */
struct kept {
	uint64_t seq, pos; /* pos 0: not answered */
	uint16_t op;
	uint32_t len;
	uint64_t id; /* of the request on this connection */
	uint8_t body[128];
	int want; /* what the model says it must answer */
	bool answered;
};

struct stream {
	struct metad_client c;
	struct kept kept[STREAM_WINDOW];
	size_t count;
	bool exists[STREAM_NAMES]; /* after everything sent */
	uint64_t sent, resent;
};

static size_t stream_body(struct stream *s, struct kept *k, unsigned a,
			  unsigned b)
{
	char na[8], nb[8];

	snprintf(na, sizeof(na), "n%02u", a);
	snprintf(nb, sizeof(nb), "n%02u", b);
	k->want = 0;
	switch (k->op) {
	case WIRE_OP_META_CREATE:
		k->want = s->exists[a] ? -EEXIST : 0;
		s->exists[a] = true;
		return METAD_BODY(k->body, meta_create,
				  { .parent = ROOT_INO, .name = { na, 3 },
				    .mode = S_IFREG | 0600,
				    .flags = META_CREATE_EXCL });
	case WIRE_OP_META_UNLINK:
		k->want = s->exists[a] ? 0 : -ENOENT;
		s->exists[a] = false;
		return METAD_BODY(k->body, meta_unlink,
				  { .parent = ROOT_INO, .name = { na, 3 } });
	default:
		k->want = s->exists[a] ? 0 : -ENOENT;
		if (s->exists[a] && a != b) {
			s->exists[a] = false;
			s->exists[b] = true;
		}
		return METAD_BODY(k->body, meta_rename,
				  { .parent = ROOT_INO, .name = { na, 3 },
				    .newparent = ROOT_INO,
				    .newname = { nb, 3 } });
	}
}

static void stream_send_one(struct stream *s)
{
	static const uint16_t ops[] = { WIRE_OP_META_CREATE,
					WIRE_OP_META_CREATE,
					WIRE_OP_META_UNLINK,
					WIRE_OP_META_RENAME };
	struct kept *k = &s->kept[s->count++];

	memset(k, 0, sizeof(*k));
	k->op = ops[next_random() % array_count(ops)];
	k->len = (uint32_t)stream_body(s, k,
				       (unsigned)(next_random() % STREAM_NAMES),
				       (unsigned)(next_random() %
						  STREAM_NAMES));
	k->seq = ++s->c.seq;
	s->c.seq_low = s->kept[0].seq;
	k->id = metad_client_send_seq(&s->c, k->op, k->seq, k->body, k->len);
	s->sent++;
}

/* Forgets what is durable. */
static void stream_settle(struct stream *s)
{
	size_t keep = 0, i;

	while (keep < s->count && s->kept[keep].answered &&
	       s->kept[keep].pos <= s->c.rhdr.durable)
		keep++;
	for (i = keep; i < s->count; i++)
		s->kept[i - keep] = s->kept[i];
	s->count -= keep;
}

static int stream_recv(struct stream *s)
{
	struct kept *k = s->kept;
	struct frame *f = raw_recv(&s->c.r, LONG_MS);
	struct wire_in in;
	int rv;

	if (!f)
		return -errno;
	while (k < s->kept + s->count && k->id != f->h.request_id)
		k++;
	if (k < s->kept + s->count) {
		rv = status_from_wire(f->h.status);
		CHECK_EQ(rv, k->want);
		k->answered = true;
		if (rv == 0) {
			wire_in_init(&in, f->body, f->h.body_len);
			meta_rhdr_decode(&in, &s->c.rhdr);
			k->pos = s->c.rhdr.pos;
		} else {
			k->pos = s->c.rhdr.pos + 1;
		}
	}
	frame_free(f);
	stream_settle(s);
	return 0;
}

static bool stream_all_answered(const struct stream *s)
{
	size_t i;

	for (i = 0; i < s->count; i++)
		if (!s->kept[i].answered)
			return false;
	return true;
}

/* Fills the window and waits for an answer, or for the disk. */
static int stream_step(struct stream *s)
{
	int rv;

	while (s->count < STREAM_WINDOW)
		stream_send_one(s);
	if (!stream_all_answered(s))
		return stream_recv(s);
	rv = metad_client_sync(&s->c);
	stream_settle(s);
	return rv;
}

/* In order, the answered too: they may be lost. */
static void stream_again(struct stream *s)
{
	size_t i, count = s->count;

	CHECK_EQ(metad_client_reconnect(&s->c), 0);
	s->c.rhdr.durable = s->c.rhdr.pos = 0;
	for (i = 0; i < count; i++) {
		struct kept *k = &s->kept[i];

		k->answered = false;
		k->id = metad_client_send_seq(&s->c, k->op, k->seq, k->body,
					      k->len);
		s->resent++;
	}
}

static void stream_drain(struct stream *s)
{
	while (!stream_all_answered(s)) {
		if (stream_recv(s) < 0) {
			CHECK(!"the connection broke");
			return;
		}
	}
	CHECK_EQ(metad_client_sync(&s->c), 0);
	s->count = 0;
}

static void stream_check(struct stream *s)
{
	char want[STREAM_NAMES * 4 + 1], *at = want;
	unsigned i;

	*at = '\0';
	for (i = 0; i < STREAM_NAMES; i++)
		if (s->exists[i])
			at += snprintf(at, 5, "n%02u\n", i);
	check_list(&s->c, ROOT_INO, want);
}

static void run_stream(struct metad_run *x, const char *const *args,
		       unsigned kills)
{
	static struct stream s;
	unsigned k;

	memset(&s, 0, sizeof(s));
	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &s.c, 1), 0);
	for (k = 0; k < kills && !failures_here; k++) {
		uint64_t until = now_us() + 1000 + next_random() % 60000;

		while (now_us() < until && !failures_here)
			if (stream_step(&s) < 0)
				break;
		metad_run_kill9(x);
		metad_run_start(x, args);
		stream_again(&s);
		if (k % 4 == 3) {
			stream_drain(&s);
			stream_check(&s);
		}
	}
	stream_drain(&s);
	stream_check(&s);
	CHECK_EQ(metad_run_term(x), 0);
	metad_run_start(x, args);
	CHECK_EQ(metad_client_reconnect(&s.c), 0);
	stream_check(&s);
	printf("# %llu mutations, %llu sent again\n",
	       (unsigned long long)s.sent, (unsigned long long)s.resent);
	metad_client_fini(&s.c);
}

static void kills_under_a_stream_lose_nothing(struct metad_run *x)
{
	run_stream(x, NULL, 16);
}

static void kills_with_snapshots_lose_nothing(struct metad_run *x)
{
	static const char *const args[] = { "--snapshot-bytes", "16k", NULL };
	DIR *d;
	const struct dirent *e;
	char path[128];
	unsigned snapshots = 0;

	run_stream(x, args, 16);
	snprintf(path, sizeof(path), "%s/data/raft", x->dir);
	d = opendir(path);
	while (d && (e = readdir(d)))
		snapshots += strncmp(e->d_name, "snapshot-", 9) == 0;
	if (d)
		closedir(d);
	CHECK(snapshots >= 2);
}

static void snapshots_do_not_stop_service(struct metad_run *x)
{
	static const char *const args[] = { "--snapshot-bytes", "256k", NULL };
	struct metad_client c;
	uint64_t max_us = 0, start;
	char name[32];
	unsigned i;

	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	for (i = 0; i < 8000; i++) {
		snprintf(name, sizeof(name), "file-%06u", i);
		start = now_us();
		c.seq_low = c.seq + 1;
		if (metad_client_create(&c, ROOT_INO, name, 0) != 0) {
			CHECK(!"create");
			break;
		}
		max_us = u64_max(max_us, now_us() - start);
	}
	CHECK_EQ(metad_client_sync(&c), 0);
	EVENTUALLY(status_number(x, WIRE_OP_ADMIN_STATS, "snapshots") >= 1);
	printf("# longest create %llu us with %llu snapshots\n",
	       (unsigned long long)max_us,
	       (unsigned long long)status_number(x, WIRE_OP_ADMIN_STATS,
						 "snapshots"));
	/* Generous: the machine may be busy with other tests. */
	CHECK(max_us < 200000);
	metad_run_kill9(x);
	metad_run_start(x, args);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "file-007999"), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "file-000000"), 0);
	metad_client_fini(&c);
}

/* ---- peers that are wrong ---- */

static void wrong_peers_are_refused(struct metad_run *x)
{
	struct metad_client c;
	struct blk_raw r;
	uint8_t junk[256], b[64];
	size_t i, len;
	struct frame *f;

	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	/* another cluster */
	CHECK(raw_connect(&r, x->port, METAD_CLUSTER_ID + 1));
	CHECK_EQ(raw_hello(&r, WIRE_ROLE_CLIENT, 0, 1, LONG_MS), -EXDEV);
	CHECK(raw_closed(&r, LONG_MS));
	raw_close(&r);
	/* no HELLO */
	CHECK(raw_connect(&r, x->port, METAD_CLUSTER_ID));
	raw_send(&r, WIRE_OP_PING, NULL, 0, NULL, 0);
	CHECK(raw_closed(&r, LONG_MS));
	raw_close(&r);
	/* garbage */
	for (i = 0; i < sizeof(junk); i++)
		junk[i] = (uint8_t)next_random();
	CHECK(raw_connect(&r, x->port, METAD_CLUSTER_ID));
	CHECK_EQ(send(r.fd, junk, sizeof(junk), MSG_NOSIGNAL), sizeof(junk));
	CHECK(raw_closed(&r, LONG_MS));
	raw_close(&r);
	/* a session that is not */
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_CLIENT, 99, 1, 0), -ESTALE);
	/* a block daemon that is not in the map */
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_BLOCKD, 0, 1, 77), -ENOENT);
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

static void an_old_connection_is_closed(struct metad_run *x)
{
	struct metad_client c;
	struct blk_raw old, r;

	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
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

	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	len = METAD_BODY(b, hello, { .version_min = 1, .version_max = 1,
				     .role = WIRE_ROLE_ADMIN,
				     .name = { "cut", 3 } });
	for (cut = 1; cut < len + 64; cut += 5) {
		uint8_t frame[256];

		CHECK(raw_connect(&r, x->port, METAD_CLUSTER_ID));
		memset(frame, 0, sizeof(frame));
		memcpy(frame, b, len);
		CHECK(send(r.fd, frame, cut, MSG_NOSIGNAL) > 0);
		raw_close(&r);
	}
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	metad_client_fini(&c);
}

/* ---- sessions ---- */

static void a_second_mount_is_refused_by_name(struct metad_run *x)
{
	struct metad_client c, d;
	struct blk_raw r;
	uint8_t b[128];
	struct frame *f;
	struct meta_blob m;
	uint64_t id;
	size_t len;

	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
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
	check_list(&d, ROOT_INO, "f\n");
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
	metad_run_kill9(x);
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

static void a_silent_daemon_delays_a_fence_by_its_lease(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t start, took;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	metad_run_blockd(x, 1, 12, 1);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(fake_blockd_lease_ms(x->blockd[1]), 6000);
	fake_blockd_set_down(x->blockd[1], true);
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
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void a_silent_session_may_be_replaced_after_ten_seconds(
	struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t start;

	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
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
	check_list(&d, ROOT_INO, "f\n");
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* ---- cuts and purges ---- */

static void a_cut_waits_for_every_daemon(struct metad_run *x)
{
	struct metad_client c;
	struct blk_cut cut;
	uint64_t ino, id;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	metad_run_blockd(x, 1, 12, 1);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	ino = c.attr.ino;
	fake_blockd_hold(x->blockd[1], WIRE_OP_BLK_CUT);
	fake_blockd_set_cut_delta(x->blockd[0], -3);
	fake_blockd_set_cut_delta(x->blockd[1], 1);
	id = metad_client_cut_begin(&c, ino, 70000, 4097);
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	cut = fake_blockd_last_cut(x->blockd[0]);
	CHECK_EQ(cut.ino, ino);
	CHECK_EQ(cut.from, 4097);
	CHECK(cut.to == BLK_CUT_TO_END);
	CHECK_EQ(cut.block_log2, 20);
	/* The one who cuts goes on meanwhile. */
	CHECK_EQ(metad_client_getattr(&c, ino), 0);
	CHECK_EQ(c.attr.size, 4097);
	fake_blockd_hold(x->blockd[1], 0);
	/* Its answer was skipped over by getattr if it came; ask again. */
	id = metad_client_send_seq(&c, WIRE_OP_META_RETURN, ++c.seq, NULL, 0);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
	EVENTUALLY(status_number(x, WIRE_OP_ADMIN_STATUS, "cuts_pending") == 0);
	CHECK_EQ(metad_client_getattr(&c, ino), 0);
	CHECK_EQ(c.attr.cut, cut.cut);
	metad_client_fini(&c);
}

static void a_cut_survives_a_kill(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t ino, id, seq;
	uint8_t b[128];
	size_t len;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	ino = c.attr.ino;
	fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_CUT);
	id = metad_client_cut_begin(&c, ino, 70000, 0);
	seq = c.seq;
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	metad_run_kill9(x);
	metad_run_start(x, NULL);
	EVENTUALLY(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT) == 2);
	/* Sent again: not cut again, and waits with the first. */
	CHECK_EQ(metad_client_reconnect(&c), 0);
	len = METAD_BODY(b, meta_cut, { .ino = ino, .to = BLK_CUT_TO_END,
					.size_now = 70000 });
	id = metad_client_send_seq(&c, WIRE_OP_META_CUT, seq, b, len);
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	metad_client_disconnect(&c);
	fake_blockd_hold(x->blockd[0], 0);
	fake_blockd_set_end(x->blockd[0], 0, 0, 0);
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	CHECK_EQ(metad_client_getattr(&d, ino), 0);
	CHECK_EQ(d.attr.size, 0);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT), 2);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* A daemon that is asked again has nothing left to free and says 0: how much
 * went is then counted. Also when the process that asked first is gone. */
static void what_a_cut_freed_is_not_lost_with_its_answer(struct metad_run *x)
{
	struct metad_client c;
	uint64_t ino, id, seq;
	unsigned round;
	uint8_t b[128];
	size_t len;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	metad_run_blockd(x, 1, 12, 1);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	ino = c.attr.ino;
	for (round = 0; round < 2; round++) {
		uint64_t cuts = fake_blockd_calls(x->blockd[1],
						  WIRE_OP_BLK_CUT);

		len = METAD_BODY(b, meta_setattr,
				 { .ino = ino, .valid = META_SET_UNITS_DELTA,
				   .units_delta = 100 });
		CHECK_EQ(metad_client_call(&c, WIRE_OP_META_SETATTR, b, len),
			 0);
		fake_blockd_hold(x->blockd[1], WIRE_OP_BLK_CUT);
		fake_blockd_set_cut_delta(x->blockd[0], -40);
		id = metad_client_cut_begin(&c, ino, 400000, 8192);
		seq = c.seq;
		CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
		/* It has cut, and the answer is lost. */
		fake_blockd_set_end(x->blockd[0], 4096, 1, 1);
		fake_blockd_set_end(x->blockd[1], 8192, 1, 1);
		fake_blockd_set_down(x->blockd[1], true);
		if (round) {
			metad_run_kill9(x);
			fake_blockd_set_cut_delta(x->blockd[0], 0);
			metad_run_start(x, NULL);
			CHECK_EQ(metad_client_reconnect(&c), 0);
			len = METAD_BODY(b, meta_cut,
					 { .ino = ino, .from = 8192,
					   .to = BLK_CUT_TO_END,
					   .size_now = 400000,
					   .size = 8192 });
			id = metad_client_send_seq(&c, WIRE_OP_META_CUT, seq,
						   b, len);
		}
		sleep_ms(100); /* its connections are seen to be gone */
		fake_blockd_hold(x->blockd[1], 0);
		fake_blockd_set_down(x->blockd[1], false);
		CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
		CHECK_EQ(fake_blockd_calls(x->blockd[1], WIRE_OP_BLK_CUT),
			 cuts + 2);
		CHECK_EQ(metad_client_getattr(&c, ino), 0);
		CHECK_EQ(c.attr.units, 2);
		CHECK_EQ(c.attr.size, 8192);
	}
	metad_client_fini(&c);
}

/* A file that nobody leases keeps no mount out while it is being cut; but the
 * next one is not told its attributes before that is done, by no request: with
 * the new cut number it could write what the old cut then removes. */
static void a_file_being_cut_is_not_shown_to_the_next(struct metad_run *x)
{
	static const uint16_t ops[] = { WIRE_OP_META_GETATTR,
					WIRE_OP_META_LOOKUP,
					WIRE_OP_META_READDIR };
	struct metad_client c, d;
	uint64_t ino, id;
	uint8_t b[128];
	size_t len, i;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	for (i = 0; i < array_count(ops); i++) {
		uint16_t op = ops[i];

		CHECK_EQ(metad_client_open(x, &c, 1), 0);
		CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
		ino = c.attr.ino;
		fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_CUT);
		id = metad_client_cut_begin(&c, ino, 70000, 0);
		CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
		CHECK_EQ(metad_client_open(x, &d, 1), 0);
		len = op == WIRE_OP_META_GETATTR ?
			      METAD_BODY(b, meta_ino, { .ino = ino }) :
		      op == WIRE_OP_META_LOOKUP ?
			      METAD_BODY(b, meta_lookup,
					 { .parent = ROOT_INO,
					   .name = { "f", 1 } }) :
			      METAD_BODY(b, meta_readdir,
					 { .dir = ROOT_INO,
					   .bytes_max = 32768,
					   .plus = 1 });
		id = metad_client_send(&d, op, b, len);
		CHECK_EQ(metad_client_recv(&d, id, SOON_MS), -ETIMEDOUT);
		/* Names alone may be told. */
		check_list(&d, ROOT_INO, "f\n");
		id = metad_client_send(&d, op, b, len);
		fake_blockd_hold(x->blockd[0], 0);
		CHECK_EQ(metad_client_recv(&d, id, LONG_MS), 0);
		CHECK_EQ(metad_client_getattr(&d, ino), 0);
		CHECK_EQ(d.attr.size, 0);
		CHECK_EQ(metad_client_unlink(&d, ROOT_INO, "f"), 0);
		metad_client_fini(&c);
		metad_client_fini(&d);
	}
}

/* Asks for a session in the place of @c's, without waiting. */
static void replace_begin(struct metad_run *x, struct metad_client *d)
{
	uint8_t b[128];
	size_t len = METAD_BODY(b, meta_session_open,
				{ .client_id = 1,
				  .host = { "h", 1 },
				  .mountpoint = { "/m", 2 } });

	memset(d, 0, sizeof(*d));
	CHECK_EQ(metad_hello(x, &d->r, WIRE_ROLE_CLIENT, 0, ++x->incarnation,
			     0), 0);
	raw_send(&d->r, WIRE_OP_META_SESSION_OPEN, b, len, NULL, 0);
}

/* The end of a file is not asked for while a daemon has yet to cut it: it would
 * tell where the file ended before. Both for the cut of the one who died, and
 * for one that metad found when it started. */
static void the_end_of_a_dead_session_waits_for_its_cut(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t ino, id;
	unsigned round;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	for (round = 0; round < 2; round++) {
		uint64_t ends, cuts;

		CHECK_EQ(metad_client_open(x, &c, 1), 0);
		CHECK_EQ(metad_client_create(&c, ROOT_INO, round ? "g" : "f",
					     META_CREATE_LEASE), 0);
		ino = c.attr.ino;
		ends = fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_END);
		cuts = fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT);
		fake_blockd_set_end(x->blockd[0], 70000, 18, 1);
		fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_CUT);
		id = metad_client_cut_begin(&c, ino, 70000, 4096);
		CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
		replace_begin(x, &d);
		if (round) {
			EVENTUALLY(fake_blockd_last_fence(x->blockd[0]) ==
				   c.session);
			metad_run_kill9(x);
			metad_run_start(x, NULL);
			EVENTUALLY(fake_blockd_calls(x->blockd[0],
						     WIRE_OP_BLK_CUT) ==
				   cuts + 2);
		}
		sleep_ms(SOON_MS);
		CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_END),
			 ends);
		/* What it says once it has cut. */
		fake_blockd_set_end(x->blockd[0], 4096, 1, 1);
		fake_blockd_hold(x->blockd[0], 0);
		/* In the second round the units are counted first. */
		EVENTUALLY(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_END) ==
			   ends + 1 + round);
		raw_close(&d.r);
		CHECK_EQ(metad_client_open(x, &d, 1), 0);
		CHECK_EQ(metad_client_getattr(&d, ino), 0);
		CHECK_EQ(d.attr.size, 4096);
		CHECK_EQ(d.attr.units, 1);
		metad_client_fini(&c);
		metad_client_fini(&d);
	}
}

static void what_is_deleted_is_purged_everywhere(struct metad_run *x)
{
	struct metad_client c;
	uint64_t inos[40];
	char name[16];
	unsigned i;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	metad_run_blockd(x, 1, 12, 1);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	fake_blockd_set_down(x->blockd[1], true);
	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		c.seq_low = c.seq + 1;
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name,
					     META_CREATE_LEASE), 0);
		inos[i] = c.attr.ino;
		CHECK_EQ(metad_client_unlink(&c, ROOT_INO, name), 0);
		/* Open files are not purged. */
		if (i == 0) {
			sleep_ms(100);
			CHECK_EQ(fake_blockd_purged(x->blockd[0], inos[0]), 0);
		}
		CHECK_EQ(metad_client_give_back(&c, inos[i],
						META_RETURN_ORPHAN |
							META_RETURN_LEASE), 0);
	}
	for (i = 0; i < 40; i++)
		EVENTUALLY(fake_blockd_purged(x->blockd[0], inos[i]) > 0);
	/* The queue waits for the one that is away, also over a kill. */
	CHECK_EQ(status_number(x, WIRE_OP_ADMIN_STATUS, "purge_pending"), 40);
	CHECK_EQ(metad_client_sync(&c), 0);
	metad_run_kill9(x);
	fake_blockd_set_down(x->blockd[1], false);
	metad_run_start(x, NULL);
	for (i = 0; i < 40; i++)
		EVENTUALLY(fake_blockd_purged(x->blockd[1], inos[i]) > 0);
	EVENTUALLY(status_number(x, WIRE_OP_ADMIN_STATUS, "purge_pending") ==
		   0);
	metad_client_fini(&c);
}

/* ---- block daemons ---- */

static void another_or_older_store_is_lost(struct metad_run *x)
{
	char *text;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 100);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), 0);
	CHECK_EQ(fake_blockd_lease_ms(x->blockd[0]), 6000);
	fake_blockd_set_commit(x->blockd[0], 200);
	EVENTUALLY(status_number(x, WIRE_OP_ADMIN_STATUS, "commit_recorded") ==
		   200);
	metad_run_blockd_end(x, 0);
	metad_run_term(x);
	metad_run_start(x, NULL);
	/* an old image */
	metad_run_blockd(x, 0, 11, 199);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	text = metad_admin(x, WIRE_OP_ADMIN_STATUS);
	CHECK_TEXT(text, "\"lost\"");
	free(text);
	CHECK(metad_run_log_has(x, "an older copy of its store"));
	metad_run_blockd_end(x, 0);
	/* the right one again */
	metad_run_blockd(x, 0, 11, 200);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), 0);
	metad_run_blockd_end(x, 0);
	/* another one */
	metad_run_blockd(x, 0, 99, 5000);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	CHECK(metad_run_log_has(x, "another store"));
}

/* What runs in the place of a store confirms nothing for it: the right one may
 * come back as it was. */
static void a_lost_store_is_waited_for(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t cut_ino, end_ino, gone, id;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 100);
	metad_run_blockd(x, 1, 12, 1);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "c", META_CREATE_LEASE), 0);
	cut_ino = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "e", META_CREATE_LEASE), 0);
	end_ino = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "p", META_CREATE_LEASE), 0);
	gone = c.attr.ino;
	/* One call is on the way when the wrong store comes. */
	fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_CUT);
	id = metad_client_cut_begin(&c, cut_ino, 70000, 4096);
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 99, 5000);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	EVENTUALLY(metad_run_log_has(x, "event=store-awaited blockd=1"));
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "p"), 0);
	CHECK_EQ(metad_client_give_back(&c, gone, META_RETURN_ORPHAN |
						META_RETURN_LEASE), 0);
	EVENTUALLY(fake_blockd_purged(x->blockd[1], gone) == 1);
	CHECK_EQ(status_number(x, WIRE_OP_ADMIN_STATUS, "purge_pending"), 1);
	replace_begin(x, &d);
	/* Its lease delays the fence, then the end is asked for. */
	EVENTUALLY(fake_blockd_calls(x->blockd[1], WIRE_OP_BLK_END) == 1);
	CHECK(raw_recv(&d.r, SOON_MS) == NULL);
	CHECK_EQ(status_number(x, WIRE_OP_ADMIN_STATUS, "cuts_pending"), 1);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT), 0);
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 11, 100);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), 0);
	fake_blockd_set_end(x->blockd[0], 4000, 1, 1);
	raw_close(&d.r);
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT), 1);
	CHECK_EQ(fake_blockd_last_cut(x->blockd[0]).ino, cut_ino);
	/* Two files, and what the cut left, which was asked for twice. */
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_END), 3);
	EVENTUALLY(fake_blockd_purged(x->blockd[0], gone) == 1);
	CHECK_EQ(metad_client_getattr(&d, end_ino), 0);
	CHECK_EQ(d.attr.size, 4000);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static int give_up(struct metad_run *x, uint32_t id)
{
	struct blk_raw r;
	uint8_t b[8];
	size_t len = METAD_BODY(b, admin_give_up, { .daemon_id = id });
	int rv = metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, ++x->incarnation, 0);

	if (rv == 0) {
		rv = raw_call(&r, WIRE_OP_ADMIN_GIVE_UP, b, len, NULL, 0, NULL);
		raw_close(&r);
	}
	return rv;
}

/* Whoever waits for a store that was given up goes on; the daemon may come with
 * a new one; the old one stays out, also after a kill. */
static void a_store_that_was_given_up_is_not_waited_for(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t cut_ino, end_ino, gone, id, until = now_ms() + 15000;
	int rv;

	metad_run_start(x, NULL);
	CHECK_EQ(give_up(x, 1), -EALREADY); /* none came yet */
	metad_run_blockd(x, 0, 11, 100);
	metad_run_blockd(x, 1, 12, 1);
	CHECK_EQ(give_up(x, 7), -ENOENT);
	CHECK_EQ(give_up(x, 1), -EBUSY);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "c", META_CREATE_LEASE), 0);
	cut_ino = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "e", META_CREATE_LEASE), 0);
	end_ino = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "p", META_CREATE_LEASE), 0);
	gone = c.attr.ino;
	fake_blockd_set_down(x->blockd[0], true);
	fake_blockd_set_end(x->blockd[1], 4000, 1, 1);
	id = metad_client_cut_begin(&c, cut_ino, 70000, 4096);
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "p"), 0);
	CHECK_EQ(metad_client_give_back(&c, gone, META_RETURN_ORPHAN |
						META_RETURN_LEASE), 0);
	replace_begin(x, &d);
	/* It is only away, and may serve for a while: nothing is lost yet. */
	CHECK_EQ(give_up(x, 1), -EBUSY);
	while ((rv = give_up(x, 1)) == -EBUSY && now_ms() < until)
		sleep_ms(100);
	CHECK_EQ(rv, 0);
	CHECK_EQ(give_up(x, 1), -EALREADY);
	raw_close(&d.r);
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	CHECK_EQ(metad_client_getattr(&d, end_ino), 0);
	CHECK_EQ(d.attr.size, 4000);
	EVENTUALLY(status_number(x, WIRE_OP_ADMIN_STATUS, "cuts_pending") == 0);
	CHECK_EQ(metad_client_getattr(&d, cut_ino), 0);
	CHECK_EQ(d.attr.units, 1); /* what the other one has of it */
	EVENTUALLY(status_number(x, WIRE_OP_ADMIN_STATUS, "purge_pending") ==
		   0);
	/* The old store is found again. */
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 11, 200);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	CHECK(metad_run_log_has(x, "a store that was given up"));
	metad_run_blockd_end(x, 0);
	metad_run_kill9(x);
	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 300);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 99, 0);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), 0);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT), 0);
	/* Now it is the one that is known. */
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 98, 0);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void a_lost_store_keeps_no_mount_out_that_owes_it_nothing(
	struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t ino;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 100);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	ino = c.attr.ino;
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 99, 5000);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	/* It may have blocks of files whose creation was lost: their numbers
	 * are not used again. */
	CHECK_EQ(metad_client_create(&d, ROOT_INO, "g", 0), 0);
	CHECK(d.attr.ino > ino + SESSION_WINDOW_MAX);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* ---- repairs ---- */

static int ask_repair(struct metad_run *x, uint64_t ino)
{
	struct blk_raw r;
	uint8_t b[8];
	size_t len = METAD_BODY(b, admin_repair, { .ino = ino });
	int rv = metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, ++x->incarnation, 0);

	if (rv == 0) {
		rv = raw_call(&r, WIRE_OP_ADMIN_REPAIR, b, len, NULL, 0, NULL);
		raw_close(&r);
	}
	return rv;
}

/* Counts of files at rest are corrected, blocks of what is gone are purged;
 * nothing is done to what is in use or may yet be. */
static void only_what_is_safe_is_repaired(struct metad_run *x)
{
	struct metad_client c;
	uint64_t f, gone, dir;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	metad_run_blockd(x, 1, 12, 1);
	fake_blockd_set_end(x->blockd[0], 9000, 3, 77);
	fake_blockd_set_end(x->blockd[1], 8000, 2, 99);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	f = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "g", 0), 0);
	gone = c.attr.ino;
	CHECK_EQ(metad_client_mkdir(&c, ROOT_INO, "d"), 0);
	dir = c.attr.ino;
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "g"), 0);
	/* open; then gone, and nobody had the right to write it */
	CHECK_EQ(ask_repair(x, gone), 0);
	CHECK_EQ(fake_blockd_purged(x->blockd[0], gone), 0);
	CHECK_EQ(metad_client_give_back(&c, gone, META_RETURN_ORPHAN), 0);
	EVENTUALLY(status_number(x, WIRE_OP_ADMIN_STATUS, "purge_pending") ==
		   0);
	{
		uint64_t was = fake_blockd_purged(x->blockd[0], gone);

		CHECK_EQ(ask_repair(x, gone), 0);
		CHECK_EQ(fake_blockd_purged(x->blockd[0], gone), was + 1);
		CHECK(fake_blockd_purged(x->blockd[1], gone) > 0);
	}
	CHECK_EQ(ask_repair(x, dir + 1), -EINVAL);
	CHECK_EQ(ask_repair(x, 0), -EINVAL);
	CHECK_EQ(ask_repair(x, UINT64_MAX), -EINVAL);
	CHECK_EQ(ask_repair(x, dir), -EOPNOTSUPP);
	CHECK_EQ(ask_repair(x, f), -EBUSY);
	CHECK_EQ(fake_blockd_purged(x->blockd[0], f), 0);
	CHECK_EQ(metad_client_give_back(&c, f, META_RETURN_LEASE), 0);
	CHECK_EQ(ask_repair(x, f), 0);
	CHECK_EQ(metad_client_getattr(&c, f), 0);
	CHECK_EQ(c.attr.units, 5);
	CHECK_EQ(c.attr.size, 0);
	CHECK(c.attr.mtime_ns > 99);
	CHECK_EQ(fake_blockd_purged(x->blockd[0], f), 0);
	/* It lasts. */
	metad_run_kill9(x);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_getattr(&c, f), 0);
	CHECK_EQ(c.attr.units, 5);
	metad_client_fini(&c);
}

/* ---- backup and restore ---- */

static void take_backup(struct metad_run *x, const char *path)
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

static void a_backup_brings_everything_back(struct metad_run *x)
{
	struct metad_client c, d;
	char backup[128], data[128], name[32], *before, *after;
	const char *args[] = { "--restore", backup, "--data", data, NULL };
	const char *again[] = { "--data", data, NULL };
	uint64_t last;
	unsigned i;

	snprintf(backup, sizeof(backup), "%s/backup", x->dir);
	snprintf(data, sizeof(data), "%s/restored", x->dir);
	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	metad_run_blockd(x, 1, 12, 1);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	for (i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "name-%u", i);
		c.seq_low = c.seq + 1;
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
	}
	before = metad_client_list(&c, ROOT_INO);
	take_backup(x, backup);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "later", 0), 0);
	last = c.attr.ino;
	metad_run_blockd_end(x, 0);
	metad_run_blockd_end(x, 1);
	metad_run_term(x);
	/* Clients are let in when all block daemons have spoken. */
	metad_run_start(x, args);
	metad_run_blockd(x, 0, 11, 5);
	CHECK_EQ(metad_client_open(x, &d, 1), -ECONNRESET);
	metad_client_fini(&d);
	/* Also after another start. */
	metad_run_kill9(x);
	metad_run_start(x, again);
	CHECK_EQ(metad_client_open(x, &d, 1), -ECONNRESET);
	metad_client_fini(&d);
	metad_run_blockd(x, 1, 12, 5);
	while (metad_client_open(x, &d, 1) < 0) {
		metad_client_fini(&d);
		sleep_ms(20);
	}
	CHECK(d.session >= 20 + 1000);
	after = metad_client_list(&d, ROOT_INO);
	CHECK(strcmp(before, after) == 0);
	CHECK_EQ(metad_client_create(&d, ROOT_INO, "new", 0), 0);
	CHECK(d.attr.ino > last && d.attr.ino >= 200 + 1000000);
	CHECK_EQ(metad_client_sync(&d), 0);
	metad_run_kill9(x);
	metad_run_start(x, again);
	CHECK_EQ(metad_client_reconnect(&d), 0);
	CHECK_EQ(metad_client_lookup(&d, ROOT_INO, "new"), 0);
	/* Not over something that is there. */
	metad_run_term(x);
	CHECK_EQ(metad_run_to_end(x, args), 3);
	CHECK(metad_run_log_has(x, "--restore needs an empty data directory"));
	free(before);
	free(after);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void flip(const char *path, off_t off)
{
	int fd = open(path, O_RDWR);
	uint8_t v = 0;

	CHECK(fd >= 0);
	CHECK_EQ(pread(fd, &v, 1, off), 1);
	v ^= 0x40;
	CHECK_EQ(pwrite(fd, &v, 1, off), 1);
	close(fd);
}

static void a_damaged_backup_is_refused(struct metad_run *x)
{
	char backup[128], data[128];
	const char *args[] = { "--restore", backup, "--data", data, NULL };
	struct metad_client c;
	struct stat st;

	snprintf(backup, sizeof(backup), "%s/backup", x->dir);
	snprintf(data, sizeof(data), "%s/restored", x->dir);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	take_backup(x, backup);
	metad_run_term(x);
	CHECK_EQ(stat(backup, &st), 0);
	flip(backup, st.st_size / 2);
	CHECK_EQ(metad_run_to_end(x, args), 3);
	CHECK(metad_run_log_has(x, "is no backup of hail-metad, or damaged"));
	/* It left nothing that would be taken for metadata. */
	flip(backup, st.st_size / 2);
	CHECK_EQ(metad_run_to_end(x, args), 3);
	CHECK(metad_run_log_has(x, "--restore needs an empty data directory"));
	args[0] = "--data";
	args[1] = data;
	args[2] = NULL;
	CHECK_EQ(metad_run_to_end(x, args), 3);
	CHECK(metad_run_log_has(x, "was cut off"));
	metad_client_fini(&c);
}

/* ---- bad data directories ---- */

/* The first file of the log whose name begins so. */
static bool find_raft_file(struct metad_run *x, const char *prefix,
			   const char *not_suffix, char *path, size_t size)
{
	const struct dirent *e;
	char dir[128];
	bool found = false;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/data/raft", x->dir);
	d = opendir(dir);
	while (d && !found && (e = readdir(d))) {
		size_t len = strlen(e->d_name), cut = strlen(not_suffix);

		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 ||
		    (cut && len > cut &&
		     strcmp(e->d_name + len - cut, not_suffix) == 0))
			continue;
		snprintf(path, size, "%s/%s", dir, e->d_name);
		found = true;
	}
	if (d)
		closedir(d);
	return found;
}

static void a_damaged_log_is_refused(struct metad_run *x)
{
	struct metad_client c;
	struct stat st;
	char path[512], name[16];
	unsigned i;

	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
	}
	CHECK_EQ(metad_run_term(x), 0);
	CHECK(find_raft_file(x, "0000000000000002-", "", path, sizeof(path)));
	CHECK_EQ(stat(path, &st), 0);
	flip(path, st.st_size / 2);
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(metad_run_log_has(x, "cannot be loaded"));
	/* Nothing was set aside: repaired, it is all there. */
	flip(path, st.st_size / 2);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "f99"), 0);
	metad_client_fini(&c);
}

/* libraft would take it for an unfinished write and forget what follows. */
static void a_damaged_open_segment_is_refused(struct metad_run *x)
{
	struct metad_client c;
	char path[512], copy[600], name[16];
	unsigned i;

	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	for (i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		c.seq_low = c.seq + 1;
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
		CHECK_EQ(metad_client_sync(&c), 0);
	}
	metad_run_kill9(x);
	snprintf(path, sizeof(path), "%s/data/raft/open-1", x->dir);
	flip(path, 5000);
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(metad_run_log_has(x, "is damaged near its end"));
	/* Again, and still the same: nothing was lost by trying. */
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	snprintf(copy, sizeof(copy), "%s/data/unclean/open-1", x->dir);
	CHECK_EQ(access(copy, R_OK), 0);
	metad_client_fini(&c);
}

static void a_damaged_snapshot_is_refused(struct metad_run *x)
{
	static const char *const args[] = { "--snapshot-bytes", "16k", NULL };
	struct metad_client c;
	struct stat st;
	char path[512], name[16];
	unsigned i;

	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	for (i = 0; i < 400; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		c.seq_low = c.seq + 1;
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
	}
	CHECK_EQ(metad_client_sync(&c), 0);
	EVENTUALLY(status_number(x, WIRE_OP_ADMIN_STATS, "snapshots") >= 1);
	CHECK_EQ(metad_run_term(x), 0);
	while (find_raft_file(x, "snapshot-", ".meta", path, sizeof(path))) {
		CHECK_EQ(stat(path, &st), 0);
		flip(path, st.st_size / 2);
		if (metad_run_to_end(x, args) == 3)
			break;
		CHECK(!"started from a damaged snapshot");
		break;
	}
	CHECK(metad_run_log_has(x, "are damaged"));
	metad_client_fini(&c);
}

static void write_id(struct metad_run *x, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/data/metad.id", x->dir);
	f = fopen(path, "w");
	CHECK(f != NULL);
	CHECK(fputs(text, f) >= 0);
	CHECK_EQ(fclose(f), 0);
}

static void foreign_data_is_refused(struct metad_run *x)
{
	char path[128];

	metad_run_start(x, NULL);
	CHECK_EQ(metad_run_term(x), 0);
	write_id(x, "hailfs-metad 1\ncluster 0x0000000000000099\nid 1\n"
		    "state ok\n");
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(metad_run_log_has(x, "belongs to metad 1 of cluster"));
	write_id(x, "hailfs-metad 2\nanything\n");
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(metad_run_log_has(x, "by a later version of hail-metad"));
	write_id(x, "x");
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(metad_run_log_has(x, "metad.id is damaged"));
	/* A directory with other things in it is left alone. */
	snprintf(path, sizeof(path), "%s/data/metad.id", x->dir);
	CHECK_EQ(unlink(path), 0);
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(metad_run_log_has(x, "is not empty and holds no metadata"));
}

static void a_full_disk_stops_it_with_a_reason(struct metad_run *x)
{
	const char *args[] = { "--snapshot-bytes", "1t", NULL };
	struct metad_client c;
	char data[128], name[300];
	unsigned i, synced = 0;

	if (geteuid() != 0) {
		printf("# needs root\n");
		return;
	}
	snprintf(data, sizeof(data), "%s/data", x->dir);
	CHECK_EQ(mkdir(data, 0700), 0);
	CHECK_EQ(mount("none", data, "tmpfs", 0, "size=40m"), 0);
	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	for (i = 0; i < 400000; i++) {
		snprintf(name, sizeof(name), "%06u%0200u", i, i);
		c.seq_low = c.seq + 1;
		if (metad_client_create(&c, ROOT_INO, name, 0) < 0)
			break;
		if (i % 500 == 499) {
			if (metad_client_sync(&c) < 0)
				break;
			synced = i;
		}
	}
	CHECK(i < 400000);
	CHECK_EQ(metad_run_wait(x), 3);
	CHECK(metad_run_log_has(x, "the disk is full"));
	/* With room it goes on, and what was durable is there. */
	CHECK_EQ(mount("none", data, "tmpfs", MS_REMOUNT, "size=200m"), 0);
	metad_run_start(x, args);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	snprintf(name, sizeof(name), "%06u%0200u", synced, synced);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, name), 0);
	metad_client_fini(&c);
	metad_run_kill9(x);
	CHECK_EQ(umount(data), 0);
}

/* Fills the state and the log with some hundred bytes for each. */
static void create_long_names(struct metad_client *c, char first,
			      unsigned count)
{
	char name[256];

	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "%c%06u%0200u", first, i, i);
		c->seq_low = c->seq + 1;
		if (metad_client_create(c, ROOT_INO, name, 0) != 0) {
			CHECK(!"create");
			return;
		}
	}
	CHECK_EQ(metad_client_sync(c), 0);
}

/* Bytes the log has on the disk in segments it writes or will write. */
static uint64_t open_segment_bytes(struct metad_run *x)
{
	const struct dirent *e;
	uint64_t bytes = 0;
	char path[400];
	struct stat st;
	DIR *d;

	snprintf(path, sizeof(path), "%s/data/raft", x->dir);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/data/raft/%s", x->dir,
			 e->d_name);
		if (strncmp(e->d_name, "open-", 5) == 0 && stat(path, &st) == 0)
			bytes += (uint64_t)st.st_blocks * 512;
	}
	if (d)
		closedir(d);
	return bytes;
}

/* The log has room in its segments, the snapshot has none on the disk. */
static void a_snapshot_that_does_not_fit_is_tried_again(struct metad_run *x)
{
	const char *never[] = { "--snapshot-bytes", "1t", NULL };
	const char *soon[] = { "--snapshot-bytes", "8m", NULL };
	const uint64_t segment = 8 << 20; /* libraft's; it keeps two ready */
	char data[128], path[160];
	struct metad_client c;
	struct statvfs vfs;
	int fd;

	if (geteuid() != 0) {
		printf("# needs root\n");
		return;
	}
	snprintf(data, sizeof(data), "%s/data", x->dir);
	CHECK_EQ(mkdir(data, 0700), 0);
	CHECK_EQ(mount("none", data, "tmpfs", 0, "size=150m"), 0);
	metad_run_start(x, never);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	create_long_names(&c, 'a', 20000);
	metad_run_kill9(x);
	metad_run_start(x, soon);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	create_long_names(&c, 'b', 1);
	EVENTUALLY(open_segment_bytes(x) >= 3 * segment);
	snprintf(path, sizeof(path), "%s/ballast", data);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && statvfs(data, &vfs) == 0);
	CHECK_EQ(posix_fallocate(fd, 0, ((off_t)vfs.f_bavail - 64) *
						(off_t)vfs.f_frsize), 0);
	create_long_names(&c, 'c', 12000);
	EVENTUALLY(metad_run_log_has(x, "event=snapshot-failed"));
	CHECK(metad_run_log_has(x, "error=\"the disk is full"));
	/* Service went on; with room it is tried again. */
	create_long_names(&c, 'd', 1);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(unlink(path), 0);
	create_long_names(&c, 'e', 10000);
	EVENTUALLY(status_number(x, WIRE_OP_ADMIN_STATS, "snapshots") >= 1);
	metad_client_fini(&c);
	metad_run_kill9(x);
	CHECK_EQ(umount(data), 0);
}

/* ---- tools ---- */

static void tools_are_answered(struct metad_run *x)
{
	struct admin_inodes_reply m;
	struct metad_client c;
	struct blk_raw r;
	struct frame *f;
	uint8_t b[32];
	char *text;
	size_t len;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	text = metad_admin(x, WIRE_OP_ADMIN_STATUS);
	CHECK_TEXT(text, "\"program\":\"hail-metad\"");
	CHECK_TEXT(text, "\"state\":\"ok\"");
	CHECK_TEXT(text, "\"mountpoint\":\"/mnt/x\"");
	CHECK_TEXT(text, "\"state\":\"up\"");
	free(text);
	text = metad_admin(x, WIRE_OP_ADMIN_SESSIONS);
	CHECK_TEXT(text, "\"host\":\"box\"");
	free(text);
	text = metad_admin(x, WIRE_OP_ADMIN_STATS);
	CHECK_TEXT(text, "\"mutations\"");
	free(text);
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, 1, 0), 0);
	len = METAD_BODY(b, admin_inodes, { .count_max = 1 });
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_INODES, b, len, NULL, 0, &f), 0);
	CHECK_EQ(admin_inodes_reply_parse(f->body, f->h.body_len, &m), 0);
	CHECK_EQ(m.count, 1);
	CHECK_EQ(m.done, 0);
	frame_free(f);
	len = METAD_BODY(b, admin_inodes, { .ino = 1, .count_max = 100 });
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_INODES, b, len, NULL, 0, &f), 0);
	CHECK_EQ(admin_inodes_reply_parse(f->body, f->h.body_len, &m), 0);
	CHECK_EQ(m.count, 1);
	CHECK_EQ(m.done, 1);
	frame_free(f);
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_STOP, NULL, 0, NULL, 0, NULL), 0);
	CHECK_EQ(metad_run_wait(x), 0);
	raw_close(&r);
	metad_client_fini(&c);
}

/* ---- speed; figures, and only the coarsest judged ---- */

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void print_latency(const char *what, uint64_t *us, size_t count)
{
	qsort(us, count, sizeof(*us), by_number);
	printf("# %s: median %llu us, p90 %llu us, p99 %llu us\n", what,
	       (unsigned long long)us[count / 2],
	       (unsigned long long)us[count * 9 / 10],
	       (unsigned long long)us[count * 99 / 100]);
}

static void latency_and_rate(struct metad_run *x)
{
	static uint64_t us[2000];
	struct metad_client c;
	uint64_t start, sent = 0, got = 0;
	uint8_t b[128];
	char name[32];
	size_t i, len;

	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	for (i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "a%zu", i);
		c.seq_low = c.seq + 1;
		start = now_us();
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
		us[i] = now_us() - start;
	}
	print_latency("create", us, 2000);
	for (i = 0; i < 2000; i++) {
		start = now_us();
		CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "a7"), 0);
		us[i] = now_us() - start;
	}
	print_latency("lookup", us, 2000);
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "b%zu", i);
		c.seq_low = c.seq + 1;
		start = now_us();
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
		CHECK_EQ(metad_client_sync(&c), 0);
		us[i] = now_us() - start;
	}
	print_latency("create + sync", us, 1000);
	start = now_us();
	while (got < 50000) {
		while (sent < 50000 && sent - got < 64) {
			snprintf(name, sizeof(name), "c%llu",
				 (unsigned long long)sent++);
			c.seq_low = c.seq > 64 ? c.seq - 64 : 1;
			len = METAD_BODY(b, meta_create,
					 { .parent = ROOT_INO,
					   .name = { name,
						     (uint32_t)strlen(name) },
					   .mode = S_IFREG | 0644 });
			(void)metad_client_send(&c, WIRE_OP_META_CREATE, b,
						len);
		}
		frame_free(raw_recv(&c.r, LONG_MS));
		got++;
	}
	start = now_us() - start;
	printf("# pipelined: %llu creates/s\n",
	       (unsigned long long)(50000 * 1000000ull / start));
	metad_client_fini(&c);
}

/* ---- the list ---- */

#define T(fn, blockds) { #fn, fn, blockds }
static const struct {
	const char *name;
	void (*fn)(struct metad_run *x);
	uint32_t blockds; /* in the cluster file */
} tests[] = {
	T(state_survives_stop_and_kill, 0),
	T(a_repeated_request_is_answered_once, 0),
	T(lost_mutations_come_back_when_sent_again, 0),
	T(kills_under_a_stream_lose_nothing, 0),
	T(kills_with_snapshots_lose_nothing, 0),
	T(snapshots_do_not_stop_service, 0),
	T(wrong_peers_are_refused, 0),
	T(an_old_connection_is_closed, 0),
	T(a_frame_cut_anywhere_harms_nobody, 0),
	T(a_second_mount_is_refused_by_name, 0),
	T(a_replaced_session_is_fenced_and_recovered, 2),
	T(recovery_goes_on_after_a_kill, 1),
	T(a_silent_daemon_delays_a_fence_by_its_lease, 2),
	T(a_silent_session_may_be_replaced_after_ten_seconds, 0),
	T(a_cut_waits_for_every_daemon, 2),
	T(a_cut_survives_a_kill, 1),
	T(what_a_cut_freed_is_not_lost_with_its_answer, 2),
	T(a_file_being_cut_is_not_shown_to_the_next, 1),
	T(the_end_of_a_dead_session_waits_for_its_cut, 1),
	T(what_is_deleted_is_purged_everywhere, 2),
	T(another_or_older_store_is_lost, 1),
	T(a_lost_store_is_waited_for, 2),
	T(a_store_that_was_given_up_is_not_waited_for, 2),
	T(a_lost_store_keeps_no_mount_out_that_owes_it_nothing, 1),
	T(only_what_is_safe_is_repaired, 2),
	T(a_backup_brings_everything_back, 2),
	T(a_damaged_backup_is_refused, 0),
	T(a_damaged_log_is_refused, 0),
	T(a_damaged_open_segment_is_refused, 0),
	T(a_damaged_snapshot_is_refused, 0),
	T(foreign_data_is_refused, 0),
	T(a_full_disk_stops_it_with_a_reason, 0),
	T(a_snapshot_that_does_not_fit_is_tried_again, 0),
	T(tools_are_answered, 1),
	T(latency_and_rate, 0),
};

static bool wanted(const char *name, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (strstr(name, argv[i]))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	unsigned number = 0, failed = 0;
	struct metad_run x;
	size_t i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (getenv("SEED"))
		random_state = strtoull(getenv("SEED"), NULL, 10) | 1;
	else
		random_state = (uint64_t)getpid() * 2654435761u | 1;
	printf("# SEED=%llu\n", (unsigned long long)random_state);
	for (i = 0; i < array_count(tests); i++) {
		uint64_t start = now_ms();

		if (!wanted(tests[i].name, argc, argv))
			continue;
		failures_here = 0;
		metad_run_init(&x, tests[i].blockds);
		tests[i].fn(&x);
		metad_run_fini(&x);
		failed += failures_here > 0;
		printf("%sok %u - %s (%llu ms)\n", failures_here ? "not " : "",
		       ++number, tests[i].name,
		       (unsigned long long)(now_ms() - start));
	}
	printf("1..%u\n", number);
	return failed > 0;
}
