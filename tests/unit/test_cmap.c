/* The cluster map: construction, and a decoder that believes nothing. */
#include "common/cmap.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/lib/fail_malloc.h"
#include "tests/lib/golden.h"

/* "format_1" and "format_2": bytes of maps on disks of metad, which stay
 * readable. HAILFS_GOLDEN=write makes the file (for a new format only). */
#define GOLDEN_PATH "tests/golden/cmap.hex"
#define GOLDEN_MAX (64u << 10)

/* Three daemons, two replicas, two sessions. */
static struct cmap *sample(void)
{
	struct cmap *m = cmap_new();

	assert_non_null(m);
	m->epoch = 7;
	m->cluster_id = 0x1122334455667788;
	m->replica_count = 2;
	for (uint32_t i = 0; i < 3; i++) {
		struct cmap_daemon d = { .id = 10 + i,
					 .port = (uint16_t)(7101 + i),
					 .store_id_hi = i,
					 .store_id_lo = 99,
					 .state = (uint8_t)i };

		snprintf(d.addr, sizeof(d.addr), "10.0.0.%u", i + 1);
		assert_int_equal(cmap_add_daemon(m, &d), (int)i);
	}
	cmap_fill_slots(m);
	m->sessions = malloc(2 * sizeof(*m->sessions));
	assert_non_null(m->sessions);
	m->sessions[0] = 5;
	m->sessions[1] = 1000;
	m->session_count = 2;
	return m;
}

static void set_log(struct cmap *m, uint32_t id, const char *domain)
{
	struct cmap_log l = { .id = id, .port = (uint16_t)(7200 + id),
			      .rdma_port = id == 3 ? 18515 : 0,
			      .boot_id = 1000 + id };

	snprintf(l.addr, sizeof(l.addr), "10.0.1.%u", id);
	snprintf(l.domain, sizeof(l.domain), "%s", domain);
	if (l.rdma_port)
		snprintf(l.rdma_addr, sizeof(l.rdma_addr), "10.9.1.%u", id);
	assert_int_equal(cmap_set_log(m, &l), 0);
}

/* The sample with three log daemons. */
static struct cmap *sample_logs(void)
{
	struct cmap *m = sample();

	set_log(m, 3, "rack-b");
	set_log(m, 1, "rack-a");
	set_log(m, 2, "");
	return m;
}

static uint8_t *encode(const struct cmap *m, size_t *ret_len)
{
	size_t size = cmap_encoded_size(m);
	uint8_t *buf = malloc(size);
	struct wire_out o;

	assert_non_null(buf);
	wire_out_init(&o, buf, size);
	cmap_encode(&o, m);
	assert_false(o.overflow);
	assert_int_equal(o.len, size);
	*ret_len = size;
	return buf;
}

static void assert_same(const struct cmap *a, const struct cmap *b)
{
	assert_true(a->epoch == b->epoch);
	assert_true(a->cluster_id == b->cluster_id);
	assert_int_equal(a->replica_count, b->replica_count);
	assert_int_equal(a->daemon_count, b->daemon_count);
	for (uint32_t i = 0; i < a->daemon_count; i++) {
		const struct cmap_daemon *x = &a->daemons[i];
		const struct cmap_daemon *y = &b->daemons[i];

		assert_int_equal(x->id, y->id);
		assert_string_equal(x->addr, y->addr);
		assert_int_equal(x->port, y->port);
		assert_true(x->store_id_hi == y->store_id_hi);
		assert_true(x->store_id_lo == y->store_id_lo);
		assert_int_equal(x->state, y->state);
	}
	assert_memory_equal(a->slots, b->slots, sizeof(a->slots));
	assert_int_equal(a->session_count, b->session_count);
	for (uint32_t i = 0; i < a->session_count; i++)
		assert_true(a->sessions[i] == b->sessions[i]);
	assert_int_equal(a->log_count, b->log_count);
	for (uint32_t i = 0; i < a->log_count; i++) {
		const struct cmap_log *x = &a->logs[i], *y = &b->logs[i];

		assert_int_equal(x->id, y->id);
		assert_string_equal(x->addr, y->addr);
		assert_int_equal(x->port, y->port);
		assert_string_equal(x->rdma_addr, y->rdma_addr);
		assert_int_equal(x->rdma_port, y->rdma_port);
		assert_string_equal(x->domain, y->domain);
		assert_true(x->boot_id == y->boot_id);
	}
}

/* Expects the decoder to refuse @m, which it encodes. */
static void assert_refused(const struct cmap *m)
{
	struct cmap *back = NULL;
	size_t len;
	uint8_t *buf = encode(m, &len);

	assert_int_equal(cmap_decode(buf, len, &back), -EBADMSG);
	assert_null(back);
	free(buf);
}

/* The sample and its bytes. */
struct fixture {
	struct cmap *m;
	uint8_t *buf;
	size_t len;
};

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof(*x));

	assert_non_null(x);
	x->m = sample();
	x->buf = encode(x->m, &x->len);
	*state = x;
	return 0;
}

static int setup_logs(void **state)
{
	struct fixture *x = calloc(1, sizeof(*x));

	assert_non_null(x);
	x->m = sample_logs();
	x->buf = encode(x->m, &x->len);
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;

	cmap_free(x->m);
	free(x->buf);
	free(x);
	return 0;
}

/* ---- construction ---- */

static void a_new_map_is_empty(void **state)
{
	struct cmap *m = cmap_new();

	(void)state;
	assert_int_equal(m->epoch, 0);
	assert_int_equal(m->daemon_count, 0);
	assert_int_equal(m->replica_count, 1);
	for (uint32_t s = 0; s < SLOT_COUNT; s++)
		for (uint32_t r = 0; r < REPLICA_COUNT_MAX; r++)
			assert_int_equal(m->slots[s][r], CMAP_SLOT_NONE);
	cmap_free(m);
}

static void freeing_nothing_is_allowed(void **state)
{
	(void)state;
	cmap_free(NULL);
}

static void a_copy_is_equal_and_independent(void **state)
{
	struct cmap *m = sample_logs(), *copy = cmap_dup(m);

	(void)state;
	assert_non_null(copy);
	assert_same(m, copy);
	assert_ptr_not_equal(m->daemons, copy->daemons);
	assert_ptr_not_equal(m->sessions, copy->sessions);
	assert_ptr_not_equal(m->logs, copy->logs);
	cmap_free(m);
	assert_int_equal(copy->daemons[2].id, 12);
	cmap_free(copy);
}

static void a_daemon_is_found_by_its_id(void **state)
{
	const struct fixture *x = *state;

	assert_int_equal(cmap_find_daemon(x->m, 11), 1);
	assert_int_equal(cmap_find_daemon(x->m, 13), -ENOENT);
	assert_int_equal(cmap_find_daemon(x->m, 0), -ENOENT);
}

static void a_daemon_can_be_added_once(void **state)
{
	const struct fixture *x = *state;
	struct cmap_daemon d = { .id = 11 };

	assert_int_equal(cmap_add_daemon(x->m, &d), -EEXIST);
	assert_int_equal(x->m->daemon_count, 3);
}

static void a_daemon_without_number_is_refused(void **state)
{
	const struct fixture *x = *state;
	struct cmap_daemon d = { .id = 0 };

	assert_int_equal(cmap_add_daemon(x->m, &d), -EINVAL);
}

static void daemons_are_bounded(void **state)
{
	struct cmap *m = cmap_new();
	struct cmap_daemon d = { .id = 0 };

	(void)state;
	for (d.id = 1; d.id <= DAEMON_COUNT_MAX; d.id++)
		assert_int_equal(cmap_add_daemon(m, &d), (int)d.id - 1);
	assert_int_equal(cmap_add_daemon(m, &d), -ENOSPC);
	cmap_free(m);
}

static void consecutive_slots_cycle_through_all_daemons(void **state)
{
	const struct fixture *x = *state;

	for (uint32_t s = 0; s < SLOT_COUNT; s++) {
		assert_int_equal(x->m->slots[s][0], s % 3);
		assert_int_equal(x->m->slots[s][1], (s + 1) % 3);
		assert_int_equal(x->m->slots[s][2], CMAP_SLOT_NONE);
	}
}

static void a_slot_has_no_daemon_twice_when_daemons_are_few(void **state)
{
	struct cmap *m = cmap_new();
	struct cmap_daemon d = { .id = 1 };

	(void)state;
	m->replica_count = 3;
	cmap_fill_slots(m);
	assert_int_equal(m->slots[0][0], CMAP_SLOT_NONE);
	cmap_add_daemon(m, &d);
	cmap_fill_slots(m);
	assert_int_equal(m->slots[9][0], 0);
	assert_int_equal(m->slots[9][1], CMAP_SLOT_NONE);
	cmap_free(m);
}

static void sessions_are_found_among_many(void **state)
{
	uint64_t sessions[SESSION_COUNT_MAX];
	struct cmap m = { .sessions = sessions };

	(void)state;
	for (uint32_t count = 0; count < 20; count++) {
		m.session_count = count;
		for (uint32_t i = 0; i < count; i++)
			sessions[i] = 10 + 2 * (uint64_t)i;
		for (uint64_t s = 0; s < 60; s++) {
			bool live = s >= 10 && s < 10 + 2 * count && s % 2 == 0;

			assert_int_equal(cmap_session_live(&m, s), live);
		}
	}
}

static void log_daemons_are_kept_by_id(void **state)
{
	const struct fixture *x = *state;

	assert_int_equal(x->m->log_count, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(x->m->logs[i].id, i + 1);
	assert_string_equal(cmap_find_log(x->m, 3)->domain, "rack-b");
	assert_null(cmap_find_log(x->m, 0));
	assert_null(cmap_find_log(x->m, 4));
}

static void a_log_daemon_is_replaced_by_one_of_its_id(void **state)
{
	const struct fixture *x = *state;
	struct cmap_log l = { .id = 2, .port = 9, .boot_id = 77 };

	assert_int_equal(cmap_set_log(x->m, &l), 0);
	assert_int_equal(x->m->log_count, 3);
	assert_int_equal(cmap_find_log(x->m, 2)->boot_id, 77);
	assert_int_equal(cmap_find_log(x->m, 1)->boot_id, 1001);
	assert_int_equal(cmap_find_log(x->m, 3)->boot_id, 1003);
}

static void log_daemons_are_bounded(void **state)
{
	struct cmap *m = cmap_new();
	struct cmap_log l = { .id = 0 };

	(void)state;
	assert_int_equal(cmap_set_log(m, &l), -EINVAL);
	for (l.id = LOG_DAEMON_COUNT_MAX; l.id > 0; l.id--)
		assert_int_equal(cmap_set_log(m, &l), 0);
	l.id = LOG_DAEMON_COUNT_MAX + 1;
	assert_int_equal(cmap_set_log(m, &l), -ENOSPC);
	l.id = 1;
	assert_int_equal(cmap_set_log(m, &l), 0);
	cmap_free(m);
}

/* ---- encoding ---- */

static void a_map_comes_back_as_it_was(void **state)
{
	const struct fixture *x = *state;
	struct cmap *back = NULL;

	assert_int_equal(cmap_decode(x->buf, x->len, &back), 0);
	assert_same(x->m, back);
	cmap_free(back);
}

static void an_empty_map_comes_back(void **state)
{
	struct cmap *m = cmap_new(), *back = NULL;
	size_t len;
	uint8_t *buf = encode(m, &len);

	(void)state;
	assert_int_equal(cmap_decode(buf, len, &back), 0);
	assert_same(m, back);
	cmap_free(back);
	cmap_free(m);
	free(buf);
}

static void the_largest_map_fits_a_frame(void **state)
{
	struct cmap *m = cmap_new(), *back = NULL;
	struct cmap_daemon d = { .id = 0 };
	struct cmap_log l = { .id = 0 };
	size_t len;
	uint8_t *buf;

	(void)state;
	m->replica_count = REPLICA_COUNT_MAX;
	memset(d.addr, 'a', CMAP_ADDR_LEN_MAX);
	for (d.id = 1; d.id <= DAEMON_COUNT_MAX; d.id++)
		cmap_add_daemon(m, &d);
	cmap_fill_slots(m);
	m->sessions = malloc(SESSION_COUNT_MAX * sizeof(*m->sessions));
	for (uint32_t i = 0; i < SESSION_COUNT_MAX; i++)
		m->sessions[i] = i + 1;
	m->session_count = SESSION_COUNT_MAX;
	memset(l.addr, 'a', CMAP_ADDR_LEN_MAX);
	memset(l.rdma_addr, 'a', CMAP_ADDR_LEN_MAX);
	memset(l.domain, 'a', CMAP_ADDR_LEN_MAX);
	for (l.id = 1; l.id <= LOG_DAEMON_COUNT_MAX; l.id++)
		cmap_set_log(m, &l);
	buf = encode(m, &len);
	assert_true(len + 64 < FRAME_BODY_MAX);
	assert_int_equal(cmap_decode(buf, len, &back), 0);
	assert_same(m, back);
	cmap_free(back);
	cmap_free(m);
	free(buf);
}

static void every_truncation_is_refused(void **state)
{
	const struct fixture *x = *state;
	struct cmap *back = NULL;

	for (size_t cut = 0; cut < x->len; cut++)
		assert_int_equal(cmap_decode(x->buf, cut, &back), -EBADMSG);
	assert_null(back);
}

static void a_trailing_byte_is_refused(void **state)
{
	struct cmap *m = sample(), *back = NULL;
	size_t len;
	uint8_t *buf = encode(m, &len);

	(void)state;
	buf = realloc(buf, len + 1);
	buf[len] = 0;
	assert_int_equal(cmap_decode(buf, len + 1, &back), -EBADMSG);
	cmap_free(m);
	free(buf);
}

static void what_is_accepted_has_one_encoding(void **state)
{
	const struct fixture *x = *state;
	size_t again_len;

	/* Every bit before the slots, then of some slots, then of the rest. */
	for (size_t bit = 0; bit < 8 * x->len; bit++) {
		struct cmap *back = NULL;
		uint8_t *again;

		if (bit > 8 * 200 && bit < 8 * (x->len - 200))
			bit += 8 * 37 + 1;
		x->buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (cmap_decode(x->buf, x->len, &back) == 0) {
			again = encode(back, &again_len);
			assert_int_equal(again_len, x->len);
			assert_memory_equal(again, x->buf, x->len);
			free(again);
			cmap_free(back);
		}
		x->buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void another_format_is_refused(void **state)
{
	const struct fixture *x = *state;
	struct cmap *back = NULL;

	for (uint32_t format = 0; format < 256; format++) {
		if (format == 1)
			continue;
		x->buf[0] = (uint8_t)format;
		assert_int_equal(cmap_decode(x->buf, x->len, &back),
				 -EBADMSG);
	}
}

static void a_map_without_log_daemons_has_the_first_format(void **state)
{
	const struct fixture *x = *state;
	struct cmap *m = sample_logs(), *back = NULL;
	uint8_t *longer = malloc(x->len + 4), *other;
	size_t other_len;

	assert_int_equal(x->buf[0], 1);
	other = encode(m, &other_len);
	assert_int_equal(other[0], 2);
	/* all but the log daemons is written alike */
	assert_memory_equal(other + 1, x->buf + 1, x->len - 1);
	/* and there is no other way to write it */
	memcpy(longer, x->buf, x->len);
	memset(longer + x->len, 0, 4);
	longer[0] = 2;
	assert_int_equal(cmap_decode(longer, x->len + 4, &back), -EBADMSG);
	free(longer);
	free(other);
	cmap_free(m);
}

static void log_daemons_must_ascend_from_one(void **state)
{
	const struct fixture *x = *state;

	x->m->logs[2].id = 2;
	assert_refused(x->m);
	x->m->logs[2].id = 1;
	assert_refused(x->m);
	x->m->logs[2].id = 3;
	x->m->logs[0].id = 0;
	assert_refused(x->m);
}

/* @needle's place in the bytes, from the end. */
static uint8_t *find_last(const struct fixture *x, const char *needle)
{
	size_t len = strlen(needle), at = x->len - len;

	while (memcmp(x->buf + at, needle, len) != 0)
		at--;
	return x->buf + at;
}

static void a_log_daemons_text_with_a_nul_is_refused(void **state)
{
	static const char *const texts[] = { "10.0.1.3", "10.9.1.3",
					     "rack-b" };
	const struct fixture *x = *state;
	struct cmap *back = NULL;

	for (size_t i = 0; i < array_count(texts); i++) {
		uint8_t *at = find_last(x, texts[i]);

		*at = 0;
		assert_int_equal(cmap_decode(x->buf, x->len, &back),
				 -EBADMSG);
		*at = (uint8_t)texts[i][0];
	}
	assert_int_equal(cmap_decode(x->buf, x->len, &back), 0);
	cmap_free(back);
}

static void too_many_log_daemons_are_refused(void **state)
{
	const struct fixture *x = *state;
	struct cmap *back = NULL;
	/* after the map without them */
	uint8_t *count = x->buf + x->len - 4;

	while (!(count[0] == 3 && count[1] == 0 && count[2] == 0 &&
		 count[3] == 0 && count[4] == 1 && count[5] == 0))
		count--;
	count[1] = 1; /* 259 */
	assert_int_equal(cmap_decode(x->buf, x->len, &back), -EBADMSG);
	count[1] = 0;
	count[0] = 4;
	assert_int_equal(cmap_decode(x->buf, x->len, &back), -EBADMSG);
	count[0] = 2;
	assert_int_equal(cmap_decode(x->buf, x->len, &back), -EBADMSG);
}

/* ---- golden bytes ---- */

/* With one replica, which is shorter. */
static struct cmap *golden_map(bool logs)
{
	struct cmap *m = logs ? sample_logs() : sample();

	m->replica_count = 1;
	cmap_fill_slots(m);
	return m;
}

static int write_golden(void)
{
	FILE *f = fopen(GOLDEN_PATH, "we");
	struct cmap *maps[] = { golden_map(false), golden_map(true) };

	if (f == NULL)
		return 1;
	for (size_t i = 0; i < array_count(maps); i++) {
		size_t len;
		uint8_t *buf = encode(maps[i], &len);

		golden_put(f, i == 0 ? "format_1" : "format_2", buf, len);
		free(buf);
		cmap_free(maps[i]);
	}
	return fclose(f);
}

static void maps_of_all_formats_are_read_and_written_alike(void **state)
{
	static uint8_t old[GOLDEN_MAX];
	struct cmap *maps[] = { golden_map(false), golden_map(true) }, *back;

	(void)state;
	for (size_t i = 0; i < array_count(maps); i++) {
		size_t len, old_len = golden_read(GOLDEN_PATH, i == 0 ?
						  "format_1" : "format_2",
						  old, sizeof(old));
		uint8_t *buf = encode(maps[i], &len);

		assert_int_equal(cmap_decode(old, old_len, &back), 0);
		assert_same(back, maps[i]);
		assert_int_equal(len, old_len);
		assert_memory_equal(buf, old, len);
		free(buf);
		cmap_free(back);
		cmap_free(maps[i]);
	}
}

static void replica_counts_are_bounded(void **state)
{
	const struct fixture *x = *state;

	x->m->replica_count = 0;
	assert_refused(x->m);
}

static void too_many_replicas_are_refused(void **state)
{
	const struct fixture *x = *state;
	struct cmap *back = NULL;

	for (uint32_t count = REPLICA_COUNT_MAX + 1; count < 256; count++) {
		x->buf[20] = (uint8_t)count;
		assert_int_equal(cmap_decode(x->buf, x->len, &back), -EBADMSG);
	}
}

static void a_slot_beyond_the_daemons_is_refused(void **state)
{
	const struct fixture *x = *state;

	x->m->slots[SLOT_COUNT - 1][1] = 3;
	assert_refused(x->m);
	x->m->slots[SLOT_COUNT - 1][1] = CMAP_SLOT_NONE - 1;
	assert_refused(x->m);
}

static void a_slot_with_one_daemon_twice_is_refused(void **state)
{
	const struct fixture *x = *state;

	x->m->slots[100][1] = x->m->slots[100][0];
	assert_refused(x->m);
}

static void a_slot_with_a_replica_but_no_primary_is_refused(void **state)
{
	const struct fixture *x = *state;

	x->m->slots[100][0] = CMAP_SLOT_NONE;
	assert_refused(x->m);
}

static void an_unknown_state_is_refused(void **state)
{
	const struct fixture *x = *state;

	x->m->daemons[0].state = CMAP_STATE_LOST + 1;
	assert_refused(x->m);
}

static void a_daemon_given_twice_is_refused(void **state)
{
	const struct fixture *x = *state;

	x->m->daemons[2].id = x->m->daemons[0].id;
	assert_refused(x->m);
	x->m->daemons[2].id = 0;
	assert_refused(x->m);
}

static void sessions_must_ascend_from_one(void **state)
{
	const struct fixture *x = *state;

	x->m->sessions[1] = x->m->sessions[0];
	assert_refused(x->m);
	x->m->sessions[1] = x->m->sessions[0] - 1;
	assert_refused(x->m);
	x->m->sessions[0] = 0;
	x->m->sessions[1] = 1;
	assert_refused(x->m);
}

static void an_address_with_a_nul_is_refused(void **state)
{
	const struct fixture *x = *state;
	struct cmap *back = NULL;

	/* format, epoch, cluster, replicas, daemons, id, length */
	assert_int_equal(x->buf[34], '1');
	x->buf[35] = 0;
	assert_int_equal(cmap_decode(x->buf, x->len, &back), -EBADMSG);
}

/* ---- memory ---- */

static void every_failed_allocation_is_reported(void **state)
{
	struct cmap *m;
	uint8_t *buf;
	unsigned nth;
	size_t len;

	(void)state;
	m = sample_logs();
	buf = encode(m, &len);
	for (nth = 1;; nth++) {
		struct cmap *back = NULL;
		int err;

		fail_malloc_at(nth);
		err = cmap_decode(buf, len, &back);
		if (!fail_malloc_hit()) {
			assert_int_equal(err, 0);
			cmap_free(back);
			break;
		}
		assert_int_equal(err, -ENOMEM);
		assert_null(back);
	}
	assert_int_equal(nth, 7); /* map, 3 daemons, sessions, logs */
	for (nth = 1; nth <= 4; nth++) {
		fail_malloc_at(nth);
		assert_null(cmap_dup(m));
		assert_true(fail_malloc_hit());
	}
	fail_malloc_at(1);
	assert_int_equal(cmap_set_log(m, &(struct cmap_log){ .id = 9 }),
			 -ENOMEM);
	assert_true(fail_malloc_hit());
	assert_int_equal(m->log_count, 3);
	cmap_free(m);
	free(buf);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define TL(f) cmocka_unit_test_setup_teardown(f, setup_logs, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_map_is_empty),
		cmocka_unit_test(freeing_nothing_is_allowed),
		cmocka_unit_test(a_copy_is_equal_and_independent),
		T(a_daemon_is_found_by_its_id),
		T(a_daemon_can_be_added_once),
		T(a_daemon_without_number_is_refused),
		cmocka_unit_test(daemons_are_bounded),
		T(consecutive_slots_cycle_through_all_daemons),
		cmocka_unit_test(
			a_slot_has_no_daemon_twice_when_daemons_are_few),
		cmocka_unit_test(sessions_are_found_among_many),
		TL(log_daemons_are_kept_by_id),
		TL(a_log_daemon_is_replaced_by_one_of_its_id),
		cmocka_unit_test(log_daemons_are_bounded),
		T(a_map_comes_back_as_it_was),
		TL(a_map_comes_back_as_it_was),
		cmocka_unit_test(an_empty_map_comes_back),
		cmocka_unit_test(the_largest_map_fits_a_frame),
		T(every_truncation_is_refused),
		TL(every_truncation_is_refused),
		cmocka_unit_test(a_trailing_byte_is_refused),
		T(what_is_accepted_has_one_encoding),
		TL(what_is_accepted_has_one_encoding),
		T(another_format_is_refused),
		T(a_map_without_log_daemons_has_the_first_format),
		TL(log_daemons_must_ascend_from_one),
		TL(a_log_daemons_text_with_a_nul_is_refused),
		TL(too_many_log_daemons_are_refused),
		cmocka_unit_test(
			maps_of_all_formats_are_read_and_written_alike),
		T(replica_counts_are_bounded),
		T(too_many_replicas_are_refused),
		T(a_slot_beyond_the_daemons_is_refused),
		T(a_slot_with_one_daemon_twice_is_refused),
		T(a_slot_with_a_replica_but_no_primary_is_refused),
		T(an_unknown_state_is_refused),
		T(a_daemon_given_twice_is_refused),
		T(sessions_must_ascend_from_one),
		T(an_address_with_a_nul_is_refused),
		cmocka_unit_test(every_failed_allocation_is_reported),
	};

	if (getenv("HAILFS_GOLDEN") != NULL)
		return write_golden();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
