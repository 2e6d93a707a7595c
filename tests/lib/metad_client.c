#include "tests/lib/metad_client.h"

#include <sys/stat.h>

#include "common/status.h"
#include "tests/lib/tap.h"

#define RECV_MS 20000
#define BODY_MAX 8192

static noreturn_fn void die(const char *what)
{
	fprintf(stderr, "metad_client: %s: %s\n", what, strerror(errno));
	abort();
}

int metad_client_open(struct metad_run *x, struct metad_client *c,
		      uint64_t client_id)
{
	return metad_client_open_as(x, c, client_id, 0);
}

int metad_client_open_as(struct metad_run *x, struct metad_client *c,
			 uint64_t client_id, uint32_t flags)
{
	struct meta_session_open_reply m;
	uint8_t body[128];
	struct wire_out o;
	size_t len;
	int rv;

	memset(c, 0, sizeof(*c));
	c->x = x;
	c->seq_low = 1;
	rv = metad_hello(x, &c->r, WIRE_ROLE_CLIENT, 0, ++x->incarnation, 0);
	if (rv < 0)
		return rv;
	c->connected = true;
	len = METAD_BODY(body, meta_session_open,
			 { .client_id = client_id, .host = { "box", 3 },
			   .mountpoint = { "/mnt/x", 6 } });
	if (flags) {
		wire_out_init(&o, body + len, sizeof(body) - len);
		wire_put_u32(&o, flags);
		len += o.len;
	}
	rv = metad_client_call(c, WIRE_OP_META_SESSION_OPEN, body, len);
	if (rv < 0)
		return rv;
	if (meta_session_open_reply_parse(c->reply, c->reply_len, &m) < 0)
		die("session reply");
	c->session = c->r.session = m.session;
	return 0;
}

void metad_client_join(struct metad_run *x, struct metad_client *c,
		       uint64_t client_id)
{
	CHECK_EQ(metad_client_open_as(x, c, client_id, META_SESSION_SHARED), 0);
}

void metad_client_begin(struct metad_run *x, struct metad_client *c)
{
	metad_run_start(x, NULL);
	for (uint32_t i = 0; i < x->blockd_count; i++)
		metad_run_blockd(x, i, 11 + i, 1);
	CHECK_EQ(metad_client_open(x, c, 1), 0);
}

void metad_client_disconnect(struct metad_client *c)
{
	if (c->connected)
		raw_close(&c->r);
	c->connected = false;
}

int metad_client_reconnect(struct metad_client *c)
{
	int rv;

	metad_client_disconnect(c);
	rv = metad_hello(c->x, &c->r, WIRE_ROLE_CLIENT, c->session,
			 ++c->x->incarnation, 0);
	c->connected = rv == 0;
	return rv;
}

void metad_client_fini(struct metad_client *c)
{
	metad_client_disconnect(c);
	free(c->reply);
	c->reply = NULL;
}

uint64_t metad_client_send_seq(struct metad_client *c, uint16_t op,
			       uint64_t seq, const void *fields, size_t len)
{
	struct meta_mhdr h = { .seq = seq, .seq_low = c->seq_low,
			       .now_ns = (int64_t)seq * 1000000000 };
	uint8_t body[BODY_MAX];
	struct wire_out o;

	wire_out_init(&o, body, sizeof(body));
	meta_mhdr_encode(&o, &h);
	wire_put_raw(&o, fields, len);
	assert(!o.overflow);
	return raw_send(&c->r, op, body, o.len, NULL, 0);
}

uint64_t metad_client_send(struct metad_client *c, uint16_t op,
			   const void *fields, size_t len)
{
	if (op < WIRE_OP_META_CREATE)
		return raw_send(&c->r, op, fields, len, NULL, 0);
	return metad_client_send_seq(c, op, ++c->seq, fields, len);
}

static bool has_attr(uint16_t op)
{
	return op == WIRE_OP_META_LOOKUP || op == WIRE_OP_META_GETATTR ||
	       op == WIRE_OP_META_CREATE || op == WIRE_OP_META_LEASE ||
	       op == WIRE_OP_META_CUT || op == WIRE_OP_META_LINK;
}

static void take_reply(struct metad_client *c, const struct frame *f)
{
	struct wire_in in;

	wire_in_init(&in, f->body, f->h.body_len);
	meta_rhdr_decode(&in, &c->rhdr);
	if (in.bad)
		die("reply");
	free(c->reply);
	c->reply_len = in.len;
	c->reply = malloc(in.len + 1);
	if (!c->reply)
		die("memory");
	memcpy(c->reply, in.p, in.len);
	if (has_attr(f->h.opcode)) {
		meta_attr_decode(&in, &c->attr);
		if (in.bad)
			die("attributes");
	}
}

int metad_client_recv(struct metad_client *c, uint64_t id, int timeout_ms)
{
	struct frame *f;
	int rv;

	for (;;) {
		f = raw_recv(&c->r, timeout_ms);
		if (!f)
			return -errno;
		if (f->h.request_id == id)
			break;
		frame_free(f);
	}
	rv = status_from_wire(f->h.status);
	if (rv == 0)
		take_reply(c, f);
	frame_free(f);
	return rv;
}

int metad_client_call(struct metad_client *c, uint16_t op, const void *fields,
		      size_t len)
{
	return metad_client_recv(c, metad_client_send(c, op, fields, len),
				 RECV_MS);
}

#define STR(s) { (s), (uint32_t)strlen(s) }

static int create(struct metad_client *c, uint64_t dir, const char *name,
		  uint32_t mode, uint32_t flags)
{
	uint8_t b[BODY_MAX];
	size_t len = METAD_BODY(b, meta_create, { .parent = dir,
						  .name = STR(name),
						  .mode = mode,
						  .flags = flags });

	return metad_client_call(c, WIRE_OP_META_CREATE, b, len);
}

int metad_client_create(struct metad_client *c, uint64_t dir, const char *name,
			uint32_t flags)
{
	return create(c, dir, name, S_IFREG | 0644, flags);
}

int metad_client_mkdir(struct metad_client *c, uint64_t dir, const char *name)
{
	return create(c, dir, name, S_IFDIR | 0755, 0);
}

int metad_client_unlink(struct metad_client *c, uint64_t dir, const char *name)
{
	uint8_t b[512];
	size_t len = METAD_BODY(b, meta_unlink,
				{ .parent = dir, .name = STR(name) });

	return metad_client_call(c, WIRE_OP_META_UNLINK, b, len);
}

int metad_client_rename(struct metad_client *c, uint64_t dir, const char *name,
			uint64_t newdir, const char *newname)
{
	uint8_t b[1024];
	size_t len = METAD_BODY(b, meta_rename,
				{ .parent = dir, .name = STR(name),
				  .newparent = newdir,
				  .newname = STR(newname) });

	return metad_client_call(c, WIRE_OP_META_RENAME, b, len);
}

int metad_client_lookup(struct metad_client *c, uint64_t dir, const char *name)
{
	uint8_t b[512];
	size_t len = METAD_BODY(b, meta_lookup,
				{ .parent = dir, .name = STR(name) });

	return metad_client_call(c, WIRE_OP_META_LOOKUP, b, len);
}

static int call_ino(struct metad_client *c, uint16_t op, uint64_t ino)
{
	uint8_t b[16];
	size_t len = METAD_BODY(b, meta_ino, { .ino = ino });

	return metad_client_call(c, op, b, len);
}

int metad_client_getattr(struct metad_client *c, uint64_t ino)
{
	return call_ino(c, WIRE_OP_META_GETATTR, ino);
}

int metad_client_lease(struct metad_client *c, uint64_t ino)
{
	return call_ino(c, WIRE_OP_META_LEASE, ino);
}

int metad_client_give_back(struct metad_client *c, uint64_t ino, uint32_t what)
{
	uint8_t b[128];
	size_t len = METAD_BODY(b, meta_return, { .ino = ino, .what = what });

	return metad_client_call(c, WIRE_OP_META_RETURN, b, len);
}

uint64_t metad_client_want(struct metad_client *c, uint64_t ino, bool write)
{
	uint8_t b[16];
	size_t len = METAD_BODY(b, meta_want, { .ino = ino, .write = write });

	return metad_client_send(c, WIRE_OP_META_WANT, b, len);
}

int metad_client_wanted(struct metad_client *c, uint64_t ino, bool write)
{
	return metad_client_recv(c, metad_client_want(c, ino, write), RECV_MS);
}

uint64_t metad_client_listen(struct metad_client *c)
{
	return metad_client_send(c, WIRE_OP_META_EVENTS, NULL, 0);
}

void metad_client_told(struct metad_client *c, uint64_t id, uint8_t kind,
		       uint64_t ino)
{
	struct meta_events_reply m;
	struct meta_event e;

	CHECK_EQ(metad_client_recv(c, id, RECV_MS), 0);
	CHECK_EQ(meta_events_reply_parse(c->reply, c->reply_len, &m), 0);
	CHECK_EQ(m.count, 1);
	CHECK_EQ(meta_event_parse(m.events.p, m.events.len, &e), 0);
	CHECK_EQ(e.kind, kind);
	CHECK_EQ(e.ino, ino);
}

uint64_t metad_client_cut_begin(struct metad_client *c, uint64_t ino,
				uint64_t size_now, uint64_t size)
{
	uint8_t b[128];
	size_t len = METAD_BODY(b, meta_cut, { .ino = ino, .from = size,
					       .to = BLK_CUT_TO_END,
					       .size_now = size_now,
					       .size = size });

	return metad_client_send(c, WIRE_OP_META_CUT, b, len);
}

int metad_client_sync(struct metad_client *c)
{
	uint8_t b[16];
	size_t len = METAD_BODY(b, meta_sync, { .pos = UINT64_MAX });

	return metad_client_call(c, WIRE_OP_META_SYNC, b, len);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *join_sorted(char **names, size_t count)
{
	size_t i, len = 1;
	char *text, *at;

	if (count)
		qsort(names, count, sizeof(*names), by_text);
	for (i = 0; i < count; i++)
		len += strlen(names[i]) + 1;
	text = at = malloc(len);
	if (!text)
		die("memory");
	for (i = 0; i < count; i++) {
		at += snprintf(at, len - (size_t)(at - text), "%s\n",
			       names[i]);
		free(names[i]);
	}
	*at = '\0';
	free(names);
	return text;
}

char *metad_client_list(struct metad_client *c, uint64_t dir)
{
	struct meta_readdir_reply m = { .eof = 0 };
	struct meta_dirent d;
	char **names = NULL;
	size_t count = 0;
	uint64_t cookie = 0;
	struct wire_in in;
	uint8_t b[64];
	uint32_t i;

	while (!m.eof) {
		size_t len = METAD_BODY(b, meta_readdir,
					{ .dir = dir, .cookie = cookie,
					  .bytes_max = 32768 });

		if (metad_client_call(c, WIRE_OP_META_READDIR, b, len) < 0 ||
		    meta_readdir_reply_parse(c->reply, c->reply_len, &m) < 0)
			die("readdir");
		wire_in_init(&in, m.entries.p, m.entries.len);
		names = realloc(names, (count + m.count + 1) * sizeof(*names));
		if (!names)
			die("memory");
		for (i = 0; i < m.count; i++) {
			meta_dirent_decode(&in, &d);
			cookie = d.cookie;
			names[count++] = strndup(d.name.p, d.name.len);
		}
		if (wire_in_end(&in) < 0)
			die("entries");
	}
	return join_sorted(names, count);
}

void metad_client_check_list(struct metad_client *c, uint64_t dir,
			     const char *want)
{
	char *have = metad_client_list(c, dir);

	if (strcmp(have, want) != 0) {
		printf("# names are '%s', not '%s'\n", have, want);
		tap_failures++;
	}
	free(have);
}

void metad_client_create_long(struct metad_client *c, char first,
			      unsigned count)
{
	char name[256];

	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "%c%06u%0200u", first, i, i);
		c->seq_low = c->seq + 1;
		if (metad_client_create(c, ROOT_INO, name, 0) != 0) {
			CHECK(!"create");
			return;
		}
	}
	CHECK_EQ(metad_client_sync(c), 0);
}

void metad_client_replace_begin(struct metad_run *x, struct metad_client *d)
{
	uint8_t b[128];
	size_t len = METAD_BODY(b, meta_session_open,
				{ .client_id = 1,
				  .host = { "h", 1 },
				  .mountpoint = { "/m", 2 } });

	memset(d, 0, sizeof(*d));
	CHECK_EQ(metad_hello(x, &d->r, WIRE_ROLE_CLIENT, 0, ++x->incarnation,
			     0), 0);
	raw_send(&d->r, WIRE_OP_META_SESSION_OPEN, b, len, NULL, 0);
}
