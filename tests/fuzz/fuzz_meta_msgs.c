/* Messages of metad, and the state machine under sequences of commands: after
 * any, its records fit together, and its snapshot makes an equal machine.
 *
 * Input: a byte that chooses a message to decode, then records of meta_ops.h,
 * which are taken as that message's body, too.
 */
#include "metad/sm_priv.h"

#include "tests/fuzz/meta_ops.h"

static void check_state(struct sm *sm)
{
	size_t len, again_len;
	uint8_t *snap, *again;
	struct sm *copy = sm_new();

	fuzz_expect(copy);
	fuzz_expect(sm_verify(sm));
	snap = sm_client_snapshot(sm, &len);
	fuzz_expect(sm_restore(copy, snap, len) == 0);
	again = sm_client_snapshot(copy, &again_len);
	fuzz_expect(again_len == len && memcmp(again, snap, len) == 0);
	free(again);
	free(snap);
	sm_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sm_client c;

	if (size == 0)
		return 0;
	messages[data[0] % array_count(messages)].check(data + 1, size - 1);
	sm_client_init(&c);
	meta_ops_run(&c, data + 1, size - 1);
	check_state(c.sm);
	sm_client_fini(&c);
	return 0;
}

uint32_t fuzz_runs(void)
{
	return 3000;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	struct wire_out o;

	wire_out_init(&o, buf, cap);
	wire_put_u8(&o, (uint8_t)fuzz_u64(rng));
	if (fuzz_below(rng, 8) == 0)
		messages[buf[0] % array_count(messages)].encode(rng, &o);
	else
		meta_ops_seed(rng, &o);
	return o.len;
}
