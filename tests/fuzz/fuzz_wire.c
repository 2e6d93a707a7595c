/* Frames: header decoder and incremental reader.
 *
 * Input: a byte that chooses how the stream is cut into pieces, then the
 * stream. What is read in pieces must be what is read at once.
 */
#include "common/crc32c.h"
#include "common/frame_in.h"
#include "common/wire.h"

#include "tests/lib/fuzz.h"

/* Longer than what the reader gives a buffer of its own. */
#define DATA_MAX (FRAME_DATA_ALONE_MIN + 2000)

static void check_header(const uint8_t *p)
{
	uint8_t again[WIRE_HEADER_SIZE];
	struct wire_header h;

	if (wire_header_decode(p, &h) != 0)
		return;
	fuzz_expect(h.body_len <= FRAME_BODY_MAX);
	fuzz_expect(h.data_len <= FRAME_DATA_MAX);
	wire_header_encode(&h, again);
	fuzz_expect(memcmp(p, again, sizeof(again)) == 0);
}

/* Reads @p in pieces of @step bytes. Returns a sum over all frames and how
 * it ended. */
static uint32_t read_stream(const uint8_t *p, size_t len, size_t step)
{
	struct frame_in in;
	struct frame *f;
	uint32_t sum = 0;
	int rv = 0;

	if (frame_in_init(&in, 0, NULL) != 0)
		return 0;
	while (rv >= 0) {
		size_t piece = len < step ? len : step;

		while ((rv = frame_in_next(&in, &f)) == 1) {
			sum = crc32c(sum, &f->h.request_id, 8);
			sum = crc32c(sum, f->body, f->h.body_len);
			if (f->h.data_len > 0)
				sum = crc32c(sum, f->data, f->h.data_len);
			frame_free(f);
		}
		if (rv < 0 || len == 0)
			break;
		piece = frame_in_feed(&in, p, piece);
		p += piece;
		len -= piece;
	}
	frame_in_fini(&in);
	return sum ^ (uint32_t)rv;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t whole;

	if (size == 0)
		return 0;
	whole = read_stream(data + 1, size - 1, SIZE_MAX);
	fuzz_expect(read_stream(data + 1, size - 1, data[0] + 1u) == whole);
	if (size > WIRE_HEADER_SIZE)
		check_header(data + 1);
	return 0;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	uint32_t frames = 1 + fuzz_below(rng, 4);
	size_t len = 0;

	buf[len++] = (uint8_t)fuzz_u64(rng);
	while (frames-- > 0) {
		struct wire_header h = {
			.version = WIRE_VERSION,
			.opcode = (uint16_t)fuzz_u64(rng),
			.flags = fuzz_below(rng, 2),
			.request_id = fuzz_u64(rng),
			.body_len = fuzz_below(rng, 200),
			.data_len = fuzz_below(rng, 2) *
				    fuzz_below(rng, DATA_MAX),
		};
		uint8_t *body = buf + len + WIRE_HEADER_SIZE;

		if (len + WIRE_HEADER_SIZE + 200 + DATA_MAX > cap)
			break;
		memset(body, (int)frames, h.body_len + h.data_len);
		h.body_crc = crc32c(0, body, h.body_len);
		/* Lengths that are too large, but rightly summed. */
		if (fuzz_below(rng, 40) == 0)
			h.version++;
		else if (fuzz_below(rng, 40) == 0)
			h.flags = (uint32_t)fuzz_odd_u64(rng);
		else if (fuzz_below(rng, 20) == 0)
			h.body_len = (uint32_t)fuzz_odd_u64(rng);
		wire_header_encode(&h, buf + len);
		if (h.body_len > 200)
			return len + WIRE_HEADER_SIZE;
		len += WIRE_HEADER_SIZE + h.body_len + h.data_len;
	}
	return len;
}
