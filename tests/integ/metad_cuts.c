/* Goal: the real hail-metad sees every cut and purge through at every block
 * daemon, over kills and lost answers, and shows nobody a file before.
 * Method: the program as a child, fake block daemons that hold requests,
 * sessions played by hand; TAP.
 *
 * usage: metad_cuts [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_client.h"

#include <sys/stat.h>

#include "tests/lib/tap.h"

#define SOON_MS 300 /* nothing came: it waits */
#define LONG_MS 15000

static void a_cut_waits_for_every_daemon(struct metad_run *x)
{
	struct metad_client c;
	struct blk_cut cut;
	uint64_t ino, id;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	ino = c.attr.ino;
	fake_blockd_hold(x->blockd[1], WIRE_OP_BLK_CUT);
	fake_blockd_set_cut_delta(x->blockd[0], -3);
	fake_blockd_set_cut_delta(x->blockd[1], 1);
	id = metad_client_cut_begin(&c, ino, 70000, 4097);
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	cut = fake_blockd_last_cut(x->blockd[0]);
	CHECK_EQ(cut.ino, ino);
	CHECK_EQ(cut.from, 4097);
	CHECK(cut.to == BLK_CUT_TO_END);
	CHECK_EQ(cut.block_log2, 20);
	/* The one who cuts goes on meanwhile. */
	CHECK_EQ(metad_client_getattr(&c, ino), 0);
	CHECK_EQ(c.attr.size, 4097);
	fake_blockd_hold(x->blockd[1], 0);
	/* Its answer was skipped over by getattr if it came; ask again. */
	id = metad_client_send_seq(&c, WIRE_OP_META_RETURN, ++c.seq, NULL, 0);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
	EVENTUALLY(metad_admin_number(x, WIRE_OP_ADMIN_STATUS,
				      "cuts_pending") == 0);
	CHECK_EQ(metad_client_getattr(&c, ino), 0);
	CHECK_EQ(c.attr.cut, cut.cut);
	metad_client_fini(&c);
}

static void a_cut_survives_a_kill(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t ino, id, seq;
	uint8_t b[128];
	size_t len;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	ino = c.attr.ino;
	fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_CUT);
	id = metad_client_cut_begin(&c, ino, 70000, 0);
	seq = c.seq;
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	EVENTUALLY(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT) == 2);
	/* Sent again: not cut again, and waits with the first. */
	CHECK_EQ(metad_client_reconnect(&c), 0);
	len = METAD_BODY(b, meta_cut, { .ino = ino, .to = BLK_CUT_TO_END,
					.size_now = 70000 });
	id = metad_client_send_seq(&c, WIRE_OP_META_CUT, seq, b, len);
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	metad_client_disconnect(&c);
	fake_blockd_hold(x->blockd[0], 0);
	fake_blockd_set_end(x->blockd[0], 0, 0, 0);
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	CHECK_EQ(metad_client_getattr(&d, ino), 0);
	CHECK_EQ(d.attr.size, 0);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT), 2);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* The client goes on to allocate: a count that the next process made of the
 * file would have that, and what the client tells of it is added. */
static void an_answered_cut_is_not_made_again(struct metad_run *x)
{
	struct metad_client c;
	uint64_t id;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	id = metad_client_cut_begin(&c, c.attr.ino, 70000, 0);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
	child_kill9(&x->child);
	fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_CUT);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_admin_number(x, WIRE_OP_ADMIN_STATUS, "cuts_pending"),
		 0);
	metad_client_fini(&c);
}

/* A daemon that is asked again has nothing left to free and says 0: how much
 * went is then counted. Also when the process that asked first is gone. */
static void what_a_cut_freed_is_not_lost_with_its_answer(struct metad_run *x)
{
	struct metad_client c;
	uint64_t ino, id, seq;
	unsigned round;
	uint8_t b[128];
	size_t len;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	ino = c.attr.ino;
	for (round = 0; round < 2; round++) {
		uint64_t cuts = fake_blockd_calls(x->blockd[1],
						  WIRE_OP_BLK_CUT);

		len = METAD_BODY(b, meta_setattr,
				 { .ino = ino, .valid = META_SET_UNITS_DELTA,
				   .units_delta = 100 });
		CHECK_EQ(metad_client_call(&c, WIRE_OP_META_SETATTR, b, len),
			 0);
		fake_blockd_hold(x->blockd[1], WIRE_OP_BLK_CUT);
		fake_blockd_set_cut_delta(x->blockd[0], -40);
		id = metad_client_cut_begin(&c, ino, 400000, 8192);
		seq = c.seq;
		CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
		/* It has cut, and the answer is lost. */
		fake_blockd_set_end(x->blockd[0], 4096, 1, 1);
		fake_blockd_set_end(x->blockd[1], 8192, 1, 1);
		fake_blockd_set_down(x->blockd[1], true);
		if (round) {
			child_kill9(&x->child);
			fake_blockd_set_cut_delta(x->blockd[0], 0);
			metad_run_start(x, NULL);
			CHECK_EQ(metad_client_reconnect(&c), 0);
			len = METAD_BODY(b, meta_cut,
					 { .ino = ino, .from = 8192,
					   .to = BLK_CUT_TO_END,
					   .size_now = 400000,
					   .size = 8192 });
			id = metad_client_send_seq(&c, WIRE_OP_META_CUT, seq,
						   b, len);
		}
		sleep_ms(100); /* its connections are seen to be gone */
		fake_blockd_hold(x->blockd[1], 0);
		fake_blockd_set_down(x->blockd[1], false);
		CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
		CHECK_EQ(fake_blockd_calls(x->blockd[1], WIRE_OP_BLK_CUT),
			 cuts + 2);
		CHECK_EQ(metad_client_getattr(&c, ino), 0);
		CHECK_EQ(c.attr.units, 2);
		CHECK_EQ(c.attr.size, 8192);
	}
	metad_client_fini(&c);
}

/* A file that nobody leases keeps no mount out while it is being cut; but the
 * next one is not told its attributes before that is done, by no request: with
 * the new cut number it could write what the old cut then removes. */
static void a_file_being_cut_is_not_shown_to_the_next(struct metad_run *x)
{
	static const uint16_t ops[] = { WIRE_OP_META_GETATTR,
					WIRE_OP_META_LOOKUP,
					WIRE_OP_META_READDIR };
	struct metad_client c, d;
	uint64_t ino, id;
	uint8_t b[128];
	size_t len, i;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	for (i = 0; i < array_count(ops); i++) {
		uint16_t op = ops[i];

		CHECK_EQ(metad_client_open(x, &c, 1), 0);
		CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
		ino = c.attr.ino;
		fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_CUT);
		id = metad_client_cut_begin(&c, ino, 70000, 0);
		CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
		CHECK_EQ(metad_client_open(x, &d, 1), 0);
		len = op == WIRE_OP_META_GETATTR ?
			      METAD_BODY(b, meta_ino, { .ino = ino }) :
		      op == WIRE_OP_META_LOOKUP ?
			      METAD_BODY(b, meta_lookup,
					 { .parent = ROOT_INO,
					   .name = { "f", 1 } }) :
			      METAD_BODY(b, meta_readdir,
					 { .dir = ROOT_INO,
					   .bytes_max = 32768,
					   .plus = 1 });
		id = metad_client_send(&d, op, b, len);
		CHECK_EQ(metad_client_recv(&d, id, SOON_MS), -ETIMEDOUT);
		/* Names alone may be told. */
		metad_client_check_list(&d, ROOT_INO, "f\n");
		id = metad_client_send(&d, op, b, len);
		fake_blockd_hold(x->blockd[0], 0);
		CHECK_EQ(metad_client_recv(&d, id, LONG_MS), 0);
		CHECK_EQ(metad_client_getattr(&d, ino), 0);
		CHECK_EQ(d.attr.size, 0);
		CHECK_EQ(metad_client_unlink(&d, ROOT_INO, "f"), 0);
		metad_client_fini(&c);
		metad_client_fini(&d);
	}
}

/* The end of a file is not asked for while a daemon has yet to cut it: it would
 * tell where the file ended before. Both for the cut of the one who died, and
 * for one that metad found when it started. */
static void the_end_of_a_dead_session_waits_for_its_cut(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t ino, id;
	unsigned round;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	for (round = 0; round < 2; round++) {
		uint64_t ends, cuts;

		CHECK_EQ(metad_client_open(x, &c, 1), 0);
		CHECK_EQ(metad_client_create(&c, ROOT_INO, round ? "g" : "f",
					     META_CREATE_LEASE), 0);
		ino = c.attr.ino;
		ends = fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_END);
		cuts = fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT);
		fake_blockd_set_end(x->blockd[0], 70000, 18, 1);
		fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_CUT);
		id = metad_client_cut_begin(&c, ino, 70000, 4096);
		CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
		metad_client_replace_begin(x, &d);
		if (round) {
			EVENTUALLY(fake_blockd_last_fence(x->blockd[0]) ==
				   c.session);
			child_kill9(&x->child);
			metad_run_start(x, NULL);
			EVENTUALLY(fake_blockd_calls(x->blockd[0],
						     WIRE_OP_BLK_CUT) ==
				   cuts + 2);
		}
		sleep_ms(SOON_MS);
		CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_END),
			 ends);
		/* What it says once it has cut. */
		fake_blockd_set_end(x->blockd[0], 4096, 1, 1);
		fake_blockd_hold(x->blockd[0], 0);
		/* In the second round the units are counted first. */
		EVENTUALLY(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_END) ==
			   ends + 1 + round);
		raw_close(&d.r);
		CHECK_EQ(metad_client_open(x, &d, 1), 0);
		CHECK_EQ(metad_client_getattr(&d, ino), 0);
		CHECK_EQ(d.attr.size, 4096);
		CHECK_EQ(d.attr.units, 1);
		metad_client_fini(&c);
		metad_client_fini(&d);
	}
}

static void what_is_deleted_is_purged_everywhere(struct metad_run *x)
{
	struct metad_client c;
	uint64_t inos[40];
	char name[16];
	unsigned i;

	metad_client_begin(x, &c);
	fake_blockd_set_down(x->blockd[1], true);
	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		c.seq_low = c.seq + 1;
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name,
					     META_CREATE_LEASE), 0);
		inos[i] = c.attr.ino;
		CHECK_EQ(metad_client_unlink(&c, ROOT_INO, name), 0);
		/* Open files are not purged. */
		if (i == 0) {
			sleep_ms(100);
			CHECK_EQ(fake_blockd_purged(x->blockd[0], inos[0]), 0);
		}
		CHECK_EQ(metad_client_give_back(&c, inos[i],
						META_RETURN_ORPHAN |
							META_RETURN_LEASE), 0);
	}
	for (i = 0; i < 40; i++)
		EVENTUALLY(fake_blockd_purged(x->blockd[0], inos[i]) > 0);
	/* The queue waits for the one that is away, also over a kill. */
	CHECK_EQ(metad_admin_number(x, WIRE_OP_ADMIN_STATUS, "purge_pending"),
		 40);
	CHECK_EQ(metad_client_sync(&c), 0);
	child_kill9(&x->child);
	fake_blockd_set_down(x->blockd[1], false);
	metad_run_start(x, NULL);
	for (i = 0; i < 40; i++)
		EVENTUALLY(fake_blockd_purged(x->blockd[1], inos[i]) > 0);
	EVENTUALLY(metad_admin_number(x, WIRE_OP_ADMIN_STATUS,
				      "purge_pending") == 0);
	metad_client_fini(&c);
}

/* Deleted one by one, in an order that the queue is not in: the space comes
 * back where a daemon is there, however long another one is not. */
static void who_is_away_keeps_no_space_elsewhere(struct metad_run *x)
{
	struct metad_client c;
	uint64_t inos[42], calls;
	char name[16];
	unsigned i;

	metad_client_begin(x, &c);
	for (i = 0; i < 42; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		c.seq_low = c.seq + 1;
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name,
					     META_CREATE_LEASE), 0);
		inos[i] = c.attr.ino;
		CHECK_EQ(metad_client_unlink(&c, ROOT_INO, name), 0);
	}
	fake_blockd_set_down(x->blockd[1], true);
	for (i = 40; i-- > 0;) {
		CHECK_EQ(metad_client_give_back(&c, inos[i],
						META_RETURN_ORPHAN |
							META_RETURN_LEASE), 0);
		CHECK_EQ(metad_client_sync(&c), 0);
		sleep_ms(30); /* longer than deletions gather */
	}
	for (i = 0; i < 40; i++)
		EVENTUALLY(fake_blockd_purged(x->blockd[0], inos[i]) > 0);
	CHECK_EQ(metad_admin_number(x, WIRE_OP_ADMIN_STATUS, "purge_pending"),
		 40);
	/* And not again and again. */
	calls = fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_PURGE);
	sleep_ms(1200);
	CHECK(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_PURGE) <= calls + 1);
	/* Who was not connected for a moment is told soon, whoever else is
	 * away for long. */
	sleep_ms(6000);
	fake_blockd_set_down(x->blockd[0], true);
	sleep_ms(100);
	CHECK_EQ(metad_client_give_back(&c, inos[40], META_RETURN_ORPHAN |
						META_RETURN_LEASE), 0);
	CHECK_EQ(metad_client_sync(&c), 0);
	sleep_ms(SOON_MS);
	fake_blockd_set_down(x->blockd[0], false);
	EVENTUALLY(fake_blockd_purged(x->blockd[0], inos[40]) > 0);
	/* And so is one of several who are away when it is back. */
	fake_blockd_set_down(x->blockd[0], true);
	sleep_ms(6500);
	CHECK_EQ(metad_client_give_back(&c, inos[41], META_RETURN_ORPHAN |
						META_RETURN_LEASE), 0);
	CHECK_EQ(metad_client_sync(&c), 0);
	sleep_ms(SOON_MS);
	fake_blockd_set_down(x->blockd[0], false);
	EVENTUALLY(fake_blockd_purged(x->blockd[0], inos[41]) > 0);
	fake_blockd_set_down(x->blockd[1], false);
	for (i = 0; i < 42; i++)
		EVENTUALLY(fake_blockd_purged(x->blockd[1], inos[i]) > 0);
	EVENTUALLY(metad_admin_number(x, WIRE_OP_ADMIN_STATUS,
				      "purge_pending") == 0);
	metad_client_fini(&c);
}

/* A store that could not purge for a while, as its disk had failed, has its
 * space back as soon as it was started again. */
static void who_is_mended_is_told_at_once(struct metad_run *x)
{
	struct metad_client c;
	uint64_t start, ino;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	ino = c.attr.ino;
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "f"), 0);
	fake_blockd_fail(x->blockd[1], WIRE_OP_BLK_PURGE, -EROFS);
	CHECK_EQ(metad_client_give_back(&c, ino, META_RETURN_ORPHAN |
						META_RETURN_LEASE), 0);
	CHECK_EQ(metad_client_sync(&c), 0);
	/* After 0, 1 and 3 s; the next is due 4 s later. */
	EVENTUALLY(fake_blockd_calls(x->blockd[1], WIRE_OP_BLK_PURGE) == 3);
	fake_blockd_fail(x->blockd[1], 0, 0);
	start = now_ms();
	fake_blockd_restart(x->blockd[1]);
	EVENTUALLY(fake_blockd_purged(x->blockd[1], ino) > 0);
	CHECK(now_ms() - start < 2000);
	EVENTUALLY(metad_admin_number(x, WIRE_OP_ADMIN_STATUS,
				      "purge_pending") == 0);
	metad_client_fini(&c);
}

static uint64_t cpu_ms(struct metad_run *x)
{
	char path[64];
	unsigned long long ns = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)x->child.pid);
	f = fopen(path, "re");
	CHECK(f && fscanf(f, "%llu", &ns) == 1); /* of the loop's thread */
	if (f)
		fclose(f);
	return ns / 1000000;
}

static void send_create(struct metad_client *c)
{
	uint8_t b[128];
	size_t len = METAD_BODY(b, meta_create,
				{ .parent = ROOT_INO,
				  .flags = META_CREATE_TMPFILE |
					   META_CREATE_LEASE,
				  .mode = S_IFREG | 0644 });

	c->seq_low = c->seq > 256 ? c->seq - 256 : 1;
	(void)metad_client_send(c, WIRE_OP_META_CREATE, b, len);
}

/* The file of a create's answer goes. */
static void send_return(struct metad_client *c, const struct frame *f)
{
	struct meta_return m = { .what = META_RETURN_LEASE |
					 META_RETURN_ORPHAN };
	struct meta_rhdr rhdr;
	struct wire_in in;
	struct wire_out o;
	uint8_t b[128];

	wire_in_init(&in, f->body, f->h.body_len);
	meta_rhdr_decode(&in, &rhdr);
	m.ino = wire_get_u64(&in); /* meta_attr starts with it */
	wire_out_init(&o, b, sizeof(b));
	meta_return_encode(&o, &m);
	(void)metad_client_send(c, WIRE_OP_META_RETURN, b, o.len);
}

/* Many files were deleted while a block daemon is away for long: that they wait
 * for it costs nothing. */
static void waiting_to_be_purged_is_idle(struct metad_run *x)
{
	enum { FILES = 100000 };
	uint64_t sent = 0, got = 0, used;
	struct metad_client c;
	struct frame *f;

	metad_client_begin(x, &c);
	metad_run_blockd_end(x, 1);
	while (got < FILES) {
		for (; sent < FILES && sent - got < 64; sent++)
			send_create(&c);
		f = raw_recv(&c.r, LONG_MS);
		if (!f)
			break;
		if (f->h.opcode == WIRE_OP_META_CREATE)
			send_return(&c, f);
		else
			got++;
		frame_free(f);
	}
	CHECK_EQ(got, FILES);
	CHECK_EQ(metad_client_sync(&c), 0);
	sleep_ms(8000); /* until it counts as away, and all is parked */
	CHECK_EQ(metad_admin_number(x, WIRE_OP_ADMIN_STATUS, "purge_pending"),
		 FILES);
	used = cpu_ms(x);
	sleep_ms(4000);
	used = cpu_ms(x) - used;
	printf("# %llu ms of CPU in 4 s\n", (unsigned long long)used);
	CHECK(used < 12);
	metad_client_fini(&c);
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(a_cut_waits_for_every_daemon, 2),
		METAD_TEST(a_cut_survives_a_kill, 1),
		METAD_TEST(an_answered_cut_is_not_made_again, 1),
		METAD_TEST(what_a_cut_freed_is_not_lost_with_its_answer, 2),
		METAD_TEST(a_file_being_cut_is_not_shown_to_the_next, 1),
		METAD_TEST(the_end_of_a_dead_session_waits_for_its_cut, 1),
		METAD_TEST(what_is_deleted_is_purged_everywhere, 2),
		METAD_TEST(who_is_away_keeps_no_space_elsewhere, 2),
		METAD_TEST(who_is_mended_is_told_at_once, 2),
		METAD_TEST(waiting_to_be_purged_is_idle, 2),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
