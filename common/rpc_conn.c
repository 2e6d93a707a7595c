/* One peer's connection on the net's thread: connect, HELLO, receive, lose. */
#include "common/rpc_priv.h"

#include "common/crc32c.h"
#include "common/diag.h"
#include "common/frame_out.h"
#include "common/frame_pool.h"
#include "common/local_sock.h"
#include "common/status.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SOCKET_BUFFER (4 << 20)
/* Dead machines are found after this even when we wait for an answer only. */
#define TCP_DEAD_MS 20000
/* Reads before other peers get their turn. */
#define READ_BUDGET 32
/* A connection that held this long was a good one, as is one over which
 * something was answered: try again soon. HELLO alone says nothing: who closes
 * behind it each time is not to be asked a hundred times a second. */
#define GOOD_CONN_MS 1000u
#define HELLO_SIZE_MAX (128 + RPC_NAME_MAX)
/* See incarnation_leap(). */
#define LEAP_S_MIN 60u
#define LEAP_S_MAX (1u << 30)
/* /etc/hosts answers within a millisecond, a name server within some more. */
#define RESOLVE_POLL_MIN_MS 1u
#define RESOLVE_POLL_MAX_MS 32u

static void socket_tune(int fd)
{
	int one = 1, size = SOCKET_BUFFER, dead_ms = TCP_DEAD_MS;
	int idle_s = 10, intvl_s = 3, probes = 3;

	/* All of these are improvements we can live without. SO_SNDBUF would
	 * be capped below what auto-tuning reaches, hence only the forced
	 * variants, which need privilege. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms,
			 sizeof(dead_ms));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s,
			 sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &intvl_s,
			 sizeof(intvl_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes,
			 sizeof(probes));
}

static void conn_set(struct rpc_peer *p, enum conn_state s)
{
	pthread_mutex_lock(&p->lock);
	p->conn = s;
	pthread_mutex_unlock(&p->lock);
}

/* Grows with each connection of this process, and from process to process
 * of one session as long as the clock does. */
static uint64_t incarnation_next(struct rpc_net *n)
{
	struct timespec ts;
	uint64_t now;

	clock_gettime(CLOCK_REALTIME, &ts);
	now = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	n->incarnation = u64_max(n->incarnation + 1, now);
	return n->incarnation;
}

/* The other side has seen a larger one. A session's comes from one process, but
 * a daemon that was started again has only the clock, which may have been set
 * back in between: leap ahead, twice as far each time. */
static void incarnation_leap(struct rpc_net *n)
{
	n->leap_s = n->leap_s ? u64_min(2 * n->leap_s, LEAP_S_MAX) :
				  LEAP_S_MIN;
	n->incarnation += n->leap_s * 1000000000u;
}

/* Returns 0 or -errno. A fresh socket takes these few bytes at once. */
static int send_now(struct rpc_peer *p, const void *bytes, size_t len)
{
	ssize_t n = send(p->fd, bytes, len, MSG_NOSIGNAL);

	if (n < 0)
		return -errno;
	if ((size_t)n != len)
		return -EIO;
	count(&p->net->n.bytes_out, (uint64_t)n);
	return 0;
}

static int hello_send(struct rpc_peer *p)
{
	struct rpc_net *n = p->net;
	struct hello m = {
		.version_min = proto_ours().major_min,
		.version_max = proto_ours().major_max,
		.minor = proto_ours().minor,
		.features = proto_ours().features,
		.role = n->role,
		.incarnation = incarnation_next(n),
		.peer_id = n->peer_id,
		.name = { n->name, (uint32_t)strlen(n->name) },
	};
	uint8_t frame[WIRE_HEADER_SIZE + 2 * SEAL_TAG_SIZE + HELLO_SIZE_MAX];
	uint8_t *body = frame + frame_out_rest(p->seal);
	struct rpc_call c = { .opcode = WIRE_OP_HELLO, .body = body };
	struct wire_out o;

	wire_out_init(&o, body, HELLO_SIZE_MAX);
	hello_encode(&o, &m);
	assert(!o.overflow);
	c.body_len = (uint32_t)o.len;
	c.priv_body_crc = crc32c(0, body, o.len);
	pthread_mutex_lock(&p->lock);
	c.priv_id = p->hello_id = p->id_next++;
	pthread_mutex_unlock(&p->lock);
	call_header_write(p, &c);
	memcpy(frame, c.priv_header, WIRE_HEADER_SIZE);
	frame_out_seal(p->seal, frame, o.len);
	return send_now(p, frame, frame_out_size(p->seal, o.len));
}

/* Closes the socket and sorts the calls. @lost: those to be ended; NULL:
 * it was not up, there are none. */
static void conn_drop(struct rpc_peer *p, struct call_list *lost)
{
	int fd;

	rpc_timer_stop(p->net, &p->timer);
	pthread_mutex_lock(&p->lock);
	send_stop(p);
	fd = p->fd;
	p->fd = -1;
	if (p->conn >= CONN_UP_BEGINS)
		send_requeue(p, lost);
	p->conn = CONN_DOWN;
	seal_free(p->seal);
	p->seal = NULL;
	send_resume(p);
	pthread_mutex_unlock(&p->lock);
	if (fd >= 0)
		close(fd);
	if (p->in_ready)
		frame_in_fini(&p->in);
	p->in_ready = false;
	p->readable = false;
	p->bad = 0;
}

/* An address where nobody is: the next one, or the try has failed. */
static void conn_refused(struct rpc_peer *p, int err)
{
	if (p->addr_at + 1 >= p->addrs.count) {
		conn_lose(p, err);
		return;
	}
	p->addr_at++;
	conn_drop(p, NULL);
	rpc_timer_start(p->net, &p->timer, 0); /* see conn_reset() */
}

/* The daemon does not know this key: the next one, or the try has failed. */
static void key_refused(struct rpc_peer *p)
{
	p->key_at++;
	conn_drop(p, NULL);
	rpc_timer_start(p->net, &p->timer, 0); /* see conn_reset() */
}

/* After frame_in_next(), which said @rv: the handshake goes on, or is over.
 * Returns 0 or -errno. */
static int greet_on(struct rpc_peer *p, int rv)
{
	const void *out;
	size_t len = frame_in_out(&p->in, &out);
	int sent = len > 0 ? send_now(p, out, len) : 0;

	if (rv < 0 || sent < 0)
		return rv < 0 ? rv : sent;
	if (!frame_in_greeted(&p->in))
		return 0;
	pthread_mutex_lock(&p->lock);
	p->seal = frame_in_sealer(&p->in);
	p->conn = CONN_HELLO;
	pthread_mutex_unlock(&p->lock);
	return hello_send(p);
}

static void connected(struct rpc_peer *p)
{
	struct frame *f;
	int err = 0;
	socklen_t len = sizeof(err);

	if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		err = errno;
	if (err) {
		conn_refused(p, -err);
		return;
	}
	conn_set(p, frame_in_greeted(&p->in) ? CONN_HELLO : CONN_GREET);
	rpc_timer_start(p->net, &p->timer, p->hello_ms);
	if (p->conn == CONN_HELLO)
		err = hello_send(p);
	else
		err = greet_on(p, frame_in_next(&p->in, &f));
	if (err < 0)
		conn_lose(p, err);
}

/* Runs on p->timer: time to try again, or to give a try up. */
static void conn_timer(struct rpc_timer *t)
{
	struct rpc_peer *p = container_of(t, struct rpc_peer, timer);

	if (p->conn == CONN_DOWN)
		conn_start(p);
	else if (p->conn == CONN_CONNECTING)
		conn_refused(p, -ETIMEDOUT);
	else if (p->conn < CONN_UP_BEGINS)
		conn_lose(p, -ETIMEDOUT);
}

static uint64_t hello_min_ms(const struct rpc_peer *p)
{
	return p->place_count > 1 ? RPC_HELLO_ANY_MS : RPC_HELLO_MS;
}

void conn_init(struct rpc_peer *p)
{
	p->backoff_ms = RPC_BACKOFF_MIN_MS;
	p->hello_ms = hello_min_ms(p);
	p->timer.fn = conn_timer;
}

/* Sees that p->addrs are those of this try. Returns 0, -EINPROGRESS: look again
 * after p->lookup_poll_ms; or -errno. */
static int addrs_choose(struct rpc_peer *p)
{
	int rv = 0;

	if (!p->is_name || p->addrs_chosen)
		return 0;
	if (p->lookup_end_ms == 0) {
		p->lookup_end_ms = rpc_now_ms() + RPC_RESOLVE_MS;
		p->lookup_poll_ms = RESOLVE_POLL_MIN_MS;
	}
	if (!p->lookup)
		rv = resolve_start(p->host, p->port, &p->lookup);
	if (rv == 0)
		rv = resolve_poll(p->lookup, &p->addrs);
	if (rv == -EINPROGRESS && rpc_now_ms() < p->lookup_end_ms) {
		p->lookup_poll_ms = u64_min(2 * p->lookup_poll_ms,
					    RESOLVE_POLL_MAX_MS);
		return rv;
	}
	if (rv != -EINPROGRESS) {
		resolve_free(p->lookup);
		p->lookup = NULL;
	}
	if (rv < 0 && p->addrs.count == 0)
		return rv == -EINPROGRESS ? -EHOSTUNREACH : rv;
	p->addrs_chosen = true;
	p->addr_at = 0;
	return 0;
}

/* Begins to connect. Returns the socket or -errno. */
static int conn_open(const struct rpc_peer *p)
{
	const struct resolved *a = &p->addrs.addrs[p->addr_at];
	const struct sockaddr *addr = (const struct sockaddr *)&a->ss;
	int fd = local_sock_connect(addr);

	if (fd >= 0)
		return fd;
	fd = socket(a->ss.ss_family,
		    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	socket_tune(fd);
	if (connect(fd, addr, a->len) < 0 && errno != EINPROGRESS) {
		int err = errno;

		close(fd);
		return -err;
	}
	return fd;
}

void conn_start(struct rpc_peer *p)
{
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
		.data.ptr = p,
	};
	struct greet *greet;
	int fd, rv;

	assert(p->conn == CONN_DOWN && p->fd < 0);
	if (atomic_load(&p->closing))
		return;
	rv = addrs_choose(p);
	if (rv == -EINPROGRESS) {
		rpc_timer_start(p->net, &p->timer, p->lookup_poll_ms);
		return;
	}
	if (rv < 0) {
		conn_lose(p, rv);
		return;
	}
	rv = gate_connect(p->net->gate, (const struct sockaddr *)
			  &p->addrs.addrs[p->addr_at].ss, p->key_at, &greet);
	if (rv < 0) {
		conn_lose(p, rv);
		return;
	}
	fd = conn_open(p);
	pthread_mutex_lock(&p->lock);
	p->conn = CONN_CONNECTING;
	p->fd = fd < 0 ? -1 : fd;
	pthread_mutex_unlock(&p->lock);
	rv = fd < 0 ? 0 : frame_in_init(&p->in, sizeof(struct rpc_held),
					&frame_pool_bufs);
	if (fd < 0 || rv < 0) {
		greet_free(greet);
		if (fd < 0)
			conn_refused(p, fd);
		else
			conn_lose(p, rv);
		return;
	}
	p->in_ready = true;
	if (greet)
		frame_in_greet(&p->in, greet);
	p->ended = false;
	rpc_timer_start(p->net, &p->timer,
			p->place_count > 1 ? RPC_CONNECT_ANY_MS :
					     RPC_CONNECT_MS);
	if (epoll_ctl(p->net->epfd, EPOLL_CTL_ADD, fd, &ev) < 0)
		conn_lose(p, -errno);
}

static void calls_end(struct rpc_peer *p, struct call_list *l, int status)
{
	struct rpc_call *c;

	while ((c = l->head) != NULL) {
		call_list_del(l, c);
		call_done(p, c, status, NULL);
	}
}

static void place_next(struct rpc_peer *p)
{
	if (p->place_count == 1)
		return;
	p->place_at = (p->place_at + 1) % p->place_count;
	peer_place(p, &p->places[p->place_at]);
}

/* How much an error of one place says of the peer: nothing when nobody is
 * there, more when others lead, most when somebody said why not. */
static unsigned telling(int err)
{
	switch (err) {
	case 0:
		return 0;
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ETIMEDOUT:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		return 1;
	case -EREMCHG:
		return 2;
	default:
		return 3;
	}
}

/* A try failed with *@err. Returns true when there is a next place to be tried
 * before anybody is told; else *@err is what to tell. */
static bool place_failed(struct rpc_peer *p, int *err)
{
	if (telling(*err) >= telling(p->place_err))
		p->place_err = *err;
	/* Only who leads says that a session is fenced. */
	if (*err != -ESTALE && ++p->place_tried < p->place_count) {
		place_next(p);
		return true;
	}
	*err = *err == -ESTALE ? *err : p->place_err;
	p->hello_ms = u64_min(2 * p->hello_ms, RPC_HELLO_MS);
	return false;
}

static uint64_t backoff_next(struct rpc_peer *p)
{
	uint64_t ms = p->backoff_ms;

	/* It takes somebody to install the other release. */
	if (p->other_majors == p->place_count)
		ms = RPC_OTHER_MAJOR_MS;
	p->other_majors = 0;
	p->backoff_ms = u64_min(2 * p->backoff_ms, p->place_count > 1 ?
						RPC_BACKOFF_ANY_MAX_MS :
						RPC_BACKOFF_MAX_MS);
	return ms;
}

void conn_lose(struct rpc_peer *p, int err)
{
	struct call_list lost = { NULL, NULL };
	bool was_up = p->conn >= CONN_UP_BEGINS;
	uint64_t delay_ms;

	conn_drop(p, &lost);
	p->addrs_chosen = false;
	p->addr_at = p->key_at = 0;
	p->lookup_end_ms = 0;
	if (was_up)
		count(&p->net->n.losses, 1);
	if (!was_up && !p->stay && place_failed(p, &err)) {
		rpc_timer_start(p->net, &p->timer, 0); /* see conn_reset() */
		return;
	}
	if (!p->stay && err != -ESTALE)
		place_next(p);
	p->place_tried = 0;
	p->place_err = 0;
	if (was_up && rpc_now_ms() - p->up_since_ms >= GOOD_CONN_MS)
		p->backoff_ms = RPC_BACKOFF_MIN_MS;
	delay_ms = backoff_next(p);
	if (p->ops->down && !atomic_load(&p->closing))
		p->ops->down(p, err, p->arg);
	calls_end(p, &lost, -ECONNRESET);
	rpc_timer_start(p->net, &p->timer, u64_max(delay_ms, p->rest_ms));
}

void rpc_peer_rest(struct rpc_peer *p, uint64_t ms)
{
	p->rest_ms = ms;
}

void conn_reset(struct rpc_peer *p, bool next)
{
	p->stay = true;
	if (p->conn != CONN_DOWN)
		conn_lose(p, -ECONNRESET);
	p->stay = false;
	if (next)
		place_next(p);
	p->backoff_ms = RPC_BACKOFF_MIN_MS;
	/* By the timer: events of the old socket that were already fetched
	 * must not meet the new one. */
	rpc_timer_start(p->net, &p->timer, 0);
}

void conn_end(struct rpc_peer *p)
{
	struct call_list lost = { NULL, NULL };
	struct rpc_call *c;

	conn_drop(p, &lost);
	calls_end(p, &lost, -ECANCELED);
	pthread_mutex_lock(&p->lock);
	/* A callback may have sent again. */
	while ((c = p->wait.head) != NULL) {
		call_unlink(p, c);
		pthread_mutex_unlock(&p->lock);
		call_done(p, c, -ECANCELED, NULL);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
}

/* Moves calls past their deadline from @l to @late. Returns true when one had
 * begun to go. locked, sends stopped. */
static bool collect_late(struct rpc_peer *p, struct call_list *l,
			 uint64_t now_ms, struct call_list *late)
{
	struct rpc_call *c, *next;
	bool begun = false;

	for (c = l->head; c; c = next) {
		next = c->priv_next;
		if (c->priv_deadline_ms > now_ms)
			continue;
		begun |= call_is_begun(c);
		call_unlink(p, c);
		call_list_add(late, c);
	}
	return begun;
}

static uint64_t list_earliest(const struct call_list *l)
{
	uint64_t due_ms = RPC_FOREVER;

	for (const struct rpc_call *c = l->head; c; c = c->priv_next)
		due_ms = u64_min(due_ms, c->priv_deadline_ms);
	return due_ms;
}

void conn_expire(struct rpc_peer *p, uint64_t now_ms, uint64_t *earliest)
{
	struct call_list late = { NULL, NULL };
	bool broken = false;
	uint64_t due_ms;

	pthread_mutex_lock(&p->lock);
	due_ms = u64_min(list_earliest(&p->sent), list_earliest(&p->wait));
	if (due_ms <= now_ms) {
		send_stop(p);
		(void)collect_late(p, &p->sent, now_ms, &late);
		/* Half of a frame is out, or it has its place in what is
		 * sealed, and its memory goes back to the caller: the stream
		 * cannot go on. Sends stay stopped until conn_lose(). */
		broken = collect_late(p, &p->wait, now_ms, &late);
		if (broken)
			p->send_off = 0;
		else
			send_resume(p);
		due_ms = u64_min(list_earliest(&p->sent),
				 list_earliest(&p->wait));
	}
	pthread_mutex_unlock(&p->lock);
	*earliest = u64_min(*earliest, due_ms);
	if (broken)
		conn_lose(p, -ETIMEDOUT);
	if (late.head)
		rpc_kick(p);
	calls_end(p, &late, -ETIMEDOUT);
}

/* ---- receiving ---- */

/* @theirs: what it speaks. Returns -EPROTONOSUPPORT. */
static int other_major(struct rpc_peer *p, const char *theirs)
{
	char ours[PROTO_TEXT_SIZE];

	p->other_majors++;
	if (!p->other_major_said)
		diag_warn("rpc", "event=other-version peer=%s theirs=%s "
			  "ours=%s", p->label, theirs, proto_ours_text(ours));
	p->other_major_said = true;
	return -EPROTONOSUPPORT;
}

static int hello_deliver(struct rpc_peer *p, const struct frame *f)
{
	struct rpc_net *n = p->net;
	struct proto_offer ours = proto_ours(), theirs;
	char text[PROTO_TEXT_SIZE];
	struct hello_reply hr;
	int rv;

	if (f->h.opcode != WIRE_OP_HELLO || f->h.request_id != p->hello_id)
		return -EBADMSG;
	rv = status_from_wire(f->h.status);
	if (rv == -ESTALE && n->role != WIRE_ROLE_CLIENT)
		incarnation_leap(n);
	if (rv != 0 && rv != -EPROTONOSUPPORT)
		return rv;
	if (hello_reply_parse(f->body, f->h.body_len, &hr) < 0)
		return rv == 0 ? -EBADMSG :
				 other_major(p, proto_frame_text(&f->h, text));
	theirs = proto_of_reply(&hr);
	if (rv != 0 || proto_agree(&ours, &theirs, &p->proto) < 0)
		return other_major(p, proto_text(&theirs, text));
	n->leap_s = 0;
	p->other_majors = 0;
	p->other_major_said = false;
	p->place_tried = 0;
	p->place_err = 0;
	p->hello_ms = hello_min_ms(p);
	rpc_timer_stop(n, &p->timer);
	p->up_since_ms = rpc_now_ms();
	count(&n->n.connects, 1);
	pthread_mutex_lock(&p->lock);
	p->conn = CONN_UP_BEGINS;
	p->first_last = NULL;
	p->send_full = false;
	pthread_mutex_unlock(&p->lock);
	if (p->ops->up && !atomic_load(&p->closing))
		p->ops->up(p, &hr, p->arg);
	conn_set(p, CONN_UP);
	if (p->helped)
		help_watch(p);
	rpc_kick(p);
	return 0;
}

/* Hands a reply to its call. Returns 0 or -EBADMSG. */
static int reply_deliver(struct rpc_peer *p, struct frame *f)
{
	struct rpc_held *held = f->extra;
	struct rpc_call *c;

	pthread_mutex_lock(&p->lock);
	c = call_find(p, f->h.request_id);
	if (c)
		call_wait_written(p, c);
	if (c && (c->opcode != f->h.opcode || !call_is_sent(c))) {
		/* An answer to what was not asked. */
		pthread_mutex_unlock(&p->lock);
		return -EBADMSG;
	}
	if (c)
		call_unlink(p, c);
	pthread_mutex_unlock(&p->lock);
	p->complained = false;
	p->backoff_ms = RPC_BACKOFF_MIN_MS;
	if (!c) {
		/* Its deadline has passed. */
		count(&p->net->n.unknown_replies, 1);
		return 0;
	}
	count(&p->net->n.replies, 1);
	held->f = (struct rpc_frame){ f->h, f->body, f->data, f };
	call_done(p, c, status_from_wire(f->h.status), &held->f);
	return 0;
}

/* Takes over @f. Returns 0, or -errno: the connection is no good. */
static int deliver(struct rpc_peer *p, struct frame *f)
{
	struct rpc_net *n = p->net;
	struct rpc_held *held = f->extra;
	uint64_t cluster_id = atomic_load(&n->cluster_id);
	bool taken = false;
	int rv;

	held->taken = &taken;
	if (!(f->h.flags & WIRE_F_REPLY) || p->conn == CONN_GREET)
		rv = -EBADMSG;
	else if (cluster_id && f->h.cluster_id && f->h.status == 0 &&
		 f->h.cluster_id != cluster_id)
		rv = -EXDEV;
	else
		rv = 0;
	if (rv == 0 && f->h.epoch > atomic_load(&n->epoch) &&
	    f->h.epoch > p->epoch_told) {
		p->epoch_told = f->h.epoch;
		if (p->ops->epoch)
			p->ops->epoch(p, f->h.epoch, p->arg);
	}
	if (rv == 0)
		rv = p->conn == CONN_HELLO ? hello_deliver(p, f) :
					     reply_deliver(p, f);
	if (!taken)
		frame_free(f);
	return rv;
}

/* Delivers what is complete. Returns 0 or -errno (the connection is bad). */
static int deliver_all(struct rpc_peer *p)
{
	char text[PROTO_TEXT_SIZE];
	struct frame *f;
	int rv;

	while ((rv = frame_in_next(&p->in, &f)) == 1) {
		rv = deliver(p, f);
		if (rv < 0)
			break;
		if (atomic_load(&p->closing) || atomic_load(&p->reset_wanted))
			return 0;
	}
	if (p->conn == CONN_GREET)
		return greet_on(p, rv == -EAGAIN ? -ENOMEM : rv);
	/* Not what hello_deliver() made of a good frame. */
	if (rv == -EPROTONOSUPPORT &&
	    frame_in_header(&p->in)->version != WIRE_VERSION)
		(void)other_major(p, proto_frame_text(frame_in_header(&p->in),
						      text));
	if (rv == -EBADMSG || rv == -EPROTONOSUPPORT) {
		count(&p->net->n.bad_frames, 1);
		/* Once, until it has spoken sense again. */
		if (!p->complained && rv == -EBADMSG)
			diag_warn("rpc", "bad frame, connection closed: "
				  "peer=%s err=\"%s\"", p->label,
				  strerror(-rv));
		p->complained = true;
	}
	/* The pool has nothing only when the system has not. */
	return rv == -EAGAIN ? -ENOMEM : rv;
}

enum read_result {
	READ_EMPTY, /* there was nothing */
	READ_SHORT, /* the socket is empty now, though maybe at its end */
	READ_MORE,
};

/* Reads once. Returns enum read_result or -errno. */
static int read_once(struct rpc_peer *p)
{
	struct iovec iov[FRAME_IN_IOV_MAX];
	int iov_count = frame_in_space(&p->in, iov);
	size_t room = 0;
	ssize_t len;
	int rv;

	for (int i = 0; i < iov_count; i++)
		room += iov[i].iov_len;
	assert(room > 0);
	len = readv(p->fd, iov, iov_count);
	if (len < 0 && errno == EINTR)
		return READ_MORE;
	if (len < 0)
		return errno == EAGAIN ? READ_EMPTY : -errno;
	if (len == 0)
		return p->conn == CONN_HELLO && frame_in_key_wanted(&p->in) ?
			       -EKEYREJECTED : -ECONNRESET;
	count(&p->net->n.bytes_in, (uint64_t)len);
	frame_in_fed(&p->in, (size_t)len);
	rv = deliver_all(p);
	if (rv < 0)
		return rv;
	return (size_t)len == room ? READ_MORE : READ_SHORT;
}

void conn_read(struct rpc_peer *p)
{
	int rv = READ_MORE;

	p->readable = false;
	if ((p->conn != CONN_GREET && p->conn != CONN_HELLO &&
	     p->conn != CONN_UP) || p->bad)
		return;
	for (int i = 0; i < READ_BUDGET; i++) {
		rv = read_once(p);
		if (atomic_load(&p->closing) || atomic_load(&p->reset_wanted))
			return; /* the loop drops the connection */
		/* After a short read the next byte is an event, but the end
		 * that was told already is not told again. */
		if (rv < 0 || rv == READ_EMPTY ||
		    (rv == READ_SHORT && !p->ended))
			break;
	}
	if (rv == -EKEYREJECTED) {
		key_refused(p);
		return;
	}
	if (rv < 0 && net_is_self(p->net)) {
		conn_lose(p, rv);
		return;
	}
	if (rv == READ_EMPTY || (rv == READ_SHORT && !p->ended))
		return;
	if (rv < 0) {
		p->bad = rv;
	} else {
		p->readable = true;
		p->net->more = true;
	}
	/* What a helper finds is the loop's to do. */
	if (!net_is_self(p->net))
		rpc_net_poke(p->net);
}

void conn_event(struct rpc_peer *p, uint32_t events)
{
	uint32_t over = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
	bool was_full;

	if (atomic_load(&p->closing) || atomic_load(&p->reset_wanted) ||
	    p->conn == CONN_DOWN)
		return;
	if (p->conn == CONN_CONNECTING) {
		if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
			connected(p);
		return;
	}
	if (events & EPOLLOUT) {
		pthread_mutex_lock(&p->lock);
		was_full = p->send_full;
		p->send_full = false;
		pthread_mutex_unlock(&p->lock);
		if (was_full)
			rpc_kick(p);
	}
	if (events & over)
		p->ended = true;
	if (events & (EPOLLIN | over))
		conn_read(p);
}
