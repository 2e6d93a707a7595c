/* The cluster map's decoder: what it accepts has just one encoding, and every
 * index in it can be used.
 */
#include "common/cmap.h"
#include "common/place.h"

#include "tests/lib/fuzz.h"

static void check_map(const struct cmap *m, const uint8_t *data, size_t size)
{
	uint8_t *again = malloc(size);
	struct wire_out o;

	if (!again)
		return;
	fuzz_expect(cmap_encoded_size(m) == size);
	wire_out_init(&o, again, size);
	cmap_encode(&o, m);
	fuzz_expect(!o.overflow && o.len == size);
	fuzz_expect(memcmp(again, data, size) == 0);
	free(again);

	for (uint64_t index = 0; index < SLOT_COUNT; index++) {
		int daemon = place_primary(m, 1, index);

		fuzz_expect(daemon == -ENODEV ||
			    (daemon >= 0 &&
			     (uint32_t)daemon < m->daemon_count));
	}
	for (uint32_t i = 0; i < m->session_count; i++)
		fuzz_expect(cmap_session_live(m, m->sessions[i]));
	for (uint32_t i = 0; i < m->log_count; i++)
		fuzz_expect(cmap_find_log(m, m->logs[i].id) == &m->logs[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cmap *m = NULL;
	int err = cmap_decode(data, size, &m);

	fuzz_expect(err == 0 || err == -EBADMSG || err == -ENOMEM);
	if (err == 0)
		check_map(m, data, size);
	else
		fuzz_expect(!m);
	cmap_free(m);
	return 0;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	struct cmap *m = cmap_new();
	struct wire_out o;
	uint64_t sessions[8];

	if (!m)
		return 0;
	m->epoch = fuzz_u64(rng);
	m->replica_count = 1 + fuzz_below(rng, REPLICA_COUNT_MAX);
	for (uint32_t i = fuzz_below(rng, 6); i > 0; i--) {
		struct cmap_daemon d = { .id = i, .port = 7000, .addr = "h",
					 .state = CMAP_STATE_UP };

		if (cmap_add_daemon(m, &d) < 0)
			break;
	}
	cmap_fill_slots(m);
	for (uint32_t i = fuzz_below(rng, 5); i > 0; i--) {
		struct cmap_log l = { .id = fuzz_below(rng, 9) + 1,
				      .port = 7200, .addr = "h",
				      .domain = "d", .boot_id = i };

		if (fuzz_below(rng, 2))
			l.rdma_addr[0] = 'r';
		if (cmap_set_log(m, &l) < 0)
			break;
	}
	m->session_count = fuzz_below(rng, array_count(sessions));
	for (uint32_t i = 0; i < m->session_count; i++)
		sessions[i] = 10 * i + 1;
	m->sessions = sessions;
	wire_out_init(&o, buf, cap);
	cmap_encode(&o, m);
	m->sessions = NULL;
	cmap_free(m);
	return o.len;
}
