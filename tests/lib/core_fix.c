/* Blocking forms of the client core's operations, for tests. */
#include "tests/lib/core_fix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

/* ---- blocking calls ---- */

struct fix_call *fix_call_new(void)
{
	struct fix_call *k = calloc(1, sizeof(*k));
	assert_non_null(k);
	pthread_mutex_init(&k->mutex, NULL);
	pthread_cond_init(&k->cond, NULL);
	return k;
}

void fix_call_done(struct fix_call *k, int err)
{
	pthread_mutex_lock(&k->mutex);
	assert_false(k->done);
	k->done = true;
	k->err = err;
	pthread_cond_broadcast(&k->cond);
	pthread_mutex_unlock(&k->mutex);
}

void on_err(void *arg, int err)
{
	fix_call_done(arg, err);
}

void on_attr(void *arg, int err, const struct meta_attr *a)
{
	struct fix_call *k = arg;
	if (a)
		k->a = *a;
	fix_call_done(k, err);
}

void on_bytes(void *arg, int err, const void *p, size_t len)
{
	struct fix_call *k = arg;
	if (!err && len)
		memcpy(k->bytes, p, len);
	k->len = len;
	fix_call_done(k, err);
}

bool fix_call_wait(struct fix_call *k, unsigned ms)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	pthread_mutex_lock(&k->mutex);
	while (!k->done)
		if (pthread_cond_timedwait(&k->cond, &k->mutex, &t))
			break;
	bool done = k->done;
	pthread_mutex_unlock(&k->mutex);
	return done;
}

/* Waits, frees @k and gives its result. */
int fix_call_end(struct fix_call *k, struct meta_attr *a)
{
	assert_true(fix_call_wait(k, WAIT_MS));
	int err = k->err;
	if (a)
		*a = k->a;
	pthread_cond_destroy(&k->cond);
	pthread_mutex_destroy(&k->mutex);
	free(k);
	return err;
}

void pause_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000,
				      .tv_nsec = (long)(ms % 1000) * 1000000 },
		  NULL);
}

/* ---- operations ---- */

void track(struct fix *f, uint64_t ino)
{
	for (unsigned i = 0; i < f->seen_count; i++)
		if (f->seen[i] == ino)
			return;
	assert_true(f->seen_count < TRACK_MAX);
	f->seen[f->seen_count++] = ino;
}

int op_lookup(struct fix *f, uint64_t dir, const char *name,
		     struct meta_attr *a)
{
	struct fix_call *k = fix_call_new();
	core_lookup(f->c, dir, name, on_attr, k);
	return fix_call_end(k, a);
}

int op_getattr(struct fix *f, uint64_t ino, struct meta_attr *a)
{
	struct fix_call *k = fix_call_new();
	core_getattr(f->c, ino, on_attr, k);
	return fix_call_end(k, a);
}

int op_make(struct fix *f, uint64_t dir, const char *name,
		   uint32_t mode, const char *target, struct meta_attr *a)
{
	struct fix_call *k = fix_call_new();
	struct core_create p = { .parent = dir, .name = name, .mode = mode,
				 .umask = 022, .uid = 7, .gid = 8,
				 .rdev = 0x103, .target = target };
	struct meta_attr got;
	core_create(f->c, &p, on_attr, k);
	int err = fix_call_end(k, &got);
	if (!err)
		track(f, got.ino);
	if (a)
		*a = got;
	return err;
}

int op_mkdir(struct fix *f, uint64_t dir, const char *name,
		    struct meta_attr *a)
{
	return op_make(f, dir, name, S_IFDIR | 0777, NULL, a);
}

int op_mkfile(struct fix *f, uint64_t dir, const char *name,
		     struct meta_attr *a)
{
	return op_make(f, dir, name, S_IFREG | 0666, NULL, a);
}

int op_open_new(struct fix *f, uint64_t dir, const char *name,
		       int flags, struct core_file **file, struct meta_attr *a)
{
	struct fix_call *k = fix_call_new();
	struct core_create p = { .parent = dir, .name = name,
				 .mode = S_IFREG | 0644, .open_flags = flags };
	core_create_open(f->c, &p, file, on_attr, k);
	return fix_call_end(k, a);
}

int op_open(struct fix *f, uint64_t ino, int flags,
		   struct core_file **file)
{
	struct fix_call *k = fix_call_new();
	core_open(f->c, ino, flags, file, on_err, k);
	return fix_call_end(k, NULL);
}

struct fix_call *op_unlink_start(struct fix *f, uint64_t dir, const char *name,
				 bool isdir)
{
	struct fix_call *k = fix_call_new();

	core_unlink(f->c, dir, name, isdir, on_err, k);
	return k;
}

int op_unlink(struct fix *f, uint64_t dir, const char *name, bool isdir)
{
	return fix_call_end(op_unlink_start(f, dir, name, isdir), NULL);
}

int op_rename(struct fix *f, uint64_t from, const char *name,
		     uint64_t to, const char *newname, uint32_t flags)
{
	struct fix_call *k = fix_call_new();
	struct core_rename p = { .parent = from, .name = name,
				 .newparent = to, .newname = newname,
				 .flags = flags };
	core_rename(f->c, &p, on_err, k);
	return fix_call_end(k, NULL);
}

int op_link(struct fix *f, uint64_t ino, uint64_t dir, const char *name,
		   struct meta_attr *a)
{
	struct fix_call *k = fix_call_new();
	core_link(f->c, ino, dir, name, on_attr, k);
	return fix_call_end(k, a);
}

int op_chmod(struct fix *f, uint64_t ino, uint32_t mode)
{
	struct fix_call *k = fix_call_new();
	struct meta_setattr s = { .ino = ino, .valid = META_SET_MODE,
				  .mode = mode };
	core_setattr(f->c, &s, on_attr, k);
	return fix_call_end(k, NULL);
}

int op_fsync_dir(struct fix *f)
{
	struct fix_call *k = fix_call_new();
	core_fsync_dir(f->c, ROOT_INO, on_err, k);
	return fix_call_end(k, NULL);
}

int op_setxattr(struct fix *f, uint64_t ino, const char *name,
		       const void *value, size_t len, uint32_t flags)
{
	struct fix_call *k = fix_call_new();
	core_setxattr(f->c, ino, name, value, len, flags, on_err, k);
	return fix_call_end(k, NULL);
}

/* Returns the length or -errno. */
ssize_t op_getxattr(struct fix *f, uint64_t ino, const char *name,
			   void *buf)
{
	struct fix_call *k = fix_call_new();
	core_getxattr(f->c, ino, name, on_bytes, k);
	assert_true(fix_call_wait(k, WAIT_MS));
	ssize_t len = k->err ? k->err : (ssize_t)k->len;
	if (len > 0 && buf)
		memcpy(buf, k->bytes, (size_t)len);
	(void)fix_call_end(k, NULL);
	return len;
}

/* What the mount says without asking metad equals what metad says. */
void check_truth(struct fix *f)
{
	for (unsigned i = 0; i < f->seen_count; i++) {
		struct meta_attr truth, mine;
		int err = mini_metad_getattr(f->m, f->seen[i], &truth);
		int mine_err = op_getattr(f, f->seen[i], &mine);
		assert_int_equal(err, mine_err);
		if (err)
			continue;
		truth.flags &= ~META_ATTR_LEASED; /* not cached */
		uint8_t a[160], b[160]; /* encoded: padding does not count */
		struct wire_out oa, ob;
		wire_out_init(&oa, a, sizeof(a));
		wire_out_init(&ob, b, sizeof(b));
		meta_attr_encode(&oa, &truth);
		meta_attr_encode(&ob, &mine);
		assert_false(oa.overflow);
		assert_memory_equal(a, b, oa.len);
	}
}

/* ---- fixture ---- */

static void on_names_changed(void *arg)
{
	_Atomic unsigned *count = arg;
	(*count)++;
}

static struct core *mount(struct mini_metad *m, uint64_t soft_ms,
			  _Atomic unsigned *names_changed)
{
	struct core *c;
	struct core_options o = {
		.conf = mini_metad_conf(m),
		.host = "here",
		.mountpoint = "/mnt/test",
		.wb_bytes_max = 64u << 20,
		.prefetch_bytes_max = 1u << 20,
		.flush_age_ms = 1000,
		.timeout_ms = soft_ms,
		.noatime = true, /* metad learns of atimes late */
		.early = names_changed != NULL,
		.names_changed = names_changed ? on_names_changed : NULL,
		.changed_arg = names_changed,
	};
	assert_int_equal(core_new(&o, &c), 0);
	assert_int_equal(core_start(c, WAIT_MS), 0);
	return c;
}

struct core *mount_new(struct mini_metad *m, uint64_t soft_ms)
{
	return mount(m, soft_ms, NULL);
}

static struct fix *fix_without_mount(void)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct mini_metad_options o = { .keepalive_ms = 50 };
	assert_non_null(f);
	assert_int_equal(mini_metad_new(&o, &f->m), 0);
	track(f, ROOT_INO);
	return f;
}

struct fix *fix_new(uint64_t soft_ms)
{
	struct fix *f = fix_without_mount();
	f->c = mount_new(f->m, soft_ms);
	return f;
}

struct fix *fix_early_new(void)
{
	struct fix *f = fix_without_mount();
	f->c = mount(f->m, 0, &f->names_changed);
	return f;
}

void fix_free(struct fix *f)
{
	core_free(f->c);
	mini_metad_free(f->m);
	free(f);
}

/* The usual end: everything is given back. */
void fix_stop(struct fix *f)
{
	assert_int_equal(core_stop(f->c, WAIT_MS), 0);
	assert_int_equal(mini_metad_lease_count(f->m), 0);
	assert_int_equal(mini_metad_session_count(f->m), 0);
	fix_free(f);
}

void on_burst(void *arg, int err, const struct meta_attr *a)
{
	struct burst *b = arg;
	(void)a;
	pthread_mutex_lock(&b->mutex);
	if (err && !b->first_err)
		b->first_err = err;
	if (--b->left == 0)
		pthread_cond_signal(&b->cond);
	pthread_mutex_unlock(&b->mutex);
}

void on_burst_err(void *arg, int err)
{
	on_burst(arg, err, NULL);
}

void burst_init(struct burst *b, unsigned count)
{
	*b = (struct burst){ .left = count };
	pthread_mutex_init(&b->mutex, NULL);
	pthread_cond_init(&b->cond, NULL);
}

unsigned burst_left(struct burst *b)
{
	pthread_mutex_lock(&b->mutex);
	unsigned left = b->left;
	pthread_mutex_unlock(&b->mutex);
	return left;
}

void burst_end(struct burst *b)
{
	unsigned left = burst_left(b), tries = 0;
	while (left > 0 && tries++ < WAIT_MS / 5) {
		pause_ms(5);
		unsigned now = burst_left(b);
		if (now != left)
			tries = 0;
		left = now;
	}
	assert_int_equal(left, 0);
}

void burst_start(struct fix *f, struct burst *b, uint64_t dir,
			unsigned count)
{
	burst_init(b, count);
	for (unsigned i = 0; i < count; i++) {
		char name[16];
		snprintf(name, sizeof(name), "f%u", i);
		struct core_create p = { .parent = dir, .name = name,
					 .mode = S_IFREG | 0600 };
		core_create(f->c, &p, on_burst, b);
	}
}
