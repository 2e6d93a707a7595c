/* What two sides have in common, whoever of them is the newer one. */
#include "common/proto.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "common/frame_in.h"
#include "common/status.h"

/* Both ways round: it is the same for both. */
static int agree(const struct proto_offer *a, const struct proto_offer *b,
		 struct proto *ret)
{
	struct proto other;
	int rv = proto_agree(a, b, ret);

	assert_int_equal(proto_agree(b, a, &other), rv);
	if (rv != 0)
		return rv;
	assert_int_equal(other.major, ret->major);
	assert_int_equal(other.minor, ret->minor);
	assert_int_equal(other.features, ret->features);
	return rv;
}

static void of_two_minors_the_smaller_one_is_used(void **state)
{
	struct proto_offer a = { 1, 1, 3, 0x0f }, b = { 1, 1, 4, 0x35 };
	struct proto p = { 0 };

	(void)state;
	assert_int_equal(agree(&a, &b, &p), 0);
	assert_int_equal(p.major, 1);
	assert_int_equal(p.minor, 3);
	assert_int_equal(p.features, 0x05);
	b.minor = 3;
	assert_int_equal(agree(&a, &b, &p), 0);
	assert_int_equal(p.minor, 3);
}

static void features_do_not_depend_on_the_minor(void **state)
{
	struct proto_offer a = { 1, 1, 0, UINT64_MAX }, b = { 1, 1, 9, 1 };
	struct proto p = { 0 };

	(void)state;
	assert_int_equal(agree(&a, &b, &p), 0);
	assert_int_equal(p.minor, 0);
	assert_int_equal(p.features, 1);
	b.features = UINT64_C(1) << 63;
	assert_int_equal(agree(&a, &b, &p), 0);
	assert_int_equal(p.features, UINT64_C(1) << 63);
}

static void the_largest_common_major_is_used(void **state)
{
	struct proto_offer a = { 1, 3, 7, 0 }, b = { 2, 4, 1, 0 };
	struct proto p = { 0 };

	(void)state;
	assert_int_equal(agree(&a, &b, &p), 0);
	assert_int_equal(p.major, 3);
	/* The minor that the other one says is of its major 4. */
	assert_int_equal(p.minor, 7);
	b.major_max = 2;
	assert_int_equal(agree(&a, &b, &p), 0);
	assert_int_equal(p.major, 2);
	assert_int_equal(p.minor, 1);
}

static void without_a_common_major_there_is_nothing(void **state)
{
	struct proto_offer a = { 1, 2, 0, 0 }, b = { 3, 3, 0, 0 };
	struct proto p = { 9, 9, 9 };

	(void)state;
	assert_int_equal(agree(&a, &b, &p), -EPROTONOSUPPORT);
	assert_int_equal(p.major, 9); /* unchanged */
	b = (struct proto_offer){ 0, 0, 0, 0 };
	assert_int_equal(agree(&a, &b, &p), -EPROTONOSUPPORT);
}

static void an_offer_upside_down_is_none(void **state)
{
	struct proto_offer a = { 1, 1, 0, 0 }, b = { 2, 1, 0, 0 };
	struct proto p;

	(void)state;
	assert_int_equal(proto_agree(&a, &b, &p), -EBADMSG);
}

static void several_have_what_the_least_one_has(void **state)
{
	struct proto all = { 1, 5, 0xff };

	(void)state;
	proto_lessen(&all, &(struct proto){ 1, 6, 0x7f });
	assert_int_equal(all.minor, 5);
	assert_int_equal(all.features, 0x7f);
	proto_lessen(&all, &(struct proto){ 1, 2, 0xf0 });
	assert_int_equal(all.minor, 2);
	assert_int_equal(all.features, 0x70);
	/* One of which nothing is known. */
	proto_lessen(&all, &(struct proto){ 0, 0, 0 });
	assert_int_equal(all.minor, 0);
	assert_int_equal(all.features, 0);
}

static void hello_says_what_this_program_has(void **state)
{
	struct hello_reply r = proto_reply(WIRE_ROLE_LOGD, "x");
	struct proto_offer ours = proto_ours(), theirs = proto_of_reply(&r);
	struct hello m = { .version_min = 1, .version_max = 2, .minor = 3,
			   .features = 4 };
	struct proto p;

	(void)state;
	assert_int_equal(agree(&ours, &theirs, &p), 0);
	assert_int_equal(p.major, WIRE_VERSION);
	assert_int_equal(p.minor, WIRE_MINOR);
	assert_int_equal(p.features, PROTO_FEATURES);
	theirs = proto_of_hello(&m);
	assert_int_equal(theirs.major_min, 1);
	assert_int_equal(theirs.major_max, 2);
	assert_int_equal(theirs.minor, 3);
	assert_int_equal(theirs.features, 4);
}

static void a_refusal_is_a_frame_that_says_what_this_program_has(void **state)
{
	struct wire_header h = { .version = 9, .opcode = WIRE_OP_HELLO,
				 .request_id = 0x1234, .session = 5 };
	struct hello_reply r = proto_reply(WIRE_ROLE_METAD, "hail-metad"), got;
	uint8_t out[PROTO_REFUSAL_SIZE];
	size_t len = proto_refusal(&h, &r, NULL, out);
	struct frame_in in;
	struct frame *f;

	(void)state;
	assert_int_equal(frame_in_init(&in, 0, NULL), 0);
	assert_int_equal(frame_in_feed(&in, out, len), len);
	assert_int_equal(frame_in_next(&in, &f), 1);
	assert_int_equal(f->h.version, WIRE_VERSION);
	assert_int_equal(f->h.flags, WIRE_F_REPLY);
	assert_int_equal(f->h.opcode, WIRE_OP_HELLO);
	assert_int_equal(f->h.request_id, 0x1234);
	assert_int_equal(status_from_wire(f->h.status), -EPROTONOSUPPORT);
	assert_int_equal(hello_reply_parse(f->body, f->h.body_len, &got), 0);
	assert_int_equal(got.version, WIRE_VERSION);
	assert_int_equal(got.minor, WIRE_MINOR);
	frame_free(f);
	frame_in_fini(&in);
}

static void versions_are_told_in_words(void **state)
{
	struct wire_header h = { .version = UINT16_MAX };
	struct proto_offer o = { 1, 1, 12, 0 };
	char buf[PROTO_TEXT_SIZE];

	(void)state;
	assert_string_equal(proto_text(&o, buf), "1.12");
	o = (struct proto_offer){ UINT16_MAX - 1, UINT16_MAX, UINT16_MAX, 0 };
	assert_string_equal(proto_text(&o, buf), "65534-65535.65535");
	assert_string_equal(proto_frame_text(&h, buf), "65535");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_two_minors_the_smaller_one_is_used),
		cmocka_unit_test(features_do_not_depend_on_the_minor),
		cmocka_unit_test(the_largest_common_major_is_used),
		cmocka_unit_test(without_a_common_major_there_is_nothing),
		cmocka_unit_test(an_offer_upside_down_is_none),
		cmocka_unit_test(several_have_what_the_least_one_has),
		cmocka_unit_test(hello_says_what_this_program_has),
		cmocka_unit_test(
			a_refusal_is_a_frame_that_says_what_this_program_has),
		cmocka_unit_test(versions_are_told_in_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
