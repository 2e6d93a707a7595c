/* Batches of the metadata log, and the log of a continuous copy, which has
 * them in frames: whatever bytes are in them, they are refused or executed, and
 * what was executed leaves a state that holds together.
 *
 * Input: a byte (bit 0: a copy's log, else a batch; bit 1: the sums of its
 * frames are made right first), then the bytes.
 */
#include "metad/copy.h"
#include "metad/sm_priv.h"

#include "common/crc32c.h"
#include "tests/lib/fuzz.h"
#include "tests/lib/sm_client.h"

#define BATCH_MAX 4096u
#define FRAME_HEAD 12u /* of a copy's log: magic, length, sum */

static struct sm *machine(void)
{
	struct sm_client c;

	sm_client_init(&c);
	sm_set_batch(c.sm, 7);
	sm_client_leave(&c);
	return c.sm;
}

static void check_batch(struct sm *sm, const uint8_t *data, size_t size)
{
	uint64_t pos = sm_pos(sm);
	int err = metaraft_batch_apply(sm, data, size);

	fuzz_expect(err == 0 || err == -EBADMSG || err == -EPROTONOSUPPORT);
	fuzz_expect(sm_batch(sm) == 7 || (sm_batch(sm) == 8 && err == 0));
	/* A batch of before is skipped. */
	if (err == 0 && sm_batch(sm) == 7)
		fuzz_expect(sm_pos(sm) == pos);
}

/* ---- a copy's log ---- */

/* Makes the sum of each frame right, as far as lengths lead. */
static void resum(uint8_t *p, size_t len)
{
	while (len >= FRAME_HEAD) {
		struct wire_in in;
		struct wire_out o;
		uint32_t batch_len;

		wire_in_init(&in, p + 4, 4);
		batch_len = wire_get_u32(&in);
		if (batch_len > len - FRAME_HEAD)
			return;
		wire_out_init(&o, p + 8, 4);
		wire_put_u32(&o, crc32c(0, p + FRAME_HEAD, batch_len));
		p += FRAME_HEAD + batch_len;
		len -= FRAME_HEAD + batch_len;
	}
}

static void check_log(struct sm *sm, const uint8_t *data, size_t size, bool sum)
{
	char why[300] = "";
	uint8_t *log = malloc(size);
	FILE *f;
	int err;

	fuzz_expect(log);
	memcpy(log, data, size);
	if (sum)
		resum(log, size);
	f = fmemopen(log, size, "r");
	fuzz_expect(f);
	err = copy_read_log(sm, f, "log", why, sizeof(why));
	fuzz_expect(err == 0 || err == -EBADMSG || err == -EPROTONOSUPPORT);
	fuzz_expect((err == 0) == !*why);
	/* Not more than there is room for; none twice, none left out. */
	fuzz_expect(sm_batch(sm) >= 7);
	fuzz_expect(sm_batch(sm) - 7 <=
		    size / (FRAME_HEAD + METARAFT_BATCH_HEAD));
	(void)fclose(f);
	free(log);
}

/* ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sm *sm;

	if (size < 2)
		return 0;
	sm = machine();
	if (data[0] & 1)
		check_log(sm, data + 1, size - 1, (data[0] & 2) != 0);
	else
		check_batch(sm, data + 1, size - 1);
	fuzz_expect(sm_verify(sm));
	sm_free(sm);
	return 0;
}

uint32_t fuzz_runs(void)
{
	return 6000;
}

/* A good batch: number @number, some creates of session 1. */
static size_t batch_seed(struct fuzz_rng *rng, uint64_t number, uint8_t *buf,
			 size_t cap)
{
	uint32_t count = 1 + (uint32_t)(fuzz_u64(rng) % 4), i;
	uint8_t body[256];
	struct wire_out o, b;

	wire_out_init(&o, buf, cap < BATCH_MAX ? cap : BATCH_MAX);
	wire_put_u64(&o, number);
	wire_put_u32(&o, count);
	for (i = 0; i < count; i++) {
		struct meta_mhdr h = { .seq = i + 1, .seq_low = 1 };
		struct meta_create m = { .parent = ROOT_INO,
					 .name = { "abcdefgh" + i, 2 },
					 .mode = 0100644 };

		wire_out_init(&b, body, sizeof(body));
		meta_mhdr_encode(&b, &h);
		meta_create_encode(&b, &m);
		wire_put_u16(&o, WIRE_OP_META_CREATE);
		wire_put_u16(&o, 0);
		wire_put_u32(&o, (uint32_t)b.len);
		wire_put_u64(&o, 1);
		wire_put_raw(&o, body, b.len);
	}
	while (o.len % METARAFT_BATCH_ALIGN)
		wire_put_u8(&o, 0);
	return o.len;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	uint64_t number = fuzz_u64(rng) % 8 ? 8 : 7;
	uint32_t frames = 1 + fuzz_below(rng, 3);
	size_t at = 1;

	buf[0] = (uint8_t)fuzz_below(rng, 4);
	if (!(buf[0] & 1))
		return 1 + batch_seed(rng, number, buf + 1, cap - 1);
	for (uint32_t i = 0; i < frames; i++) {
		uint8_t *p = buf + at;
		size_t len = batch_seed(rng, number + i, p + FRAME_HEAD,
					cap - at - FRAME_HEAD);
		struct wire_out o;

		wire_out_init(&o, p, FRAME_HEAD);
		wire_put_u32(&o, COPY_MAGIC);
		wire_put_u32(&o, (uint32_t)len);
		wire_put_u32(&o, crc32c(0, p + FRAME_HEAD, len));
		at += FRAME_HEAD + len;
	}
	return at;
}
