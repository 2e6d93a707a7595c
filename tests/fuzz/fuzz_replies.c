/* Replies of daemons to the client: of a cluster in this process, one reply is
 * changed on its way, with its checksum made right. Whatever it says then, the
 * client lives, each operation ends, and a new mount finds all files.
 *
 * Input: which reply, then edits of three bytes: place (in 1/256 of the body),
 * kind, value.
 */
#include "common/crc32c.h"
#include "common/wire.h"
#include "tests/lib/fuzz.h"
#include "tests/lib/mini_serve.h"
#include "tests/lib/sim_box.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 12u
#define OPS 20u
#define CALL_MS 20000u
#define RHDR 24u /* what metad says of itself in front: believed */

/* ---- the change; on the daemons' threads ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const uint8_t *edits; /* NULL: none */
static size_t edits_len;
static uint32_t before; /* replies to let pass */

static void edit(uint8_t *p, uint32_t *len, const uint8_t *e)
{
	uint32_t at = (uint32_t)((uint64_t)*len * e[0] >> 8);
	uint64_t width = 1u << (e[1] >> 2 & 3);

	switch (e[1] & 3) {
	case 0:
		p[at] = e[2];
		break;
	case 1: /* a number */
		width = u64_min(width, *len - at);
		memset(p + at, e[2] & 1 ? 0xff : 0, width);
		break;
	case 2: /* the end is missing */
		*len = at;
		break;
	default: /* bytes come twice */
		memmove(p + at, p, u64_min(e[2], *len - at));
	}
}

/* @frame: a whole one. */
static void change(uint8_t *frame, size_t *len)
{
	struct wire_header h;
	uint32_t pre, body;
	uint8_t *data;

	fuzz_expect(wire_header_decode(frame, &h) == 0);
	pre = h.opcode >= WIRE_OP_META_SESSION_OPEN ? RHDR : 0;
	if (h.opcode == WIRE_OP_HELLO || h.opcode == WIRE_OP_META_KEEPALIVE ||
	    h.body_len <= pre)
		return;
	pthread_mutex_lock(&lock);
	if (edits && before-- == 0) {
		data = frame + WIRE_HEADER_SIZE + h.body_len;
		body = h.body_len - pre;
		for (size_t i = 0; i + 3 <= edits_len && body > 0; i += 3)
			edit(frame + WIRE_HEADER_SIZE + pre, &body, edits + i);
		h.body_len = pre + body;
		memmove(frame + WIRE_HEADER_SIZE + h.body_len, data,
			h.data_len);
		h.body_crc = crc32c(0, frame + WIRE_HEADER_SIZE, h.body_len);
		wire_header_encode(&h, frame);
		*len = WIRE_HEADER_SIZE + h.body_len + h.data_len;
		edits = NULL;
	}
	pthread_mutex_unlock(&lock);
}

/* ---- the client ---- */

static void on_bytes(void *arg, int err, const void *p, size_t len)
{
	volatile uint8_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum ^= ((const uint8_t *)p)[i];
	sim_on_err(arg, err);
}

static uint32_t listed; /* names, by all calls */
static uint64_t cookie; /* of the last one */

static bool on_dirent(void *arg, const struct meta_dirent *d,
		      const struct meta_attr *a)
{
	(void)arg;
	(void)a;
	fuzz_expect(d->name.len > 0 && d->name.len <= NAME_LEN_MAX);
	listed++;
	cookie = d->cookie;
	return true;
}

static int wait_for(struct sim_call *k, struct meta_attr *a)
{
	int err;

	fuzz_expect(sim_call_wait(k, CALL_MS));
	err = k->err;
	if (a)
		*a = k->attr;
	sim_call_free(k);
	return err;
}

struct run {
	struct core *c;
	struct meta_attr dir, file;
	struct core_file *h;
	struct statvfs st;
	uint64_t off;
	uint8_t bytes[2 * 65536];
};

static void start_names(struct run *r, uint32_t which, struct sim_call *k)
{
	struct core_create p = { .parent = ROOT_INO,
				 .name = "new",
				 .mode = S_IFREG | 0600 };
	struct core_rename mv = { .parent = ROOT_INO,
				  .name = "new",
				  .newparent = ROOT_INO,
				  .newname = "newer" };
	struct meta_setattr s = { .ino = r->file.ino,
				  .valid = META_SET_MODE,
				  .mode = 0600 };

	if (which == 0)
		core_create(r->c, &p, sim_on_attr, k);
	else if (which == 1)
		core_rename(r->c, &mv, sim_on_err, k);
	else if (which == 2)
		core_link(r->c, r->file.ino, ROOT_INO, "link", sim_on_attr, k);
	else if (which == 3)
		core_setattr(r->c, &s, sim_on_attr, k);
	else if (which == 4)
		core_setxattr(r->c, r->file.ino, "user.a", "b", 1, 0,
			      sim_on_err, k);
	else if (which == 5)
		core_unlink(r->c, ROOT_INO, "newer", false, sim_on_err, k);
	else
		core_unlink(r->c, ROOT_INO, "link", false, sim_on_err, k);
}

static void start_looks(struct run *r, uint32_t which, struct sim_call *k)
{
	if (which == 0)
		core_readdir(r->c, r->dir.ino, 0, 1000, true, on_dirent,
			     sim_on_err, k);
	else if (which == 1)
		core_readdir(r->c, ROOT_INO, 0, 4096, false, on_dirent,
			     sim_on_err, k);
	else if (which == 2)
		core_lookup(r->c, r->dir.ino, "f3", sim_on_attr, k);
	else if (which == 3)
		core_getxattr(r->c, r->file.ino, "user.x", on_bytes, k);
	else if (which == 4)
		core_listxattr(r->c, r->file.ino, on_bytes, k);
	else
		core_statfs(r->c, &r->st, sim_on_err, k);
}

static void start_data(struct run *r, uint32_t which, struct sim_call *k)
{
	struct iovec iov = { r->bytes, 10000 };

	if (which == 0) {
		k->to = r->bytes;
		core_read(r->c, r->h, 0, 65536, sim_on_data, k);
	} else if (which == 1) {
		core_write(r->c, r->h, 3000, &iov, 1, iov.iov_len, 0,
			   sim_on_err, k);
	} else if (which == 2) {
		core_fsync(r->c, r->file.ino, false, sim_on_err, k);
	} else if (which == 3) {
		core_seek(r->c, r->file.ino, 0, SEEK_DATA, &r->off, sim_on_err,
			  k);
	} else if (which == 4) {
		core_seek(r->c, r->file.ino, 0, SEEK_HOLE, &r->off, sim_on_err,
			  k);
	} else if (which == 5) {
		core_fallocate(r->c, r->file.ino, 0, 0, 200000, false,
			       sim_on_err, k);
	} else {
		core_truncate(r->c, r->file.ino, 3u << 20, false, sim_on_attr,
			      k);
	}
}

static int call(struct run *r, uint32_t which, struct meta_attr *a)
{
	struct sim_call *k = sim_call_new();

	if (which < 6)
		start_looks(r, which, k);
	else if (which < 13)
		start_names(r, which - 6, k);
	else
		start_data(r, which - 13, k);
	return wait_for(k, a);
}

static int find(struct run *r, const char *name, struct meta_attr *a)
{
	struct sim_call *k = sim_call_new();

	core_lookup(r->c, ROOT_INO, name, sim_on_attr, k);
	return wait_for(k, a);
}

static bool open_file(struct run *r)
{
	struct sim_call *k = sim_call_new();

	core_open(r->c, r->file.ino, O_RDWR, &r->h, sim_on_err, k);
	return wait_for(k, NULL) == 0;
}

static uint64_t make(struct core *c, uint64_t parent, const char *name,
		     uint32_t mode)
{
	struct core_create p = { .parent = parent, .name = name, .mode = mode };
	struct sim_call *k = sim_call_new();
	struct meta_attr a;

	core_create(c, &p, sim_on_attr, k);
	fuzz_expect(wait_for(k, &a) == 0);
	return a.ino;
}

static uint32_t count_names(struct core *c, uint64_t dir)
{
	uint32_t was;

	listed = 0;
	cookie = 0;
	do {
		struct sim_call *k = sim_call_new();

		was = listed;
		core_readdir(c, dir, cookie, 1000, true, on_dirent, sim_on_err,
			     k);
		fuzz_expect(wait_for(k, NULL) == 0);
	} while (listed > was);
	return listed;
}

/* ---- one input ---- */

static struct sim_box box;

static void box_end(void)
{
	sim_box_fini(&box);
}

static void box_make(void)
{
	struct sim_call *k = sim_call_new();
	char name[] = "f0";
	uint64_t dir;

	mini_reply_hook = change;
	sim_box_init(&box);
	fuzz_expect(atexit(box_end) == 0);
	sim_box_mount(&box);
	dir = make(box.c, ROOT_INO, "d", S_IFDIR | 0755);
	for (uint32_t i = 0; i < FILES; i++) {
		name[1] = (char)('0' + i);
		(void)make(box.c, dir, name, S_IFREG | 0644);
	}
	(void)make(box.c, ROOT_INO, "file", S_IFREG | 0644);
	core_sync_all(box.c, sim_on_err, k);
	fuzz_expect(wait_for(k, NULL) == 0);
	sim_box_abandon(&box);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct run r;

	if (size < 2)
		return 0;
	if (!box.m)
		box_make();
	sim_box_mount(&box);
	r.c = box.c;
	r.h = NULL;
	pthread_mutex_lock(&lock);
	before = data[0] % 48;
	edits = data + 1;
	edits_len = size - 1;
	pthread_mutex_unlock(&lock);
	if (find(&r, "d", &r.dir) == 0 && find(&r, "file", &r.file) == 0 &&
	    open_file(&r))
		for (uint32_t i = 0; i < OPS; i++)
			(void)call(&r, i, NULL);
	pthread_mutex_lock(&lock);
	edits = NULL;
	pthread_mutex_unlock(&lock);
	sim_box_abandon(&box);

	sim_box_mount(&box);
	r.c = box.c;
	fuzz_expect(find(&r, "d", &r.dir) == 0);
	fuzz_expect(find(&r, "file", &r.file) == 0);
	fuzz_expect(count_names(r.c, r.dir.ino) == FILES);
	sim_box_abandon(&box);
	return 0;
}

uint32_t fuzz_runs(void)
{
	return 100;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	size_t len = 1 + 3 * (1 + fuzz_below(rng, 4));

	(void)cap;
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)fuzz_u64(rng);
	return len;
}
