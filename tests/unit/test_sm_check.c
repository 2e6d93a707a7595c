/* sm_validate() is all that stands between bytes from outside and the state:
 * whatever it accepts can be applied to any state; every body that is cut
 * short is refused; values out of range are refused, one fact each. */
#include "tests/lib/sm_fixture.h"

#include "metad/sm_priv.h"
#include "tests/lib/sm_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT ROOT_INO
#define RETURN_ITEM_SIZE (8 + 4 + 8 * 5)

static void unknown_opcodes_are_neither_command_nor_query(void **state)
{
	uint32_t commands = 0, queries = 0;

	(void)state;
	for (uint32_t op = 0; op <= UINT16_MAX; op++) {
		bool command = sm_is_command((uint16_t)op);
		bool query = sm_is_query((uint16_t)op);

		assert_false(command && query);
		commands += command;
		queries += query;
		if (!command && !query)
			assert_int_equal(sm_validate((uint16_t)op, "", 0),
					 -EINVAL);
	}
	assert_int_equal(commands, 16 + 10);
	assert_int_equal(queries, 11);
}

/* What is behind a body is refused, or was appended by a later minor: that is
 * known, or it would be executed by some and not by others. */
static void check_longer(uint16_t op, const uint8_t *body, size_t len)
{
	assert_int_equal(sm_body_known(op, body, len, WIRE_MINOR), len);
	if (sm_validate(op, body, len + 1) == 0 && !sm_is_query(op))
		assert_int_equal(sm_body_known(op, body, len + 1, WIRE_MINOR),
				 len);
}

static void a_body_cut_short_is_refused(void **state)
{
	uint8_t *copy = malloc(SM_CLIENT_BODY_MAX);
	struct sm_scene s;

	(void)state;
	sm_scene_init(&s, sm_new(), 1);
	for (int i = 0; i < 1500; i++) {
		(void)sm_scene_step(&s);
		for (size_t len = 0; len < s.c.body_len; len++) {
			/* a shorter list of returns is a list, too */
			if (s.c.op == WIRE_OP_META_RETURN && len >= 24 &&
			    (len - 24) % RETURN_ITEM_SIZE == 0)
				continue;
			/* as is a rename without a whiteout's owner */
			if (s.c.op == WIRE_OP_META_RENAME &&
			    len == s.c.body_len - 8)
				continue;
			/* and what was made without a number */
			if (s.c.op == WIRE_OP_META_CREATE &&
			    len == s.c.body_len - 8)
				continue;
			if (len > 300 && len % 97 != 0)
				continue;
			assert_true(sm_validate(s.c.op, s.c.body, len) != 0);
		}
		memcpy(copy, s.c.body, s.c.body_len);
		copy[s.c.body_len] = 0;
		check_longer(s.c.op, copy, s.c.body_len);
	}
	free(copy);
	sm_scene_fini(&s);
}

/* Twin machines diverge here: only survival counts, and that the state still
 * makes sense. */
static void what_is_accepted_can_be_applied(void **state)
{
	struct sm *victim = sm_new();
	struct sm_scene s;
	uint32_t accepted = 0, refused = 0;

	(void)state;
	sm_scene_init(&s, sm_new(), 2);
	sm_scene_copy(&s, victim);
	for (int i = 0; i < 3000; i++) {
		struct sm_client *c = &s.c;
		struct sm_reply r;

		(void)sm_scene_step(&s);
		for (int k = 0; k < 6 && c->body_len > 0; k++) {
			size_t at = sm_scene_below(&s, c->body_len);
			uint8_t was = c->body[at];

			if (c->op == WIRE_OP_SM_RAISE && k > 0)
				break;
			c->body[at] ^= (uint8_t)(1u << sm_scene_below(&s, 8));
			if (sm_validate(c->op, c->body, c->body_len) == 0) {
				(void)sm_client_repeat_on(c, victim, &r);
				accepted++;
			} else {
				refused++;
			}
			c->body[at] = was;
		}
		if (i % 300 == 0)
			assert_true(sm_verify(victim));
	}
	assert_true(sm_verify(victim));
	assert_true(accepted > 1000 && refused > 1000);
	sm_free(victim);
	sm_scene_fini(&s);
}

static void random_bytes_are_survived(void **state)
{
	struct sm_client *c = *state;
	uint64_t rng = 5;
	uint8_t buf[200];

	for (uint32_t i = 0; i < 200000; i++) {
		uint16_t op = (uint16_t)(128 + i % 80);
		size_t len = i / 7 % sizeof(buf);
		struct sm_reply r;

		for (size_t k = 0; k < len; k++) {
			rng = rng * 6364136223846793005ull + 1;
			buf[k] = rng >> 60 < 8 ? 0 : (uint8_t)(rng >> 40);
		}
		if (sm_validate(op, buf, len) != 0)
			continue;
		if (sm_is_query(op))
			sm_query(c->sm, op, c->session, buf, len, &r);
		else if (op != WIRE_OP_SM_RAISE)
			sm_apply(c->sm, op, c->session, buf, len, &r);
	}
}

/* ---- values out of range ---- */

static void bad_names_are_refused_everywhere(void **state)
{
	static const struct wire_str bad[] = { { "", 0 },    { ".", 1 },
					       { "..", 2 },  { "a/b", 3 },
					       { "a\0b", 3 }, { "/", 1 } };
	struct sm_client *c = *state;

	for (size_t i = 0; i < array_count(bad); i++) {
		struct meta_create p = { .parent = ROOT, .name = bad[i],
					 .mode = S_IFREG };
		struct meta_unlink u = { ROOT, bad[i], 0 };
		struct meta_link l = { 2, ROOT, bad[i] };
		struct meta_rename q = { ROOT, { "a", 1 }, ROOT, bad[i], 0, 0,
					 0 };
		uint8_t buf[128];
		struct wire_out o;

		assert_int_equal(sm_client_create(c, &p), -EINVAL);
		wire_out_init(&o, buf, sizeof(buf));
		meta_unlink_encode(&o, &u);
		assert_int_equal(sm_client_send(c, WIRE_OP_META_UNLINK, buf,
						o.len), -EINVAL);
		wire_out_init(&o, buf, sizeof(buf));
		meta_link_encode(&o, &l);
		assert_int_equal(sm_client_send(c, WIRE_OP_META_LINK, buf,
						o.len), -EINVAL);
		wire_out_init(&o, buf, sizeof(buf));
		meta_rename_encode(&o, &q);
		assert_int_equal(sm_client_send(c, WIRE_OP_META_RENAME, buf,
						o.len), -EINVAL);
		q.newname = q.name;
		q.name = bad[i];
		wire_out_init(&o, buf, sizeof(buf));
		meta_rename_encode(&o, &q);
		assert_int_equal(sm_client_send(c, WIRE_OP_META_RENAME, buf,
						o.len), -EINVAL);
	}
}

static void unknown_types_and_flags_are_refused(void **state)
{
	struct sm_client *c = *state;
	struct meta_create p = { .parent = ROOT, .name = { "a", 1 } };
	struct meta_setattr s = { .ino = ROOT, .valid = 0x200 };

	p.mode = 0; /* no type */
	assert_int_equal(sm_client_create(c, &p), -EINVAL);
	p.mode = S_IFMT;
	assert_int_equal(sm_client_create(c, &p), -EINVAL);
	p.mode = S_IFREG | 0x10000;
	assert_int_equal(sm_client_create(c, &p), -EINVAL);
	p.mode = S_IFREG;
	p.flags = 0x10;
	assert_int_equal(sm_client_create(c, &p), -EINVAL);
	p.flags = META_CREATE_TMPFILE; /* with a name */
	assert_int_equal(sm_client_create(c, &p), -EINVAL);
	p.name.len = 0;
	p.mode = S_IFDIR;
	assert_int_equal(sm_client_create(c, &p), -EINVAL);
	assert_int_equal(sm_client_setattr(c, &s), -EINVAL);
	assert_int_equal(sm_client_setxattr(c, ROOT, "user.a", "", 0, 4),
			 -EINVAL);
	assert_int_equal(sm_client_give_back(c, ROOT, 0x10), -EINVAL);
}

static void only_symlinks_have_targets_and_all_of_them_do(void **state)
{
	struct sm_client *c = *state;
	struct meta_create p = { .parent = ROOT, .name = { "a", 1 },
				 .mode = S_IFLNK };

	assert_int_equal(sm_client_create(c, &p), -EINVAL);
	p.target = (struct wire_str){ "x\0y", 3 };
	assert_int_equal(sm_client_create(c, &p), -EINVAL);
	p.target = (struct wire_str){ "x", 1 };
	p.mode = S_IFREG;
	assert_int_equal(sm_client_create(c, &p), -EINVAL);
}

static void cookies_beyond_the_largest_are_refused(void **state)
{
	struct sm_client *c = *state;
	uint64_t cookie = INT64_MAX;
	bool eof;

	assert_int_equal(sm_client_readdir(c, ROOT, &cookie, 4096, false, &eof,
					   NULL, NULL), 0);
	assert_true(eof);
	cookie = (uint64_t)INT64_MAX + 1;
	assert_int_equal(sm_client_readdir(c, ROOT, &cookie, 4096, false, &eof,
					   NULL, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unknown_opcodes_are_neither_command_nor_query),
		cmocka_unit_test(a_body_cut_short_is_refused),
		cmocka_unit_test(what_is_accepted_can_be_applied),
		SM_TEST(random_bytes_are_survived),
		SM_TEST(bad_names_are_refused_everywhere),
		SM_TEST(unknown_types_and_flags_are_refused),
		SM_TEST(only_symlinks_have_targets_and_all_of_them_do),
		SM_TEST(cookies_beyond_the_largest_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
