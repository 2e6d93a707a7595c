/* Goal: kills of the real hail-metad under a stream of mutations lose nothing
 * that was durable, and what is sent again is done once.
 * Method: a window of mutations on the way, a model of the names, kill -9 at
 * any time; TAP. SEED=N repeats a run.
 *
 * usage: metad_stream [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_client.h"

#include <dirent.h>
#include <sys/stat.h>

#include "common/status.h"
#include "tests/lib/tap.h"

#define LONG_MS 15000
#define STREAM_NAMES 64u
#define STREAM_WINDOW 48u

/* One mutation kept until it is durable. */
struct kept {
	uint64_t seq, pos; /* pos 0: not answered */
	uint16_t op;
	uint32_t len;
	uint64_t id; /* of the request on this connection */
	uint8_t body[128];
	int want; /* what the model says it must answer */
	bool answered;
};

struct stream {
	struct metad_client c;
	struct kept kept[STREAM_WINDOW];
	size_t count;
	bool exists[STREAM_NAMES]; /* after everything sent */
	uint64_t sent, resent;
};

static size_t stream_body(struct stream *s, struct kept *k, unsigned a,
			  unsigned b)
{
	char na[8], nb[8];

	snprintf(na, sizeof(na), "n%02u", a);
	snprintf(nb, sizeof(nb), "n%02u", b);
	k->want = 0;
	switch (k->op) {
	case WIRE_OP_META_CREATE:
		k->want = s->exists[a] ? -EEXIST : 0;
		s->exists[a] = true;
		return METAD_BODY(k->body, meta_create,
				  { .parent = ROOT_INO, .name = { na, 3 },
				    .mode = S_IFREG | 0600,
				    .flags = META_CREATE_EXCL });
	case WIRE_OP_META_UNLINK:
		k->want = s->exists[a] ? 0 : -ENOENT;
		s->exists[a] = false;
		return METAD_BODY(k->body, meta_unlink,
				  { .parent = ROOT_INO, .name = { na, 3 } });
	default:
		k->want = s->exists[a] ? 0 : -ENOENT;
		if (s->exists[a] && a != b) {
			s->exists[a] = false;
			s->exists[b] = true;
		}
		return METAD_BODY(k->body, meta_rename,
				  { .parent = ROOT_INO, .name = { na, 3 },
				    .newparent = ROOT_INO,
				    .newname = { nb, 3 } });
	}
}

static void stream_send_one(struct stream *s)
{
	static const uint16_t ops[] = { WIRE_OP_META_CREATE,
					WIRE_OP_META_CREATE,
					WIRE_OP_META_UNLINK,
					WIRE_OP_META_RENAME };
	struct kept *k = &s->kept[s->count++];

	memset(k, 0, sizeof(*k));
	k->op = ops[tap_random() % array_count(ops)];
	k->len = (uint32_t)stream_body(s, k,
				       (unsigned)(tap_random() % STREAM_NAMES),
				       (unsigned)(tap_random() %
						  STREAM_NAMES));
	k->seq = ++s->c.seq;
	s->c.seq_low = s->kept[0].seq;
	k->id = metad_client_send_seq(&s->c, k->op, k->seq, k->body, k->len);
	s->sent++;
}

/* Forgets what is durable. */
static void stream_settle(struct stream *s)
{
	size_t keep = 0, i;

	while (keep < s->count && s->kept[keep].answered &&
	       s->kept[keep].pos <= s->c.rhdr.durable)
		keep++;
	for (i = keep; i < s->count; i++)
		s->kept[i - keep] = s->kept[i];
	s->count -= keep;
}

static int stream_recv(struct stream *s)
{
	struct kept *k = s->kept;
	struct frame *f = raw_recv(&s->c.r, LONG_MS);
	struct wire_in in;
	int rv;

	if (!f)
		return -errno;
	while (k < s->kept + s->count && k->id != f->h.request_id)
		k++;
	if (k < s->kept + s->count) {
		rv = status_from_wire(f->h.status);
		CHECK_EQ(rv, k->want);
		k->answered = true;
		if (rv == 0) {
			wire_in_init(&in, f->body, f->h.body_len);
			meta_rhdr_decode(&in, &s->c.rhdr);
			k->pos = s->c.rhdr.pos;
		} else {
			k->pos = s->c.rhdr.pos + 1;
		}
	}
	frame_free(f);
	stream_settle(s);
	return 0;
}

static bool stream_all_answered(const struct stream *s)
{
	size_t i;

	for (i = 0; i < s->count; i++)
		if (!s->kept[i].answered)
			return false;
	return true;
}

/* Fills the window and waits for an answer, or for the disk. */
static int stream_step(struct stream *s)
{
	int rv;

	while (s->count < STREAM_WINDOW)
		stream_send_one(s);
	if (!stream_all_answered(s))
		return stream_recv(s);
	rv = metad_client_sync(&s->c);
	stream_settle(s);
	return rv;
}

/* In order, the answered too: they may be lost. */
static void stream_again(struct stream *s)
{
	size_t i, count = s->count;

	CHECK_EQ(metad_client_reconnect(&s->c), 0);
	s->c.rhdr.durable = s->c.rhdr.pos = 0;
	for (i = 0; i < count; i++) {
		struct kept *k = &s->kept[i];

		k->answered = false;
		k->id = metad_client_send_seq(&s->c, k->op, k->seq, k->body,
					      k->len);
		s->resent++;
	}
}

static void stream_drain(struct stream *s)
{
	while (!stream_all_answered(s)) {
		if (stream_recv(s) < 0) {
			CHECK(!"the connection broke");
			return;
		}
	}
	CHECK_EQ(metad_client_sync(&s->c), 0);
	s->count = 0;
}

static void stream_check(struct stream *s)
{
	char want[STREAM_NAMES * 4 + 1], *at = want;
	unsigned i;

	*at = '\0';
	for (i = 0; i < STREAM_NAMES; i++)
		if (s->exists[i])
			at += snprintf(at, 5, "n%02u\n", i);
	metad_client_check_list(&s->c, ROOT_INO, want);
}

static void run_stream(struct metad_run *x, const char *const *args,
		       unsigned kills)
{
	static struct stream s;
	unsigned k;

	memset(&s, 0, sizeof(s));
	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &s.c, 1), 0);
	for (k = 0; k < kills && !tap_failures; k++) {
		uint64_t until = now_us() + 1000 + tap_random() % 60000;

		while (now_us() < until && !tap_failures)
			if (stream_step(&s) < 0)
				break;
		child_kill9(&x->child);
		metad_run_start(x, args);
		stream_again(&s);
		if (k % 4 == 3) {
			stream_drain(&s);
			stream_check(&s);
		}
	}
	stream_drain(&s);
	stream_check(&s);
	CHECK_EQ(child_term(&x->child), 0);
	metad_run_start(x, args);
	CHECK_EQ(metad_client_reconnect(&s.c), 0);
	stream_check(&s);
	printf("# %llu mutations, %llu sent again\n",
	       (unsigned long long)s.sent, (unsigned long long)s.resent);
	metad_client_fini(&s.c);
}

static void kills_under_a_stream_lose_nothing(struct metad_run *x)
{
	run_stream(x, NULL, 16);
}

static void kills_with_snapshots_lose_nothing(struct metad_run *x)
{
	static const char *const args[] = { "--snapshot-bytes", "16k", NULL };
	DIR *d;
	const struct dirent *e;
	char path[128];
	unsigned snapshots = 0;

	run_stream(x, args, 16);
	snprintf(path, sizeof(path), "%s/data/raft", x->child.dir);
	d = opendir(path);
	while (d && (e = readdir(d)))
		snapshots += strncmp(e->d_name, "snapshot-", 9) == 0;
	if (d)
		closedir(d);
	CHECK(snapshots >= 2);
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(kills_under_a_stream_lose_nothing, 0),
		METAD_TEST(kills_with_snapshots_lose_nothing, 0),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
