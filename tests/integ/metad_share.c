/* The real hail-metad and several sessions: who is let in, whose turn it is to
 * have a lease, what each is told.
 *
 * The sessions are played by hand, so that each step of a recall can be looked
 * at, left out or done late.
 */
#include "common/lock_table.h"
#include "tests/lib/metad_client.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>

#define LONG_MS 20000
#define NEVER_MS 300 /* nothing comes for so long */

/* Two who share, and a file. */
static uint64_t begin(struct metad_run *x, struct metad_client *c,
		      struct metad_client *d)
{
	metad_run_start(x, NULL);
	for (uint32_t i = 0; i < x->blockd_count; i++)
		metad_run_blockd(x, i, 11 + i, 1);
	metad_client_join(x, c, 1);
	metad_client_join(x, d, 2);
	CHECK_EQ(metad_client_create(c, ROOT_INO, "f", 0), 0);
	return c->attr.ino;
}

static void only_those_who_share_are_let_in(struct metad_run *x)
{
	struct metad_client c, d, e;

	metad_run_start(x, NULL);
	metad_client_join(x, &c, 1);
	CHECK_EQ(metad_client_open(x, &d, 2), -EBUSY);
	metad_client_fini(&d);
	CHECK_EQ(metad_client_open_as(x, &d, 2, 0x80000000u), -EOPNOTSUPP);
	metad_client_fini(&d);
	metad_client_join(x, &d, 2);
	/* The same mount point again: its process is dead. The other stays. */
	metad_client_join(x, &e, 1);
	CHECK(raw_closed(&c.r, LONG_MS));
	CHECK_EQ(metad_client_create(&d, ROOT_INO, "f", 0), 0);
	CHECK_EQ(metad_client_lookup(&e, ROOT_INO, "f"), 0);
	CHECK_EQ(metad_client_call(&d, WIRE_OP_META_SESSION_CLOSE, NULL, 0),
		 0);
	CHECK_EQ(metad_client_open(x, &c, 3), -EBUSY);
	CHECK_EQ(metad_client_call(&e, WIRE_OP_META_SESSION_CLOSE, NULL, 0),
		 0);
	metad_client_fini(&c);
	/* And who has it alone lets nobody in. */
	CHECK_EQ(metad_client_open(x, &c, 3), 0);
	metad_client_fini(&d);
	CHECK_EQ(metad_client_open_as(x, &d, 2, META_SESSION_SHARED), -EBUSY);
	metad_client_fini(&c);
	metad_client_fini(&d);
	metad_client_fini(&e);
}

static void a_lease_is_waited_for_and_its_holder_told(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t f = begin(x, &c, &d), id, ev, ev2;

	/* Free: at once. */
	CHECK_EQ(metad_client_wanted(&c, f, true), 0);
	CHECK_EQ(metad_client_lease(&c, f), 0);
	CHECK_EQ(metad_client_wanted(&c, f, true), 0);
	CHECK_EQ(metad_client_lease(&d, f), -EBUSY);
	ev = metad_client_listen(&c);
	/* One at a time. */
	ev2 = metad_client_listen(&c);
	CHECK_EQ(metad_client_recv(&c, ev2, LONG_MS), -EAGAIN);
	id = metad_client_want(&d, f, false);
	metad_client_told(&c, ev, META_EVENT_RECALL, f);
	CHECK_EQ(metad_client_recv(&d, id, NEVER_MS), -ETIMEDOUT);
	/* Again, when it is not obeyed. */
	metad_client_told(&c, metad_client_listen(&c), META_EVENT_RECALL, f);
	CHECK_EQ(metad_client_give_back(&c, f, META_RETURN_LEASE |
					META_RETURN_SIZE), 0);
	CHECK_EQ(metad_client_recv(&d, id, LONG_MS), 0);
	/* An inode that is not there, and nonsense. */
	CHECK_EQ(metad_client_wanted(&d, 4711, true), -ENOENT);
	CHECK_EQ(metad_client_wanted(&d, 0, true), -EBADMSG);
	CHECK_EQ(metad_client_call(&d, WIRE_OP_META_EVENTS, "x", 1), -EBADMSG);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void who_waits_has_it_in_turn(struct metad_run *x)
{
	struct metad_client c, d, e;
	uint64_t f = begin(x, &c, &d), ev, first, second, again, look;

	metad_client_join(x, &e, 3);
	CHECK_EQ(metad_client_lease(&c, f), 0);
	ev = metad_client_listen(&c);
	first = metad_client_want(&d, f, true);
	metad_client_told(&c, ev, META_EVENT_RECALL, f);
	second = metad_client_want(&e, f, true);
	CHECK_EQ(metad_client_recv(&e, second, NEVER_MS), -ETIMEDOUT);
	look = metad_client_want(&e, f, false);
	CHECK_EQ(metad_client_give_back(&c, f, META_RETURN_LEASE), 0);
	/* Who had it comes last, also when it asks at once. */
	again = metad_client_want(&c, f, true);
	CHECK_EQ(metad_client_recv(&d, first, LONG_MS), 0);
	CHECK_EQ(metad_client_lease(&d, f), 0);
	/* Who only looks waits for no turn. */
	CHECK_EQ(metad_client_recv(&e, look, LONG_MS), 0);
	CHECK_EQ(metad_client_recv(&c, again, NEVER_MS), -ETIMEDOUT);
	metad_client_told(&d, metad_client_listen(&d), META_EVENT_RECALL, f);
	CHECK_EQ(metad_client_give_back(&d, f, META_RETURN_LEASE), 0);
	CHECK_EQ(metad_client_recv(&e, second, LONG_MS), 0);
	/* It does not come for it: it is the next one's. */
	CHECK_EQ(metad_client_recv(&c, again, LONG_MS), 0);
	CHECK_EQ(metad_client_lease(&c, f), 0);
	metad_client_fini(&c);
	metad_client_fini(&d);
	metad_client_fini(&e);
}

static void who_is_silent_is_ended_for_those_who_wait(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t f = begin(x, &c, &d), id;

	fake_blockd_set_end(x->blockd[0], 123456, 20, 1);
	CHECK_EQ(metad_client_lease(&c, f), 0);
	id = metad_client_want(&d, f, true);
	for (int i = 0; i < 30; i++) {
		CHECK_EQ(metad_client_call(&d, WIRE_OP_META_KEEPALIVE,
					   "\0\0\0\0", 4), 0);
		if (raw_closed(&c.r, 500))
			break;
	}
	CHECK_EQ(metad_client_reconnect(&c), -ESTALE);
	/* Its keepalives' answers were taken for it. */
	metad_client_disconnect(&d);
	CHECK_EQ(metad_client_reconnect(&d), 0);
	id = metad_client_want(&d, f, true);
	CHECK_EQ(metad_client_recv(&d, id, LONG_MS), 0);
	CHECK_EQ(metad_client_getattr(&d, f), 0);
	CHECK_EQ(d.attr.size, 123456);
	CHECK_EQ(fake_blockd_last_fence(x->blockd[0]), c.session);
	CHECK_EQ(metad_client_lease(&d, f), 0);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void all_are_told_of_what_has_no_name(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t f = begin(x, &c, &d), g, ev;

	ev = metad_client_listen(&d);
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "f"), 0);
	metad_client_told(&d, ev, META_EVENT_ORPHAN, f);
	CHECK_EQ(metad_client_give_back(&c, f, META_RETURN_ORPHAN), 0);
	CHECK_EQ(metad_client_getattr(&c, f), 0);
	/* The answer was lost with the connection: told anew. */
	metad_client_disconnect(&d);
	CHECK_EQ(metad_client_reconnect(&d), 0);
	metad_client_told(&d, metad_client_listen(&d), META_EVENT_ORPHAN, f);
	CHECK_EQ(metad_client_give_back(&d, f, META_RETURN_ORPHAN), 0);
	CHECK_EQ(metad_client_getattr(&c, f), -ENOENT);
	/* What is renamed over, after a restart. */
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "a", 0), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "b", 0), 0);
	g = c.attr.ino;
	CHECK_EQ(metad_client_rename(&c, ROOT_INO, "a", ROOT_INO, "b"), 0);
	child_kill9(&x->child);
	metad_client_disconnect(&c);
	metad_client_disconnect(&d);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_reconnect(&d), 0);
	metad_client_told(&d, metad_client_listen(&d), META_EVENT_ORPHAN, g);
	metad_client_told(&c, metad_client_listen(&c), META_EVENT_ORPHAN, g);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* Alone, a session would do again what is lost; with others it would not get
 * the numbers that it was told. */
static void what_several_are_told_survives_a_kill(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t inos[2][50];
	char name[16];

	(void)begin(x, &c, &d);
	for (int i = 0; i < 50; i++) {
		(void)snprintf(name, sizeof(name), "c%d", i);
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
		inos[0][i] = c.attr.ino;
		(void)snprintf(name, sizeof(name), "d%d", i);
		CHECK_EQ(metad_client_create(&d, ROOT_INO, name, 0), 0);
		inos[1][i] = d.attr.ino;
	}
	child_kill9(&x->child);
	metad_client_disconnect(&c);
	metad_client_disconnect(&d);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&d), 0);
	for (int i = 0; i < 50; i++) {
		(void)snprintf(name, sizeof(name), "c%d", i);
		CHECK_EQ(metad_client_lookup(&d, ROOT_INO, name), 0);
		CHECK_EQ(d.attr.ino, inos[0][i]);
		(void)snprintf(name, sizeof(name), "d%d", i);
		CHECK_EQ(metad_client_lookup(&d, ROOT_INO, name), 0);
		CHECK_EQ(d.attr.ino, inos[1][i]);
	}
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void keepalive(struct metad_client *c)
{
	uint8_t b[8];
	size_t len = METAD_BODY(b, meta_keepalive, { .status = { NULL, 0 } });

	CHECK_EQ(metad_client_call(c, WIRE_OP_META_KEEPALIVE, b, len), 0);
}

/* Who was alone may have been told what a metad that was killed has lost, and
 * does it again: nobody comes before it. */
static void nobody_comes_before_what_is_sent_again(struct metad_run *x)
{
	uint8_t b[64];
	struct meta_session_open m = { .client_id = 2, .host = { "h", 1 },
				       .mountpoint = { "/m", 2 } };
	struct metad_client c, d;
	struct wire_out o;
	uint64_t id;

	metad_run_start(x, NULL);
	metad_client_join(x, &c, 1);
	child_kill9(&x->child);
	metad_client_disconnect(&c);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_open_as(x, &d, 2, 0x80000000u), -EOPNOTSUPP);
	wire_out_init(&o, b, sizeof(b));
	meta_session_open_encode(&o, &m);
	wire_put_u32(&o, META_SESSION_SHARED);
	id = metad_client_send(&d, WIRE_OP_META_SESSION_OPEN, b, o.len);
	CHECK_EQ(metad_client_recv(&d, id, NEVER_MS), -ETIMEDOUT);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "nothing"), -ENOENT);
	CHECK_EQ(metad_client_recv(&d, id, NEVER_MS), -ETIMEDOUT);
	keepalive(&c);
	CHECK_EQ(metad_client_recv(&d, id, LONG_MS), 0);
	/* Who never comes back is in nobody's way for long. */
	child_kill9(&x->child);
	metad_client_disconnect(&c);
	metad_client_disconnect(&d);
	metad_client_fini(&d);
	metad_run_start(x, NULL);
	metad_client_join(x, &d, 3);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* ---- locks ---- */

/* A lock of one byte, by a process of the owner's number. */
#define BYTE(i, t, at, who)                                                   \
	{ .ino = (i), .type = (t), .start = (at), .end = (at),                \
	  .owner = (who), .pid = (who) }

/* 1: taken, 0: in use, or -errno. */
static int lock(struct metad_client *c, struct meta_lock m)
{
	struct meta_lock_reply got;
	uint8_t b[64];
	struct wire_out o;
	int rv;

	wire_out_init(&o, b, sizeof(b));
	meta_lock_encode(&o, &m);
	rv = metad_client_call(c, WIRE_OP_META_LOCK, b, o.len);
	if (rv < 0)
		return rv;
	CHECK_EQ(meta_lock_reply_parse(c->reply, c->reply_len, &got), 0);
	return got.taken;
}

static int take(struct metad_client *c, uint64_t f, uint64_t at, uint32_t who)
{
	return lock(c, (struct meta_lock)BYTE(f, LOCK_TYPE_WRITE, at, who));
}

static int drop(struct metad_client *c, uint64_t f, uint64_t at, uint32_t who)
{
	return lock(c, (struct meta_lock)BYTE(f, LOCK_TYPE_UNLOCK, at, who));
}

static uint64_t wait_for(struct metad_client *c, uint64_t f, uint64_t at,
			 uint32_t who, uint64_t id)
{
	struct meta_lock m = BYTE(f, LOCK_TYPE_WRITE, at, who);
	uint8_t b[64];
	struct wire_out o;

	wire_out_init(&o, b, sizeof(b));
	meta_lock_encode(&o, &m);
	wire_put_u64(&o, id);
	return metad_client_send(c, WIRE_OP_META_LOCK_WAIT, b, o.len);
}

static uint64_t cancel(struct metad_client *c, uint64_t id)
{
	uint8_t b[8];
	size_t len = METAD_BODY(b, meta_lock_cancel, { .id = id });

	return metad_client_send(c, WIRE_OP_META_LOCK_CANCEL, b, len);
}

static void a_lock_is_waited_for_in_order(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t f = begin(x, &c, &d), id[4];

	/* Free: at once. */
	CHECK_EQ(metad_client_recv(&c, wait_for(&c, f, 0, 1, 1), LONG_MS), 0);
	CHECK_EQ(take(&d, f, 0, 1), 0);
	id[0] = wait_for(&d, f, 0, 1, 1);
	id[1] = wait_for(&c, f, 0, 2, 2);
	id[2] = wait_for(&d, f, 0, 3, 2);
	CHECK_EQ(metad_client_recv(&d, id[0], NEVER_MS), -ETIMEDOUT);
	CHECK_EQ(drop(&c, f, 0, 1), 1);
	CHECK_EQ(metad_client_recv(&d, id[0], LONG_MS), 0);
	CHECK_EQ(metad_client_recv(&c, id[1], NEVER_MS), -ETIMEDOUT);
	/* One that is given up leaves its place to the next. */
	id[3] = cancel(&c, 2);
	CHECK_EQ(metad_client_recv(&c, id[1], LONG_MS), -EINTR);
	CHECK_EQ(metad_client_recv(&c, id[3], LONG_MS), 0);
	CHECK_EQ(metad_client_recv(&c, cancel(&c, 2), LONG_MS), -ENOENT);
	CHECK_EQ(drop(&d, f, 0, 1), 1);
	CHECK_EQ(metad_client_recv(&d, id[2], LONG_MS), 0);
	/* And of a session that has ended nothing is in the way. */
	id[3] = wait_for(&c, f, 0, 1, 3);
	CHECK_EQ(metad_client_call(&d, WIRE_OP_META_SESSION_CLOSE, NULL, 0),
		 0);
	CHECK_EQ(metad_client_recv(&c, id[3], LONG_MS), 0);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void who_would_wait_for_himself_is_told(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t f = begin(x, &c, &d), id, id2;

	/* The same numbers in both: four processes. */
	CHECK_EQ(take(&c, f, 0, 1), 1);
	CHECK_EQ(take(&d, f, 1, 1), 1);
	CHECK_EQ(take(&d, f, 2, 2), 1);
	id = wait_for(&c, f, 1, 1, 1);
	id2 = wait_for(&d, f, 2, 1, 1);
	CHECK_EQ(metad_client_recv(&d, wait_for(&d, f, 0, 2, 2), LONG_MS),
		 -EDEADLK);
	/* Who is not of the circle may wait. */
	CHECK_EQ(drop(&d, f, 2, 2), 1);
	CHECK_EQ(metad_client_recv(&d, id2, LONG_MS), 0);
	CHECK_EQ(metad_client_recv(&c, id, NEVER_MS), -ETIMEDOUT);
	CHECK_EQ(drop(&d, f, 1, 1), 1);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* The connection, or metad, is gone with the answer: asked again it is as if
 * nothing had happened. */
static void a_lock_granted_in_vain_is_found_again(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t f = begin(x, &c, &d), id;

	CHECK_EQ(take(&c, f, 0, 1), 1);
	(void)wait_for(&d, f, 0, 1, 7);
	CHECK_EQ(metad_client_lookup(&d, ROOT_INO, "f"), 0); /* it came */
	CHECK_EQ(drop(&c, f, 0, 1), 1);
	metad_client_disconnect(&d);
	CHECK_EQ(metad_client_reconnect(&d), 0);
	CHECK_EQ(take(&c, f, 0, 1), 0);
	CHECK_EQ(metad_client_recv(&d, wait_for(&d, f, 0, 1, 7), LONG_MS), 0);
	/* Who waits while metad restarts waits on, and what was held is. */
	(void)wait_for(&c, f, 0, 1, 1);
	child_kill9(&x->child);
	metad_client_disconnect(&c);
	metad_client_disconnect(&d);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_reconnect(&d), 0);
	id = wait_for(&c, f, 0, 1, 1);
	CHECK_EQ(metad_client_recv(&c, id, NEVER_MS), -ETIMEDOUT);
	/* Twice over one connection is once. */
	id = wait_for(&c, f, 0, 1, 1);
	CHECK_EQ(drop(&d, f, 0, 1), 1);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
	CHECK_EQ(metad_client_recv(&c, cancel(&c, 1), LONG_MS), -ENOENT);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static void only_so_many_wait(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t f = begin(x, &c, &d), id = 0;

	CHECK_EQ(take(&d, f, 0, 1), 1);
	for (uint64_t i = 0; i <= WANT_COUNT_MAX; i++)
		id = wait_for(&c, f, 0, 1, i);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), -ENOLCK);
	/* They go with the connection. */
	metad_client_disconnect(&c);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	id = wait_for(&c, f, 0, 1, 0);
	CHECK_EQ(drop(&d, f, 0, 1), 1);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(only_those_who_share_are_let_in, 0),
		METAD_TEST(a_lease_is_waited_for_and_its_holder_told, 0),
		METAD_TEST(who_waits_has_it_in_turn, 0),
		METAD_TEST(who_is_silent_is_ended_for_those_who_wait, 1),
		METAD_TEST(all_are_told_of_what_has_no_name, 0),
		METAD_TEST(what_several_are_told_survives_a_kill, 0),
		METAD_TEST(nobody_comes_before_what_is_sent_again, 0),
		METAD_TEST(a_lock_is_waited_for_in_order, 0),
		METAD_TEST(who_would_wait_for_himself_is_told, 0),
		METAD_TEST(a_lock_granted_in_vain_is_found_again, 0),
		METAD_TEST(only_so_many_wait, 0),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
