#include "blockd/conn_priv.h"

#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "common/diag.h"
#include "common/proto.h"

/* So much of a frame is left that the kernel shall gather it alone. */
#define RECV_WAITALL_MIN 65536u

static void pump(struct conn *c);

/* ---- memory ---- */

static bool is_over(const struct conn *c)
{
	return c->bytes >= c->set->limits.conn_bytes_max ||
	       pool_is_full(c->set->pool);
}

/* Memory came back: who waits for some is tried at the end of the turn. */
static void released(struct conn_set *s)
{
	if (s->stalled)
		ring_defer(s->ring, &s->wake);
}

void conn_charge(struct conn *c, size_t len)
{
	c->bytes += len;
	pool_charge(c->set->pool, len);
}

void conn_discharge(struct conn *c, size_t len)
{
	assert(c->bytes >= len);
	c->bytes -= len;
	pool_discharge(c->set->pool, len);
	released(c->set);
}

void *conn_buf_get(struct conn *c, size_t len)
{
	void *p = NULL;

	if (c->bytes == 0 || c->bytes + len <= c->set->limits.conn_bytes_max)
		p = pool_get(c->set->pool, len);
	if (p)
		c->bytes += len;
	else
		c->short_of_memory = true;
	return p;
}

void conn_buf_put(struct conn *c, void *buf, size_t len)
{
	if (!buf)
		return;
	assert(c->bytes >= len);
	c->bytes -= len;
	pool_put(c->set->pool, buf, len);
	released(c->set);
}

static void *bufs_get(const struct frame_bufs *b, size_t len)
{
	struct conn *c = ((const struct conn_bufs *)(const void *)b)->conn;

	return c->trusted ? conn_buf_get(c, len) : NULL;
}

static void bufs_put(const struct frame_bufs *b, void *p, size_t len)
{
	struct conn *c = ((const struct conn_bufs *)(const void *)b)->conn;

	conn_buf_put(c, p, len);
}

/* Bytes of a frame beside a data buffer of its own. */
static size_t frame_weight(const struct conn *c, const struct frame *f)
{
	size_t len = sizeof(*f) + c->set->limits.frame_extra + f->h.body_len;

	return f->h.data_len >= FRAME_DATA_ALONE_MIN ? len :
						       len + f->h.data_len;
}

void conn_frame_free(struct conn *c, struct frame *f)
{
	size_t weight;

	if (!f)
		return;
	weight = frame_weight(c, f);
	frame_free(f);
	conn_discharge(c, weight);
}

/* ---- life ---- */

void *conn_arg(const struct conn *c)
{
	return c->set->arg;
}

void *conn_user(const struct conn *c)
{
	return c->user;
}

void conn_set_user(struct conn *c, void *user)
{
	c->user = user;
}

const char *conn_name(const struct conn *c)
{
	return c->name;
}

bool conn_is_closed(const struct conn *c)
{
	return c->closed;
}

void conn_trust(struct conn *c)
{
	c->trusted = true;
}

void conn_get(struct conn *c)
{
	c->refs++;
}

void conn_put(struct conn *c)
{
	struct conn_set *s = c->set;

	assert(c->refs > 0);
	if (--c->refs > 0)
		return;
	assert(c->closed && !c->out && !c->held);
	/* Out of the list first: drained() may go through it. */
	if (c->next)
		c->next->prev = c->prev;
	if (c->prev)
		c->prev->next = c->next;
	else
		s->conns = c->next;
	s->ops->drained(c);
	frame_in_fini(&c->in);
	seal_free(c->seal);
	assert(c->bytes == 0);
	close(c->fd);
	free(c);
	conn_set_gone(s);
}

static void unstall(struct conn *c)
{
	struct conn_set *s = c->set;
	struct conn **at = &s->stalled;

	if (!c->stalled)
		return;
	while (*at != c)
		at = &(*at)->stalled_next;
	*at = c->stalled_next;
	if (!*at)
		s->stalled_tail = at;
	c->stalled = false;
}

void conn_close(struct conn *c)
{
	struct frame *held = c->held;

	if (c->closed)
		return;
	c->closed = true;
	c->set->stats.closed++;
	c->set->stats.open--;
	unstall(c);
	c->held = NULL;
	/* Ends a receive or send in the kernel; the descriptor itself stays
	 * until they have ended, so that its number cannot be given anew. */
	(void)shutdown(c->fd, SHUT_RDWR);
	conn_frame_free(c, held);
	conn_send_drop(c);
	c->set->ops->closed(c);
	conn_put(c);
}

/* ---- receiving ---- */

static void recv_start(struct conn *c)
{
	struct conn_set *s = c->set;
	int count = frame_in_space(&c->in, c->recv_iov), flags = 0;
	struct io_uring_sqe *sqe;
	size_t left = 0;

	assert(count > 0);
	/* All but the last entry belong to a frame that has begun; the last
	 * takes what comes after it. A large frame is gathered by the kernel
	 * and not by many turns of the loop. */
	for (int i = 0; i < count - 1; i++)
		left += c->recv_iov[i].iov_len;
	if (left >= RECV_WAITALL_MIN) {
		count--;
		flags = MSG_WAITALL;
	}
	c->recv_msg = (struct msghdr){ .msg_iov = c->recv_iov,
				       .msg_iovlen = (size_t)count };
	conn_get(c);
	sqe = ring_sqe(s->ring, &c->recv_op);
	io_uring_prep_recvmsg(sqe, c->fd, &c->recv_msg, (unsigned)flags);
	if (!c->more && !s->no_poll_first)
		sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
}

static void recv_done(struct ring_op *op, int res, uint32_t flags)
{
	struct conn *c = container_of(op, struct conn, recv_op);
	struct conn_set *s = c->set;

	if (res == -EINVAL && !s->no_poll_first && !c->closed) {
		s->no_poll_first = true;
		recv_start(c);
		conn_put(c);
		return;
	}
	c->more = flags & IORING_CQE_F_SOCK_NONEMPTY;
	if (c->closed) {
		conn_put(c);
		return;
	}
	if (res > 0) {
		s->stats.bytes_in += (uint64_t)res;
		c->recv_ms = ring_now_ms();
		frame_in_fed(&c->in, (size_t)res);
		pump(c);
	} else if (res == -EINTR || res == -EAGAIN) {
		recv_start(c);
	} else {
		conn_close(c);
	}
	conn_put(c);
}

static void stall(struct conn *c)
{
	struct conn_set *s = c->set;

	assert(!c->stalled);
	s->stats.stalls++;
	c->stalled = true;
	c->stalled_next = NULL;
	*s->stalled_tail = c;
	s->stalled_tail = &c->stalled_next;
}

void conn_wake_stalled(struct ring_defer *d)
{
	struct conn_set *s = container_of(d, struct conn_set, wake);
	struct conn *list = s->stalled, *c;

	/* Those that stall again go to the end: everybody has a turn. One may
	 * close others, so each is held. */
	s->stalled = NULL;
	s->stalled_tail = &s->stalled;
	for (c = list; c; c = c->stalled_next) {
		conn_get(c);
		c->stalled = false;
	}
	while ((c = list)) {
		list = c->stalled_next;
		pump(c);
		conn_put(c);
	}
}

/* A stranger may send one small frame. */
static bool is_excessive(const struct conn *c)
{
	const struct wire_header *h = frame_in_header(&c->in);

	return !c->trusted && (h->body_len > CONN_HELLO_BODY_MAX ||
			       h->data_len > 0);
}

static const char *bad_word(int err)
{
	switch (err) {
	case -EBADMSG:
		return "checksum";
	case -EKEYREJECTED:
		return "key";
	case -EPROTONOSUPPORT:
		return "version";
	case -ENOMEM:
		return "memory";
	default:
		return "size";
	}
}

/* A frame of another major: who sent it is told. */
static void other_version(struct conn *c)
{
	const struct wire_header *h = frame_in_header(&c->in);
	struct hello_reply r = proto_reply(WIRE_ROLE_BLOCKD, "hail-blockd");
	char theirs[PROTO_TEXT_SIZE], ours[PROTO_TEXT_SIZE];
	uint8_t frame[PROTO_REFUSAL_SIZE];

	diag_warn("conn", "what=other-version peer=%s theirs=%s ours=%s "
		  "action=close", c->name, proto_frame_text(h, theirs),
		  proto_ours_text(ours));
	if (c->trusted || conn_send_raw(c, frame, proto_refusal(
			h, &r, c->seal, frame)) < 0)
		conn_close(c);
	else
		conn_close_after_send(c);
}

static void bad_frame(struct conn *c, int err)
{
	c->set->stats.bad_frames++;
	if (err == -EPROTONOSUPPORT && c->greeted) {
		other_version(c);
		return;
	}
	diag_warn("conn", "what=bad-frame peer=%s reason=%s action=close",
		  c->name, bad_word(err));
	if (c->greeted)
		conn_close(c);
	else
		conn_close_after_send(c); /* it is told why */
}

/* After frame_in_next(): what the handshake says is sent; from its end on
 * frames are sealed. Returns 0 or -ENOMEM. */
static int greet_on(struct conn *c)
{
	const void *out;
	size_t len = frame_in_out(&c->in, &out);

	if (len > 0 && conn_send_raw(c, out, len) < 0)
		return -ENOMEM;
	if (!frame_in_greeted(&c->in))
		return 0;
	c->greeted = true;
	c->seal = frame_in_sealer(&c->in);
	return 0;
}

/* The next frame to hand over. Returns 1 and sets c->held, or 0 when there is
 * none to be had now: receiving, stalled or closed. */
static int next_frame(struct conn *c)
{
	int rv;

	if (is_over(c) && c->bytes > 0) {
		stall(c);
		return 0;
	}
	rv = frame_in_next(&c->in, &c->held);
	if (!c->greeted && greet_on(c) < 0) {
		conn_close(c);
		return 0;
	}
	if (rv == 1) {
		conn_charge(c, frame_weight(c, c->held));
		c->set->stats.frames_in++;
		return 1;
	}
	if (rv == -EAGAIN && c->trusted)
		stall(c);
	else if (rv < 0 || is_excessive(c))
		bad_frame(c, rv);
	else
		recv_start(c);
	return 0;
}

/* Hands over frames while there are some and somebody takes them. Exactly one
 * of these is true afterwards: a receive is in the kernel; paused; stalled;
 * closed, or about to be. */
static void pump(struct conn *c)
{
	struct frame *f;

	conn_get(c);
	c->in_pump = true;
	while (!c->closed && !c->close_after_send &&
	       (c->held || next_frame(c) == 1)) {
		f = c->held;
		c->held = NULL;
		c->resumed = false;
		c->short_of_memory = false;
		if (c->set->ops->frame(c, f))
			continue;
		if (c->closed) {
			conn_frame_free(c, f);
			break;
		}
		c->held = f;
		if (c->short_of_memory) {
			stall(c);
			break;
		}
		if (!c->resumed) {
			c->paused = true;
			break;
		}
	}
	c->in_pump = false;
	conn_put(c);
}

static void pump_again(struct ring_defer *d)
{
	struct conn *c = container_of(d, struct conn, again);

	if (!c->closed && c->paused) {
		c->paused = false;
		pump(c);
	}
	conn_put(c);
}

void conn_resume(struct conn *c)
{
	if (c->closed)
		return;
	if (c->in_pump) {
		c->resumed = true;
		return;
	}
	if (!c->paused || c->again.priv_queued)
		return;
	conn_get(c);
	ring_defer(c->set->ring, &c->again);
}

static void tune(int fd)
{
	int one = 1, idle_s = 10, interval_s = 3, probes = 3;

	/* Improvements, all of which we can live without. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s,
			 sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s,
			 sizeof(interval_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes,
			 sizeof(probes));
}

int conn_new(struct conn_set *s, int fd, const char *name)
{
	struct conn *c = calloc(1, sizeof(*c));
	struct greet *greet = NULL;
	int rv;

	if (!c)
		return -ENOMEM;
	rv = gate_accept(s->limits.gate, fd, &greet);
	if (rv == 0)
		rv = frame_in_init(&c->in, s->limits.frame_extra,
				   &c->bufs.base);
	if (rv < 0) {
		greet_free(greet);
		free(c);
		return rv;
	}
	if (greet)
		frame_in_greet(&c->in, greet);
	tune(fd);
	c->set = s;
	c->fd = fd;
	c->refs = 1;
	c->since_ms = c->recv_ms = ring_now_ms();
	c->bufs.base.get = bufs_get;
	c->bufs.base.put = bufs_put;
	c->bufs.conn = c;
	c->recv_op.done = recv_done;
	c->again.fn = pump_again;
	snprintf(c->name, sizeof(c->name), "%s", name);
	conn_send_init(c);
	c->next = s->conns;
	if (c->next)
		c->next->prev = c;
	s->conns = c;
	s->stats.open++;
	recv_start(c);
	return 0;
}

/* Has the peer been silent when it owed us bytes, or deaf? */
bool conn_is_overdue(const struct conn *c, uint64_t now_ms)
{
	bool receiving = !c->paused && !c->stalled;

	if (!c->trusted)
		return now_ms - c->since_ms > CONN_HELLO_MS;
	if (c->sending && now_ms - c->since_ms > CONN_SEND_MS)
		return true;
	return receiving && frame_in_partial(&c->in) &&
	       now_ms - c->recv_ms > CONN_RECV_MS;
}
