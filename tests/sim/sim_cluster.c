/* The cluster against a model, from seeds: random operations through the
 * client core while block daemons and metad die, forget, hang, lose replies
 * and execute what came over a connection that is gone, and the client itself
 * is abandoned.
 *
 * Method: every operation's result is compared with the model's. After a
 * crash of the client the names must be those after some prefix of the
 * stream of mutations that has at least what an fsync covered, each byte is
 * the one of the last fsync or of a later write, and a size that grew does
 * not end in lost data. The seed gives operations and faults; which frames a
 * fault meets is up to the threads.
 *
 * HAIL_SEED=n runs one seed, HAIL_SEEDS=n that many from 1.
 */
#include "tests/lib/model_fs.h"
#include "tests/lib/sim_box.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SEEDS 24u
#define BUDGET_S 40 /* of the default run, on a machine that is busy */
#define STEPS 250u
#define DIRS 3u
#define NAMES 8u
#define FIDS 256u
#define OPS 2048u
#define BURST 6u
#define WINDOWS 3u
#define WINDOW (64u << 10)
#define IMAGE (WINDOWS * WINDOW)
#define LEN_MAX 20000u
#define HISTORY 24u
#define CALL_MS 20000u

enum kind { CREATE, MKDIR, UNLINK, RMDIR, RENAME, LINK };

/* A mutation of names that succeeded, or was sent when the client died. */
struct name_op {
	enum kind kind;
	uint32_t fid, dir, name, dir2, name2, flags;
};

/* What happened to content since the last fsync. */
struct data_op {
	bool cut;
	bool maybe; /* a cut that need not have survived */
	uint64_t off, end, seed;
};

struct file {
	uint64_t ino, model; /* 0: not there */
	struct core_file *h;
	uint8_t *base; /* the windows when last durable */
	uint64_t lo, hi; /* what a crash may make of the size */
	bool grown; /* by truncate: nothing need be at the end */
	struct data_op *ops;
	uint32_t op_count;
};

struct world {
	struct sim_box x;
	struct model_fs *model;
	uint64_t seed, rng, step, data_seed;
	uint64_t dir_ino[DIRS], dir_model[DIRS];
	struct file files[FIDS];
	uint32_t fid_count;
	struct name_op ops[OPS];
	uint32_t op_count, durable; /* the first ones survive anything */
	uint64_t issued[RENAME + 2];
	bool all_held; /* the block daemons execute nothing of what comes */
	bool forgetful; /* metad has lost some, which are done again */
	char history[HISTORY][120];
	uint32_t said;
	uint32_t crashes, faults;
};

static uint64_t rnd(struct world *w, uint64_t below)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return (w->rng * 0x2545f4914f6cdd1du >> 20) % below;
}

__attribute__((format(printf, 2, 3))) static void say(struct world *w,
						      const char *fmt, ...)
{
	char *to = w->history[w->said++ % HISTORY];
	int n = snprintf(to, 120, "%3llu ", (unsigned long long)w->step);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(to + n, 120 - (size_t)n, fmt, ap);
	va_end(ap);
}

static _Noreturn void lost(struct world *w, const char *what)
{
	uint32_t from = w->said > HISTORY ? w->said - HISTORY : 0;

	for (uint32_t i = from; i < w->said; i++)
		printf("# %s\n", w->history[i % HISTORY]);
	printf("not ok - seed %llu: %s\n# HAIL_SEED=%llu repeats it\n",
	       (unsigned long long)w->seed, what,
	       (unsigned long long)w->seed);
	fflush(stdout);
	_exit(1);
}

#define require(w, cond)                                                      \
	do {                                                                  \
		if (!(cond))                                                  \
			lost(w, #cond);                                       \
	} while (0)

static const char *name_of(uint32_t n)
{
	static const char names[NAMES][4] = { "n0", "n1", "n2", "n3",
					      "n4", "n5", "n6", "n7" };

	return names[n];
}

static void fill(uint8_t *p, size_t len, uint64_t seed)
{
	uint64_t x = seed * 2654435761u + 88172645463325252u;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (uint8_t)(x >> 24);
	}
}

/* ---- faults ---- */

/* Before an operation: something will hang or get lost. */
static void trouble_begin(struct world *w)
{
	struct mini_blockd *b = w->x.b[rnd(w, SIM_BLOCKDS)];
	static const uint16_t ops[] = { 0, WIRE_OP_BLK_WRITE,
					WIRE_OP_BLK_SYNC, WIRE_OP_BLK_READ };
	uint16_t op = ops[rnd(w, 4)];
	uint64_t what = rnd(w, 8);

	w->all_held = what == 7;
	say(w, "  trouble %u op %u", (unsigned)what, op);
	w->faults++;
	if (what == 7)
		for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
			mini_blockd_hold(w->x.b[i], op, true);
	else if (what == 0)
		mini_blockd_hold(b, op, true);
	else if (what == 1)
		mini_blockd_hold_replies(b, op, true);
	else if (what == 2)
		mini_blockd_lose_replies(b, op, 1 + (int)rnd(w, 2));
	else if (what == 3)
		mini_metad_lose_replies(w->x.m, 0, 1 + (int)rnd(w, 2));
	else if (what == 4)
		mini_metad_hold_replies(w->x.m, 0, true);
	else
		mini_metad_hold_durable(w->x.m, true);
}

static void restart_metad(struct world *w, bool lose)
{
	w->forgetful |= lose;
	mini_metad_restart(w->x.m, lose);
}

/* Under way: somebody dies, or a connection breaks. */
static void trouble_strike(struct world *w)
{
	struct mini_blockd *b = w->x.b[rnd(w, SIM_BLOCKDS)];
	uint64_t what = w->all_held && rnd(w, 2) ? 6 : rnd(w, 8);

	sim_pause((unsigned)rnd(w, 3000));
	say(w, "  strike %u", (unsigned)what);
	if (what < 2)
		mini_blockd_restart(b, true);
	else if (what == 2)
		mini_blockd_drop(b);
	else if (what == 3)
		restart_metad(w, true);
	else if (what == 4)
		mini_metad_drop(w->x.m);
	else if (what == 5)
		for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
			mini_blockd_restart(w->x.b[i], true);
	else if (what == 6)
		for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
			mini_blockd_drop_late(w->x.b[i]);
	else
		return;
	sim_pause((unsigned)rnd(w, 2000));
}

static void trouble_end(struct world *w)
{
	for (uint32_t i = 0; i < SIM_BLOCKDS; i++) {
		mini_blockd_hold(w->x.b[i], 0, false);
		mini_blockd_hold_replies(w->x.b[i], 0, false);
		mini_blockd_lose_replies(w->x.b[i], 0, 0);
	}
	mini_metad_hold_replies(w->x.m, 0, false);
	mini_metad_hold_durable(w->x.m, false);
	mini_metad_lose_replies(w->x.m, 0, 0);
}

/* Ends what was started after trouble_begin(), if @trouble. */
static int finish(struct world *w, struct sim_call *k, struct meta_attr *a,
		  bool trouble)
{
	int err;

	if (trouble) {
		trouble_strike(w);
		trouble_end(w);
	}
	if (!sim_call_wait(k, CALL_MS))
		lost(w, "an operation hangs");
	err = k->err;
	if (a)
		*a = k->attr;
	sim_call_free(k);
	return err;
}

static bool maybe_trouble(struct world *w)
{
	bool yes = rnd(w, 4) == 0;

	if (yes)
		trouble_begin(w);
	return yes;
}

/* ---- names ---- */

static int model_apply(struct world *w, struct model_fs *m,
		       const struct name_op *o, uint64_t *ino)
{
	struct model_create p = { .parent = w->dir_model[o->dir],
				  .name = name_of(o->name),
				  .mode = o->kind == MKDIR ? S_IFDIR | 0755 :
							     S_IFREG | 0644 };

	switch (o->kind) {
	case CREATE:
	case MKDIR:
		return model_fs_create(m, &p, 0, ino);
	case UNLINK:
		return model_fs_unlink(m, p.parent, p.name, 0);
	case RMDIR:
		return model_fs_rmdir(m, p.parent, p.name, 0);
	case RENAME:
		return model_fs_rename(m, p.parent, p.name,
				       w->dir_model[o->dir2],
				       name_of(o->name2), o->flags, 0);
	default:
		return model_fs_link(m, w->files[o->fid].model, p.parent,
				     p.name, 0);
	}
}

static struct sim_call *name_start(struct world *w, const struct name_op *o)
{
	struct sim_call *k = sim_call_new();
	struct core_create p = { .parent = w->dir_ino[o->dir],
				 .name = name_of(o->name),
				 .mode = o->kind == MKDIR ? S_IFDIR | 0755 :
							    S_IFREG | 0644,
				 .open_flags = O_RDWR | O_CREAT | O_EXCL };

	w->issued[o->kind]++;
	if (o->kind == CREATE)
		core_create_open(w->x.c, &p, &w->files[o->fid].h, sim_on_attr,
				 k);
	else if (o->kind == MKDIR)
		core_create(w->x.c, &p, sim_on_attr, k);
	else if (o->kind == RENAME)
		core_rename(w->x.c,
			    &(struct core_rename){
				    .parent = p.parent, .name = p.name,
				    .newparent = w->dir_ino[o->dir2],
				    .newname = name_of(o->name2),
				    .flags = o->flags }, sim_on_err, k);
	else if (o->kind == LINK)
		core_link(w->x.c, w->files[o->fid].ino, p.parent, p.name,
			  sim_on_attr, k);
	else
		core_unlink(w->x.c, p.parent, p.name, o->kind == RMDIR,
			    sim_on_err, k);
	return k;
}

static void file_born(struct world *w, const struct name_op *o, uint64_t ino,
		      uint64_t model)
{
	struct file *f = &w->files[o->fid];

	f->ino = ino;
	f->model = model;
	w->fid_count++;
	if (o->kind == MKDIR)
		return;
	f->base = calloc(1, IMAGE);
	f->ops = calloc(OPS, sizeof(*f->ops));
	require(w, f->base && f->ops);
	require(w, model_fs_hold(w->model, model) == 0);
}

static void step_name(struct world *w)
{
	struct name_op o = { .kind = (enum kind)rnd(w, LINK + 1),
			     .dir = (uint32_t)rnd(w, DIRS),
			     .name = (uint32_t)rnd(w, NAMES),
			     .dir2 = (uint32_t)rnd(w, DIRS),
			     .name2 = (uint32_t)rnd(w, NAMES) };
	uint64_t model = 0;
	struct meta_attr a = { 0 };
	bool trouble;
	int want, err;

	if (o.kind == CREATE || o.kind == MKDIR)
		o.fid = w->fid_count;
	else if (w->fid_count > 0)
		o.fid = (uint32_t)rnd(w, w->fid_count);
	if (o.kind == RENAME && rnd(w, 3) == 0)
		o.flags = rnd(w, 2) ? RENAME_NOREPLACE : RENAME_EXCHANGE;
	if (o.fid >= FIDS || w->op_count >= OPS ||
	    (o.kind == LINK && !w->files[o.fid].base))
		return;
	/* The kernel does not ask for this. */
	if (o.kind == RENAME && o.dir == o.dir2 && o.name == o.name2)
		return;
	/* It knows an inode by its names and handles. */
	struct model_attr at;
	if (o.kind == LINK && (!w->files[o.fid].model ||
			       model_fs_stat(w->model, w->files[o.fid].model,
					     &at)))
		return;
	trouble = maybe_trouble(w);
	err = finish(w, name_start(w, &o), &a, trouble);
	want = model_apply(w, w->model, &o, &model);
	say(w, "name kind %u fid %u %u/%u -> %u/%u flags %u: %d (%d)", o.kind,
	    o.fid, o.dir, o.name, o.dir2, o.name2, o.flags, err, want);
	require(w, err == want);
	if (err)
		return;
	w->ops[w->op_count++] = o;
	if (model)
		file_born(w, &o, a.ino, model);
}

struct listing {
	uint64_t ino[DIRS][NAMES];
	uint32_t strange; /* names that are none of ours */
	uint32_t dir; /* being filled */
	uint64_t cookie;
	bool more;
	struct world *w;
	struct sim_call *k;
};

static void list_name(struct listing *l, const char *name, size_t len,
		      uint64_t ino)
{
	if (len == 2 && name[0] == 'n' && name[1] >= '0' && name[1] <= '7')
		l->ino[l->dir][name[1] - '0'] = ino;
	else if (len != 2 || name[0] != 'd')
		l->strange++;
}

static bool on_dirent(void *arg, const struct meta_dirent *d,
		      const struct meta_attr *a)
{
	struct listing *l = arg;

	(void)a;
	list_name(l, (const char *)d->name.p, d->name.len, d->ino);
	l->cookie = d->cookie;
	l->more = true;
	return true;
}

static void on_page(void *arg, int err)
{
	struct listing *l = arg;

	sim_on_err(l->k, err);
}

static void list_real(struct world *w, struct listing *l)
{
	*l = (struct listing){ .w = w };
	for (l->dir = 0; l->dir < DIRS; l->dir++) {
		l->cookie = 0;
		do {
			l->more = false;
			l->k = sim_call_new();
			core_readdir(w->x.c, w->dir_ino[l->dir], l->cookie,
				     200, false, on_dirent, on_page, l);
			require(w, finish(w, l->k, NULL, false) == 0);
		} while (l->more);
	}
	l->dir = 0;
	l->cookie = 0;
	l->k = NULL;
}

static void on_model_name(void *arg, const char *name, uint64_t model)
{
	struct listing *l = arg;
	uint64_t ino = 0;

	for (uint32_t i = 0; i < l->w->fid_count; i++)
		if (l->w->files[i].model == model)
			ino = l->w->files[i].ino;
	list_name(l, name, strlen(name), ino);
}

static void list_model(struct world *w, const struct model_fs *m,
		       struct listing *l)
{
	*l = (struct listing){ .w = w };
	for (l->dir = 0; l->dir < DIRS; l->dir++)
		require(w, model_fs_list(m, w->dir_model[l->dir],
					 on_model_name, l) == 0);
	l->dir = 0;
}

static void check_names(struct world *w)
{
	struct listing real, want;

	list_real(w, &real);
	list_model(w, w->model, &want);
	require(w, memcmp(&real, &want, sizeof(real)) == 0);
}

/* ---- content ---- */

static uint64_t window_off(uint32_t i)
{
	return i == 0 ? 0 : ((uint64_t)i << 20) - WINDOW / 2;
}

static bool there(struct world *w, const struct file *f)
{
	struct model_attr a;

	return f->model && model_fs_stat(w->model, f->model, &a) == 0;
}

/* A file with a handle, or NULL. */
static struct file *some_file(struct world *w)
{
	for (uint32_t tries = 0; w->fid_count > 0 && tries < 16; tries++) {
		struct file *f = &w->files[rnd(w, w->fid_count)];
		struct sim_call *k;

		if (!f->base || !there(w, f))
			continue;
		if (f->h)
			return f;
		k = sim_call_new();
		core_open(w->x.c, f->ino, O_RDWR, &f->h, sim_on_err, k);
		require(w, finish(w, k, NULL, false) == 0);
		require(w, model_fs_hold(w->model, f->model) == 0);
		return f;
	}
	return NULL;
}

static uint32_t fid_of(const struct world *w, const struct file *f)
{
	return (uint32_t)(f - w->files);
}

static uint64_t size_of(struct world *w, const struct file *f)
{
	struct model_attr a;

	require(w, model_fs_stat(w->model, f->model, &a) == 0);
	return a.size;
}

/* The model's content becomes what a crash must leave. */
static void settle(struct world *w, struct file *f)
{
	f->op_count = 0;
	f->grown = false;
	if (!f->base || !there(w, f))
		return;
	memset(f->base, 0, IMAGE);
	for (uint32_t i = 0; i < WINDOWS; i++)
		(void)model_fs_read(w->model, f->model, window_off(i),
				    f->base + i * WINDOW, WINDOW);
	f->lo = f->hi = size_of(w, f);
}

static void data_note(struct world *w, struct file *f, struct data_op o)
{
	if (f->op_count == OPS)
		lost(w, "more operations than the test keeps");
	f->ops[f->op_count++] = o;
}

static struct sim_call *write_start(struct world *w, struct file *f)
{
	static uint8_t p[LEN_MAX];
	struct sim_call *k = sim_call_new();
	uint32_t len = (uint32_t)(1 + rnd(w, rnd(w, 3) ? 300 : LEN_MAX));
	uint64_t off = window_off((uint32_t)rnd(w, WINDOWS)) +
		       rnd(w, WINDOW - len);
	bool direct = rnd(w, 4) == 0;
	struct iovec iov = { p, len };

	if (rnd(w, 4) == 0 && size_of(w, f) < WINDOW - len)
		off = size_of(w, f);
	fill(p, len, ++w->data_seed);
	say(w, "write fid %u [%llu, +%u) seed %llu%s", fid_of(w, f),
	    (unsigned long long)off, len, (unsigned long long)w->data_seed,
	    direct ? " direct" : "");
	data_note(w, f, (struct data_op){ .off = off, .end = off + len,
					  .seed = w->data_seed });
	f->hi = u64_max(f->hi, off + len);
	core_write(w->x.c, f->h, off, &iov, 1, len,
		   direct ? CORE_WRITE_DIRECT : 0, sim_on_err, k);
	require(w, model_fs_write(w->model, f->model, off, p, len, 0) == 0);
	return k;
}

static void step_write(struct world *w)
{
	struct sim_call *k[BURST];
	uint32_t count = (uint32_t)(1 + rnd(w, BURST)), n = 0;
	struct file *f = some_file(w);
	bool trouble;

	if (!f)
		return;
	trouble = maybe_trouble(w);
	while (n < count)
		k[n++] = write_start(w, f);
	for (uint32_t i = 0; i < n; i++)
		require(w, finish(w, k[i], NULL, trouble && i == 0) == 0);
}

static void read_check(struct world *w, struct file *f, uint64_t off,
		       size_t len, bool trouble)
{
	uint8_t *got = malloc(2 * len);
	struct sim_call *k = sim_call_new();
	ssize_t want;

	require(w, got);
	k->to = got;
	core_read(w->x.c, f->h, off, len, sim_on_data, k);
	if (trouble) {
		trouble_strike(w);
		trouble_end(w);
	}
	require(w, sim_call_wait(k, CALL_MS));
	require(w, k->err == 0);
	want = model_fs_read(w->model, f->model, off, got + len, len);
	say(w, "read fid %u [%llu, +%zu): %zu (%zd)", fid_of(w, f),
	    (unsigned long long)off, len, k->len, want);
	require(w, (ssize_t)k->len == want);
	require(w, memcmp(got, got + len, k->len) == 0);
	sim_call_free(k);
	free(got);
}

static void step_read(struct world *w)
{
	struct file *f = some_file(w);

	if (f)
		read_check(w, f, window_off((uint32_t)rnd(w, WINDOWS)) +
				 rnd(w, WINDOW), 1 + rnd(w, 3 * LEN_MAX),
			   maybe_trouble(w));
}

/* An fsync covers what was done to the file, or in the directory (@f NULL), and
 * so all that came before; later mutations of others need not be durable. */
static void names_durable(struct world *w, const struct file *f, uint32_t dir)
{
	uint32_t n = w->op_count;

	for (; n > w->durable; n--) {
		const struct name_op *o = &w->ops[n - 1];
		bool named = o->kind == CREATE || o->kind == LINK;

		if (f ? named && o->fid == fid_of(w, f) :
			o->dir == dir || (o->kind == RENAME && o->dir2 == dir))
			break;
	}
	w->durable = n;
}

static void step_fsync(struct world *w)
{
	struct file *f = some_file(w);
	struct sim_call *k = sim_call_new();
	uint64_t what = rnd(w, 8);
	bool trouble = maybe_trouble(w);
	uint32_t dir = what == 0 ? (uint32_t)rnd(w, DIRS) : 0;

	if (what == 0)
		core_fsync_dir(w->x.c, w->dir_ino[dir], sim_on_err, k);
	else if (what == 1 || !f)
		core_sync_all(w->x.c, sim_on_err, k);
	else
		core_fsync(w->x.c, f->ino, what < 4, sim_on_err, k);
	say(w, "fsync %s fid %u", what == 0 ? "dir" : what == 1 || !f ? "all" :
	    "file", f ? fid_of(w, f) : 0);
	require(w, finish(w, k, NULL, trouble) == 0);
	if (what != 0 && (what == 1 || !f))
		w->durable = w->op_count;
	else
		names_durable(w, what == 0 ? NULL : f, dir);
	if (what != 0 && (what == 1 || !f))
		for (uint32_t i = 0; i < w->fid_count; i++)
			settle(w, &w->files[i]);
	else if (what != 0)
		settle(w, f);
}

static void step_truncate(struct world *w)
{
	struct file *f = some_file(w);
	struct sim_call *k;
	uint64_t size, old;
	bool trouble;

	if (!f)
		return;
	old = size_of(w, f);
	size = rnd(w, 4) ? window_off((uint32_t)rnd(w, WINDOWS)) +
			   rnd(w, WINDOW) : 0;
	trouble = maybe_trouble(w);
	say(w, "truncate fid %u %llu -> %llu", fid_of(w, f),
	    (unsigned long long)old, (unsigned long long)size);
	k = sim_call_new();
	core_truncate(w->x.c, f->ino, size, false, sim_on_attr, k);
	require(w, finish(w, k, NULL, trouble) == 0);
	require(w, model_fs_truncate(w->model, f->model, size, 0) == 0);
	if (size > old) {
		f->hi = u64_max(f->hi, size);
		f->grown = true;
	} else if (size < old) {
		/* answered before it is durable: an fsync makes it so */
		data_note(w, f, (struct data_op){ .cut = true, .maybe = true,
						  .off = size,
						  .end = UINT64_MAX });
		f->lo = u64_min(f->lo, size);
		f->grown = true;
	}
}

static void step_punch(struct world *w)
{
	struct file *f = some_file(w);
	uint64_t off = window_off((uint32_t)rnd(w, WINDOWS)) +
		       rnd(w, WINDOW);
	uint64_t len = 1 + rnd(w, rnd(w, 3) ? 20000 : 1u << 20);
	struct sim_call *k;
	bool trouble;

	if (!f)
		return;
	trouble = maybe_trouble(w);
	say(w, "punch fid %u [%llu, +%llu)", fid_of(w, f),
	    (unsigned long long)off, (unsigned long long)len);
	k = sim_call_new();
	core_fallocate(w->x.c, f->ino,
		       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len,
		       false, sim_on_err, k);
	require(w, finish(w, k, NULL, trouble) == 0);
	require(w, model_fs_punch(w->model, f->model, off, len, 0) == 0);
	data_note(w, f, (struct data_op){ .cut = true, .off = off,
					  .end = off + len });
	f->grown = true;
}

/* Allocates, or zeroes. */
static void step_allocate(struct world *w)
{
	struct file *f = some_file(w);
	uint64_t off = window_off((uint32_t)rnd(w, WINDOWS)) +
		       rnd(w, WINDOW);
	uint64_t len = 1 + rnd(w, rnd(w, 3) ? 20000 : 1u << 20);
	uint64_t end = off + len;
	bool zero = rnd(w, 2), keep = rnd(w, 2), trouble;
	struct sim_call *k;

	if (!f)
		return;
	trouble = maybe_trouble(w);
	say(w, "%s fid %u [%llu, +%llu)%s", zero ? "zero" : "allocate",
	    fid_of(w, f), (unsigned long long)off, (unsigned long long)len,
	    keep ? "" : " and grow");
	k = sim_call_new();
	core_fallocate(w->x.c, f->ino,
		       (zero ? FALLOC_FL_ZERO_RANGE : 0) |
			       (keep ? FALLOC_FL_KEEP_SIZE : 0),
		       off, len, false, sim_on_err, k);
	require(w, finish(w, k, NULL, trouble) == 0);
	if (zero) {
		require(w, model_fs_punch(w->model, f->model, off, len, 0) ==
				   0);
		data_note(w, f, (struct data_op){ .cut = true, .off = off,
						  .end = end });
		f->grown = true;
	}
	if (!keep && end > size_of(w, f)) {
		require(w, model_fs_truncate(w->model, f->model, end, 0) == 0);
		f->hi = u64_max(f->hi, end);
		f->grown = true;
	}
}

static void step_close(struct world *w)
{
	struct file *f = some_file(w);

	if (!f)
		return;
	say(w, "close fid %u", fid_of(w, f));
	core_release(w->x.c, f->h);
	f->h = NULL;
	model_fs_drop(w->model, f->model);
}

static void step_stat(struct world *w)
{
	struct file *f = some_file(w);
	struct sim_call *k = sim_call_new();
	struct model_attr want;
	struct meta_attr a;

	if (!f) {
		sim_call_free(k);
		return;
	}
	core_getattr(w->x.c, f->ino, sim_on_attr, k);
	require(w, finish(w, k, &a, false) == 0);
	require(w, model_fs_stat(w->model, f->model, &want) == 0);
	say(w, "stat fid %u: size %llu (%llu) nlink %u (%u)", fid_of(w, f),
	    (unsigned long long)a.size, (unsigned long long)want.size,
	    a.nlink, want.nlink);
	require(w, a.size == want.size && a.nlink == want.nlink);
}

#include "tests/sim/sim_crash.h"

/* ---- the run ---- */

static void step(struct world *w)
{
	uint64_t what = rnd(w, 100);

	if (what < 30)
		step_name(w);
	else if (what < 55)
		step_write(w);
	else if (what < 68)
		step_read(w);
	else if (what < 80)
		step_fsync(w);
	else if (what < 85)
		step_truncate(w);
	else if (what < 87)
		step_punch(w);
	else if (what < 89)
		step_allocate(w);
	else if (what < 92)
		step_close(w);
	else if (what < 95)
		step_stat(w);
	else if (what < 97)
		check_names(w);
	else
		step_crash(w);
}

static void world_begin(struct world *w)
{
	struct model_create p = { .parent = MODEL_FS_ROOT,
				  .mode = S_IFDIR | 0755 };

	sim_box_init(&w->x);
	sim_box_mount(&w->x);
	w->model = model_new(w);
	w->dir_ino[0] = ROOT_INO;
	for (uint32_t i = 1; i < DIRS; i++) {
		struct sim_call *k = sim_call_new();
		struct core_create c = { .parent = ROOT_INO,
					 .mode = S_IFDIR | 0755 };
		struct meta_attr a;

		c.name = p.name = i == 1 ? "d1" : "d2";
		core_create(w->x.c, &c, sim_on_attr, k);
		require(w, finish(w, k, &a, false) == 0);
		w->dir_ino[i] = a.ino;
	}
	struct sim_call *k = sim_call_new();
	core_sync_all(w->x.c, sim_on_err, k);
	require(w, finish(w, k, NULL, false) == 0);
}

/* Orderly: everything is durable without a word, and nothing ran twice. */
static void world_end(struct world *w)
{
	static const uint16_t ops[] = { WIRE_OP_META_CREATE, 0,
					WIRE_OP_META_UNLINK, 0,
					WIRE_OP_META_RENAME,
					WIRE_OP_META_LINK };

	w->issued[CREATE] += w->issued[MKDIR] + DIRS - 1;
	w->issued[UNLINK] += w->issued[RMDIR];
	for (uint32_t i = 0; i <= LINK && !w->forgetful; i++)
		require(w, !ops[i] || mini_metad_executed(w->x.m, ops[i]) <=
						      w->issued[i]);
	for (uint32_t i = 0; i < w->fid_count; i++) {
		struct file *f = &w->files[i];

		if (!f->h)
			continue;
		core_release(w->x.c, f->h);
		f->h = NULL;
		model_fs_drop(w->model, f->model);
	}
	sim_box_unmount(&w->x);
	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		mini_blockd_restart(w->x.b[i], true);
	mini_metad_restart(w->x.m, true);
	sim_box_mount(&w->x);
	check_names(w);
	for (uint32_t i = 0; i < w->fid_count; i++)
		settle(w, &w->files[i]);
	check_contents(w);
	sim_box_unmount(&w->x);
	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		require(w, mini_blockd_violations(w->x.b[i]) == 0);
	for (uint32_t i = 0; i < w->fid_count; i++) {
		free(w->files[i].base);
		free(w->files[i].ops);
	}
	model_fs_free(w->model);
	sim_box_fini(&w->x);
}

static void run_seed(uint64_t seed)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	w->seed = seed;
	w->rng = seed * 0x9e3779b97f4a7c15u + 1;
	world_begin(w);
	for (w->step = 0; w->step < STEPS; w->step++)
		step(w);
	world_end(w);
	printf("ok - seed %llu: %u faults, %u crashes\n",
	       (unsigned long long)seed, w->faults, w->crashes);
	fflush(stdout);
	free(w);
}

int main(void)
{
	const char *one = getenv("HAIL_SEED"), *many = getenv("HAIL_SEEDS");
	uint64_t count = many ? strtoull(many, NULL, 10) : SEEDS;
	time_t began = time(NULL);

	if (one) {
		run_seed(strtoull(one, NULL, 10));
		return 0;
	}
	for (uint64_t seed = 1; seed <= count; seed++) {
		if (!many && time(NULL) - began > BUDGET_S)
			break;
		run_seed(seed);
	}
	return 0;
}
