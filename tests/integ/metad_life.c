/* Goal: what the real hail-metad answered it still knows after a stop or a
 * kill, also to those who ask again; tools are answered.
 * Method: the program as a child, sessions played by hand; TAP.
 *
 * usage: metad_life [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_client.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/wire_admin.h"
#include "tests/lib/tap.h"

#define LONG_MS 15000

static void state_survives_stop_and_kill(struct metad_run *x)
{
	struct metad_client c;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_mkdir(&c, ROOT_INO, "d"), 0);
	CHECK_EQ(metad_client_create(&c, c.attr.ino, "f", 0), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "a", 0), 0);
	/* An orderly stop writes what nobody waited for. */
	CHECK_EQ(child_term(&x->child), 0);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	metad_client_check_list(&c, ROOT_INO, "a\nd\n");
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "b", 0), 0);
	CHECK_EQ(metad_client_sync(&c), 0);
	CHECK(c.rhdr.durable >= c.rhdr.pos);
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	metad_client_check_list(&c, ROOT_INO, "a\nb\nd\n");
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "d"), 0);
	metad_client_check_list(&c, c.attr.ino, "f\n");
	metad_client_fini(&c);
}

static void a_repeated_request_is_answered_once(struct metad_run *x)
{
	struct metad_client c;
	uint8_t b[256];
	uint64_t ino, id;
	size_t len;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_EXCL), 0);
	ino = c.attr.ino;
	len = METAD_BODY(b, meta_create, { .parent = ROOT_INO,
					   .name = { "f", 1 },
					   .mode = S_IFREG | 0644,
					   .flags = META_CREATE_EXCL });
	id = metad_client_send_seq(&c, WIRE_OP_META_CREATE, c.seq, b, len);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
	CHECK_EQ(c.attr.ino, ino);
	/* Also by the next process; and a new number is a new request. */
	CHECK_EQ(metad_client_sync(&c), 0);
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	id = metad_client_send_seq(&c, WIRE_OP_META_CREATE, c.seq, b, len);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
	CHECK_EQ(c.attr.ino, ino);
	CHECK_EQ(metad_client_call(&c, WIRE_OP_META_CREATE, b, len), -EEXIST);
	c.seq_low = c.seq;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "g", 0), 0);
	c.seq_low = 1;
	id = metad_client_send_seq(&c, WIRE_OP_META_CREATE, 1, b, len);
	CHECK_EQ(metad_client_recv(&c, id, LONG_MS), -ESTALE);
	metad_client_fini(&c);
}

static void lost_mutations_come_back_when_sent_again(struct metad_run *x)
{
	struct metad_client c;
	uint8_t b[256];
	uint64_t id;
	size_t len;
	unsigned round;

	for (round = 0; round < 3; round++) {
		metad_run_start(x, NULL);
		if (round == 0)
			CHECK_EQ(metad_client_open(x, &c, 1), 0);
		else
			CHECK_EQ(metad_client_reconnect(&c), 0);
		c.seq_low = c.seq + 1;
		len = METAD_BODY(b, meta_create, { .parent = ROOT_INO,
						   .name = { "abc" + round, 1 },
						   .mode = S_IFREG | 0644 });
		/* Answered before it is durable, then killed. */
		CHECK_EQ(metad_client_call(&c, WIRE_OP_META_CREATE, b, len), 0);
		child_kill9(&x->child);
		metad_run_start(x, NULL);
		CHECK_EQ(metad_client_reconnect(&c), 0);
		id = metad_client_send_seq(&c, WIRE_OP_META_CREATE, c.seq, b,
					   len);
		CHECK_EQ(metad_client_recv(&c, id, LONG_MS), 0);
		CHECK_EQ(metad_client_sync(&c), 0);
		child_kill9(&x->child);
	}
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	metad_client_check_list(&c, ROOT_INO, "a\nb\nc\n");
	metad_client_fini(&c);
}

static void tools_are_answered(struct metad_run *x)
{
	struct admin_inodes_reply m;
	struct metad_client c;
	struct blk_raw r;
	struct frame *f;
	uint8_t b[32];
	char *text;
	size_t len;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	text = metad_admin(x, WIRE_OP_ADMIN_STATUS);
	CHECK_TEXT(text, "\"program\":\"hail-metad\"");
	CHECK_TEXT(text, "\"state\":\"ok\"");
	CHECK_TEXT(text, "\"mountpoint\":\"/mnt/x\"");
	CHECK_TEXT(text, "\"state\":\"up\"");
	free(text);
	text = metad_admin(x, WIRE_OP_ADMIN_SESSIONS);
	CHECK_TEXT(text, "\"host\":\"box\"");
	free(text);
	text = metad_admin(x, WIRE_OP_ADMIN_STATS);
	CHECK_TEXT(text, "\"mutations\"");
	free(text);
	CHECK_EQ(metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, 1, 0), 0);
	len = METAD_BODY(b, admin_inodes, { .count_max = 1 });
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_INODES, b, len, NULL, 0, &f), 0);
	CHECK_EQ(admin_inodes_reply_parse(f->body, f->h.body_len, &m), 0);
	CHECK_EQ(m.count, 1);
	CHECK_EQ(m.done, 0);
	frame_free(f);
	len = METAD_BODY(b, admin_inodes, { .ino = 1, .count_max = 100 });
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_INODES, b, len, NULL, 0, &f), 0);
	CHECK_EQ(admin_inodes_reply_parse(f->body, f->h.body_len, &m), 0);
	CHECK_EQ(m.count, 1);
	CHECK_EQ(m.done, 1);
	frame_free(f);
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_STOP, NULL, 0, NULL, 0, NULL), 0);
	CHECK_EQ(child_wait(&x->child), 0);
	raw_close(&r);
	metad_client_fini(&c);
}

/* Of the fixture: a connection elsewhere, given the port of a daemon that is
 * down, would keep it from starting again. */
static void its_port_stays_its_own_while_it_is_down(struct metad_run *x)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(x->child.port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	metad_run_start(x, NULL);
	child_kill9(&x->child);
	for (unsigned i = 0; i < 2; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0);
		CHECK_EQ(errno, EADDRINUSE);
		close(fd);
		metad_run_start(x, NULL);
		child_kill9(&x->child);
	}
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(state_survives_stop_and_kill, 0),
		METAD_TEST(its_port_stays_its_own_while_it_is_down, 0),
		METAD_TEST(a_repeated_request_is_answered_once, 0),
		METAD_TEST(lost_mutations_come_back_when_sent_again, 0),
		METAD_TEST(tools_are_answered, 1),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
