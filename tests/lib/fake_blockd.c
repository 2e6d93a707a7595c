#include "tests/lib/fake_blockd.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/frame_in.h"
#include "common/status.h"
#include "common/wire_meta.h"
#include "tests/lib/blk_raw.h"
#include "tests/lib/tap.h"

#define CONNS_MAX 8
#define BEAT_MS 100
#define PURGED_MAX 65536u
#define OP_MAX 256u

struct fake_conn {
	int fd; /* -1: free */
	struct frame_in in;
};

struct fake_blockd {
	struct fake_blockd_id id;
	int listen_fd;
	uint16_t port;
	pthread_t server, beater;
	pthread_mutex_t lock; /* protects what follows */
	bool stop, down, mute;
	uint16_t hold, fail;
	int fail_error;
	uint64_t commit, boot_id;
	uint64_t end, units;
	int64_t mtime_ns, cut_delta;
	int registered;
	uint32_t lease_ms;
	uint64_t epoch;
	uint64_t calls[OP_MAX];
	struct blk_cut cut;
	uint64_t fenced;
	uint64_t listed_from;
	uint64_t stray; /* an inode with a block; 0: none */
	uint64_t *purged; /* inodes, in order of arrival */
	size_t purged_count;
	struct fake_conn conns[CONNS_MAX]; /* the server thread's */
	struct frame *held[64];
	int held_conn[64];
	size_t held_count;
};

static noreturn_fn void die(const char *what)
{
	fprintf(stderr, "fake_blockd: %s: %s\n", what, strerror(errno));
	abort();
}

/* ---- answers ---- */

static void send_answer(struct fake_blockd *b, int fd, const struct frame *f,
			int status, const uint8_t *body, size_t len)
{
	struct wire_header h = { .version = WIRE_VERSION,
				 .opcode = f->h.opcode,
				 .status = status_to_wire(status),
				 .flags = WIRE_F_REPLY,
				 .request_id = f->h.request_id,
				 .cluster_id = b->id.cluster_id,
				 .body_len = (uint32_t)len,
				 .body_crc = crc32c(0, body, len) };
	uint8_t out[512];

	assert(len + WIRE_HEADER_SIZE <= sizeof(out));
	wire_header_encode(&h, out);
	memcpy(out + WIRE_HEADER_SIZE, body, len);
	(void)send(fd, out, WIRE_HEADER_SIZE + len, MSG_NOSIGNAL);
}

static void note_purge(struct fake_blockd *b, const struct frame *f)
{
	struct blk_purge m;
	struct wire_in in;

	if (blk_purge_parse(f->body, f->h.body_len, &m) < 0)
		die("purge body");
	wire_in_init(&in, m.inos.p, m.inos.len);
	while (in.len && b->purged_count < PURGED_MAX) {
		uint64_t ino = wire_get_u64(&in);

		b->purged[b->purged_count++] = ino;
		if (ino == b->stray)
			b->stray = 0;
	}
}

static size_t make_list(struct fake_blockd *b, const struct frame *f,
			uint8_t *body, size_t cap)
{
	struct blk_list_reply m = { .boot_id = b->boot_id, .done = 1 };
	struct wire_out o, e;
	uint8_t entry[64];
	struct blk_list ask;

	if (blk_list_parse(f->body, f->h.body_len, &ask) < 0)
		die("list body");
	b->listed_from = ask.ino;
	wire_out_init(&e, entry, sizeof(entry));
	if (b->stray > ask.ino) {
		blk_list_entry_encode(&e, &(struct blk_list_entry){
			.ino = b->stray, .end = 4096, .units = 1,
			.block_log2 = 20 });
		m.count = 1;
	}
	m.entries = (struct wire_str){ entry, (uint32_t)e.len };
	wire_out_init(&o, body, cap);
	blk_list_reply_encode(&o, &m);
	return o.len;
}

/* With the lock held: what the call means, and its answer's body. */
static size_t make_answer(struct fake_blockd *b, const struct frame *f,
			  uint8_t *body, size_t cap)
{
	struct blk_reply r = { .boot_id = b->boot_id, .free_units = 1000 };
	struct blk_end_reply e = { .boot_id = b->boot_id,
				   .end = b->end,
				   .units = b->units,
				   .mtime_ns = b->mtime_ns };
	struct hello_reply hr = { .version = WIRE_VERSION,
				  .role = WIRE_ROLE_BLOCKD,
				  .boot_id = b->boot_id,
				  .peer_id = b->id.id,
				  .name = { "fake", 4 } };
	struct blk_fence fence;
	struct wire_out o;

	wire_out_init(&o, body, cap);
	switch (f->h.opcode) {
	case WIRE_OP_HELLO:
		hello_reply_encode(&o, &hr);
		return o.len;
	case WIRE_OP_BLK_END:
		blk_end_reply_encode(&o, &e);
		return o.len;
	case WIRE_OP_BLK_LIST:
		return make_list(b, f, body, cap);
	case WIRE_OP_BLK_CUT:
		if (blk_cut_parse(f->body, f->h.body_len, &b->cut) < 0)
			die("cut body");
		r.units_delta = b->cut_delta;
		break;
	case WIRE_OP_BLK_FENCE:
		if (blk_fence_parse(f->body, f->h.body_len, &fence) < 0)
			die("fence body");
		b->fenced = fence.session;
		break;
	case WIRE_OP_BLK_PURGE:
		if (b->fail != WIRE_OP_BLK_PURGE)
			note_purge(b, f);
		break;
	default:
		break;
	}
	blk_reply_encode(&o, &r);
	return o.len;
}

static void answer(struct fake_blockd *b, int fd, const struct frame *f)
{
	uint8_t body[256];
	bool fails = b->fail && f->h.opcode == b->fail;
	size_t len = make_answer(b, f, body, sizeof(body));

	send_answer(b, fd, f, fails ? b->fail_error : 0, body,
		    fails ? 0 : len);
}

/* ---- the server thread ---- */

static void conn_close(struct fake_blockd *b, struct fake_conn *c)
{
	size_t i, keep = 0;

	for (i = 0; i < b->held_count; i++) {
		if (&b->conns[b->held_conn[i]] == c) {
			frame_free(b->held[i]);
			continue;
		}
		b->held[keep] = b->held[i];
		b->held_conn[keep++] = b->held_conn[i];
	}
	b->held_count = keep;
	close(c->fd);
	frame_in_fini(&c->in);
	c->fd = -1;
}

static void take_frame(struct fake_blockd *b, struct fake_conn *c,
		       struct frame *f)
{
	if (f->h.opcode < OP_MAX)
		b->calls[f->h.opcode]++;
	if (b->hold && f->h.opcode == b->hold && b->held_count < 64) {
		b->held_conn[b->held_count] = (int)(c - b->conns);
		b->held[b->held_count++] = f;
		return;
	}
	answer(b, c->fd, f);
	frame_free(f);
}

static void conn_read(struct fake_blockd *b, struct fake_conn *c)
{
	struct iovec iov[FRAME_IN_IOV_MAX];
	struct frame *f;
	ssize_t n = readv(c->fd, iov, frame_in_space(&c->in, iov));

	if (n <= 0) {
		conn_close(b, c);
		return;
	}
	frame_in_fed(&c->in, (size_t)n);
	while (c->fd >= 0 && frame_in_next(&c->in, &f) == 1)
		take_frame(b, c, f);
}

static void conn_accept(struct fake_blockd *b)
{
	int fd = accept4(b->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	size_t i;

	for (i = 0; fd >= 0 && i < CONNS_MAX; i++) {
		if (b->conns[i].fd >= 0)
			continue;
		if (frame_in_init(&b->conns[i].in, 0, NULL) < 0)
			die("memory");
		b->conns[i].fd = fd;
		return;
	}
	if (fd >= 0)
		close(fd);
}

static void release_held(struct fake_blockd *b)
{
	size_t i;

	for (i = 0; i < b->held_count; i++) {
		answer(b, b->conns[b->held_conn[i]].fd, b->held[i]);
		frame_free(b->held[i]);
	}
	b->held_count = 0;
}

static void turn(struct fake_blockd *b, const struct pollfd *p)
{
	size_t i;

	if (b->down) {
		for (i = 0; i < CONNS_MAX; i++)
			if (b->conns[i].fd >= 0)
				conn_close(b, &b->conns[i]);
		if (p[0].revents)
			close(accept(b->listen_fd, NULL, NULL));
		return;
	}
	if (b->mute)
		return;
	if (b->held_count && b->held[0]->h.opcode != b->hold)
		release_held(b);
	for (i = 0; i < CONNS_MAX; i++)
		if (b->conns[i].fd >= 0 && p[i + 1].fd == b->conns[i].fd &&
		    p[i + 1].revents)
			conn_read(b, &b->conns[i]);
	if (p[0].revents)
		conn_accept(b);
}

static void *server_run(void *arg)
{
	struct fake_blockd *b = arg;
	struct pollfd p[CONNS_MAX + 1];
	bool stop = false, mute = false;
	size_t i;

	while (!stop) {
		if (mute)
			sleep_ms(5); /* what it does not read stays there */
		p[0] = (struct pollfd){ b->listen_fd, POLLIN, 0 };
		for (i = 0; i < CONNS_MAX; i++)
			p[i + 1] = (struct pollfd){ b->conns[i].fd, POLLIN, 0 };
		(void)poll(p, CONNS_MAX + 1, 10);
		pthread_mutex_lock(&b->lock);
		turn(b, p);
		stop = b->stop;
		mute = b->mute;
		pthread_mutex_unlock(&b->lock);
	}
	return NULL;
}

/* ---- registration and heartbeats ---- */

static int beat(struct fake_blockd *b, struct blk_raw *r, bool first)
{
	struct meta_register reg = { .daemon_id = b->id.id,
				     .store_id_lo = b->id.store_id,
				     .addr = { "127.0.0.1", 9 },
				     .port = b->port,
				     .units_total = 2000,
				     .units_free = 1000,
				     .ino_max = b->id.ino_max,
				     .session_max = b->id.session_max };
	struct meta_heartbeat hb = { .daemon_id = b->id.id,
				     .units_total = 2000,
				     .units_free = 1000 };
	struct meta_lease_reply m;
	struct meta_rhdr rhdr;
	struct frame *f = NULL;
	struct wire_out o;
	struct wire_in in;
	uint8_t body[256];
	int rv;

	pthread_mutex_lock(&b->lock);
	reg.commit = hb.commit = b->commit;
	reg.boot_id = hb.boot_id = b->boot_id;
	r->epoch = b->epoch;
	pthread_mutex_unlock(&b->lock);
	wire_out_init(&o, body, sizeof(body));
	if (first)
		meta_register_encode(&o, &reg);
	else
		meta_heartbeat_encode(&o, &hb);
	rv = raw_call(r, first ? WIRE_OP_META_REGISTER : WIRE_OP_META_HEARTBEAT,
		      body, o.len, NULL, 0, &f);
	pthread_mutex_lock(&b->lock);
	if (first || rv < 0)
		b->registered = rv;
	if (rv == 0) {
		wire_in_init(&in, f->body, f->h.body_len);
		meta_rhdr_decode(&in, &rhdr);
		meta_lease_reply_decode(&in, &m);
		if (wire_in_end(&in) < 0)
			die("lease reply");
		b->lease_ms = m.lease_ms;
		b->epoch = u64_max(b->epoch, m.epoch);
		frame_free(f);
	}
	pthread_mutex_unlock(&b->lock);
	return rv;
}

static bool say_hello(struct fake_blockd *b, struct blk_raw *r,
		      uint64_t incarnation)
{
	struct hello m = { .version_min = 1, .version_max = 1,
			   .role = WIRE_ROLE_BLOCKD,
			   .incarnation = incarnation,
			   .peer_id = b->id.id,
			   .name = { "fake", 4 } };
	uint8_t body[128];
	struct wire_out o;

	if (!raw_connect(r, b->id.metad_port, b->id.cluster_id))
		return false;
	wire_out_init(&o, body, sizeof(body));
	hello_encode(&o, &m);
	if (raw_call(r, WIRE_OP_HELLO, body, o.len, NULL, 0, NULL) == 0)
		return true;
	raw_close(r);
	return false;
}

static bool paused(struct fake_blockd *b, bool *stop)
{
	bool down, mute;

	do {
		pthread_mutex_lock(&b->lock);
		*stop = b->stop;
		down = b->down;
		mute = b->mute;
		pthread_mutex_unlock(&b->lock);
		if (mute && !*stop)
			sleep_ms(5);
	} while (mute && !*stop);
	return down || *stop;
}

static void *beater_run(void *arg)
{
	struct fake_blockd *b = arg;
	static _Atomic uint64_t incarnation = 1;
	struct blk_raw r;
	bool stop = false;

	while (!stop) {
		bool first = true;

		sleep_ms(20);
		if (paused(b, &stop) || !say_hello(b, &r, incarnation++))
			continue;
		while (!paused(b, &stop) && beat(b, &r, first) == 0) {
			first = false;
			sleep_ms(BEAT_MS);
		}
		raw_close(&r);
	}
	return NULL;
}

/* ---- life ---- */

struct fake_blockd *fake_blockd_new(const struct fake_blockd_id *id)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	struct fake_blockd *b = calloc(1, sizeof(*b));
	size_t i;

	if (!b || !(b->purged = calloc(PURGED_MAX, sizeof(*b->purged))))
		die("memory");
	b->id = *id;
	b->commit = id->commit;
	b->boot_id = 0xb0070000u + id->id;
	b->registered = -ENOTCONN;
	for (i = 0; i < CONNS_MAX; i++)
		b->conns[i].fd = -1;
	pthread_mutex_init(&b->lock, NULL);
	b->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (b->listen_fd < 0 ||
	    bind(b->listen_fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(b->listen_fd, 16) < 0 ||
	    getsockname(b->listen_fd, (struct sockaddr *)&a, &len) < 0)
		die("listen");
	b->port = ntohs(a.sin_port);
	if (pthread_create(&b->server, NULL, server_run, b) ||
	    pthread_create(&b->beater, NULL, beater_run, b))
		die("thread");
	return b;
}

void fake_blockd_free(struct fake_blockd *b)
{
	size_t i;

	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	b->stop = true;
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->server, NULL);
	pthread_join(b->beater, NULL);
	for (i = 0; i < CONNS_MAX; i++)
		if (b->conns[i].fd >= 0)
			conn_close(b, &b->conns[i]);
	close(b->listen_fd);
	pthread_mutex_destroy(&b->lock);
	free(b->purged);
	free(b);
}

/* ---- what the test says and asks ---- */

#define LOCKED(b, ...)                           \
	do {                                     \
		pthread_mutex_lock(&(b)->lock);  \
		__VA_ARGS__;                     \
		pthread_mutex_unlock(&(b)->lock);\
	} while (0)

void fake_blockd_set_down(struct fake_blockd *b, bool down)
{
	LOCKED(b, b->down = down);
}

void fake_blockd_set_mute(struct fake_blockd *b, bool mute)
{
	LOCKED(b, b->mute = mute);
}

void fake_blockd_hold(struct fake_blockd *b, uint16_t op)
{
	LOCKED(b, b->hold = op);
}

void fake_blockd_fail(struct fake_blockd *b, uint16_t op, int error)
{
	LOCKED(b, b->fail = error ? op : 0; b->fail_error = error);
}

void fake_blockd_restart(struct fake_blockd *b)
{
	LOCKED(b, b->boot_id += 0x10000);
}

void fake_blockd_set_commit(struct fake_blockd *b, uint64_t commit)
{
	LOCKED(b, b->commit = commit);
}

void fake_blockd_set_end(struct fake_blockd *b, uint64_t end, uint64_t units,
			 int64_t mtime_ns)
{
	LOCKED(b, b->end = end; b->units = units; b->mtime_ns = mtime_ns);
}

void fake_blockd_set_cut_delta(struct fake_blockd *b, int64_t delta)
{
	LOCKED(b, b->cut_delta = delta);
}

void fake_blockd_set_stray(struct fake_blockd *b, uint64_t ino)
{
	LOCKED(b, b->stray = ino);
}

int fake_blockd_registered(struct fake_blockd *b)
{
	int v;

	LOCKED(b, v = b->registered);
	return v;
}

uint32_t fake_blockd_lease_ms(struct fake_blockd *b)
{
	uint32_t v;

	LOCKED(b, v = b->lease_ms);
	return v;
}

uint64_t fake_blockd_epoch(struct fake_blockd *b)
{
	uint64_t v;

	LOCKED(b, v = b->epoch);
	return v;
}

uint64_t fake_blockd_calls(struct fake_blockd *b, uint16_t op)
{
	uint64_t v;

	LOCKED(b, v = b->calls[op]);
	return v;
}

struct blk_cut fake_blockd_last_cut(struct fake_blockd *b)
{
	struct blk_cut v;

	LOCKED(b, v = b->cut);
	return v;
}

uint64_t fake_blockd_last_fence(struct fake_blockd *b)
{
	uint64_t v;

	LOCKED(b, v = b->fenced);
	return v;
}

uint64_t fake_blockd_listed_from(struct fake_blockd *b)
{
	uint64_t v;

	LOCKED(b, v = b->listed_from);
	return v;
}

uint64_t fake_blockd_purged(struct fake_blockd *b, uint64_t ino)
{
	uint64_t v = 0;
	size_t i;

	pthread_mutex_lock(&b->lock);
	for (i = 0; i < b->purged_count; i++)
		v += b->purged[i] == ino;
	pthread_mutex_unlock(&b->lock);
	return v;
}
