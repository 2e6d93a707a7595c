#include "tests/lib/fake_metad.h"

#include "common/cmap.h"
#include "common/crc32c.h"
#include "common/frame_in.h"
#include "common/status.h"
#include "common/wire_blk.h"
#include "common/wire_log.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CONN_MAX 16
#define BODY_MAX 65536

struct fm_conn {
	int fd; /* -1: free */
	struct frame_in in;
};

struct fake_metad {
	pthread_t thread;
	pthread_mutex_t lock; /* protects what follows */
	struct cmap *map;
	uint32_t lease_ms;
	unsigned registrations, map_fetches;
	struct meta_register last_register;
	struct meta_heartbeat last_heartbeat;
	struct meta_log_register last_log_register;
	struct meta_log_heartbeat last_log_heartbeat;
	struct meta_log_gone gone[FAKE_GONE_MAX]; /* verdicts */
	unsigned gone_count, named;
	bool map_hidden;
	uint64_t cluster_id;
	/* the thread's */
	int listen_fd, stop_fds[2];
	uint16_t port;
	struct fm_conn conns[CONN_MAX];
};

static noreturn_fn void die(const char *what)
{
	fprintf(stderr, "fake_metad: %s: %s\n", what, strerror(errno));
	abort();
}

static void conn_end(struct fm_conn *c)
{
	close(c->fd);
	c->fd = -1;
	frame_in_fini(&c->in);
}

static void answer(struct fake_metad *m, struct fm_conn *c,
		   const struct frame *f, const struct wire_out *body)
{
	uint8_t head[WIRE_HEADER_SIZE];
	struct wire_header h = {
		.version = WIRE_VERSION,
		.opcode = f->h.opcode,
		.flags = WIRE_F_REPLY,
		.request_id = f->h.request_id,
		.cluster_id = m->cluster_id,
		.epoch = m->map->epoch,
		.session = f->h.session,
		.body_len = (uint32_t)body->len,
		.body_crc = crc32c(0, body->p, body->len),
	};
	struct iovec iov[2] = { { head, sizeof(head) },
				{ body->p, body->len } };

	assert(!body->overflow);
	wire_header_encode(&h, head);
	/* Small answers fit the socket; a peer that went is no matter. */
	if (writev(c->fd, iov, 2) < 0 && errno != EPIPE && errno != ECONNRESET)
		die("writev");
}

static void put_rhdr(struct wire_out *o)
{
	struct meta_rhdr r = { .boot_id = 1 };

	meta_rhdr_encode(o, &r);
}

/* Verdicts for those of the named logs that have one. */
static void put_verdicts(struct fake_metad *m, struct wire_str logs,
			 struct wire_out *o)
{
	uint8_t gone[FAKE_GONE_MAX * 32];
	struct meta_log_heartbeat_reply r = { .count = 0 };
	struct wire_out g;
	struct wire_in in;

	wire_in_init(&in, logs.p, logs.len);
	wire_out_init(&g, gone, sizeof(gone));
	while (in.len > 0 && !in.bad) {
		struct log_name n;

		log_name_decode(&in, &n);
		m->named++;
		for (unsigned i = 0; i < m->gone_count; i++) {
			if (m->gone[i].ino != n.ino ||
			    m->gone[i].epoch != n.epoch)
				continue;
			meta_log_gone_encode(&g, &m->gone[i]);
			r.count++;
		}
	}
	assert(!g.overflow);
	r.gone = (struct wire_str){ gone, (uint32_t)g.len };
	meta_log_heartbeat_reply_encode(o, &r);
}

/* Builds the answer to @f. Returns false when there shall be none. */
static bool handle(struct fake_metad *m, const struct frame *f,
		   struct wire_out *o)
{
	struct hello_reply hr = { .version = WIRE_VERSION,
				  .role = WIRE_ROLE_METAD, .boot_id = 1,
				  .peer_id = 1, .name = { "fake", 4 } };
	struct meta_lease_reply lease = { .cluster_id = m->cluster_id,
					  .epoch = m->map->epoch,
					  .lease_ms = m->lease_ms };
	struct wire_str none = { "", 0 };

	switch (f->h.opcode) {
	case WIRE_OP_HELLO:
		hello_reply_encode(o, &hr);
		return true;
	case WIRE_OP_META_REGISTER:
		if (meta_register_parse(f->body, f->h.body_len,
					&m->last_register) < 0)
			die("bad REGISTER");
		m->last_register.addr = none;
		m->registrations++;
		break;
	case WIRE_OP_META_HEARTBEAT:
		if (meta_heartbeat_parse(f->body, f->h.body_len,
					 &m->last_heartbeat) < 0)
			die("bad HEARTBEAT");
		m->last_heartbeat.error = none;
		break;
	case WIRE_OP_META_LOG_REGISTER:
		if (meta_log_register_parse(f->body, f->h.body_len,
					    &m->last_log_register) < 0)
			die("bad LOG_REGISTER");
		m->last_log_register.addr = none;
		m->last_log_register.rdma_addr = none;
		m->last_log_register.domain = none;
		m->registrations++;
		break;
	case WIRE_OP_META_LOG_HEARTBEAT:
		if (meta_log_heartbeat_parse(f->body, f->h.body_len,
					     &m->last_log_heartbeat) < 0)
			die("bad LOG_HEARTBEAT");
		put_rhdr(o);
		meta_lease_reply_encode(o, &lease);
		put_verdicts(m, m->last_log_heartbeat.logs, o);
		m->last_log_heartbeat.logs = none;
		return m->lease_ms > 0;
	case WIRE_OP_META_MAP_GET:
		m->map_fetches++;
		put_rhdr(o);
		wire_put_u32(o, (uint32_t)cmap_encoded_size(m->map));
		cmap_encode(o, m->map);
		return !m->map_hidden;
	default:
		fprintf(stderr, "fake_metad: opcode %u\n", f->h.opcode);
		abort();
	}
	put_rhdr(o);
	meta_lease_reply_encode(o, &lease);
	return m->lease_ms > 0;
}

static void conn_readable(struct fake_metad *m, struct fm_conn *c)
{
	static uint8_t buf[BODY_MAX];
	struct iovec iov[FRAME_IN_IOV_MAX];
	int count = frame_in_space(&c->in, iov);
	ssize_t len = readv(c->fd, iov, count);
	struct wire_out o;
	struct frame *f;
	int rv;

	if (len <= 0) {
		conn_end(c);
		return;
	}
	frame_in_fed(&c->in, (size_t)len);
	while ((rv = frame_in_next(&c->in, &f)) == 1) {
		wire_out_init(&o, buf, sizeof(buf));
		pthread_mutex_lock(&m->lock);
		if (handle(m, f, &o))
			answer(m, c, f, &o);
		pthread_mutex_unlock(&m->lock);
		frame_free(f);
	}
	if (rv < 0)
		die("bad frame from the daemon");
}

static void conn_begin(struct fake_metad *m)
{
	int fd = accept(m->listen_fd, NULL, NULL), one = 1;

	if (fd < 0)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (size_t i = 0; i < CONN_MAX; i++) {
		if (m->conns[i].fd >= 0)
			continue;
		m->conns[i].fd = fd;
		if (frame_in_init(&m->conns[i].in, 0, NULL) < 0)
			die("memory");
		return;
	}
	close(fd);
}

static void *run(void *arg)
{
	struct fake_metad *m = arg;
	struct pollfd p[CONN_MAX + 2];

	for (;;) {
		p[0] = (struct pollfd){ m->stop_fds[0], POLLIN, 0 };
		p[1] = (struct pollfd){ m->listen_fd, POLLIN, 0 };
		for (size_t i = 0; i < CONN_MAX; i++)
			p[i + 2] = (struct pollfd){ m->conns[i].fd, POLLIN, 0 };
		if (poll(p, array_count(p), -1) < 0)
			die("poll");
		if (p[0].revents)
			break;
		for (size_t i = 0; i < CONN_MAX; i++)
			if (p[i + 2].revents && m->conns[i].fd >= 0)
				conn_readable(m, &m->conns[i]);
		if (p[1].revents)
			conn_begin(m);
	}
	for (size_t i = 0; i < CONN_MAX; i++)
		if (m->conns[i].fd >= 0)
			conn_end(&m->conns[i]);
	return NULL;
}

struct fake_metad *fake_metad_new(uint64_t cluster_id)
{
	struct fake_metad *m = calloc(1, sizeof(*m));
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct cmap_daemon d = { .id = 1, .addr = "127.0.0.1", .port = 1,
				 .state = CMAP_STATE_UP };
	socklen_t len = sizeof(a);

	if (!m || !(m->map = cmap_new()) || cmap_add_daemon(m->map, &d) < 0)
		die("memory");
	cmap_fill_slots(m->map);
	m->map->epoch = 1;
	m->map->cluster_id = m->cluster_id = cluster_id;
	m->map->replica_count = 1;
	m->lease_ms = 5000;
	pthread_mutex_init(&m->lock, NULL);
	for (size_t i = 0; i < CONN_MAX; i++)
		m->conns[i].fd = -1;
	m->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (m->listen_fd < 0 ||
	    bind(m->listen_fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(m->listen_fd, 16) < 0 ||
	    getsockname(m->listen_fd, (struct sockaddr *)&a, &len) < 0 ||
	    pipe2(m->stop_fds, O_CLOEXEC) < 0)
		die("listen");
	m->port = ntohs(a.sin_port);
	if (pthread_create(&m->thread, NULL, run, m) != 0)
		die("thread");
	return m;
}

void fake_metad_free(struct fake_metad *m)
{
	if (write(m->stop_fds[1], "", 1) != 1)
		die("stop");
	pthread_join(m->thread, NULL);
	close(m->stop_fds[0]);
	close(m->stop_fds[1]);
	close(m->listen_fd);
	cmap_free(m->map);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

uint16_t fake_metad_port(const struct fake_metad *m)
{
	return m->port;
}

void fake_metad_set_sessions(struct fake_metad *m, const uint64_t *sessions,
			     unsigned count)
{
	uint64_t *copy = calloc(count + 1, sizeof(*copy));

	if (!copy)
		die("memory");
	memcpy(copy, sessions, count * sizeof(*copy));
	pthread_mutex_lock(&m->lock);
	free(m->map->sessions);
	m->map->sessions = copy;
	m->map->session_count = count;
	m->map->epoch++;
	pthread_mutex_unlock(&m->lock);
}

uint64_t fake_metad_epoch(struct fake_metad *m)
{
	uint64_t epoch;

	pthread_mutex_lock(&m->lock);
	epoch = m->map->epoch;
	pthread_mutex_unlock(&m->lock);
	return epoch;
}

void fake_metad_set_lease(struct fake_metad *m, uint32_t lease_ms)
{
	pthread_mutex_lock(&m->lock);
	m->lease_ms = lease_ms;
	pthread_mutex_unlock(&m->lock);
}

unsigned fake_metad_registrations(struct fake_metad *m,
				  struct meta_register *last)
{
	unsigned count;

	pthread_mutex_lock(&m->lock);
	if (last)
		*last = m->last_register;
	count = m->registrations;
	pthread_mutex_unlock(&m->lock);
	return count;
}

unsigned fake_metad_map_fetches(struct fake_metad *m)
{
	unsigned count;

	pthread_mutex_lock(&m->lock);
	count = m->map_fetches;
	pthread_mutex_unlock(&m->lock);
	return count;
}

void fake_metad_heartbeat(struct fake_metad *m, struct meta_heartbeat *last)
{
	pthread_mutex_lock(&m->lock);
	*last = m->last_heartbeat;
	pthread_mutex_unlock(&m->lock);
}

void fake_metad_log_register(struct fake_metad *m,
			     struct meta_log_register *last)
{
	pthread_mutex_lock(&m->lock);
	*last = m->last_log_register;
	pthread_mutex_unlock(&m->lock);
}

unsigned fake_metad_log_heartbeat(struct fake_metad *m,
				  struct meta_log_heartbeat *last)
{
	unsigned named;

	pthread_mutex_lock(&m->lock);
	if (last)
		*last = m->last_log_heartbeat;
	named = m->named;
	pthread_mutex_unlock(&m->lock);
	return named;
}

void fake_metad_judge(struct fake_metad *m, uint64_t ino, uint64_t epoch,
		      enum meta_log_verdict verdict)
{
	pthread_mutex_lock(&m->lock);
	if (m->gone_count == FAKE_GONE_MAX)
		die("verdicts");
	m->gone[m->gone_count++] = (struct meta_log_gone){ ino, epoch,
							   (uint8_t)verdict };
	pthread_mutex_unlock(&m->lock);
}

void fake_metad_hide_map(struct fake_metad *m, bool hide)
{
	pthread_mutex_lock(&m->lock);
	m->map_hidden = hide;
	pthread_mutex_unlock(&m->lock);
}
