/* The handshake without a network: who has the key gets in and has the same
 * secrets as the other side, however the bytes are cut; who has not is told no
 * more than that; what is agreed on cannot be talked down.
 */
#include "common/greet.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>


#define ANY (GUARD_PLAIN | GUARD_MAC | GUARD_CRYPT)

struct end {
	struct greet *g;
	int rv; /* of greet_feed(); 0: goes on */
	uint8_t in[2 * GREET_IN_MAX]; /* what the other has sent */
	size_t in_len, sent; /* all in all */
};

static struct end client, server;
static struct keyring ring, other;
/* At most so many bytes are handed over at a time. */
static size_t piece;
/* Told of each byte on its way. */
static void (*meddle)(const struct end *to, uint8_t *p, size_t len);

static int set_up(void **state)
{
	(void)state;
	assert_int_equal(keyring_new(&ring), 0);
	assert_int_equal(keyring_new(&other), 0);
	piece = SIZE_MAX;
	meddle = NULL;
	return 0;
}

static void begin(const struct key *key, const struct keyring *accepts,
		  uint32_t offered, uint32_t taken)
{
	memset(&client, 0, sizeof(client));
	memset(&server, 0, sizeof(server));
	assert_int_equal(greet_connect(key, offered, &client.g), 0);
	assert_int_equal(greet_accept(accepts, taken, &server.g), 0);
}

static void end(void)
{
	greet_free(client.g);
	greet_free(server.g);
}

static void hand_over(struct end *from, struct end *to)
{
	const void *p;
	size_t len = greet_out(from->g, &p);

	assert_true(to->in_len + len <= sizeof(to->in));
	if (len > 0)
		memcpy(to->in + to->in_len, p, len);
	if (meddle && len > 0)
		meddle(to, to->in + to->in_len, len);
	to->in_len += len;
	from->sent += len;
	assert_int_equal(greet_out(from->g, &p), 0);
}

/* Feeds a piece of what is there. Returns whether there was any. */
static bool step(struct end *x)
{
	size_t len = u64_min(x->in_len, piece), used;

	if (x->rv != 0 || len == 0)
		return false;
	x->rv = greet_feed(x->g, x->in, len, &used);
	assert_true(x->rv != 0 || used == len);
	memmove(x->in, x->in + used, x->in_len - used);
	x->in_len -= used;
	return true;
}

/* Until neither has anything to say. */
static void talk(void)
{
	size_t used;
	bool more;

	client.rv = greet_feed(client.g, NULL, 0, &used);
	do {
		hand_over(&client, &server);
		more = step(&server);
		hand_over(&server, &client);
		more |= step(&client);
	} while (more);
}

static void seals_fit(enum seal_kind kind)
{
	struct seal *in[2], *out[2];
	uint8_t p[2][100], tag[2][SEAL_TAG_SIZE];

	assert_int_equal(greet_seals(client.g, &in[0], &out[0]), 0);
	assert_int_equal(greet_seals(server.g, &in[1], &out[1]), 0);
	for (unsigned from = 0; from < 2; from++) {
		struct iovec iov = { p[from], sizeof(p[from]) };

		memset(p[from], 7, sizeof(p[from]));
		assert_int_equal(seal_kind(out[from]), kind);
		seal_put(out[from], &iov, 1,
			 kind == SEAL_CRYPT ? p[from] : NULL,
			 tag[from]);
		assert_int_equal(seal_get(in[!from], &iov, 1, tag[from]), 0);
		assert_int_equal(p[from][99], 7);
	}
	/* Each way has its own secret: nothing can be sent back. */
	assert_memory_not_equal(tag[0], tag[1], sizeof(tag[0]));
	for (unsigned i = 0; i < 2; i++) {
		seal_free(in[i]);
		seal_free(out[i]);
	}
}

static void both_are_in(enum wire_guard guard)
{
	assert_int_equal(client.rv, 1);
	assert_int_equal(server.rv, 1);
	assert_int_equal(greet_guard(client.g), guard);
	assert_int_equal(greet_guard(server.g), guard);
	assert_true(greet_key(server.g) == greet_key(client.g));
	if (guard != GUARD_PLAIN)
		seals_fit(guard == GUARD_CRYPT ? SEAL_CRYPT : SEAL_MAC);
}

static void the_key_lets_in(void **state)
{
	struct seal *in, *out;

	(void)state;
	begin(&ring.keys[0], &ring, ANY, ANY);
	talk();
	both_are_in(GUARD_CRYPT);
	end();
	begin(&ring.keys[0], &ring, ANY, GUARD_MAC);
	talk();
	both_are_in(GUARD_MAC);
	end();
	begin(&ring.keys[0], &ring, GUARD_PLAIN, ANY);
	talk();
	both_are_in(GUARD_PLAIN);
	assert_int_equal(greet_seals(server.g, &in, &out), 0);
	assert_null(in);
	assert_null(out);
	end();
}

/* What names it and what it agrees on is there for all to see, in the first
 * message: it stays as it is as long as the handshake does. */
static void its_names_are_those_of_version_1(void **state)
{
	static const char *const names[] = { "\014hail/1 crypt",
					     "\012hail/1 mac",
					     "\014hail/1 plain" };
	size_t used, len;
	const void *p;
	char id[17];

	(void)state;
	(void)snprintf(id, sizeof(id), "%016llx",
		       (unsigned long long)ring.keys[0].id);
	begin(&ring.keys[0], &ring, ANY, ANY);
	assert_int_equal(greet_feed(client.g, NULL, 0, &used), 0);
	len = greet_out(client.g, &p);
	for (size_t i = 0; i < array_count(names); i++)
		assert_non_null(memmem(p, len, names[i], strlen(names[i])));
	assert_non_null(memmem(p, len, id, strlen(id)));
	end();
}

static void bytes_come_one_by_one(void **state)
{
	(void)state;
	piece = 1;
	begin(&ring.keys[0], &ring, ANY, ANY);
	talk();
	both_are_in(GUARD_CRYPT);
	end();
}

static void frames_may_follow_at_once(void **state)
{
	size_t used;

	(void)state;
	begin(&ring.keys[0], &ring, ANY, ANY);
	client.rv = greet_feed(client.g, NULL, 0, &used);
	hand_over(&client, &server);
	assert_true(step(&server));
	hand_over(&server, &client);
	assert_true(step(&client));
	assert_int_equal(client.rv, 1);
	hand_over(&client, &server);
	memset(server.in + server.in_len, 'x', 100);
	server.in_len += 100;
	assert_true(step(&server));
	assert_int_equal(server.rv, 1);
	assert_int_equal(server.in_len, 100);
	assert_int_equal(server.in[0], 'x');
	end();
}

static void the_old_key_still_does(void **state)
{
	struct key old = ring.keys[0];

	(void)state;
	assert_int_equal(keyring_rotate(&ring), 0);
	begin(&old, &ring, ANY, ANY);
	talk();
	both_are_in(GUARD_CRYPT);
	assert_true(greet_key(server.g) == old.id);
	end();
	begin(&ring.keys[0], &ring, ANY, ANY);
	talk();
	both_are_in(GUARD_CRYPT);
	end();
	/* The one before it does not. */
	assert_int_equal(keyring_rotate(&ring), 0);
	begin(&old, &ring, ANY, ANY);
	talk();
	assert_int_equal(server.rv, -EKEYREJECTED);
	assert_int_equal(client.rv, -EKEYREJECTED);
	end();
}

/* Who is refused is told in so many bytes at most. */
#define REFUSAL_MAX 7u

static void refused(void)
{
	assert_int_equal(server.rv, -EKEYREJECTED);
	assert_int_equal(client.rv, -EKEYREJECTED);
	assert_true(server.sent <= REFUSAL_MAX);
}

static void another_key_does_not(void **state)
{
	struct key forged = other.keys[0];

	(void)state;
	begin(&other.keys[0], &ring, ANY, ANY);
	talk();
	refused();
	end();
	/* The right name, another secret. */
	forged.id = ring.keys[0].id;
	begin(&forged, &ring, ANY, ANY);
	talk();
	refused();
	end();
	/* One bit of it. */
	forged = ring.keys[0];
	forged.secret[KEY_SECRET_SIZE - 1] ^= 0x80;
	begin(&forged, &ring, ANY, ANY);
	talk();
	refused();
	end();
}

static void nothing_in_common_is_told(void **state)
{
	(void)state;
	begin(&ring.keys[0], &ring, GUARD_PLAIN, GUARD_CRYPT | GUARD_MAC);
	talk();
	assert_int_equal(server.rv, -EPROTONOSUPPORT);
	assert_int_equal(client.rv, -EPROTONOSUPPORT);
	end();
}

static struct {
	const struct end *to;
	size_t at, seen;
	uint8_t flip;
} bit;

static void flip_bit(const struct end *to, uint8_t *p, size_t len)
{
	if (to != bit.to)
		return;
	if (bit.at >= bit.seen && bit.at < bit.seen + len)
		p[bit.at - bit.seen] ^= bit.flip;
	bit.seen += len;
}

/* Any changed byte on the way keeps them apart: never do both think that all
 * is well. (Whose Finished is lost or changed has ended well itself.) */
static void no_byte_can_be_changed(void **state)
{
	size_t lens[2];

	(void)state;
	begin(&ring.keys[0], &ring, ANY, ANY);
	talk();
	lens[0] = client.sent;
	lens[1] = server.sent;
	end();
	meddle = flip_bit;
	for (unsigned to_client = 0; to_client < 2; to_client++) {
		for (size_t at = 0; at < lens[to_client]; at++) {
			bit.to = to_client ? &client : &server;
			bit.at = at;
			bit.seen = 0;
			bit.flip = (uint8_t)(1u << at % 8);
			begin(&ring.keys[0], &ring, ANY, ANY);
			talk();
			if (client.rv == 1 && server.rv == 1) {
				/* What TLS does not cover is its own record
				 * version: nothing hangs on it. */
				both_are_in(GUARD_CRYPT);
				assert_true(at == 1 || at == 2);
			}
			end();
		}
	}
}

static void replace(const struct end *to, uint8_t *p, size_t len)
{
	static const char strong[] = "hail/1 crypt", weak[] = "hail/1 plain";
	uint8_t *at;

	(void)to;
	at = memmem(p, len, strong, strlen(strong));
	if (at)
		memcpy(at, weak, strlen(weak));
}

static void what_is_offered_cannot_be_talked_down(void **state)
{
	(void)state;
	meddle = replace;
	begin(&ring.keys[0], &ring, GUARD_CRYPT, ANY);
	talk();
	assert_true(server.rv < 0);
	assert_true(client.rv < 0);
	end();
}

/* What a port scanner, a browser or an older mount sends. */
static void strangers_are_refused(void **state)
{
	static const char *const says[] = {
		"GET / HTTP/1.0\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n",
		"HAIL\1\0\1\0...............................................",
		"\x16\x03\x01\xff\xff\x01", "\r\n\r\n\r\n\r\n",
	};
	uint8_t noise[4096];
	size_t used;

	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		size_t len = sizeof(noise), fed = 0;

		if (i < array_count(says)) {
			len = strlen(says[i]);
			memcpy(noise, says[i], len);
		} else {
			for (size_t j = 0; j < len; j++)
				noise[j] = (uint8_t)random();
		}
		begin(&ring.keys[0], &ring, ANY, ANY);
		while (server.rv == 0 && fed < 8 * GREET_IN_MAX) {
			server.rv = greet_feed(server.g, noise, len, &used);
			fed += len;
		}
		assert_int_equal(server.rv, -EBADMSG);
		hand_over(&server, &client);
		assert_true(server.sent <= REFUSAL_MAX);
		/* It stays so. */
		assert_int_equal(greet_feed(server.g, noise, 1, &used),
				 -EBADMSG);
		end();
	}
}

/* A server that has no key, but a certificate, or echoes: who connects must
 * not take it for one of ours. */
static void who_connects_is_not_fooled(void **state)
{
	const void *p;
	size_t used, len;
	uint8_t echo[GREET_IN_MAX];

	(void)state;
	begin(&ring.keys[0], &ring, ANY, ANY);
	client.rv = greet_feed(client.g, NULL, 0, &used);
	assert_int_equal(client.rv, 0);
	len = greet_out(client.g, &p);
	memcpy(echo, p, len);
	client.rv = greet_feed(client.g, echo, len, &used);
	assert_true(client.rv < 0);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_key_lets_in, set_up),
		cmocka_unit_test_setup(its_names_are_those_of_version_1,
				       set_up),
		cmocka_unit_test_setup(bytes_come_one_by_one, set_up),
		cmocka_unit_test_setup(frames_may_follow_at_once, set_up),
		cmocka_unit_test_setup(the_old_key_still_does, set_up),
		cmocka_unit_test_setup(another_key_does_not, set_up),
		cmocka_unit_test_setup(nothing_in_common_is_told, set_up),
		cmocka_unit_test_setup(no_byte_can_be_changed, set_up),
		cmocka_unit_test_setup(what_is_offered_cannot_be_talked_down,
				       set_up),
		cmocka_unit_test_setup(strangers_are_refused, set_up),
		cmocka_unit_test_setup(who_connects_is_not_fooled, set_up),
	};

	return cmocka_run_group_tests_name("greet", tests, NULL, NULL);
}
