#include "tests/lib/blk_raw.h"

#include "common/crc32c.h"
#include "common/status.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define RAW_TIMEOUT_MS 20000

static noreturn_fn void die(const char *what)
{
	fprintf(stderr, "blk_raw: %s: %s\n", what, strerror(errno));
	abort();
}

bool raw_connect(struct blk_raw *r, uint16_t port, uint64_t cluster_id)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int one = 1;

	memset(r, 0, sizeof(*r));
	r->cluster_id = cluster_id;
	r->next_id = 1;
	r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (r->fd < 0)
		die("socket");
	if (connect(r->fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		close(r->fd);
		return false;
	}
	(void)setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (frame_in_init(&r->in, 0, NULL) < 0)
		die("memory");
	return true;
}

void raw_close(struct blk_raw *r)
{
	close(r->fd);
	frame_in_fini(&r->in);
}

static void write_all(struct blk_raw *r, const void *p, size_t len)
{
	const char *at = p;
	ssize_t n;

	while (len > 0) {
		n = send(r->fd, at, len, MSG_NOSIGNAL);
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
			return; /* raw_recv() tells */
		if (n < 0)
			die("send");
		at += n;
		len -= (size_t)n;
	}
}

uint64_t raw_send(struct blk_raw *r, uint16_t op, const void *body,
		  size_t body_len, const void *data, size_t data_len)
{
	struct wire_header h = {
		.version = WIRE_VERSION,
		.opcode = op,
		.flags = r->flags,
		.request_id = r->next_id++,
		.cluster_id = r->cluster_id,
		.epoch = r->epoch,
		.session = r->session,
		.body_len = (uint32_t)body_len,
		.data_len = (uint32_t)data_len,
		.body_crc = crc32c(0, body, body_len),
	};
	size_t len = WIRE_HEADER_SIZE + body_len + data_len;
	uint8_t *p = malloc(len);

	if (!p)
		die("memory");
	wire_header_encode(&h, p);
	if (body_len > 0)
		memcpy(p + WIRE_HEADER_SIZE, body, body_len);
	if (data_len > 0)
		memcpy(p + WIRE_HEADER_SIZE + body_len, data, data_len);
	write_all(r, p, len);
	free(p);
	return h.request_id;
}

struct frame *raw_recv(struct blk_raw *r, int timeout_ms)
{
	struct iovec iov[FRAME_IN_IOV_MAX];
	struct pollfd p = { r->fd, POLLIN, 0 };
	struct frame *f;
	ssize_t n;
	int rv;

	while ((rv = frame_in_next(&r->in, &f)) == 0) {
		rv = poll(&p, 1, timeout_ms);
		if (rv < 0)
			die("poll");
		if (rv == 0) {
			errno = ETIMEDOUT;
			return NULL;
		}
		n = readv(r->fd, iov, frame_in_space(&r->in, iov));
		if (n <= 0) {
			errno = ECONNRESET;
			return NULL;
		}
		frame_in_fed(&r->in, (size_t)n);
	}
	if (rv < 0)
		die("bad frame from the daemon");
	return f;
}

bool raw_closed(struct blk_raw *r, int timeout_ms)
{
	struct frame *f;

	while ((f = raw_recv(r, timeout_ms)))
		frame_free(f);
	return errno != ETIMEDOUT;
}

static void take_common(struct blk_raw *r, const struct frame *f)
{
	struct blk_reply m;
	struct wire_in in;

	wire_in_init(&in, f->body, f->h.body_len);
	blk_reply_decode(&in, &m);
	r->boot_id = m.boot_id;
	r->free_units = m.free_units;
	r->units_delta = m.units_delta;
}

int raw_call(struct blk_raw *r, uint16_t op, const void *body, size_t body_len,
	     const void *data, size_t data_len, struct frame **answer)
{
	uint64_t id = raw_send(r, op, body, body_len, data, data_len);
	struct frame *f;
	int rv;

	do {
		f = raw_recv(r, RAW_TIMEOUT_MS);
		if (!f)
			return -errno;
		if (f->h.request_id == id)
			break;
		frame_free(f); /* of a request nobody waited for */
	} while (true);
	take_common(r, f);
	rv = status_from_wire(f->h.status);
	if (answer && rv == 0)
		*answer = f;
	else
		frame_free(f);
	return rv;
}

int raw_later_hello(uint16_t port, uint64_t cluster_id, int timeout_ms)
{
	struct hello m = { .version_min = WIRE_VERSION + 1,
			   .version_max = WIRE_VERSION + 1,
			   .role = WIRE_ROLE_ADMIN,
			   .name = { "later", 5 } };
	struct blk_raw r;
	uint8_t body[128];
	struct wire_out o;
	struct frame *f;
	int rv;

	if (!raw_connect(&r, port, cluster_id))
		return -ECONNREFUSED;
	wire_out_init(&o, body, sizeof(body));
	hello_encode(&o, &m);
	raw_send(&r, WIRE_OP_HELLO, body, o.len, NULL, 0);
	f = raw_recv(&r, timeout_ms);
	rv = f ? status_from_wire(f->h.status) : -errno;
	frame_free(f);
	raw_close(&r);
	return rv;
}

int raw_later_frame(uint16_t port, uint64_t cluster_id, int timeout_ms)
{
	struct wire_header h = { .version = WIRE_VERSION + 1,
				 .opcode = WIRE_OP_HELLO,
				 .request_id = 77,
				 .cluster_id = cluster_id };
	uint8_t bytes[WIRE_HEADER_SIZE];
	struct hello_reply hr;
	struct blk_raw r;
	struct frame *f;
	int rv;

	if (!raw_connect(&r, port, cluster_id))
		return -ECONNREFUSED;
	wire_header_encode(&h, bytes);
	if (send(r.fd, bytes, sizeof(bytes), MSG_NOSIGNAL) !=
	    (ssize_t)sizeof(bytes))
		die("send");
	f = raw_recv(&r, timeout_ms);
	rv = f ? status_from_wire(f->h.status) : -errno;
	/* Whoever speaks the other can tell what this one speaks. */
	if (f && (f->h.request_id != h.request_id ||
		  f->h.opcode != h.opcode ||
		  hello_reply_parse(f->body, f->h.body_len, &hr) < 0 ||
		  hr.version != WIRE_VERSION || hr.minor != WIRE_MINOR ||
		  !raw_closed(&r, timeout_ms)))
		rv = -EPROTO;
	frame_free(f);
	raw_close(&r);
	return rv;
}

int raw_hello(struct blk_raw *r, uint8_t role, uint64_t session,
	      uint64_t incarnation, int timeout_ms)
{
	struct hello m = { .version_min = 1, .version_max = 1, .role = role,
			   .incarnation = incarnation,
			   .name = { "raw", 3 } };
	struct hello_reply hr;
	uint8_t body[128];
	struct wire_out o;
	struct frame *f;
	int rv;

	r->session = session;
	wire_out_init(&o, body, sizeof(body));
	hello_encode(&o, &m);
	raw_send(r, WIRE_OP_HELLO, body, o.len, NULL, 0);
	f = raw_recv(r, timeout_ms);
	if (!f)
		return -errno;
	rv = status_from_wire(f->h.status);
	if (rv == 0) {
		if (hello_reply_parse(f->body, f->h.body_len, &hr) < 0)
			die("hello reply");
		r->boot_id = hr.boot_id;
		r->epoch = f->h.epoch;
	}
	frame_free(f);
	return rv;
}

static size_t encode_write(uint8_t *body, size_t cap, uint64_t ino,
			   uint64_t index, uint32_t off, const void *p,
			   uint32_t len, uint32_t flags)
{
	static uint8_t sums[4 * BLOCK_UNITS_MAX + 4];
	struct blk_write m = { .ino = ino, .index = index, .off = off,
			       .len = len, .block_log2 = 20, .flags = flags,
			       .mtime_ns = 1 };
	struct wire_out o;

	crc32c_sums(off, p, len, sums);
	m.sums = (struct wire_str){ sums, 4 * crc32c_piece_count(off, len) };
	wire_out_init(&o, body, cap);
	blk_write_encode(&o, &m);
	return o.len;
}

uint64_t raw_write_begin(struct blk_raw *r, uint64_t ino, uint64_t index,
			 uint32_t off, const void *p, uint32_t len,
			 uint32_t flags)
{
	static uint8_t body[8192];
	size_t n = encode_write(body, sizeof(body), ino, index, off, p, len,
				flags);

	return raw_send(r, WIRE_OP_BLK_WRITE, body, n, p, len);
}

int raw_write(struct blk_raw *r, uint64_t ino, uint64_t index, uint32_t off,
	      const void *p, uint32_t len, uint32_t flags)
{
	static uint8_t body[8192];
	size_t n = encode_write(body, sizeof(body), ino, index, off, p, len,
				flags);

	return raw_call(r, WIRE_OP_BLK_WRITE, body, n, p, len, NULL);
}

int raw_read(struct blk_raw *r, uint64_t ino, uint64_t index, uint32_t off,
	     void *p, uint32_t len, bool *hole)
{
	struct blk_read m = { .ino = ino, .index = index, .off = off,
			      .len = len, .block_log2 = 20 };
	struct blk_read_reply rr;
	uint8_t body[128];
	struct wire_out o;
	struct frame *f;
	int rv;

	wire_out_init(&o, body, sizeof(body));
	blk_read_encode(&o, &m);
	rv = raw_call(r, WIRE_OP_BLK_READ, body, o.len, NULL, 0, &f);
	if (rv < 0)
		return rv;
	rv = blk_read_reply_parse(f->body, f->h.body_len, &rr);
	if (rv == 0) {
		*hole = rr.hole;
		if (!rr.hole && f->h.data_len != len)
			rv = -EBADMSG;
	}
	if (rv == 0 && !rr.hole)
		rv = crc32c_check(off, f->data, len, rr.sums.p, rr.sums.len);
	if (rv == 0 && !rr.hole)
		memcpy(p, f->data, len);
	frame_free(f);
	return rv;
}

int raw_sync(struct blk_raw *r, uint64_t ino)
{
	struct blk_sync m = { .ino = ino };
	uint8_t body[16];
	struct wire_out o;

	wire_out_init(&o, body, sizeof(body));
	blk_sync_encode(&o, &m);
	return raw_call(r, WIRE_OP_BLK_SYNC, body, o.len, NULL, 0, NULL);
}
