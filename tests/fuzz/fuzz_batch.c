/* Batches of the metadata log: whatever bytes are in an entry, they are
 * refused or executed, and an executed one leaves a state that holds together.
 *
 * Input: a batch, padded here to what libraft asks for.
 */
#include "metad/raft.h"
#include "metad/sm_priv.h"

#include "tests/lib/fuzz.h"
#include "tests/lib/sm_client.h"

#define BATCH_MAX 4096u

static struct sm *machine(void)
{
	struct sm_client c;

	sm_client_init(&c);
	sm_set_batch(c.sm, 7);
	sm_client_leave(&c);
	return c.sm;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sm *sm = machine();
	uint64_t pos = sm_pos(sm);
	int err = metaraft_batch_apply(sm, data, size);

	fuzz_expect(err == 0 || err == -EBADMSG || err == -EPROTONOSUPPORT);
	fuzz_expect(sm_batch(sm) == 7 || (sm_batch(sm) == 8 && err == 0));
	/* A batch of before is skipped. */
	if (err == 0 && sm_batch(sm) == 7)
		fuzz_expect(sm_pos(sm) == pos);
	fuzz_expect(sm_verify(sm));
	sm_free(sm);
	return 0;
}

uint32_t fuzz_runs(void)
{
	return 3000;
}

/* A good batch: number 8, some creates of session 1. */
size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	uint32_t count = 1 + (uint32_t)(fuzz_u64(rng) % 4), i;
	uint8_t body[256];
	struct wire_out o, b;

	wire_out_init(&o, buf, cap < BATCH_MAX ? cap : BATCH_MAX);
	wire_put_u64(&o, fuzz_u64(rng) % 8 ? 8 : 7);
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
