/* The real hail-metad and what a session that died left in logs: who is told,
 * who may recover it, and who waits until then. (An entry without peers does:
 * metad asks no log daemon.) */
#include "tests/lib/metad_client.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>

#define LONG_MS 20000
#define NEVER_MS 300 /* nothing comes for so long */

static void restart(struct metad_run *x)
{
	child_kill9(&x->child);
	metad_run_start(x, NULL);
}

static void told_of_logs(struct metad_client *c, uint64_t id)
{
	metad_client_told(c, id, META_EVENT_LOGS, ROOT_INO);
}

static int heir(struct metad_client *c, bool on)
{
	uint8_t b[1] = { on };

	return metad_client_call(c, WIRE_OP_META_LOG_HEIR, b, 1);
}

static int raise_log(struct metad_client *c, uint64_t ino, uint64_t *epoch)
{
	struct meta_log_entry e;
	uint8_t b[8];
	size_t len = METAD_BODY(b, meta_ino, { .ino = ino });
	int err = metad_client_call(c, WIRE_OP_META_LOG_RAISE, b, len);

	if (err)
		return err;
	CHECK_EQ(meta_log_entry_parse(c->reply, c->reply_len, &e), 0);
	*epoch = e.epoch;
	return 0;
}

static int drop_log(struct metad_client *c, uint64_t ino, uint64_t epoch)
{
	uint8_t b[16];
	size_t len = METAD_BODY(b, meta_log_drop, { ino, epoch });

	return metad_client_call(c, WIRE_OP_META_LOG_DROP, b, len);
}

/* Three who share, and an entry of the first's; then it is dead: another
 * process of its mount point has come, and gone. */
static uint64_t begin(struct metad_run *x, struct metad_client *d,
		      struct metad_client *e, uint64_t *ev)
{
	struct metad_client c, again;
	uint8_t b[32];
	size_t len;

	metad_run_start(x, NULL);
	for (uint32_t i = 0; i < x->blockd_count; i++)
		metad_run_blockd(x, i, 11 + i, 1);
	metad_client_join(x, &c, 1);
	metad_client_join(x, d, 2);
	metad_client_join(x, e, 3);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "", META_CREATE_TMPFILE |
				     META_CREATE_OPEN | META_CREATE_LEASE), 0);
	len = METAD_BODY(b, meta_log_set, { .ino = c.attr.ino });
	CHECK_EQ(metad_client_call(&c, WIRE_OP_META_LOG_SET, b, len), 0);
	*ev = metad_client_listen(d);
	CHECK_EQ(metad_client_recv(d, *ev, NEVER_MS), -ETIMEDOUT);
	metad_client_join(x, &again, 1);
	CHECK_EQ(metad_client_call(&again, WIRE_OP_META_SESSION_CLOSE, NULL,
				   0), 0);
	metad_client_fini(&c);
	metad_client_fini(&again);
	return c.attr.ino;
}

static void end(struct metad_client *d, struct metad_client *e)
{
	metad_client_fini(d);
	metad_client_fini(e);
}

static void one_is_told_and_then_another(struct metad_run *x)
{
	struct metad_client d, e;
	uint64_t ev, ev2, f = begin(x, &d, &e, &ev), epoch;

	told_of_logs(&d, ev);
	/* It does nothing. */
	ev = metad_client_listen(&d);
	ev2 = metad_client_listen(&e);
	told_of_logs(&e, ev2);
	ev2 = metad_client_listen(&e);
	told_of_logs(&d, ev);
	ev = metad_client_listen(&d);
	CHECK_EQ(heir(&e, true), 0);
	CHECK_EQ(heir(&d, true), -EBUSY);
	CHECK_EQ(raise_log(&d, f, &epoch), -EBUSY);
	CHECK_EQ(metad_client_recv(&d, ev, 1500), -ETIMEDOUT);
	CHECK_EQ(metad_client_recv(&e, ev2, NEVER_MS), -ETIMEDOUT);
	/* It comes to nothing: told again. */
	CHECK_EQ(heir(&e, false), 0);
	told_of_logs(&d, ev);
	CHECK_EQ(heir(&d, true), 0);
	CHECK_EQ(raise_log(&d, f, &epoch), 0);
	CHECK_EQ(drop_log(&d, f, epoch), 0);
	CHECK_EQ(heir(&d, false), 0);
	ev = metad_client_listen(&d);
	CHECK_EQ(metad_client_recv(&d, ev, 1500), -ETIMEDOUT);
	CHECK_EQ(metad_client_recv(&e, ev2, NEVER_MS), -ETIMEDOUT);
	end(&d, &e);
}

static void all_wait_until_it_is_recovered(struct metad_run *x)
{
	struct metad_client d, e;
	uint64_t ev, f = begin(x, &d, &e, &ev), look, write, epoch;

	told_of_logs(&d, ev);
	look = metad_client_want(&e, f, false);
	write = metad_client_want(&e, f, true);
	CHECK_EQ(metad_client_recv(&e, look, NEVER_MS), -ETIMEDOUT);
	look = metad_client_want(&d, f, false);
	CHECK_EQ(metad_client_recv(&d, look, NEVER_MS), -ETIMEDOUT);
	CHECK_EQ(heir(&d, true), 0);
	CHECK_EQ(raise_log(&d, f, &epoch), 0);
	CHECK_EQ(metad_client_lease(&e, f), -EBUSY);
	CHECK_EQ(metad_client_lease(&d, f), 0);
	/* Not recalled: it could not return it; that costs a session. */
	ev = metad_client_listen(&d);
	CHECK_EQ(metad_client_recv(&d, ev, NEVER_MS), -ETIMEDOUT);
	/* Metad restarts: who is the heir is known, and what it is doing. */
	restart(x);
	CHECK_EQ(metad_client_reconnect(&d), 0);
	CHECK_EQ(metad_client_reconnect(&e), 0);
	CHECK_EQ(heir(&e, true), -EBUSY);
	look = metad_client_want(&e, f, false);
	ev = metad_client_want(&d, f, false);
	CHECK_EQ(metad_client_recv(&d, ev, NEVER_MS), -ETIMEDOUT);
	CHECK_EQ(drop_log(&d, f, epoch), 0);
	CHECK_EQ(metad_client_give_back(&d, f, META_RETURN_LEASE), 0);
	CHECK_EQ(metad_client_recv(&e, look, LONG_MS), 0);
	write = metad_client_want(&e, f, true);
	CHECK_EQ(metad_client_recv(&e, write, LONG_MS), 0);
	CHECK_EQ(metad_client_lease(&e, f), 0);
	end(&d, &e);
}

static void what_could_not_be_recovered_is_an_error(struct metad_run *x)
{
	struct metad_client d, e, again;
	uint64_t ev, f = begin(x, &d, &e, &ev), look, epoch;

	told_of_logs(&d, ev);
	CHECK_EQ(heir(&d, true), 0);
	CHECK_EQ(raise_log(&d, f, &epoch), 0);
	look = metad_client_want(&e, f, false);
	CHECK_EQ(metad_client_recv(&e, look, NEVER_MS), -ETIMEDOUT);
	CHECK_EQ(heir(&d, false), 0);
	CHECK_EQ(metad_client_recv(&e, look, LONG_MS), -EIO);
	CHECK_EQ(metad_client_wanted(&e, f, true), -EIO);
	/* For who has it that is its own affair. */
	CHECK_EQ(metad_client_wanted(&d, f, false), 0);
	/* When that one is gone, another may try. */
	ev = metad_client_listen(&e);
	metad_client_join(x, &again, 2);
	told_of_logs(&e, ev);
	CHECK_EQ(heir(&e, true), 0);
	CHECK_EQ(raise_log(&e, f, &epoch), 0);
	look = metad_client_want(&again, f, false);
	CHECK_EQ(metad_client_recv(&again, look, NEVER_MS), -ETIMEDOUT);
	CHECK_EQ(drop_log(&e, f, epoch), 0);
	CHECK_EQ(metad_client_recv(&again, look, LONG_MS), 0);
	metad_client_fini(&again);
	end(&d, &e);
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(one_is_told_and_then_another, 1),
		METAD_TEST(all_wait_until_it_is_recovered, 1),
		METAD_TEST(what_could_not_be_recovered_is_an_error, 1),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
