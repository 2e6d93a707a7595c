/* Sessions: kept replies for retries, ends in two steps, the map. */
#include "tests/lib/sm_fixture.h"

#include "metad/sm_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT ROOT_INO

/* ---- retries ---- */

static void a_repeated_request_gets_the_first_answer(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint64_t pos = c->r.pos;

	assert_int_equal(sm_client_resend(c), 0);
	assert_true(c->r.replayed);
	assert_true(c->r.pos == pos && sm_pos(c->sm) == pos);
	assert_int_equal(c->r.body_len, 1 + meta_attr_size(&c->attr));
	assert_int_equal(sm_client_stat(c, f).nlink, 1);
	assert_int_equal(sm_inode_count(c->sm), 2);
}

static void a_repeated_failure_fails_the_same_way(void **state)
{
	struct sm_client *c = *state;
	struct sm_reply first;

	assert_int_equal(sm_client_unlink(c, ROOT, "f"), -ENOENT);
	first = c->r;
	assert_false(first.replayed);
	assert_true(first.pos == sm_pos(c->sm));
	assert_int_equal(sm_client_resend(c), -ENOENT);
	assert_true(c->r.replayed);
	assert_true(c->r.pos == first.pos);
}

static void answers_are_kept_from_the_lowest_sequence_on(void **state)
{
	struct sm_client *c = *state;
	uint8_t old[512];
	size_t old_len;

	c->keep_replies = true;
	assert_int_equal(sm_client_file(c, ROOT, "a"), 0);
	old_len = c->body_len;
	memcpy(old, c->body, old_len);
	for (int i = 0; i < 20; i++)
		assert_int_equal(sm_client_chmod(c, ROOT, 0700), 0);
	/* still kept, though later ones were executed */
	memcpy(c->body, old, old_len);
	c->body_len = old_len;
	c->op = WIRE_OP_META_CREATE;
	assert_int_equal(sm_client_resend(c), 0);
	assert_true(c->r.replayed);
	/* the client says it has that answer */
	c->seq_low = 2;
	assert_int_equal(sm_client_chmod(c, ROOT, 0700), 0);
	memcpy(c->body, old, old_len);
	c->body_len = old_len;
	c->op = WIRE_OP_META_CREATE;
	assert_int_equal(sm_client_resend(c), -ESTALE);
	assert_int_equal(sm_inode_count(c->sm), 2);
}

static void a_refused_request_does_not_count(void **state)
{
	struct sm_client *c = *state;
	uint64_t pos;

	assert_int_equal(sm_client_file(c, ROOT, "a"), 0);
	pos = sm_pos(c->sm);
	c->session += 7; /* nobody's */
	assert_int_equal(sm_client_file(c, ROOT, "b"), -ESTALE);
	assert_true(sm_pos(c->sm) == pos && c->r.pos == pos);
}

static void a_gap_in_the_sequence_is_fine(void **state)
{
	struct sm_client *c = *state;

	c->seq += 100;
	assert_int_equal(sm_client_file(c, ROOT, "a"), 0);
}

static void the_window_is_bounded(void **state)
{
	struct sm_client *c = *state;

	c->keep_replies = true;
	for (uint32_t i = 0; i < SESSION_WINDOW_MAX; i++)
		assert_int_equal(sm_client_chmod(c, ROOT, 0700), 0);
	assert_int_equal(sm_client_chmod(c, ROOT, 0700), -EINVAL);
	c->seq_low = c->seq - SESSION_WINDOW_MAX + 1;
	assert_int_equal(sm_client_chmod(c, ROOT, 0700), -EINVAL);
	c->seq_low += 2;
	assert_int_equal(sm_client_chmod(c, ROOT, 0700), 0);
}

static void sequences_must_make_sense(void **state)
{
	struct sm_client *c = *state;

	c->keep_replies = true;
	c->seq_low = 0;
	assert_int_equal(sm_client_chmod(c, ROOT, 0700), -EINVAL);
	c->seq_low = 10;
	assert_int_equal(sm_client_chmod(c, ROOT, 0700), -EINVAL);
}

static void answers_not_asked_for_any_more_are_forgotten(void **state)
{
	struct sm_client *c = *state;
	uint64_t before;

	assert_int_equal(sm_client_chmod(c, ROOT, 0700), 0);
	before = cow_count(c->sm->tree);
	for (int i = 0; i < 100; i++)
		assert_int_equal(sm_client_chmod(c, ROOT, 0700), 0);
	assert_true(cow_count(c->sm->tree) == before);
}

static void answers_survive_a_snapshot(void **state)
{
	struct sm_client *c = *state;
	size_t len;
	uint8_t *snap;

	assert_int_equal(sm_client_file(c, ROOT, "a"), 0);
	snap = sm_client_snapshot(c->sm, &len);
	assert_int_equal(sm_restore(c->sm, snap, len), 0);
	free(snap);
	assert_int_equal(sm_client_resend(c), 0);
	assert_true(c->r.replayed);
}

/* ---- opening and closing ---- */

static void sessions_have_ascending_numbers_and_raise_the_epoch(void **state)
{
	struct sm_client *c = *state;
	uint64_t epoch = sm_map(c->sm)->epoch;
	struct sm_client d;

	sm_client_join(&d, c->sm);
	assert_true(d.session > c->session);
	assert_true(d.r.map_changed);
	assert_int_equal(sm_map(c->sm)->epoch, epoch + 1);
	assert_true(cmap_session_live(sm_map(c->sm), c->session));
	assert_true(cmap_session_live(sm_map(c->sm), d.session));
	sm_client_leave(&d);
}

static void a_session_dies_in_two_steps(void **state)
{
	struct sm_client *c = *state;
	struct sm_session_info info[4];
	struct sm_client d;
	uint64_t f;

	sm_client_join(&d, c->sm);
	f = SM_INO(&d, sm_client_file(&d, ROOT, "f"));
	assert_int_equal(sm_client_lease(&d, f), 0);
	assert_int_equal(sm_client_unlink(&d, ROOT, "f"), 0);
	assert_int_equal(sm_client_give_back(c, f, META_RETURN_ORPHAN), 0);

	assert_int_equal(sm_client_close(c, d.session, 1), 0);
	assert_true(c->r.map_changed);
	assert_false(cmap_session_live(sm_map(c->sm), d.session));
	assert_int_equal(sm_client_file(&d, ROOT, "g"), -ESTALE);
	assert_int_equal(sm_client_getattr(c, f), 0); /* still its orphan */
	assert_int_equal(sm_session_list(c->sm, 0, info, 4), 2);
	assert_int_equal(info[1].session, d.session);
	assert_int_equal(info[1].dead, 1);
	assert_string_equal(info[1].host, "host");
	assert_string_equal(info[1].mountpoint, "/mnt");

	assert_int_equal(sm_client_close(c, d.session, 2), 0);
	assert_false(c->r.map_changed);
	assert_int_equal(sm_client_getattr(c, f), -ENOENT);
	assert_int_equal(sm_session_list(c->sm, 0, info, 4), 1);
	assert_int_equal(sm_client_close(c, d.session, 2), -ENOENT);
	sm_client_leave(&d);
}

static void an_orderly_end_takes_one_step(void **state)
{
	struct sm_client *c = *state;
	struct sm_client d;

	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_file(&d, ROOT, "f"), 0);
	assert_int_equal(sm_client_close(c, d.session, 2), 0);
	assert_true(c->r.map_changed);
	assert_false(cmap_session_live(sm_map(c->sm), d.session));
	assert_int_equal(sm_client_lookup(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_file(&d, ROOT, "g"), -ESTALE);
	sm_client_leave(&d);
}

static void closing_gives_everything_back(void **state)
{
	struct sm_client *c = *state;
	struct sm_purge purge[300];
	struct sm_client d;
	uint64_t kept, inos[4];
	char name[16];

	sm_client_join(&d, c->sm);
	for (int i = 0; i < 200; i++) {
		(void)snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(sm_client_file(&d, ROOT, name), 0);
		assert_int_equal(sm_client_lease(&d, d.attr.ino), 0);
		assert_int_equal(sm_client_unlink(&d, ROOT, name), 0);
		assert_int_equal(sm_client_give_back(c, d.attr.ino,
						     META_RETURN_ORPHAN), 0);
	}
	kept = SM_INO(&d, sm_client_file(&d, ROOT, "kept"));
	assert_int_equal(sm_client_lease(&d, kept), 0);
	assert_int_equal(sm_lease_list(c->sm, d.session, kept - 1, inos, 4),
			 1);
	assert_int_equal(inos[0], kept);
	assert_int_equal(sm_client_close(c, d.session, 2), 0);
	assert_int_equal(sm_inode_count(c->sm), 2);
	assert_int_equal(sm_client_stat(c, kept).flags, 0);
	assert_int_equal(sm_purge_list(c->sm, 0, purge, 300), 200);
	sm_client_leave(&d);
}

static void sessions_are_not_without_number(void **state)
{
	struct sm_client *c = *state;
	struct sm_session_open q = { .client_id = 1 };
	uint8_t buf[64];
	struct wire_out o;
	int err = 0, count = 1;

	wire_out_init(&o, buf, sizeof(buf));
	sm_session_open_encode(&o, &q);
	while (err == 0) {
		err = sm_client_internal(c, WIRE_OP_SM_SESSION_OPEN, buf,
					 o.len);
		count += err == 0;
	}
	assert_int_equal(err, -EUSERS);
	assert_int_equal(count, SESSION_COUNT_MAX);
}

static void long_names_of_machines_are_shortened(void **state)
{
	static char host[300], path[5000];
	struct sm_client *c = *state;
	struct sm_session_info info[2];
	struct sm_session_open q;
	static uint8_t buf[6000];
	struct wire_out o;

	memset(host, 'h', sizeof(host));
	memset(path, 'p', sizeof(path));
	q = (struct sm_session_open){ .host = { host, sizeof(host) },
				      .mountpoint = { path, sizeof(path) } };
	wire_out_init(&o, buf, sizeof(buf));
	sm_session_open_encode(&o, &q);
	assert_int_equal(sm_client_internal(c, WIRE_OP_SM_SESSION_OPEN, buf,
					    o.len), 0);
	assert_int_equal(sm_session_list(c->sm, c->session, info, 2), 1);
	assert_int_equal(strlen(info[0].host), 63);
	assert_int_equal(strlen(info[0].mountpoint), 255);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SM_TEST(a_repeated_request_gets_the_first_answer),
		SM_TEST(a_repeated_failure_fails_the_same_way),
		SM_TEST(answers_are_kept_from_the_lowest_sequence_on),
		SM_TEST(a_refused_request_does_not_count),
		SM_TEST(a_gap_in_the_sequence_is_fine),
		SM_TEST(the_window_is_bounded),
		SM_TEST(sequences_must_make_sense),
		SM_TEST(answers_not_asked_for_any_more_are_forgotten),
		SM_TEST(answers_survive_a_snapshot),
		SM_TEST(sessions_have_ascending_numbers_and_raise_the_epoch),
		SM_TEST(a_session_dies_in_two_steps),
		SM_TEST(an_orderly_end_takes_one_step),
		SM_TEST(closing_gives_everything_back),
		SM_TEST(sessions_are_not_without_number),
		SM_TEST(long_names_of_machines_are_shortened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
