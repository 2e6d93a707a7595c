/* Operations on names, and names after a crash of the client. */
#include "tests/sim/world.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

static const char *name_of(uint32_t n)
{
	static const char names[NAMES][4] = { "n0", "n1", "n2", "n3",
					      "n4", "n5", "n6", "n7" };

	return names[n];
}

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
				       w->dir_model[o->dir2], name_of(o->name2),
				       o->flags, 0);
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
			    &(struct core_rename){ .parent = p.parent,
						   .name = p.name,
						   .newparent =
							   w->dir_ino[o->dir2],
						   .newname = name_of(o->name2),
						   .flags = o->flags },
			    sim_on_err, k);
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

void names_step(struct world *w)
{
	struct name_op o = { .kind = (enum kind)world_rnd(w, LINK + 1),
			     .dir = (uint32_t)world_rnd(w, DIRS),
			     .name = (uint32_t)world_rnd(w, NAMES),
			     .dir2 = (uint32_t)world_rnd(w, DIRS),
			     .name2 = (uint32_t)world_rnd(w, NAMES) };
	uint64_t model = 0;
	struct meta_attr a = { 0 };
	bool trouble;
	int want, err;

	if (o.kind == CREATE || o.kind == MKDIR)
		o.fid = w->fid_count;
	else if (w->fid_count > 0)
		o.fid = (uint32_t)world_rnd(w, w->fid_count);
	if (o.kind == RENAME && world_rnd(w, 3) == 0)
		o.flags = world_rnd(w, 2) ? RENAME_NOREPLACE : RENAME_EXCHANGE;
	if (o.fid >= FIDS || w->op_count >= OPS ||
	    (o.kind == LINK && !w->files[o.fid].base))
		return;
	/* The kernel does not ask for this. */
	if (o.kind == RENAME && o.dir == o.dir2 && o.name == o.name2)
		return;
	/* It knows an inode by its names and handles. */
	struct model_attr at;
	if (o.kind == LINK &&
	    (!w->files[o.fid].model ||
	     model_fs_stat(w->model, w->files[o.fid].model, &at)))
		return;
	trouble = trouble_maybe(w);
	err = trouble_finish(w, name_start(w, &o), &a, trouble);
	want = model_apply(w, w->model, &o, &model);
	world_say(w, "name kind %u fid %u %u/%u -> %u/%u flags %u: %d (%d)",
		  o.kind, o.fid, o.dir, o.name, o.dir2, o.name2, o.flags, err,
		  want);
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
			core_readdir(w->x.c, w->dir_ino[l->dir], l->cookie, 200,
				     false, on_dirent, on_page, l);
			require(w, trouble_finish(w, l->k, NULL, false) == 0);
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
		require(w, model_fs_list(m, w->dir_model[l->dir], on_model_name,
					 l) == 0);
	l->dir = 0;
}

void names_check(struct world *w)
{
	struct listing real, want;

	list_real(w, &real);
	list_model(w, w->model, &want);
	require(w, memcmp(&real, &want, sizeof(real)) == 0);
}

struct model_fs *names_model_new(struct world *w)
{
	struct model_fs *m = model_fs_new(0755, 0);
	struct model_create p = { .parent = MODEL_FS_ROOT,
				  .mode = S_IFDIR | 0755 };

	w->dir_model[0] = MODEL_FS_ROOT;
	for (uint32_t i = 1; i < DIRS; i++) {
		p.name = i == 1 ? "d1" : "d2";
		require(w, model_fs_create(m, &p, 0, &w->dir_model[i]) == 0);
	}
	return m;
}

/* The names after the first @count mutations; files get their model's
 * numbers, those not made yet 0. */
static struct model_fs *model_after(struct world *w, uint32_t count)
{
	struct model_fs *m = names_model_new(w);

	for (uint32_t i = 0; i < w->fid_count; i++)
		w->files[i].model = 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct name_op *o = &w->ops[i];
		uint64_t ino = 0;

		(void)model_apply(w, m, o, &ino);
		if (ino)
			w->files[o->fid].model = ino;
	}
	return m;
}

void names_adopt(struct world *w)
{
	struct listing real, want;
	uint32_t count = w->op_count;

	list_real(w, &real);
	for (;; count--) {
		struct model_fs *m = model_after(w, count);

		list_model(w, m, &want);
		if (memcmp(&real, &want, sizeof(real)) == 0) {
			model_fs_free(w->model);
			w->model = m;
			break;
		}
		model_fs_free(m);
		if (count == w->durable)
			world_lost(w, "names after a crash are of no moment");
	}
	world_say(w, "  %u of %u mutations survived, %u had to", count,
		  w->op_count, w->durable);
	/* What fell away is never replayed; its files stay unborn. */
	w->op_count = w->durable = count;
}
