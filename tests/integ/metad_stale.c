/* Three real hail-metads, of which the one that leads is stopped, as one of a
 * machine that hangs: another takes over, and what the former one still takes
 * for true is not told to anybody when it goes on.
 *
 * Its old connection is played by hand: what is asked over it waits in the
 * socket, and is the first that the process finds.
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "common/wire_admin.h"
#include "tests/lib/metad_client.h"
#include "tests/lib/tap.h"

#define METADS 3u
#define ANSWER_MS 5000

struct metads {
	struct metad_run m[METADS];
	const char *args[METADS][3];
};

static void write_conf(const struct metads *g, const struct child *c)
{
	FILE *f = child_conf(c);

	fprintf(f, "cluster test\nid %#x\nreplicas 1\n", METAD_CLUSTER_ID);
	for (uint32_t i = 0; i < METADS; i++)
		fprintf(f, "metad %u 127.0.0.1:%u data=%s/data\n", i + 1,
			g->m[i].child.port, g->m[i].child.dir);
	CHECK_EQ(fclose(f), 0);
}

static void metads_start(struct metads *g)
{
	static const char *const ids[METADS] = { "1", "2", "3" };

	memset(g, 0, sizeof(*g));
	for (uint32_t i = 0; i < METADS; i++)
		child_init(&g->m[i].child, "metad_stale");
	for (uint32_t i = 0; i < METADS; i++) {
		write_conf(g, &g->m[i].child);
		g->args[i][0] = "--id";
		g->args[i][1] = ids[i];
		metad_run_start(&g->m[i], g->args[i]);
	}
}

static void metads_end(struct metads *g)
{
	for (uint32_t i = 0; i < METADS; i++)
		child_fini(&g->m[i].child);
}

/* A session at whichever of them leads, but @not. A new one, or the one that
 * @c has had elsewhere: then its connection there stays as it is. */
static struct metad_run *session_at_leader(struct metads *g,
					   const struct metad_run *not,
					   struct metad_client *c,
					   uint64_t incarnation)
{
	uint64_t until = now_ms() + CHILD_START_MS;

	for (uint32_t i = 0;; i = (i + 1) % METADS) {
		struct metad_run *x = &g->m[i];
		int rv;

		if (now_ms() > until)
			child_die(&x->child, "nobody leads");
		if (x == not)
			continue;
		x->incarnation = u64_max(x->incarnation, incarnation);
		c->x = x;
		c->connected = false;
		rv = c->session ? metad_client_reconnect(c) :
				  metad_client_open(x, c, 1);
		if (rv == 0)
			return x;
		metad_client_fini(c);
		sleep_ms(5);
	}
}

static uint64_t lookup_send(struct metad_client *c, const char *name)
{
	uint8_t b[64];
	size_t len = METAD_BODY(b, meta_lookup,
				{ .parent = ROOT_INO,
				  .name = { name, (uint32_t)strlen(name) } });

	return metad_client_send(c, WIRE_OP_META_LOOKUP, b, len);
}

/* Until each of its threads stands still. */
static void stop(struct metad_run *x)
{
	siginfo_t si;

	CHECK_EQ(kill(x->child.pid, SIGSTOP), 0);
	CHECK_EQ(waitid(P_PID, (id_t)x->child.pid, &si, WSTOPPED), 0);
}

static void who_was_stopped_tells_nothing_old(void)
{
	struct metad_run *was, *now;
	struct metad_client c = { .session = 0 }, d;
	struct metads g;
	uint64_t id;
	int rv;

	metads_start(&g);
	was = session_at_leader(&g, NULL, &c, 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	CHECK_EQ(metad_client_sync(&c), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "f"), 0);
	stop(was);

	d = c;
	d.reply = NULL;
	now = session_at_leader(&g, was, &d, was->incarnation);
	CHECK_EQ(metad_client_unlink(&d, ROOT_INO, "f"), 0);
	CHECK_EQ(metad_client_sync(&d), 0);
	CHECK_EQ(metad_client_lookup(&d, ROOT_INO, "f"), -ENOENT);

	/* It answers that there is none, or not at all. */
	id = lookup_send(&c, "f");
	CHECK_EQ(kill(was->child.pid, SIGCONT), 0);
	rv = metad_client_recv(&c, id, ANSWER_MS);
	printf("# the one that led says: %s\n", strerror(-rv));
	CHECK(rv == -ECONNRESET || rv == -EREMCHG || rv == -ENOENT);
	/* It was asked before it knew. */
	EVENTUALLY(child_log_has(&was->child, "event=deposed"));
	CHECK(was != now);
	metad_client_fini(&c);
	metad_client_fini(&d);
	metads_end(&g);
}

int main(int argc, char **argv)
{
	tap_init(argc, argv);
	if (tap_begin("who_was_stopped_tells_nothing_old")) {
		who_was_stopped_tells_nothing_old();
		tap_end();
	}
	return tap_done();
}
