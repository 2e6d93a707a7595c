/* Snapshots of the metadata state machine: a damaged one is refused and
 * leaves the state as it was; one whose checksums are right but whose records
 * do not fit together is refused, too, or makes a machine that works.
 *
 * Input: a byte (odd: the checksums are made right first), then a snapshot.
 */
#include "metad/sm_priv.h"

#include "common/crc32c.h"
#include "tests/fuzz/meta_ops.h"

static uint32_t get32(const uint8_t *p)
{
	struct wire_in in;

	wire_in_init(&in, p, 4);
	return wire_get_u32(&in);
}

static void put32(uint8_t *p, uint32_t v)
{
	struct wire_out o;

	wire_out_init(&o, p, 4);
	wire_put_u32(&o, v);
}

/* Makes every checksum of a snapshot right. */
static void resum(uint8_t *p, size_t len)
{
	uint32_t crc;

	if (len < SM_SNAP_HEADER_SIZE)
		return;
	crc = crc32c(0, p, SM_SNAP_HEADER_SIZE - 4);
	put32(p + SM_SNAP_HEADER_SIZE - 4, crc);
	p += SM_SNAP_HEADER_SIZE;
	len -= SM_SNAP_HEADER_SIZE;
	while (len > SM_SNAP_CHUNK_HEADER) {
		size_t chunk = get32(p);

		p += SM_SNAP_CHUNK_HEADER;
		len -= SM_SNAP_CHUNK_HEADER;
		if (chunk > len)
			return;
		crc = crc32c(crc, p, chunk);
		put32(p - 4, crc);
		p += chunk;
		len -= chunk;
	}
}

/* A machine out of a snapshot nobody wrote must still answer. */
static void use(struct sm *sm)
{
	struct sm_client c;
	struct fuzz_rng rng = { 1 };
	uint8_t buf[16 << 10];
	struct wire_out o;

	memset(&c, 0, sizeof(c));
	c.sm = sm;
	c.session = 1;
	wire_out_init(&o, buf, sizeof(buf));
	meta_ops_seed(&rng, &o);
	meta_ops_run(&c, buf, o.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sm *sm = sm_new();
	uint8_t *copy = malloc(size + 1);
	int err;

	fuzz_expect(sm && copy);
	memcpy(copy, data, size);
	if (size > 0 && copy[0] % 2)
		resum(copy + 1, size - 1);
	err = size > 0 ? sm_restore(sm, copy + 1, size - 1) : -EBADMSG;
	fuzz_expect(err == 0 || err == -EBADMSG || err == -EPROTONOSUPPORT);
	if (err == 0) {
		fuzz_expect(sm_verify(sm));
		use(sm);
	} else {
		fuzz_expect(sm_pos(sm) == 0 && sm_map(sm)->epoch == 0);
	}
	sm_free(sm);
	free(copy);
	return 0;
}

uint32_t fuzz_runs(void)
{
	return 3000;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	struct sm_client c;
	uint8_t ops[32 << 10], *snap;
	struct wire_out o;
	size_t len;

	wire_out_init(&o, ops, sizeof(ops));
	meta_ops_seed(rng, &o);
	sm_client_init(&c);
	meta_ops_run(&c, ops, o.len);
	snap = sm_client_snapshot(c.sm, &len);
	wire_out_init(&o, buf, cap);
	wire_put_u8(&o, (uint8_t)fuzz_u64(rng));
	wire_put_raw(&o, snap, len);
	free(snap);
	sm_client_fini(&c);
	return o.len;
}
