/* Sending: queues in call order; whoever kicks a peer that nobody else writes
 * to becomes its writer until the queue is empty or the socket is full. */
#include "common/rpc_priv.h"

#include "common/crc32c.h"
#include "common/frame_out.h"

#include <sched.h>
#include <sys/socket.h>

#define BATCH_CALLS 64u
#define BATCH_IOV 192u
/* Calls after the first join a write only up to this size: the reply to the
 * first may come while the rest is still being copied. */
#define BATCH_BYTES (256u << 10)

struct batch {
	struct rpc_call *calls[BATCH_CALLS];
	uint32_t call_count;
	uint32_t sealed; /* so many of them are, or need not be */
	struct iovec iov[BATCH_IOV];
	uint32_t iov_count;
	size_t bytes;
};

static enum call_state state_of(const struct rpc_call *c)
{
	return c->priv_state & CALL_STATE_MASK;
}

static void state_set(struct rpc_call *c, enum call_state s)
{
	c->priv_state = (c->priv_state & ~(uint32_t)CALL_STATE_MASK) | s;
}

bool call_is_sent(const struct rpc_call *c)
{
	return state_of(c) == CALL_SENT;
}

bool call_is_begun(const struct rpc_call *c)
{
	return state_of(c) == CALL_PARTIAL ||
	       (state_of(c) == CALL_WAITING && c->priv_state & CALL_SEALED);
}

static size_t rest_size(const struct rpc_call *c)
{
	return (size_t)c->body_len + c->data_len;
}

static size_t call_size(const struct rpc_peer *p, const struct rpc_call *c)
{
	return frame_out_size(p->seal, rest_size(c));
}

void call_list_add(struct call_list *l, struct rpc_call *c)
{
	c->priv_next = NULL;
	c->priv_prev = l->tail;
	if (l->tail)
		l->tail->priv_next = c;
	else
		l->head = c;
	l->tail = c;
}

void call_list_del(struct call_list *l, struct rpc_call *c)
{
	if (c->priv_prev)
		c->priv_prev->priv_next = c->priv_next;
	else
		l->head = c->priv_next;
	if (c->priv_next)
		c->priv_next->priv_prev = c->priv_prev;
	else
		l->tail = c->priv_prev;
	c->priv_next = c->priv_prev = NULL;
}

/* @after: NULL: at the front. */
static void call_list_insert(struct call_list *l, struct rpc_call *after,
			     struct rpc_call *c)
{
	struct rpc_call *next = after ? after->priv_next : l->head;

	c->priv_prev = after;
	c->priv_next = next;
	if (after)
		after->priv_next = c;
	else
		l->head = c;
	if (next)
		next->priv_prev = c;
	else
		l->tail = c;
}

static void hash_add(struct rpc_peer *p, struct rpc_call *c)
{
	struct rpc_call **b = &p->hash[c->priv_id % RPC_HASH_SIZE];

	c->priv_hash_next = *b;
	*b = c;
}

static void hash_del(struct rpc_peer *p, struct rpc_call *c)
{
	struct rpc_call **b = &p->hash[c->priv_id % RPC_HASH_SIZE];

	while (*b != c) {
		assert(*b);
		b = &(*b)->priv_hash_next;
	}
	*b = c->priv_hash_next;
}

struct rpc_call *call_find(struct rpc_peer *p, uint64_t id)
{
	struct rpc_call *c = p->hash[id % RPC_HASH_SIZE];

	while (c && c->priv_id != id)
		c = c->priv_hash_next;
	return c;
}

void call_unlink(struct rpc_peer *p, struct rpc_call *c)
{
	bool sent = state_of(c) == CALL_SENT;

	assert(state_of(c) != CALL_SENDING && state_of(c) != CALL_DONE);
	call_list_del(sent ? &p->sent : &p->wait, c);
	if (sent)
		flight_add(p, -1);
	hash_del(p, c);
	state_set(c, CALL_DONE);
}

void call_done(struct rpc_peer *p, struct rpc_call *c, int status,
	       const struct rpc_frame *f)
{
	assert(c->priv_state != 0 && state_of(c) == CALL_DONE);
	c->priv_state = 0; /* proves "exactly once" */
	if (status == -ETIMEDOUT && !f)
		count(&p->net->n.timeouts, 1);
	c->cb(c, status, f);
}

/* The @i-th piece of @c on the wire, from 0; many may be empty. */
static struct iovec call_part(const struct rpc_peer *p, struct rpc_call *c,
			      int i)
{
	bool tagged = p->seal != NULL;

	if (i == 0)
		return (struct iovec){ c->priv_header, WIRE_HEADER_SIZE };
	if (i == 1)
		return (struct iovec){ c->priv_tags[0],
				       tagged ? SEAL_TAG_SIZE : 0 };
	if (i == 2)
		/* sendmsg() does not write through it */
		return (struct iovec){ (void *)(uintptr_t)c->body,
				       c->body_len };
	if (i < 3 + c->iov_count)
		return c->iov[i - 3];
	return (struct iovec){ c->priv_tags[1], tagged && rest_size(c) > 0 ?
						 SEAL_TAG_SIZE : 0 };
}

/* Adds what is left of @c, whose first @skip bytes are out, as far as iovecs
 * last. Returns true when all of it went in. */
static bool batch_add(const struct rpc_peer *p, struct batch *b,
		      struct rpc_call *c, size_t skip)
{
	struct iovec part;

	for (int i = 0; i < 4 + c->iov_count; i++) {
		part = call_part(p, c, i);
		if (skip >= part.iov_len) {
			skip -= part.iov_len;
			continue;
		}
		if (b->iov_count == BATCH_IOV)
			return false;
		part.iov_base = (char *)part.iov_base + skip;
		part.iov_len -= skip;
		skip = 0;
		b->iov[b->iov_count++] = part;
		b->bytes += part.iov_len;
	}
	return true;
}

void call_header_write(struct rpc_peer *p, struct rpc_call *c)
{
	struct rpc_net *n = p->net;
	struct wire_header h = {
		.version = WIRE_VERSION,
		.opcode = c->opcode,
		.flags = c->resent || (c->flags & RPC_F_RESENT) ?
				 WIRE_F_RESENT : 0,
		.request_id = c->priv_id,
		.cluster_id = atomic_load(&n->cluster_id),
		.epoch = atomic_load(&n->epoch),
		.session = atomic_load(&n->session),
		.body_len = c->body_len,
		.data_len = c->data_len,
		.body_crc = c->priv_body_crc,
	};

	wire_header_encode(&h, c->priv_header);
}

static bool is_crypt(const struct rpc_peer *p)
{
	return p->seal && seal_kind(p->seal) == SEAL_CRYPT;
}

/* May @c, which has begun to go or is fresh, be one of the batch? Encrypted
 * ones go before others are encrypted. */
static bool batch_takes(const struct rpc_peer *p, const struct batch *b,
			const struct rpc_call *c)
{
	bool sealed = c->priv_state & CALL_SEALED;

	if (b->call_count == 0)
		return true;
	if (is_crypt(p) && sealed != (b->sealed > 0))
		return false;
	return (is_crypt(p) && sealed) ||
	       (b->bytes + call_size(p, c) <= BATCH_BYTES &&
		b->iov_count + 4 <= BATCH_IOV);
}

/* Collects the front of p->wait. locked. */
static void batch_fill(struct rpc_peer *p, struct batch *b)
{
	struct rpc_call *c = p->wait.head;
	size_t skip = p->send_off;
	bool whole = true;

	b->call_count = b->sealed = 0;
	b->iov_count = 0;
	b->bytes = 0;
	for (; c && whole && b->call_count < BATCH_CALLS; c = c->priv_next) {
		if (!batch_takes(p, b, c))
			break;
		if (!p->seal || c->priv_state & CALL_SEALED)
			b->sealed++;
		if (skip == 0 && !(c->priv_state & CALL_SEALED))
			call_header_write(p, c);
		if (p->seal)
			c->priv_state |= CALL_SEALED;
		if (is_crypt(p))
			b->bytes += call_size(p, c);
		else
			whole = batch_add(p, b, c, skip);
		skip = 0;
		state_set(c, CALL_SENDING);
		b->calls[b->call_count++] = c;
	}
}

static void call_seal(struct rpc_peer *p, struct rpc_call *c, uint8_t **out)
{
	seal_begin(p->seal);
	seal_more(p->seal, c->priv_header, WIRE_HEADER_SIZE, out);
	seal_end(p->seal, c->priv_tags[0]);
	if (out) {
		memcpy(*out, c->priv_tags[0], SEAL_TAG_SIZE);
		*out += SEAL_TAG_SIZE;
	}
	if (rest_size(c) == 0)
		return;
	seal_begin(p->seal);
	for (int i = 2; i < 3 + c->iov_count; i++) {
		struct iovec part = call_part(p, c, i);

		seal_more(p->seal, part.iov_base, part.iov_len, out);
	}
	seal_end(p->seal, c->priv_tags[1]);
	if (out) {
		memcpy(*out, c->priv_tags[1], SEAL_TAG_SIZE);
		*out += SEAL_TAG_SIZE;
	}
}

/* Room for @len bytes, of which none is there. Returns 0 or -ENOMEM. */
static int cipher_room(struct rpc_cipher *a, size_t len)
{
	assert(a->off == a->len);
	a->off = a->len = 0;
	if (a->cap >= len)
		return 0;
	free(a->p);
	a->p = malloc(len);
	a->cap = a->p ? len : 0;
	return a->p ? 0 : -ENOMEM;
}

/* Seals what is fresh in the batch. By who writes, without the lock. Returns 0
 * or -ENOMEM. */
static int batch_seal(struct rpc_peer *p, struct batch *b)
{
	struct rpc_cipher *a = &p->cipher;
	bool crypt = is_crypt(p);
	uint8_t *out;

	if (crypt && b->sealed == 0) {
		if (cipher_room(a, b->bytes) < 0)
			return -ENOMEM;
		a->len = b->bytes;
	}
	out = a->p;
	for (uint32_t i = b->sealed; i < b->call_count; i++)
		call_seal(p, b->calls[i], crypt ? &out : NULL);
	if (crypt) {
		assert(b->sealed > 0 || out == a->p + a->len);
		b->iov[0] = (struct iovec){ a->p + a->off, a->len - a->off };
		b->iov_count = 1;
	}
	return 0;
}

/* @len bytes of the batch are out. locked. */
static void batch_account(struct rpc_peer *p, struct batch *b, size_t len)
{
	for (uint32_t i = 0; i < b->call_count; i++) {
		struct rpc_call *c = b->calls[i];
		size_t left = call_size(p, c) - p->send_off;

		assert(p->wait.head == c);
		if (len < left) {
			p->send_off += len;
			state_set(c, p->send_off > 0 ? CALL_PARTIAL :
						       CALL_WAITING);
			for (i++; i < b->call_count; i++)
				state_set(b->calls[i], CALL_WAITING);
			return;
		}
		len -= left;
		p->send_off = 0;
		call_list_del(&p->wait, c);
		call_list_add(&p->sent, c);
		state_set(c, CALL_SENT);
		flight_add(p, 1);
	}
}

/* Writes a batch with p->sending set and the lock dropped. Returns false when
 * the writer shall stop. locked. */
static bool write_batch(struct rpc_peer *p)
{
	struct batch b;
	struct msghdr msg = { .msg_iov = b.iov };
	int fd = p->fd, err;
	ssize_t len = -1;

	batch_fill(p, &b);
	/* Set before, so that an EPOLLOUT that comes at once is not lost. */
	p->send_full = true;
	pthread_mutex_unlock(&p->lock);
	err = p->seal ? -batch_seal(p, &b) : 0;
	msg.msg_iovlen = b.iov_count;
	if (!err) {
		do
			len = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		while (len < 0 && errno == EINTR);
		err = len < 0 ? errno : 0;
	}
	if (len > 0 && is_crypt(p))
		p->cipher.off += (size_t)len;
	if (len > 0)
		count(&p->net->n.bytes_out, (uint64_t)len);
	if (err && err != EAGAIN)
		/* Whatever it is, the loop shall see the end of it. */
		(void)shutdown(fd, SHUT_RDWR);
	pthread_mutex_lock(&p->lock);
	batch_account(p, &b, len > 0 ? (size_t)len : 0);
	if (p->send_waiters > 0)
		pthread_cond_broadcast(&p->send_cond);
	if (len >= 0) {
		/* Short or not, the next write tells. */
		p->send_full = false;
		return true;
	}
	/* EAGAIN: an event that came meanwhile has cleared send_full. */
	return err == EAGAIN && !p->send_full;
}

void rpc_kick(struct rpc_peer *p)
{
	pthread_mutex_lock(&p->lock);
	if (p->sending) {
		/* That writer looks again before it stops. */
		pthread_mutex_unlock(&p->lock);
		return;
	}
	p->sending = true;
	while (p->wait.head && p->conn == CONN_UP && !p->send_full &&
	       !p->send_pause)
		if (!write_batch(p))
			break;
	p->sending = false;
	if (p->send_waiters > 0)
		pthread_cond_broadcast(&p->send_cond);
	pthread_mutex_unlock(&p->lock);
	if (p->helped)
		help_sent(p->net);
}

/* Tells the loop about a deadline earlier than it knows. */
static void deadline_note(struct rpc_net *n, uint64_t due_ms)
{
	uint64_t old = atomic_load(&n->deadline_ms);

	while (due_ms < old)
		if (atomic_compare_exchange_weak(&n->deadline_ms, &old, due_ms))
			break;
	rpc_net_wake(n, due_ms);
}

static void call_init(struct rpc_peer *p, struct rpc_call *c, uint32_t flags)
{
	c->priv_body_crc = crc32c(0, c->body, c->body_len);
	c->priv_deadline_ms = c->timeout_ms == 0 ? RPC_FOREVER :
			      rpc_now_ms() + c->timeout_ms;
	c->priv_state = CALL_WAITING | flags;
	c->resent = false;
	count(&p->net->n.calls, 1);
}

void rpc_queue(struct rpc_peer *p, struct rpc_call *c)
{
	uint64_t due_ms;

	call_init(p, c, 0);
	/* Once queued and unlocked, @c may be anything. */
	due_ms = c->priv_deadline_ms;
	pthread_mutex_lock(&p->lock);
	c->priv_id = p->id_next++;
	hash_add(p, c);
	call_list_add(&p->wait, c);
	pthread_mutex_unlock(&p->lock);
	if (due_ms != RPC_FOREVER)
		deadline_note(p->net, due_ms);
}

void rpc_send(struct rpc_peer *p, struct rpc_call *c)
{
	rpc_queue(p, c);
	rpc_kick(p);
}

void rpc_send_first(struct rpc_peer *p, struct rpc_call *c)
{
	assert(net_is_self(p->net));
	call_init(p, c, CALL_FIRST);
	pthread_mutex_lock(&p->lock);
	assert(p->conn == CONN_UP_BEGINS);
	c->priv_id = p->id_next++;
	hash_add(p, c);
	call_list_insert(&p->wait, p->first_last, c);
	p->first_last = c;
	pthread_mutex_unlock(&p->lock);
	if (c->priv_deadline_ms != RPC_FOREVER)
		deadline_note(p->net, c->priv_deadline_ms);
}

static void wait_sender(struct rpc_peer *p)
{
	p->send_waiters++;
	pthread_cond_wait(&p->send_cond, &p->lock);
	p->send_waiters--;
}

void call_wait_written(struct rpc_peer *p, struct rpc_call *c)
{
	/* The writer is about to come back from its system call: the answer
	 * overtook its return. */
	for (int i = 0; i < 50 && state_of(c) == CALL_SENDING; i++) {
		pthread_mutex_unlock(&p->lock);
		sched_yield();
		pthread_mutex_lock(&p->lock);
	}
	while (state_of(c) == CALL_SENDING)
		wait_sender(p);
}

void send_stop(struct rpc_peer *p)
{
	p->send_pause = true;
	while (p->sending)
		wait_sender(p);
}

void send_resume(struct rpc_peer *p)
{
	p->send_pause = false;
}

void send_requeue(struct rpc_peer *p, struct call_list *lost)
{
	struct call_list all = p->sent;
	struct rpc_call *c, *next;

	/* One list in the order of sending: the sent, then the waiting. */
	if (all.tail) {
		all.tail->priv_next = p->wait.head;
		if (p->wait.head)
			p->wait.head->priv_prev = all.tail;
		else
			p->wait.tail = all.tail;
		p->wait.head = all.head;
		p->sent = (struct call_list){ NULL, NULL };
	}
	for (c = p->wait.head; c; c = next) {
		bool fresh = state_of(c) == CALL_WAITING &&
			     !(c->priv_state & CALL_FIRST);

		next = c->priv_next;
		c->priv_state &= ~(uint32_t)CALL_SEALED;
		if (state_of(c) == CALL_SENT) {
			flight_add(p, -1);
			state_set(c, CALL_PARTIAL); /* is in p->wait now */
		}
		if (fresh)
			continue;
		if (!(c->flags & RPC_F_RETRY)) {
			call_unlink(p, c);
			call_list_add(lost, c);
			continue;
		}
		c->priv_state = CALL_WAITING;
		c->resent = true;
		count(&p->net->n.resent, 1);
	}
	p->send_off = 0;
	p->cipher.off = p->cipher.len = 0;
}
