/* What a connection sends: answers in the order in which they are ready, many
 * with one call. */
#include "blockd/conn_priv.h"

#include <liburing.h>

/* Entries of @c->out that are on their way go back when the kernel is done
 * with them, even when the connection has been closed meanwhile. */
static void out_finish(struct conn *c, bool ok)
{
	struct conn_out *o = c->out;

	c->out = o->priv_next;
	if (!c->out)
		c->out_tail = &c->out;
	c->sent_bytes = 0;
	o->sent(o, ok);
}

static size_t out_len(const struct conn *c, const struct conn_out *o)
{
	size_t len = 0;

	for (int i = 0; i < o->iov_count; i++)
		len += o->iov[i].iov_len;
	if (c->seal && !o->priv_raw)
		len += len > WIRE_HEADER_SIZE ? 2 * SEAL_TAG_SIZE :
						SEAL_TAG_SIZE;
	return len;
}

/* The pieces of @o on the wire, some empty. Returns how many. */
#define PARTS_MAX 5
static int out_parts(const struct conn *c, struct conn_out *o,
		     struct iovec *parts)
{
	uint8_t *head = o->iov[0].iov_base;
	size_t head_len = o->iov[0].iov_len;
	bool more = head_len > WIRE_HEADER_SIZE || o->iov_count > 1;

	if (!c->seal || o->priv_raw) {
		memcpy(parts, o->iov, sizeof(o->iov));
		return o->iov_count;
	}
	parts[0] = (struct iovec){ head, WIRE_HEADER_SIZE };
	parts[1] = (struct iovec){ o->priv_tags[0], SEAL_TAG_SIZE };
	parts[2] = (struct iovec){ head + WIRE_HEADER_SIZE,
				   head_len - WIRE_HEADER_SIZE };
	parts[3] = o->iov_count > 1 ? o->iov[1] : (struct iovec){ NULL, 0 };
	parts[4] = (struct iovec){ o->priv_tags[1], more ? SEAL_TAG_SIZE : 0 };
	return PARTS_MAX;
}

static void seal_in_place(struct seal *s, const struct iovec *v)
{
	uint8_t *out = v->iov_base;

	seal_more(s, v->iov_base, v->iov_len,
		  seal_kind(s) == SEAL_CRYPT ? &out : NULL);
}

static void out_seal(struct conn *c, struct conn_out *o)
{
	struct iovec parts[PARTS_MAX];

	if (!c->seal || o->priv_raw)
		return;
	(void)out_parts(c, o, parts);
	seal_begin(c->seal);
	seal_in_place(c->seal, &parts[0]);
	seal_end(c->seal, o->priv_tags[0]);
	if (parts[4].iov_len == 0)
		return;
	seal_begin(c->seal);
	seal_in_place(c->seal, &parts[2]);
	seal_in_place(c->seal, &parts[3]);
	seal_end(c->seal, o->priv_tags[1]);
}

/* Fills c->send_iov from the queue. Returns how many. */
static size_t gather(struct conn *c)
{
	size_t count = 0, skip = c->sent_bytes;
	struct iovec parts[PARTS_MAX];

	for (struct conn_out *o = c->out; o; o = o->priv_next) {
		int part_count = out_parts(c, o, parts);

		if (count + (size_t)part_count > CONN_SEND_IOV_MAX)
			break;
		for (int i = 0; i < part_count; i++) {
			struct iovec v = parts[i];
			size_t n = u64_min(skip, v.iov_len);

			skip -= n;
			if (v.iov_len == n)
				continue;
			v.iov_base = (char *)v.iov_base + n;
			v.iov_len -= n;
			c->send_iov[count++] = v;
		}
	}
	return count;
}

static void send_start(struct conn *c)
{
	struct io_uring_sqe *sqe;

	c->send_msg = (struct msghdr){ .msg_iov = c->send_iov,
				       .msg_iovlen = gather(c) };
	assert(c->send_msg.msg_iovlen > 0);
	c->sending = true;
	c->since_ms = ring_now_ms();
	conn_get(c);
	sqe = ring_sqe(c->set->ring, &c->send_op);
	/* MSG_WAITALL: the kernel goes on by itself after a short count. */
	io_uring_prep_sendmsg(sqe, c->fd, &c->send_msg,
			      MSG_NOSIGNAL | MSG_WAITALL);
}

static void send_done(struct ring_op *op, int res, uint32_t flags)
{
	struct conn *c = container_of(op, struct conn, send_op);
	size_t done, len;

	(void)flags;
	c->sending = false;
	if (res <= 0 && res != -EAGAIN && res != -EINTR)
		conn_close(c);
	done = c->sent_bytes + (res > 0 ? (size_t)res : 0);
	c->sent_bytes = 0;
	c->set->stats.bytes_out += res > 0 ? (uint64_t)res : 0;
	while (c->out && done >= (len = out_len(c, c->out)) && !c->closed) {
		done -= len;
		c->set->stats.frames_out++;
		out_finish(c, true);
	}
	c->sent_bytes = done;
	if (c->closed)
		conn_send_drop(c);
	else if (c->out)
		send_start(c);
	else if (c->close_after_send)
		conn_close(c);
	conn_put(c);
}

static void flush(struct ring_defer *d)
{
	struct conn *c = container_of(d, struct conn, flush);

	if (!c->closed && !c->sending && c->out)
		send_start(c);
	conn_put(c);
}

void conn_send_init(struct conn *c)
{
	c->out_tail = &c->out;
	c->send_op.done = send_done;
	c->flush.fn = flush;
}

void conn_send_drop(struct conn *c)
{
	/* The kernel may still read what was given to it. */
	if (c->sending)
		return;
	while (c->out)
		out_finish(c, false);
}

/* Behind what is queued. */
static void queue(struct conn *c, struct conn_out *o)
{
	o->priv_next = NULL;
	*c->out_tail = o;
	c->out_tail = &o->priv_next;
	if (!c->sending && !c->flush.priv_queued) {
		conn_get(c);
		ring_defer(c->set->ring, &c->flush);
	}
}

bool conn_send(struct conn *c, struct conn_out *o)
{
	if (c->closed || c->close_after_send)
		return false;
	assert(o->iov_count > 0 && o->iov[0].iov_len >= WIRE_HEADER_SIZE);
	o->priv_raw = false;
	out_seal(c, o);
	queue(c, o);
	return true;
}

struct raw {
	struct conn_out out;
	uint8_t bytes[];
};

static void raw_sent(struct conn_out *o, bool ok)
{
	(void)ok;
	free(container_of(o, struct raw, out));
}

int conn_send_raw(struct conn *c, const void *bytes, size_t len)
{
	struct raw *r = malloc(sizeof(*r) + len);

	if (!r)
		return -ENOMEM;
	memcpy(r->bytes, bytes, len);
	r->out = (struct conn_out){
		.iov = { { r->bytes, len } },
		.iov_count = 1,
		.sent = raw_sent,
		.priv_raw = true,
	};
	queue(c, &r->out);
	return 0;
}

void conn_close_after_send(struct conn *c)
{
	if (!c->out)
		conn_close(c);
	else
		c->close_after_send = true;
}
