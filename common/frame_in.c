#include "common/frame_in.h"

/* A read takes up to this many bytes of small frames at once. */
#define STAGE_SIZE 65536u

_Static_assert(STAGE_SIZE >= 2 * WIRE_HEADER_SIZE, "a header fits");
_Static_assert(FRAME_DATA_ALONE_MIN % FRAME_DATA_ALIGN == 0, "whole pages");

static size_t data_room(size_t len)
{
	return (size_t)u64_round_up(len, FRAME_DATA_ALIGN);
}

static void *data_get(const struct frame_bufs *bufs, size_t len)
{
	if (bufs)
		return bufs->get(bufs, data_room(len));
	return aligned_alloc(FRAME_DATA_ALIGN, data_room(len));
}

void frame_data_put(const struct frame_bufs *bufs, void *p, size_t len)
{
	if (!p)
		return;
	if (bufs)
		bufs->put(bufs, p, data_room(len));
	else
		free(p);
}

void frame_free(struct frame *f)
{
	if (!f)
		return;
	if (f->priv_alone)
		frame_data_put(f->priv_bufs, f->data, f->h.data_len);
	free(f);
}

void *frame_data_take(struct frame *f)
{
	void *p = f->data;

	assert(frame_data_alone(f));
	f->data = NULL;
	return p;
}

int frame_in_init(struct frame_in *in, size_t extra,
		  const struct frame_bufs *bufs)
{
	memset(in, 0, sizeof(*in));
	in->stage = malloc(STAGE_SIZE);
	if (!in->stage)
		return -ENOMEM;
	in->extra = extra;
	in->bufs = bufs;
	in->stage_want = STAGE_SIZE;
	return 0;
}

void frame_in_fini(struct frame_in *in)
{
	greet_free(in->greet);
	seal_free(in->seal);
	seal_free(in->sealer);
	frame_free(in->cur);
	free(in->stage);
	memset(in, 0, sizeof(*in));
}

void frame_in_greet(struct frame_in *in, struct greet *g)
{
	assert(!in->greet && in->wr == 0);
	in->greet = g;
}

size_t frame_in_out(struct frame_in *in, const void **ret)
{
	*ret = NULL;
	return in->greet ? greet_out(in->greet, ret) : 0;
}

bool frame_in_greeted(const struct frame_in *in)
{
	return !in->greet || in->greeted;
}

struct seal *frame_in_sealer(struct frame_in *in)
{
	struct seal *s = in->sealer;

	assert(frame_in_greeted(in));
	in->sealer = NULL;
	return s;
}

/* Bytes that a frame begins with. */
static size_t header_size(const struct frame_in *in)
{
	return WIRE_HEADER_SIZE + (in->seal ? SEAL_TAG_SIZE : 0);
}

static int space_add(struct iovec *iov, int count, uint8_t *p, size_t len)
{
	if (len == 0)
		return count;
	iov[count] = (struct iovec){ .iov_base = p, .iov_len = len };
	return count + 1;
}

int frame_in_space(struct frame_in *in, struct iovec *iov)
{
	struct frame *f = in->cur;
	size_t room;
	int n = 0;

	if (in->error)
		return 0;
	if (f) {
		/* Its data buffer is still to be had. */
		if (in->far_len > 0 && !f->data)
			return 0;
		n = space_add(iov, n, f->body + in->near_got,
			      in->near_len - in->near_got);
		if (in->far_len > 0)
			n = space_add(iov, n, f->data + in->far_got,
				      in->far_len - in->far_got);
		n = space_add(iov, n, in->tag + in->tag_got,
			      in->tag_len - in->tag_got);
	}
	/* At most a part of a header is staged here, see frame_in_next(). */
	if (in->rd > 0) {
		memmove(in->stage, in->stage + in->rd, in->wr - in->rd);
		in->wr -= in->rd;
		in->rd = 0;
	}
	room = STAGE_SIZE - in->wr;
	if (room > in->stage_want)
		room = in->stage_want;
	return space_add(iov, n, in->stage + in->wr, room);
}

void frame_in_fed(struct frame_in *in, size_t len)
{
	size_t n;

	if (in->cur) {
		n = (size_t)u64_min(len, in->near_len - in->near_got);
		in->near_got += n;
		len -= n;
		n = (size_t)u64_min(len, in->far_len - in->far_got);
		in->far_got += n;
		len -= n;
		n = (size_t)u64_min(len, in->tag_len - in->tag_got);
		in->tag_got += n;
		len -= n;
	}
	assert(len <= STAGE_SIZE - in->wr);
	in->wr += len;
}

size_t frame_in_feed(struct frame_in *in, const void *p, size_t len)
{
	const uint8_t *from = p;
	struct iovec iov[FRAME_IN_IOV_MAX];
	size_t used = 0, n;
	int count = frame_in_space(in, iov);

	for (int i = 0; i < count && used < len; i++) {
		n = (size_t)u64_min(iov[i].iov_len, len - used);
		memcpy(iov[i].iov_base, from + used, n);
		used += n;
	}
	frame_in_fed(in, used);
	return used;
}

/* Memory for the frame whose header is in->h: struct, extra, body and short
 * data in one piece. */
static struct frame *frame_new(struct frame_in *in)
{
	size_t align = _Alignof(max_align_t);
	size_t head = (size_t)u64_round_up(sizeof(struct frame), align);
	size_t extra = (size_t)u64_round_up(in->extra, align);
	bool alone = in->h.data_len >= FRAME_DATA_ALONE_MIN;
	size_t near_len = in->h.body_len + (alone ? 0 : in->h.data_len);
	uint8_t *p = malloc(head + extra + near_len);
	struct frame *f = (void *)p;

	if (!p)
		return NULL;
	memset(p, 0, head + extra);
	f->h = in->h;
	f->extra = p + head;
	f->body = p + head + extra;
	if (!alone && in->h.data_len > 0)
		f->data = f->body + in->h.body_len;
	f->priv_alone = alone;
	f->priv_bufs = in->bufs;
	in->near_len = near_len;
	in->near_got = 0;
	in->far_len = alone ? in->h.data_len : 0;
	in->far_got = 0;
	in->tag_len = in->seal && near_len + in->far_len > 0 ? SEAL_TAG_SIZE :
							       0;
	in->tag_got = 0;
	return f;
}

/* Moves staged bytes to where they belong in the current frame. */
static void take_staged(struct frame_in *in)
{
	struct frame *f = in->cur;
	size_t n;

	n = (size_t)u64_min(in->wr - in->rd, in->near_len - in->near_got);
	memcpy(f->body + in->near_got, in->stage + in->rd, n);
	in->near_got += n;
	in->rd += n;
	if (in->far_len > 0) {
		n = (size_t)u64_min(in->wr - in->rd, in->far_len - in->far_got);
		memcpy(f->data + in->far_got, in->stage + in->rd, n);
		in->far_got += n;
		in->rd += n;
	}
	n = (size_t)u64_min(in->wr - in->rd, in->tag_len - in->tag_got);
	memcpy(in->tag + in->tag_got, in->stage + in->rd, n);
	in->tag_got += n;
	in->rd += n;
	if (in->rd == in->wr)
		in->rd = in->wr = 0;
}

/* Opens the header at @p, if it is sealed. */
static int header_open(struct frame_in *in, uint8_t *p)
{
	struct iovec iov = { p, WIRE_HEADER_SIZE };

	return in->seal ? seal_get(in->seal, &iov, 1, p + WIRE_HEADER_SIZE) : 0;
}

/* Opens the rest of the frame, which has come, if it is sealed. */
static int rest_open(struct frame_in *in)
{
	struct frame *f = in->cur;
	struct iovec iov[] = { { f->body, in->near_len },
			       { f->data, in->far_len } };

	return in->tag_len > 0 ? seal_get(in->seal, iov, 2, in->tag) : 0;
}

static int begin(struct frame_in *in)
{
	int rv;

	if (in->wr - in->rd < header_size(in))
		return 0;
	rv = header_open(in, in->stage + in->rd);
	if (rv == 0)
		rv = wire_header_decode(in->stage + in->rd, &in->h);
	if (rv < 0) {
		in->error = rv;
		return rv;
	}
	in->cur = frame_new(in);
	if (!in->cur) {
		/* It cannot be opened a second time. */
		if (in->seal)
			in->error = -ENOMEM;
		return -ENOMEM;
	}
	in->rd += header_size(in);
	/* Large frames come in trains: reading just one header and body ahead
	 * of the next one's data keeps that data out of the stage, and saves
	 * its copy. */
	if (in->far_len > 0)
		in->stage_want = (size_t)u64_min(
			header_size(in) + in->h.body_len, STAGE_SIZE);
	else
		in->stage_want = STAGE_SIZE;
	return 1;
}

/* What is staged belongs to the handshake, until that has ended: 1. */
static int greet(struct frame_in *in)
{
	size_t used;
	int rv = greet_feed(in->greet, in->stage + in->rd, in->wr - in->rd,
			    &used);

	in->rd += used;
	if (in->rd == in->wr)
		in->rd = in->wr = 0;
	if (rv == 1) {
		in->greeted = true;
		rv = greet_seals(in->greet, &in->seal, &in->sealer);
		if (rv == 0)
			return 1;
	}
	if (rv < 0)
		in->error = rv;
	return rv;
}

int frame_in_next(struct frame_in *in, struct frame **ret)
{
	struct frame *f;
	int rv;

	if (in->error)
		return in->error;
	if (!frame_in_greeted(in)) {
		rv = greet(in);
		if (rv <= 0)
			return rv;
	} else if (in->greet) {
		/* Its last word was taken: TLS keeps tens of KiB. */
		greet_free(in->greet);
		in->greet = NULL;
	}
	if (!in->cur) {
		rv = begin(in);
		if (rv <= 0)
			return rv;
	}
	f = in->cur;
	if (in->far_len > 0 && !f->data) {
		f->data = data_get(in->bufs, in->far_len);
		if (!f->data)
			return in->bufs ? -EAGAIN : -ENOMEM;
	}
	take_staged(in);
	if (in->near_got < in->near_len || in->far_got < in->far_len ||
	    in->tag_got < in->tag_len)
		return 0;
	rv = rest_open(in);
	if (rv == 0)
		rv = wire_body_check(&f->h, f->body);
	if (rv < 0) {
		in->error = rv;
		return rv;
	}
	in->cur = NULL;
	in->near_len = in->near_got = in->far_len = in->far_got = 0;
	in->tag_len = in->tag_got = 0;
	*ret = f;
	return 1;
}

const struct wire_header *frame_in_header(const struct frame_in *in)
{
	return &in->h;
}

bool frame_in_key_wanted(const struct frame_in *in)
{
	/* A TLS alert (RFC 8446, 5.1 and 6), where a frame would begin. */
	static const uint8_t alert[] = { 21, 3 };

	return !in->greet && !in->greeted && !in->cur &&
	       in->wr - in->rd >= sizeof(alert) &&
	       memcmp(in->stage + in->rd, alert, sizeof(alert)) == 0;
}

bool frame_in_partial(const struct frame_in *in)
{
	return in->cur || in->wr > in->rd;
}
