/* Bootstrap, the cluster map's epochs, block daemons, raised counters. */
#include "tests/lib/sm_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT ROOT_INO

static void an_empty_machine_refuses_work(void **state)
{
	struct sm_session_open q = { .client_id = 1 };
	struct sm *sm = sm_new();
	struct sm_reply r;
	uint8_t buf[64];
	struct wire_out o;

	(void)state;
	assert_int_equal(sm_map(sm)->epoch, 0);
	wire_out_init(&o, buf, sizeof(buf));
	sm_session_open_encode(&o, &q);
	sm_apply(sm, WIRE_OP_SM_SESSION_OPEN, 0, buf, o.len, &r);
	assert_int_equal(r.status, -ENODEV);
	assert_int_equal(sm_pos(sm), 0);
	sm_free(sm);
}

static void bootstrap_makes_the_root_once(void **state)
{
	struct sm_client *c = *state;
	struct sm_bootstrap b = { .mode = 0700 };
	struct cmap *m = cmap_new();
	uint8_t *buf = malloc(65536), *body = malloc(65536);
	struct wire_out o;

	assert_int_equal(sm_client_stat(c, ROOT).mode, S_IFDIR | 0755);
	assert_int_equal(c->attr.nlink, 2);
	assert_int_equal(c->attr.parent, ROOT);
	assert_int_equal(sm_map(c->sm)->cluster_id, 77);
	wire_out_init(&o, buf, 65536);
	cmap_encode(&o, m);
	b.map = (struct wire_str){ buf, (uint32_t)o.len };
	wire_out_init(&o, body, 65536);
	sm_bootstrap_encode(&o, &b);
	assert_int_equal(sm_client_internal(c, WIRE_OP_SM_BOOTSTRAP, body,
					    o.len), -EEXIST);
	cmap_free(m);
	free(body);
	free(buf);
}

static int set_daemon(struct sm_client *c, uint32_t id, const char *addr,
		      uint8_t daemon_state, uint64_t commit)
{
	struct sm_daemon_set q = {
		.id = id, .addr = { addr, (uint32_t)strlen(addr) },
		.port = 9, .store_id_hi = 1, .store_id_lo = 2,
		.state = daemon_state, .commit = commit,
	};
	uint8_t buf[256];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_daemon_set_encode(&o, &q);
	return sm_client_internal(c, WIRE_OP_SM_DAEMON_SET, buf, o.len);
}

static void the_epoch_grows_when_a_daemon_changes(void **state)
{
	struct sm_client *c = *state;
	uint64_t epoch = sm_map(c->sm)->epoch, commit;

	assert_int_equal(sm_daemon_commit(c->sm, 1, &commit), -ENOENT);
	assert_int_equal(set_daemon(c, 1, "::1", CMAP_STATE_UP, 5), 0);
	assert_true(c->r.map_changed);
	assert_int_equal(sm_map(c->sm)->epoch, epoch + 1);
	assert_string_equal(sm_map(c->sm)->daemons[0].addr, "::1");
	assert_int_equal(sm_map(c->sm)->daemons[0].state, CMAP_STATE_UP);
	/* only its commit number is new */
	assert_int_equal(set_daemon(c, 1, "::1", CMAP_STATE_UP, 6), 0);
	assert_false(c->r.map_changed);
	assert_int_equal(sm_map(c->sm)->epoch, epoch + 1);
	assert_int_equal(sm_daemon_commit(c->sm, 1, &commit), 0);
	assert_int_equal(commit, 6);
	/* a new one takes no slots by itself */
	assert_int_equal(set_daemon(c, 2, "::2", CMAP_STATE_UP, 1), 0);
	assert_int_equal(sm_map(c->sm)->daemon_count, 2);
	assert_int_equal(sm_map(c->sm)->slots[0][0], 0);
}

static int set_store(struct sm_client *c, uint32_t id, uint64_t store)
{
	struct sm_daemon_set q = {
		.id = id, .addr = { "::1", 3 }, .port = 9,
		.store_id_hi = store ? 7 : 0, .store_id_lo = store,
		.state = store ? CMAP_STATE_UP : CMAP_STATE_NEW,
		.commit = store * 10,
	};
	uint8_t buf[256];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_daemon_set_encode(&o, &q);
	return sm_client_internal(c, WIRE_OP_SM_DAEMON_SET, buf, o.len);
}

static void a_store_that_was_given_up_is_remembered(void **state)
{
	struct sm_client *c = *state;
	uint64_t epoch, commit;

	assert_int_equal(set_store(c, 1, 5), 0);
	assert_false(sm_store_given_up(c->sm, 1, 7, 5));
	epoch = sm_map(c->sm)->epoch;
	assert_int_equal(set_store(c, 1, 0), 0);
	assert_int_equal(sm_map(c->sm)->epoch, epoch + 1);
	assert_int_equal(sm_map(c->sm)->daemons[0].state, CMAP_STATE_NEW);
	assert_true(sm_store_given_up(c->sm, 1, 7, 5));
	assert_false(sm_store_given_up(c->sm, 1, 5, 7));
	assert_false(sm_store_given_up(c->sm, 2, 7, 5));
	assert_int_equal(sm_daemon_commit(c->sm, 1, &commit), 0);
	assert_int_equal(commit, 0);
	/* What comes after does not make it forgotten, nor does saying it
	 * twice keep it twice. */
	assert_int_equal(set_store(c, 1, 0), 0);
	for (uint64_t s = 6; s < 5 + SM_GIVEN_UP_MAX; s++) {
		assert_int_equal(set_store(c, 1, s), 0);
		assert_int_equal(set_store(c, 1, 0), 0);
	}
	assert_true(sm_store_given_up(c->sm, 1, 7, 5));
	assert_int_equal(set_store(c, 1, 99), 0);
	assert_int_equal(set_store(c, 1, 0), 0);
	assert_false(sm_store_given_up(c->sm, 1, 7, 5));
	assert_true(sm_store_given_up(c->sm, 1, 7, 6));
	assert_true(sm_store_given_up(c->sm, 1, 7, 99));
}

static void malformed_daemons_are_refused(void **state)
{
	struct sm_client *c = *state;
	char addr[CMAP_ADDR_LEN_MAX + 2];

	memset(addr, 'a', sizeof(addr));
	addr[CMAP_ADDR_LEN_MAX + 1] = '\0';
	assert_int_equal(set_daemon(c, 0, "::1", CMAP_STATE_UP, 0), -EINVAL);
	assert_int_equal(set_daemon(c, 3, addr, CMAP_STATE_UP, 0), -EINVAL);
	assert_int_equal(set_daemon(c, 3, "::1", 3, 0), -EINVAL);
}

static int set_logd(struct sm_client *c, struct sm_logd_set q)
{
	uint8_t buf[512];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_logd_set_encode(&o, &q);
	return sm_client_internal(c, WIRE_OP_SM_LOGD_SET, buf, o.len);
}

static void the_epoch_grows_when_a_log_daemon_changes(void **state)
{
	struct sm_client *c = *state;
	struct sm_logd_set q = { .id = 3, .boot_id = 9, .addr = { "::1", 3 },
				 .port = 7, .rdma_addr = { "fe80::1", 7 },
				 .rdma_port = 8, .domain = { "rack", 4 } };
	uint64_t epoch = sm_map(c->sm)->epoch;
	const struct cmap_log *l;

	assert_int_equal(set_logd(c, q), 0);
	assert_true(c->r.map_changed);
	assert_int_equal(sm_map(c->sm)->epoch, epoch + 1);
	l = cmap_find_log(sm_map(c->sm), 3);
	assert_non_null(l);
	assert_int_equal(l->boot_id, 9);
	assert_string_equal(l->addr, "::1");
	assert_int_equal(l->port, 7);
	assert_string_equal(l->rdma_addr, "fe80::1");
	assert_int_equal(l->rdma_port, 8);
	assert_string_equal(l->domain, "rack");
	/* the same again */
	assert_int_equal(set_logd(c, q), 0);
	assert_false(c->r.map_changed);
	assert_int_equal(sm_map(c->sm)->epoch, epoch + 1);
	/* each field counts */
	q.boot_id = 10;
	assert_int_equal(set_logd(c, q), 0);
	q.domain.len = 3;
	assert_int_equal(set_logd(c, q), 0);
	q.rdma_port = 0;
	assert_int_equal(set_logd(c, q), 0);
	q.rdma_addr.len = 0;
	assert_int_equal(set_logd(c, q), 0);
	q.port = 70;
	assert_int_equal(set_logd(c, q), 0);
	q.addr.len = 2;
	assert_int_equal(set_logd(c, q), 0);
	assert_int_equal(sm_map(c->sm)->epoch, epoch + 7);
	assert_int_equal(sm_map(c->sm)->log_count, 1);
	/* sessions come and go beside it */
	assert_int_equal(sm_client_close(c, c->session, 1), 0);
	assert_non_null(cmap_find_log(sm_map(c->sm), 3));
}

static void malformed_log_daemons_are_refused(void **state)
{
	struct sm_client *c = *state;
	struct sm_logd_set good = { .id = 1, .boot_id = 1,
				    .addr = { "::1", 3 }, .port = 7 }, q;
	char text[CMAP_ADDR_LEN_MAX + 2];
	struct wire_str bad[] = { { text, sizeof(text) - 1 }, { "a\0b", 3 } };

	memset(text, 'a', sizeof(text));
	q = good;
	q.id = 0;
	assert_int_equal(set_logd(c, q), -EINVAL);
	for (size_t i = 0; i < array_count(bad); i++) {
		q = good;
		q.addr = bad[i];
		assert_int_equal(set_logd(c, q), -EINVAL);
		q = good;
		q.rdma_addr = bad[i];
		assert_int_equal(set_logd(c, q), -EINVAL);
		q = good;
		q.domain = bad[i];
		assert_int_equal(set_logd(c, q), -EINVAL);
	}
	assert_int_equal(sm_map(c->sm)->log_count, 0);
}

/* As the command was before there were logs. */
static int raise_v1(struct sm_client *c, struct sm_raise q)
{
	uint8_t buf[64];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_raise_encode(&o, &q);
	return sm_client_internal(c, WIRE_OP_SM_RAISE, buf,
				  o.len - sizeof(q.log_epoch));
}

static int raise_to(struct sm_client *c, struct sm_raise q)
{
	uint8_t buf[64];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_raise_encode(&o, &q);
	return sm_client_internal(c, WIRE_OP_SM_RAISE, buf, o.len);
}

static void raised_counters_hold_for_what_comes_and_what_is(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct sm_client d;

	assert_int_equal(raise_to(c, (struct sm_raise){ 1000, 50, 90, 7,
							   60 }), 0);
	assert_true(c->r.map_changed);
	assert_int_equal(sm_map(c->sm)->epoch, 90);
	assert_int_equal(sm_log_epoch(c->sm), 60);
	assert_int_equal(sm_client_stat(c, f).cut, 7);
	assert_int_equal(sm_client_file(c, ROOT, "g"), 0);
	assert_int_equal(c->attr.ino, 1000);
	assert_int_equal(c->attr.cut, 7);
	assert_int_equal(sm_client_truncate(c, f, 10, 0), 0);
	assert_int_equal(c->attr.cut, 8);
	sm_client_join(&d, c->sm);
	assert_int_equal(d.session, 50);
	sm_client_leave(&d);
	/* never down */
	assert_int_equal(raise_to(c, (struct sm_raise){ 1, 1, 1, 1, 1 }), 0);
	assert_false(c->r.map_changed);
	assert_int_equal(sm_log_epoch(c->sm), 60);
	assert_int_equal(sm_client_file(c, ROOT, "h"), 0);
	assert_int_equal(c->attr.ino, 1001);
	assert_int_equal(sm_client_stat(c, f).cut, 8);
	assert_int_equal(raise_v1(c, (struct sm_raise){ .ino = 2000 }), 0);
	assert_int_equal(sm_next_ino(c->sm), 2000);
	assert_int_equal(sm_log_epoch(c->sm), 60);
	/* the next would wrap */
	assert_int_equal(raise_to(c, (struct sm_raise){
					     .log_epoch = UINT64_MAX }),
			 -EINVAL);
}

static void the_map_and_the_counts_can_be_asked_for(void **state)
{
	struct sm_client *c = *state;
	struct meta_statfs_reply s;
	struct meta_blob b;
	struct cmap *m;

	assert_int_equal(sm_client_internal(c, WIRE_OP_META_MAP_GET, "", 0),
			 0);
	assert_int_equal(meta_blob_parse(c->r.body, c->r.body_len, &b), 0);
	assert_int_equal(cmap_decode(b.value.p, b.value.len, &m), 0);
	assert_int_equal(m->epoch, sm_map(c->sm)->epoch);
	cmap_free(m);
	assert_int_equal(sm_client_file(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_internal(c, WIRE_OP_META_STATFS, "", 0), 0);
	assert_int_equal(meta_statfs_reply_parse(c->r.body, c->r.body_len, &s),
			 0);
	assert_int_equal(s.inodes, 2);
	assert_true(s.inodes_max > 1000000000);
	assert_int_equal(s.purge_pending, 0);
}

static void inodes_are_listed_for_fsck(void **state)
{
	struct sm_client *c = *state;
	struct meta_attr a[3];
	char name[16];

	for (int i = 0; i < 6; i++) {
		(void)snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(sm_client_file(c, ROOT, name), 0);
	}
	assert_int_equal(sm_inode_list(c->sm, 0, a, 3), 3);
	assert_true(a[0].ino == 1 && a[1].ino == 2 && a[2].ino == 3);
	assert_int_equal(sm_inode_list(c->sm, 6, a, 3), 1);
	assert_int_equal(a[0].ino, 7);
	assert_int_equal(sm_inode_list(c->sm, UINT64_MAX, a, 3), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_machine_refuses_work),
		SM_TEST(bootstrap_makes_the_root_once),
		SM_TEST(the_epoch_grows_when_a_daemon_changes),
		SM_TEST(a_store_that_was_given_up_is_remembered),
		SM_TEST(malformed_daemons_are_refused),
		SM_TEST(the_epoch_grows_when_a_log_daemon_changes),
		SM_TEST(malformed_log_daemons_are_refused),
		SM_TEST(raised_counters_hold_for_what_comes_and_what_is),
		SM_TEST(the_map_and_the_counts_can_be_asked_for),
		SM_TEST(inodes_are_listed_for_fsck),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
