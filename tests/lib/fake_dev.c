/* A disk in memory with faults. */
#include "tests/lib/fake_dev.h"

#include "common/limits.h"

#define FILES_MAX 64
#define PENDING_MAX 4096

struct page {
	uint8_t *now; /* what a reader sees */
	uint8_t *safe; /* what is on disk; NULL: the same */
	uint64_t written; /* the dev's clock of writes then */
	bool bad; /* cannot be read until it is written */
};

struct file {
	char name[32];
	bool exists;
	bool safe_name;
	bool never; /* made after the end: it never was */
	bool gone; /* unlinked; the slot stays until it is closed */
	bool safe_gone;
	bool closed;
	uint64_t size;
	uint64_t safe_size;
	struct page *pages;
	uint64_t page_cap;
};

struct pending {
	struct dev_io *io; /* or */
	void (*fn)(void *arg);
	void *arg;
	int res;
	uint64_t covers; /* flush: writes completed before it was submitted */
};

struct fake_dev {
	struct dev dev;
	uint64_t rng;
	bool in_order;
	bool hold_reads;
	int unlink_err;
	uint64_t now_ms;
	uint64_t space;
	uint64_t writes; /* clock */
	struct file files[FILES_MAX];
	struct pending pending[PENDING_MAX];
	uint32_t pending_count;
	uint64_t fail_countdown;
	int fail_err;
	bool fail_sticky;
	bool failed;
	uint64_t death_countdown;
	bool dead;
	struct fake_dev_count count;
};

static struct fake_dev *of(struct dev *d)
{
	return container_of(d, struct fake_dev, dev);
}

static uint64_t rnd(struct fake_dev *f)
{
	f->rng ^= f->rng << 13;
	f->rng ^= f->rng >> 7;
	f->rng ^= f->rng << 17;
	return f->rng * 0x2545f4914f6cdd1du >> 16;
}

static struct page *page_at(struct file *fl, uint64_t off)
{
	uint64_t i = off / UNIT_SIZE;

	if (i >= fl->page_cap) {
		uint64_t cap = i + 1 + fl->page_cap;

		fl->pages = realloc(fl->pages, cap * sizeof(struct page));
		assert(fl->pages != NULL);
		memset(fl->pages + fl->page_cap, 0,
		       (cap - fl->page_cap) * sizeof(struct page));
		fl->page_cap = cap;
	}
	return &fl->pages[i];
}

static void page_write(struct fake_dev *f, struct file *fl, uint64_t off,
		       const uint8_t *p)
{
	struct page *pg = page_at(fl, off);

	pg->written = ++f->writes;
	pg->bad = false;
	if (pg->safe == NULL) {
		/* The old content is what a power cut may bring back. */
		pg->safe = pg->now != NULL ? pg->now : calloc(1, UNIT_SIZE);
		pg->now = malloc(UNIT_SIZE);
		assert(pg->now != NULL && pg->safe != NULL);
	}
	memcpy(pg->now, p, UNIT_SIZE);
}

static void page_flush(struct page *pg)
{
	free(pg->safe);
	pg->safe = NULL;
}

static void page_read(struct file *fl, uint64_t off, uint8_t *p)
{
	uint64_t i = off / UNIT_SIZE;

	if (i < fl->page_cap && fl->pages[i].now != NULL)
		memcpy(p, fl->pages[i].now, UNIT_SIZE);
	else
		memset(p, 0, UNIT_SIZE);
}

static struct file *file_find(struct fake_dev *f, const char *name)
{
	for (int i = 0; i < FILES_MAX; i++) {
		if (f->files[i].exists && !f->files[i].gone &&
		    strcmp(f->files[i].name, name) == 0)
			return &f->files[i];
	}
	return NULL;
}

static void file_free(struct file *fl)
{
	for (uint64_t i = 0; i < fl->page_cap; i++) {
		free(fl->pages[i].now);
		free(fl->pages[i].safe);
	}
	free(fl->pages);
	memset(fl, 0, sizeof(*fl));
}

static void file_gone(struct fake_dev *f, struct file *fl)
{
	f->space += fl->size;
	file_free(fl);
}

/* Whether the next step that changes the disk still happens. */
static bool lives(struct fake_dev *f)
{
	if (f->death_countdown > 0 && --f->death_countdown == 0)
		f->dead = true;
	return !f->dead;
}

/* ---- the vtable ---- */
static int fk_open(struct dev *d, const char *name, bool create)
{
	struct fake_dev *f = of(d);
	struct file *fl = file_find(f, name);

	for (int i = 0; fl == NULL && create && i < FILES_MAX; i++) {
		if (f->files[i].exists)
			continue;
		fl = &f->files[i];
		(void)snprintf(fl->name, sizeof(fl->name), "%s", name);
		fl->exists = true;
		fl->safe_name = false;
		fl->never = f->dead;
		fl->size = 0;
		fl->safe_size = 0;
	}
	return fl == NULL ? -ENOENT : (int)(fl - f->files);
}

static void fk_close(struct dev *d, int file)
{
	struct fake_dev *f = of(d);
	struct file *fl = &f->files[file];

	for (uint32_t i = 0; i < f->pending_count; i++)
		assert(f->pending[i].io == NULL ||
		       f->pending[i].io->file != file);
	if (!fl->gone)
		return;
	fl->closed = true;
	if (fl->safe_gone)
		file_gone(f, fl);
}

static int fk_unlink(struct dev *d, const char *name)
{
	struct fake_dev *f = of(d);
	struct file *fl = file_find(f, name);

	if (fl == NULL)
		return -ENOENT;
	if (f->unlink_err != 0)
		return f->unlink_err;
	if (lives(f))
		fl->gone = true;
	return 0;
}

static int fk_size(struct dev *d, int file, uint64_t *ret)
{
	*ret = of(d)->files[file].size;
	return 0;
}

static int fk_resize(struct dev *d, int file, uint64_t size)
{
	struct fake_dev *f = of(d);
	struct file *fl = &f->files[file];

	if (!lives(f))
		return 0;
	if (size > fl->size) {
		if (size - fl->size > f->space)
			return -ENOSPC;
		f->space -= size - fl->size;
	} else {
		f->space += fl->size - size;
	}
	fl->size = size;
	return 0;
}

static int fk_write_now(struct dev *d, int file, uint64_t off,
			const void *buf, size_t len)
{
	struct fake_dev *f = of(d);
	struct file *fl = &f->files[file];

	assert(off % UNIT_SIZE == 0 && len % UNIT_SIZE == 0);
	for (size_t i = 0; i < len; i += UNIT_SIZE)
		page_write(f, fl, off + i, (const uint8_t *)buf + i);
	if (off + len > fl->size)
		fl->size = off + len;
	return 0;
}

static int fk_read_now(struct dev *d, int file, uint64_t off, void *buf,
		       size_t len)
{
	struct file *fl = &of(d)->files[file];

	assert(off % UNIT_SIZE == 0 && len % UNIT_SIZE == 0);
	if (off + len > fl->size)
		return -EIO;
	for (size_t i = 0; i < len; i += UNIT_SIZE) {
		if (page_at(fl, off + i)->bad)
			return -ENODATA; /* as of an O_DIRECT file */
	}
	for (size_t i = 0; i < len; i += UNIT_SIZE)
		page_read(fl, off + i, (uint8_t *)buf + i);
	return 0;
}

static int fk_sync_now(struct dev *d, int file)
{
	struct file *fl = &of(d)->files[file];

	if (!lives(of(d)))
		return 0;
	for (uint64_t i = 0; i < fl->page_cap; i++)
		page_flush(&fl->pages[i]);
	fl->safe_size = fl->size;
	return 0;
}

static int fk_sync_dir(struct dev *d)
{
	struct fake_dev *f = of(d);

	if (!lives(f))
		return 0;
	for (int i = 0; i < FILES_MAX; i++) {
		struct file *fl = &f->files[i];

		fl->safe_name = fl->exists;
		fl->safe_gone = fl->gone;
		if (fl->gone && fl->closed)
			file_gone(f, fl);
	}
	return 0;
}

static int fk_space(struct dev *d, uint64_t *ret)
{
	*ret = of(d)->space;
	return 0;
}

static void push(struct fake_dev *f, struct pending p)
{
	assert(f->pending_count < PENDING_MAX);
	f->pending[f->pending_count++] = p;
}

static void count_io(struct fake_dev *f, const struct dev_io *io)
{
	switch (io->op) {
	case DEV_READ:
		f->count.reads++;
		f->count.read_bytes += io->len;
		break;
	case DEV_WRITE:
		f->count.writes++;
		f->count.write_bytes += io->len;
		break;
	case DEV_WRITE_DSYNC:
		f->count.dsyncs++;
		f->count.dsync_bytes += io->len;
		break;
	case DEV_FLUSH:
		f->count.flushes++;
		break;
	}
}

static void fk_submit(struct dev *d, struct dev_io *io)
{
	struct fake_dev *f = of(d);
	struct pending p = { .io = io, .covers = f->writes };
	const struct file *fl = &f->files[io->file];

	assert(fl->exists && !fl->closed);
	count_io(f, io);
	if (io->op != DEV_FLUSH) {
		assert(io->off % UNIT_SIZE == 0 && io->len % UNIT_SIZE == 0);
		assert(io->len > 0 && (uintptr_t)io->buf % UNIT_SIZE == 0);
		assert(io->off + io->len <= fl->size);
	}
	if (f->fail_countdown > 0 && --f->fail_countdown == 0) {
		p.res = f->fail_err;
		f->failed = true;
		if (f->fail_sticky)
			f->fail_countdown = 1;
	}
	push(f, p);
}

static void fk_post(struct dev *d, void (*fn)(void *arg), void *arg)
{
	push(of(d), (struct pending){ .fn = fn, .arg = arg });
}

static uint64_t fk_now_ms(struct dev *d)
{
	return of(d)->now_ms;
}

static const struct dev_vtable fake_vt = {
	.open = fk_open,
	.close = fk_close,
	.size = fk_size,
	.resize = fk_resize,
	.write_now = fk_write_now,
	.read_now = fk_read_now,
	.sync_now = fk_sync_now,
	.unlink = fk_unlink,
	.sync_dir = fk_sync_dir,
	.space = fk_space,
	.submit = fk_submit,
	.post = fk_post,
	.now_ms = fk_now_ms,
};

/* ---- what happens to an I/O ---- */
static void write_pages(struct fake_dev *f, const struct dev_io *io,
			bool sync, bool torn)
{
	struct file *fl = &f->files[io->file];

	for (uint32_t i = 0; i < io->len; i += UNIT_SIZE) {
		if (torn && rnd(f) % 2 == 0)
			continue;
		page_write(f, fl, io->off + i, (uint8_t *)io->buf + i);
		if (sync)
			page_flush(page_at(fl, io->off + i));
	}
}

static void do_flush(struct fake_dev *f, const struct pending *p)
{
	struct file *fl = &f->files[p->io->file];

	for (uint64_t i = 0; i < fl->page_cap; i++) {
		if (fl->pages[i].written <= p->covers)
			page_flush(&fl->pages[i]);
	}
	fl->safe_size = fl->size;
}

static void act(struct fake_dev *f, const struct pending *p)
{
	struct dev_io *io = p->io;
	struct file *fl = &f->files[io->file];

	if (p->res != 0) {
		/* A failed write may have come half through. */
		if (io->op == DEV_WRITE || io->op == DEV_WRITE_DSYNC)
			write_pages(f, io, false, true);
		return;
	}
	switch (io->op) {
	case DEV_READ:
		for (uint32_t i = 0; i < io->len; i += UNIT_SIZE)
			page_read(fl, io->off + i, (uint8_t *)io->buf + i);
		break;
	case DEV_WRITE:
	case DEV_WRITE_DSYNC:
		write_pages(f, io, io->op == DEV_WRITE_DSYNC, false);
		break;
	case DEV_FLUSH:
		do_flush(f, p);
		break;
	}
}

static bool is_read(const struct pending *p)
{
	return p->io != NULL && p->io->op == DEV_READ;
}

bool fake_dev_step(struct fake_dev *f)
{
	struct pending p;
	uint32_t i;

	if (f->pending_count == 0 || f->dead)
		return false;
	i = f->in_order ? 0 : (uint32_t)(rnd(f) % f->pending_count);
	/* Posts keep their order among themselves. */
	for (uint32_t k = 0; f->pending[i].io == NULL && k < i; k++) {
		if (f->pending[k].io == NULL)
			i = k;
	}
	for (uint32_t k = 0; f->hold_reads && is_read(&f->pending[i]); k++) {
		if (k == f->pending_count)
			return false;
		i = k;
	}
	p = f->pending[i];
	if (p.io != NULL && p.io->op != DEV_READ && !lives(f))
		return false;
	memmove(&f->pending[i], &f->pending[i + 1],
		(f->pending_count - i - 1) * sizeof(p));
	f->pending_count--;
	if (p.io == NULL) {
		p.fn(p.arg);
		return true;
	}
	act(f, &p);
	p.io->done(p.io, p.res);
	return true;
}

/* ---- life ---- */
struct fake_dev *fake_dev_new(uint64_t seed)
{
	struct fake_dev *f = calloc(1, sizeof(*f));

	assert(f != NULL);
	f->dev.vt = &fake_vt;
	f->rng = seed * 0x9e3779b97f4a7c15u | 1;
	f->space = (uint64_t)1 << 40;
	f->now_ms = 1000;
	return f;
}

void fake_dev_free(struct fake_dev *f)
{
	for (int i = 0; i < FILES_MAX; i++)
		file_free(&f->files[i]);
	free(f);
}

struct dev *fake_dev_dev(struct fake_dev *f)
{
	return &f->dev;
}

void fake_dev_in_order(struct fake_dev *f, bool on)
{
	f->in_order = on;
}

void fake_dev_hold_reads(struct fake_dev *f, bool on)
{
	f->hold_reads = on;
}

void fake_dev_fail_unlink(struct fake_dev *f, int err)
{
	f->unlink_err = err;
}

void fake_dev_advance(struct fake_dev *f, uint64_t ms)
{
	f->now_ms += ms;
}

void fake_dev_set_space(struct fake_dev *f, uint64_t bytes)
{
	f->space = bytes;
}

void fake_dev_fail_at(struct fake_dev *f, uint64_t k, int err, bool sticky)
{
	f->fail_countdown = k;
	f->fail_err = err;
	f->fail_sticky = sticky;
	f->failed = false;
}

bool fake_dev_failed(const struct fake_dev *f)
{
	return f->failed;
}

void fake_dev_kill(struct fake_dev *f)
{
	for (uint32_t i = 0; i < f->pending_count; i++) {
		const struct dev_io *io = f->pending[i].io;

		if (io != NULL && rnd(f) % 2 == 0 &&
		    (io->op == DEV_WRITE || io->op == DEV_WRITE_DSYNC))
			write_pages(f, io, false, rnd(f) % 2 == 0);
	}
	f->pending_count = 0;
	f->fail_countdown = 0;
	f->failed = false;
	f->death_countdown = 0;
	f->dead = false;
	for (int i = 0; i < FILES_MAX; i++) {
		struct file *fl = &f->files[i];

		fl->closed = fl->gone;
		if (fl->safe_gone)
			file_gone(f, fl);
	}
}

void fake_dev_die_at(struct fake_dev *f, uint64_t k)
{
	f->death_countdown = k;
}

bool fake_dev_dead(const struct fake_dev *f)
{
	return f->dead;
}

/* Unlinked without a sync of the directory: it may be back. */
static void may_return(struct fake_dev *f, struct file *fl)
{
	if (file_find(f, fl->name) != NULL || rnd(f) % 2 == 0) {
		file_gone(f, fl);
		return;
	}
	fl->gone = false;
	fl->closed = false;
}

void fake_dev_power_cut(struct fake_dev *f)
{
	uint32_t keep;

	fake_dev_kill(f);
	/* Sometimes all is lost, sometimes little: different mistakes. */
	keep = (uint32_t)(rnd(f) % 5);
	for (int k = 0; k < FILES_MAX; k++) {
		struct file *fl = &f->files[k];

		if (fl->exists && !fl->safe_name &&
		    (fl->never || rnd(f) % 2 == 0)) {
			file_free(fl);
			continue;
		}
		if (fl->gone)
			may_return(f, fl);
		for (uint64_t i = 0; i < fl->page_cap; i++) {
			struct page *pg = &fl->pages[i];

			if (pg->safe == NULL)
				continue;
			if (rnd(f) % 4 >= keep) {
				free(pg->now);
				pg->now = pg->safe;
				pg->safe = NULL;
			} else {
				page_flush(pg);
			}
		}
		fl->size = fl->safe_size;
	}
}

void fake_dev_flip(struct fake_dev *f, const char *name, uint64_t off)
{
	struct file *fl = file_find(f, name);
	uint8_t page[UNIT_SIZE];

	assert(fl != NULL && off < fl->size);
	page_read(fl, u64_round_down(off, UNIT_SIZE), page);
	page[off % UNIT_SIZE] ^= 0x10;
	page_write(f, fl, u64_round_down(off, UNIT_SIZE), page);
	page_flush(page_at(fl, off));
}

void fake_dev_spoil(struct fake_dev *f, const char *name, uint64_t off)
{
	struct file *fl = file_find(f, name);

	assert(fl != NULL && off < fl->size);
	page_at(fl, off)->bad = true;
}

uint64_t fake_dev_size(struct fake_dev *f, const char *name)
{
	struct file *fl = file_find(f, name);

	return fl == NULL ? 0 : fl->size;
}

bool fake_dev_peek(struct fake_dev *f, const char *name, uint64_t off,
		   void *page)
{
	struct file *fl = file_find(f, name);

	if (fl == NULL || off + UNIT_SIZE > fl->size)
		return false;
	page_read(fl, off, page);
	return true;
}

struct fake_dev_count fake_dev_count(const struct fake_dev *f)
{
	return f->count;
}
