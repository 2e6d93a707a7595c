#include "tests/lib/metad_run.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/status.h"
#include "common/wire_admin.h"

#define START_MS 20000
#define RECV_MS 20000
#define ARGS_MAX 24
#define BODY_MAX 8192

static noreturn_fn void die(const char *what)
{
	fprintf(stderr, "metad_run: %s: %s\n", what, strerror(errno));
	abort();
}

static void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

static uint16_t free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		die("port");
	close(fd);
	return ntohs(a.sin_port);
}

/* ---- the program ---- */

void metad_run_init(struct metad_run *x, uint32_t blockd_count)
{
	const char *base = getenv("TEST_DIR") ? getenv("TEST_DIR") : "/var/tmp";
	char path[128];
	uint32_t i;
	FILE *f;

	memset(x, 0, sizeof(*x));
	snprintf(x->dir, sizeof(x->dir), "%s/metad_run.XXXXXX", base);
	if (!mkdtemp(x->dir))
		die("mkdtemp");
	x->port = free_port();
	x->blockd_count = blockd_count;
	snprintf(path, sizeof(path), "%s/cluster.conf", x->dir);
	f = fopen(path, "w");
	if (!f)
		die(path);
	fprintf(f, "cluster test\nid %#x\nreplicas 1\n"
		"metad 1 127.0.0.1:%u data=%s/data\n", METAD_CLUSTER_ID,
		x->port, x->dir);
	/* Their real ports are what they register. */
	for (i = 0; i < blockd_count; i++)
		fprintf(f, "blockd %u 127.0.0.1:%u\n", i + 1, i + 1);
	if (fclose(f) != 0)
		die(path);
}

void metad_run_fini(struct metad_run *x)
{
	char *argv[] = { (char *)(uintptr_t)"rm", (char *)(uintptr_t)"-rf",
			 x->dir, NULL };
	uint32_t i;
	pid_t pid;

	if (x->pid)
		metad_run_kill9(x);
	for (i = 0; i < METAD_BLOCKDS_MAX; i++)
		fake_blockd_free(x->blockd[i]);
	pid = fork();
	if (pid == 0) {
		execvp("rm", argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, NULL, 0) < 0)
		die("rm");
}

void metad_run_blockd(struct metad_run *x, uint32_t i, uint64_t store_id,
		      uint64_t commit)
{
	struct fake_blockd_id id = { .id = i + 1,
				     .cluster_id = METAD_CLUSTER_ID,
				     .metad_port = x->port,
				     .store_id = store_id,
				     .commit = commit,
				     .ino_max = 100 * (i + 1),
				     .session_max = 10 * (i + 1) };
	int ms;

	x->blockd[i] = fake_blockd_new(&id);
	for (ms = 0; fake_blockd_registered(x->blockd[i]) == -ENOTCONN; ms += 5)
		if (ms > START_MS)
			die("a block daemon is not heard");
		else
			sleep_ms(5);
}

void metad_run_blockd_end(struct metad_run *x, uint32_t i)
{
	fake_blockd_free(x->blockd[i]);
	x->blockd[i] = NULL;
}

static void spawn(struct metad_run *x, const char *const *args)
{
	const char *bin = getenv("BIN") ? getenv("BIN") : "build/bin";
	char program[256], conf[128], log[128];
	const char *argv[ARGS_MAX] = { program, "--cluster", conf, "--id", "1",
				       "--foreground" };
	size_t n = 6;
	int fd;

	snprintf(program, sizeof(program), "%s/hail-metad", bin);
	snprintf(conf, sizeof(conf), "%s/cluster.conf", x->dir);
	snprintf(log, sizeof(log), "%s/log", x->dir);
	for (; args && *args && n < ARGS_MAX - 1; args++)
		argv[n++] = *args;
	x->pid = fork();
	if (x->pid < 0)
		die("fork");
	if (x->pid > 0)
		return;
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0)
		die(log);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(program, (char *const *)(uintptr_t)argv);
	perror(program);
	_exit(127);
}

int metad_run_wait(struct metad_run *x)
{
	int status;

	if (waitpid(x->pid, &status, 0) < 0)
		die("waitpid");
	x->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) :
				   128 + WTERMSIG(status);
}

void metad_run_start(struct metad_run *x, const char *const *args)
{
	struct blk_raw r;
	int ms;

	spawn(x, args);
	for (ms = 0; ms < START_MS; ms += 2) {
		if (metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, 1, 0) == 0) {
			raw_close(&r);
			return;
		}
		if (waitpid(x->pid, NULL, WNOHANG) != 0)
			die("metad has ended; see its log");
		sleep_ms(2);
	}
	die("metad does not come up");
}

int metad_run_to_end(struct metad_run *x, const char *const *args)
{
	spawn(x, args);
	return metad_run_wait(x);
}

void metad_run_kill9(struct metad_run *x)
{
	if (kill(x->pid, SIGKILL) < 0 || waitpid(x->pid, NULL, 0) < 0)
		die("kill");
	x->pid = 0;
}

int metad_run_term(struct metad_run *x)
{
	if (kill(x->pid, SIGTERM) < 0)
		die("kill");
	return metad_run_wait(x);
}

bool metad_run_log_has(const struct metad_run *x, const char *text)
{
	char path[128], line[2048];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/log", x->dir);
	f = fopen(path, "r");
	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, text) != NULL;
	fclose(f);
	return found;
}

int metad_hello(struct metad_run *x, struct blk_raw *r, uint8_t role,
		uint64_t session, uint64_t incarnation, uint32_t peer_id)
{
	uint8_t body[128];
	struct frame *f;
	size_t len;
	int rv;

	if (!raw_connect(r, x->port, METAD_CLUSTER_ID))
		return -ECONNREFUSED;
	r->session = session;
	len = METAD_BODY(body, hello, { .version_min = 1, .version_max = 1,
					.role = role,
					.incarnation = incarnation,
					.peer_id = peer_id,
					.name = { "raw", 3 } });
	raw_send(r, WIRE_OP_HELLO, body, len, NULL, 0);
	f = raw_recv(r, RECV_MS);
	rv = f ? status_from_wire(f->h.status) : -errno;
	if (f)
		r->epoch = f->h.epoch;
	frame_free(f);
	if (rv < 0)
		raw_close(r);
	return rv;
}

/* ---- sessions ---- */

int metad_client_open(struct metad_run *x, struct metad_client *c,
		      uint64_t client_id)
{
	struct meta_session_open_reply m;
	uint8_t body[128];
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
	rv = metad_client_call(c, WIRE_OP_META_SESSION_OPEN, body, len);
	if (rv < 0)
		return rv;
	if (meta_session_open_reply_parse(c->reply, c->reply_len, &m) < 0)
		die("session reply");
	c->session = c->r.session = m.session;
	return 0;
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

char *metad_admin(struct metad_run *x, uint16_t op)
{
	struct admin_text m;
	struct blk_raw r;
	struct frame *f = NULL;
	char *text;

	if (metad_hello(x, &r, WIRE_ROLE_ADMIN, 0, 1, 0) < 0 ||
	    raw_call(&r, op, NULL, 0, NULL, 0, &f) < 0 ||
	    admin_text_parse(f->body, f->h.body_len, &m) < 0)
		die("admin request");
	text = strndup(m.json.p, m.json.len);
	frame_free(f);
	raw_close(&r);
	return text;
}
