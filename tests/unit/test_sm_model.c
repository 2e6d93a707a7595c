/* The state machine against a naive model of a POSIX file system
 * (tests/lib/model_fs.h): random operations on few names, so that they meet.
 * Each must end alike; attributes are compared after each, everything now and
 * then. On the way requests are repeated, and the machine is replaced by its
 * own snapshot. SM_SEED=n for one other sequence, SM_STEPS=n for its length.
 */
#include "common/wire_blk.h"
#include "metad/sm_priv.h"
#include "tests/lib/model_fs.h"
#include "tests/lib/sm_client.h"

#include <fnmatch.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cmocka.h>

#define LOG_INOS 64u /* model_entry[] is of the first inodes only */
#define LOGDS 4u
#define INOS 8192u /* no run makes so many */

struct world {
	struct sm_client c;
	/* The registry of logs: epoch 0, there is none. */
	struct model_entry {
		uint64_t epoch, data_epoch;
		uint32_t version;
		struct meta_log_peer peers[2];
		bool journal; /* without peers */
		uint8_t flags;
	} logs[LOG_INOS];
	uint64_t log_epoch;
	/* By inode: the pattern of a log directory; what made a log file. */
	const char *patterns[INOS];
	uint64_t log_dirs[INOS];
	uint32_t boots[LOGDS]; /* of log daemons; 0: not there */
	struct model_fs *m;
	uint64_t rng;
	uint64_t step;
	uint64_t counts[2]; /* operations that failed, succeeded */
};

static uint64_t next(struct world *w) /* splitmix64 */
{
	uint64_t z = (w->rng += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static uint32_t below(struct world *w, uint64_t limit)
{
	return (uint32_t)(next(w) % limit);
}

/* ---- comparing ---- */

static void assert_same_attr(struct world *w, uint64_t ino)
{
	struct model_attr want;
	struct meta_attr got;

	if (model_fs_stat(w->m, ino, &want) != 0) {
		assert_int_equal(sm_client_getattr(&w->c, ino), -ENOENT);
		return;
	}
	got = sm_client_stat(&w->c, ino);
	assert_int_equal((got.flags & META_ATTR_LOG) != 0,
			 w->patterns[ino] != NULL || w->log_dirs[ino] != 0);
	assert_int_equal(got.mode, want.mode);
	assert_int_equal(got.nlink, want.nlink);
	assert_int_equal(got.uid, want.uid);
	assert_int_equal(got.gid, want.gid);
	assert_int_equal(got.rdev, want.rdev);
	assert_true(got.atime_ns == want.atime);
	assert_true(got.mtime_ns == want.mtime);
	assert_true(got.ctime_ns == want.ctime);
	assert_true(got.btime_ns == want.btime);
	if (!S_ISDIR(want.mode))
		assert_true(got.size == want.size);
	else if (want.parent != 0)
		assert_true(got.parent == want.parent);
}

struct listing {
	struct world *w;
	uint64_t dir;
	uint64_t count;
	uint64_t last_cookie;
};

static void on_dirent(void *arg, const struct meta_dirent *d,
		      const struct meta_attr *a)
{
	struct listing *l = arg;
	char name[NAME_LEN_MAX + 1];
	uint64_t ino;

	memcpy(name, d->name.p, d->name.len);
	name[d->name.len] = '\0';
	assert_int_equal(model_fs_lookup(l->w->m, l->dir, name, &ino), 0);
	assert_true(ino == d->ino);
	assert_true(d->cookie > l->last_cookie && d->cookie > 2 &&
		    d->cookie < INT64_MAX);
	l->last_cookie = d->cookie;
	l->count++;
	if (a != NULL)
		assert_true(a->ino == ino);
}

static void assert_same_dir(struct world *w, uint64_t dir, uint64_t entries)
{
	struct listing l = { .w = w, .dir = dir };
	uint32_t bytes = 512 + below(w, 4000);
	bool plus = below(w, 2) == 0;
	uint64_t cookie = 0;
	bool eof = false;

	while (!eof) {
		/* callbacks query the model only: the page stays */
		assert_true(sm_client_readdir(&w->c, dir, &cookie, bytes, plus,
					      &eof, on_dirent, &l) >= 0);
	}
	assert_true(l.count == entries);
}

static void assert_same_logs(struct world *w)
{
	uint64_t count = 0;

	for (uint64_t ino = 1; ino < LOG_INOS; ino++) {
		const struct model_entry *e = &w->logs[ino];
		struct sm_log l;

		assert_true(sm_log_find(w->c.sm, ino, &l) == (e->epoch != 0));
		if (e->epoch == 0)
			continue;
		count++;
		assert_true(l.epoch == e->epoch && l.version == e->version &&
			    l.data_epoch == e->data_epoch &&
			    l.flags == e->flags);
		assert_int_equal(l.peer_count, e->journal ? 0 : 2);
	}
	assert_true(sm_log_count(w->c.sm) == count);
	assert_true(sm_log_epoch(w->c.sm) == w->log_epoch);
}

static void assert_same_world(struct world *w)
{
	uint64_t next_ino = model_fs_next_ino(w->m);
	uint64_t alive = 0;

	for (uint64_t ino = 1; ino < next_ino; ino++) {
		struct model_attr a;

		assert_same_attr(w, ino);
		if (model_fs_stat(w->m, ino, &a) != 0)
			continue;
		alive++;
		if (S_ISDIR(a.mode))
			assert_same_dir(w, ino, a.entries);
		if (S_ISLNK(a.mode)) {
			char target[SYMLINK_LEN_MAX + 1];

			assert_true(sm_client_readlink(&w->c, ino, target,
						       sizeof(target)) > 0);
			assert_string_equal(target,
					    model_fs_readlink(w->m, ino));
		}
	}
	assert_true(sm_inode_count(w->c.sm) == alive);
	assert_same_logs(w);
	assert_true(sm_verify(w->c.sm));
}

/* ---- operations ---- */

/* A number that is, was or will be an inode; recent ones more often. */
static uint64_t any_ino(struct world *w)
{
	uint64_t next_ino = model_fs_next_ino(w->m);

	if (below(w, 3) == 0)
		return 1 + below(w, 8);
	return below(w, 2) == 0 ? 1 + below(w, next_ino) :
	       next_ino > 40 ? next_ino - below(w, 40) : 1 + below(w, 40);
}

static uint64_t any_dir(struct world *w)
{
	for (int tries = 0; tries < 8; tries++) {
		uint64_t ino = any_ino(w);
		struct model_attr a;

		if (model_fs_stat(w->m, ino, &a) == 0 && S_ISDIR(a.mode))
			return ino;
	}
	return below(w, 20) == 0 ? any_ino(w) : 1;
}

static const char *any_name(struct world *w)
{
	static const char *const names[] = { "a", "b", "c", "d", "e", "f",
					     "name", "..x", "\xff\xfe" };
	static char long_name[NAME_LEN_MAX + 1];

	if (below(w, 30) == 0) {
		memset(long_name, 'n', NAME_LEN_MAX);
		long_name[0] = (char)('a' + below(w, 3));
		return long_name;
	}
	return names[below(w, array_count(names))];
}

static void held(struct world *w, int err, uint64_t ino)
{
	/* An inode lives until the session gives it back: hold it once. */
	if (err == 0) {
		assert_int_equal(model_fs_hold(w->m, ino), 0);
		assert_true(w->c.attr.ino == ino);
	}
}

/* @ino has got a name. */
static void named(struct world *w, uint64_t ino, uint64_t dir,
		  const char *name)
{
	const char *pattern = w->patterns[dir];
	struct model_attr a;

	if (model_fs_stat(w->m, ino, &a) == 0 && S_ISREG(a.mode))
		w->log_dirs[ino] = pattern != NULL &&
				   fnmatch(pattern, name, 0) == 0 ? dir : 0;
}

static int op_log_dir(struct world *w, int *want)
{
	static const char *const texts[] = { "match=*", "match=[a-c]",
					     "match=n*", "peers=2" };
	const char *text = texts[below(w, array_count(texts))];
	uint64_t ino = any_ino(w);
	struct model_attr a;
	bool there = model_fs_stat(w->m, ino, &a) == 0;
	bool dir = there && S_ISDIR(a.mode), valid = text[0] == 'm';
	int got;

	/* The model's xattrs are others; the ctime alone is of both. */
	if (below(w, 2) == 0) {
		got = sm_client_setxattr(&w->c, ino, META_XATTR_LOG, text,
					 strlen(text), 0);
		*want = !valid || (there && !dir) ? -EINVAL :
			!there ? -ENOENT : 0;
		if (*want == 0)
			w->patterns[ino] = text + strlen("match=");
	} else {
		got = sm_client_removexattr(&w->c, ino, META_XATTR_LOG);
		*want = !there ? -ENOENT : w->patterns[ino] == NULL ?
			-ENODATA : 0;
		if (*want == 0)
			w->patterns[ino] = NULL;
	}
	if (*want == 0)
		(void)model_fs_utimens(w->m, ino, a.atime, a.mtime, w->c.now);
	return got;
}

static int op_create(struct world *w, int *want)
{
	static const uint32_t types[] = { S_IFREG, S_IFREG, S_IFREG, S_IFDIR,
					  S_IFDIR, S_IFDIR, S_IFIFO, S_IFSOCK,
					  S_IFCHR, S_IFBLK };
	uint64_t ino = 0;
	struct model_create p = {
		.parent = any_dir(w),
		.name = any_name(w),
		.mode = types[below(w, array_count(types))] | below(w, 010000),
		.umask = below(w, 01000),
		.uid = below(w, 3),
		.gid = below(w, 3),
		.rdev = below(w, 1000),
	};
	int got;

	w->c.uid = p.uid;
	w->c.gid = p.gid;
	w->c.umask = p.umask;
	got = sm_client_mknod(&w->c, p.parent, p.name, p.mode, p.rdev);
	*want = model_fs_create(w->m, &p, w->c.now, &ino);
	held(w, *want, ino);
	if (*want == 0)
		named(w, ino, p.parent, p.name);
	return got;
}

static int op_symlink(struct world *w, int *want)
{
	static char target[SYMLINK_LEN_MAX + 1];
	struct model_create p = { .parent = any_dir(w), .name = any_name(w),
				  .mode = S_IFLNK | 0777, .target = target };
	uint64_t ino = 0;
	uint32_t len = below(w, 4) == 0 ? SYMLINK_LEN_MAX : 1 + below(w, 50);
	int got;

	memset(target, 't', len);
	target[len] = '\0';
	w->c.uid = 0;
	w->c.gid = 0;
	got = sm_client_symlink(&w->c, p.parent, p.name, target);
	*want = model_fs_create(w->m, &p, w->c.now, &ino);
	held(w, *want, ino);
	return got;
}

static int op_tmpfile(struct world *w, int *want)
{
	struct model_create p = { .parent = any_dir(w),
				  .mode = S_IFREG | below(w, 010000) };
	uint64_t ino = 0;
	int got;

	w->c.uid = 0;
	w->c.gid = 0;
	w->c.umask = 0;
	got = sm_client_tmpfile(&w->c, p.parent, p.mode);
	*want = model_fs_create(w->m, &p, w->c.now, &ino); /* and holds it */
	return got;
}

static int op_unlink(struct world *w, int *want)
{
	uint64_t dir = any_dir(w);
	const char *name = any_name(w);
	int got = sm_client_unlink(&w->c, dir, name);

	*want = model_fs_unlink(w->m, dir, name, w->c.now);
	return got;
}

static int op_rmdir(struct world *w, int *want)
{
	uint64_t dir = any_dir(w);
	const char *name = any_name(w);
	int got = sm_client_rmdir(&w->c, dir, name);

	*want = model_fs_rmdir(w->m, dir, name, w->c.now);
	return got;
}

static int op_link(struct world *w, int *want)
{
	uint64_t ino = any_ino(w);
	uint64_t dir = any_dir(w);
	const char *name = any_name(w);
	int got = sm_client_link(&w->c, ino, dir, name);

	*want = model_fs_link(w->m, ino, dir, name, w->c.now);
	if (*want == 0)
		named(w, ino, dir, name);
	return got;
}

static int op_rename(struct world *w, int *want)
{
	static const uint32_t flags[] = { 0, 0, 0, RENAME_NOREPLACE,
					  RENAME_EXCHANGE, RENAME_WHITEOUT,
					  RENAME_WHITEOUT | RENAME_NOREPLACE };
	uint64_t dir = any_dir(w);
	uint64_t newdir = below(w, 2) == 0 ? dir : any_dir(w);
	const char *name = any_name(w);
	const char *newname = any_name(w);
	uint32_t flag = flags[below(w, array_count(flags))];
	struct meta_rename_reply r = { 0 };
	uint64_t src = 0, dst = 0;
	int got;

	(void)model_fs_lookup(w->m, dir, name, &src);
	(void)model_fs_lookup(w->m, newdir, newname, &dst);
	w->c.uid = w->c.gid = 0;
	got = sm_client_rename(&w->c, dir, name, newdir, newname, flag, &r);
	*want = model_fs_rename(w->m, dir, name, newdir, newname, flag,
				w->c.now);
	if (*want == 0 && src != dst)
		named(w, src, newdir, newname);
	if (*want == 0 && src != dst && flag == RENAME_EXCHANGE)
		named(w, dst, dir, name);
	if (r.whiteout != 0)
		assert_int_equal(model_fs_hold(w->m, r.whiteout), 0);
	return got;
}

static int op_attr(struct world *w, int *want)
{
	struct meta_setattr s = { .ino = any_ino(w) };
	int got;

	switch (below(w, 3)) {
	case 0:
		s.mode = below(w, 010000);
		got = sm_client_chmod(&w->c, s.ino, s.mode);
		*want = model_fs_chmod(w->m, s.ino, s.mode, w->c.now);
		break;
	case 1:
		s.uid = below(w, 4);
		s.gid = below(w, 4);
		got = sm_client_chown(&w->c, s.ino, s.uid, s.gid);
		*want = model_fs_chown(w->m, s.ino, s.uid, s.gid, w->c.now);
		break;
	default:
		s.valid = META_SET_ATIME | META_SET_MTIME;
		s.atime_ns = (int64_t)next(w);
		s.mtime_ns = (int64_t)next(w);
		got = sm_client_setattr(&w->c, &s);
		*want = model_fs_utimens(w->m, s.ino, s.atime_ns, s.mtime_ns,
					 w->c.now);
	}
	return got;
}

static int op_truncate(struct world *w, int *want)
{
	uint64_t ino = any_ino(w);
	uint64_t size = below(w, 2) == 0 ? below(w, 10000) :
					   next(w) >> below(w, 40) >> 1;
	struct model_attr a = { 0 };
	int got;

	(void)model_fs_stat(w->m, ino, &a);
	if (size >= a.size) {
		struct meta_setattr s = { .ino = ino, .valid = META_SET_SIZE,
					  .size = size };

		got = sm_client_setattr(&w->c, &s);
	} else {
		got = sm_client_truncate(&w->c, ino, a.size, size);
	}
	*want = model_fs_truncate(w->m, ino, size, w->c.now);
	return got;
}

static int op_xattr(struct world *w, int *want)
{
	static const char *const names[] = { "user.a", "user.ab",
					     "trusted.a", "security.z" };
	static uint8_t value[XATTR_VALUE_MAX], back[XATTR_VALUE_MAX + 1];
	const char *name = names[below(w, array_count(names))];
	uint64_t ino = any_ino(w);
	size_t len = below(w, 3) == 0 ? below(w, 5000) : below(w, 30);
	uint32_t flags = below(w, 3);
	const void *have;
	ssize_t size;
	int got;

	if (below(w, 3) == 0) {
		got = sm_client_removexattr(&w->c, ino, name);
		*want = model_fs_removexattr(w->m, ino, name, w->c.now);
	} else {
		memset(value, (int)below(w, 256), len);
		got = sm_client_setxattr(&w->c, ino, name, value, len, flags);
		*want = model_fs_setxattr(w->m, ino, name, value, len, flags,
					  w->c.now);
	}
	size = model_fs_getxattr(w->m, ino, name, &have);
	assert_int_equal(sm_client_getxattr(&w->c, ino, name, back,
					    sizeof(back)), size);
	if (size > 0)
		assert_memory_equal(back, have, (size_t)size);
	return got;
}

/* What a mount does when the last handle is closed. */
static int op_give_back(struct world *w, int *want)
{
	uint64_t ino = any_ino(w);
	struct model_attr a;
	int got;

	*want = 0;
	if (model_fs_stat(w->m, ino, &a) != 0 || a.nlink != 0)
		return 0;
	got = sm_client_give_back(&w->c, ino, META_RETURN_ORPHAN);
	model_fs_drop(w->m, ino);
	if (ino < LOG_INOS)
		w->logs[ino].epoch = 0;
	w->patterns[ino] = NULL;
	return got;
}

static int op_logd(struct world *w, int *want)
{
	uint32_t i = below(w, LOGDS);

	*want = 0;
	w->boots[i] = 1 + below(w, 3);
	return sm_client_logd(&w->c, i + 1, w->boots[i]);
}

static bool is_peer(const struct world *w, const struct model_entry *e,
		    const struct meta_log_peer *p)
{
	for (uint32_t i = 0; e->epoch != 0 && !e->journal && i < 2; i++)
		if (e->peers[i].id == p->id &&
		    e->peers[i].boot_id == p->boot_id)
			return true;
	return w->boots[p->id - 1] == p->boot_id;
}

/* What META_LOG_SET is to say. @peers NULL: none. */
static int want_log_set(struct world *w, uint64_t ino, uint64_t epoch,
			uint32_t version, const struct meta_log_peer *peers,
			bool leased)
{
	struct model_entry *e = &w->logs[ino];
	struct model_attr a;

	if (epoch != 0 && (e->epoch != epoch || e->version != version))
		return -ESTALE;
	if (epoch == 0 && model_fs_stat(w->m, ino, &a) != 0)
		return -ENOENT;
	if (epoch == 0 && !leased)
		return -EPERM;
	if (epoch == 0 && e->epoch != 0)
		return -EEXIST;
	if (peers == NULL && a.nlink != 0)
		return -EINVAL;
	if (epoch != 0 && e->journal)
		return -EINVAL;
	if (peers != NULL &&
	    (!is_peer(w, e, &peers[0]) || !is_peer(w, e, &peers[1])))
		return -ENXIO;
	if (epoch == 0) {
		e->epoch = e->data_epoch = ++w->log_epoch;
		e->version = 0;
		e->flags = (uint8_t)version;
	}
	e->version++;
	e->journal = peers == NULL;
	if (e->journal)
		model_fs_bury(w->m, ino);
	else
		memcpy(e->peers, peers, sizeof(e->peers));
	return 0;
}

/* Two of the log daemons, mostly with their boot ids. */
static void any_peers(struct world *w, struct meta_log_peer peers[2])
{
	uint32_t first = below(w, LOGDS);

	for (uint32_t i = 0; i < 2; i++) {
		uint32_t at = (first + i) % LOGDS;

		peers[i].id = at + 1;
		peers[i].boot_id = w->boots[at];
		if (below(w, 8) == 0 || w->boots[at] == 0)
			peers[i].boot_id = 1 + below(w, 4);
	}
}

static int op_log(struct world *w, int *want)
{
	uint64_t ino = 2 + below(w, LOG_INOS - 2), leased = 0;
	struct model_entry *e = &w->logs[ino];
	uint64_t epoch = below(w, 4) == 0 ? below(w, 9) : e->epoch;
	uint32_t version = below(w, 8) == 0 ? 1 : e->version;
	struct meta_log_peer peers[2];
	bool none = epoch == 0 && below(w, 4) == 0;
	int got;

	if (below(w, 2) == 0) {
		*want = sm_client_lease(&w->c, ino);
		return *want;
	}
	switch (below(w, 5)) {
	case 0:
		got = sm_client_log_raise(&w->c, ino);
		*want = e->epoch != 0 ? 0 : -ENOENT;
		if (e->epoch != 0)
			e->epoch = ++w->log_epoch;
		break;
	case 1:
		got = sm_client_log_drop(&w->c, ino, epoch);
		*want = e->epoch != 0 && e->epoch != epoch ? -ESTALE : 0;
		if (*want == 0)
			e->epoch = 0;
		return got;
	case 2:
		got = sm_client_log_lose(&w->c, ino, epoch);
		*want = e->epoch == 0	  ? -ENOENT :
			e->epoch != epoch ? -ESTALE :
			e->journal	  ? -EINVAL :
					    0;
		if (*want == 0)
			e->flags |= META_LOG_LOST;
		break;
	default:
		any_peers(w, peers);
		if (sm_lease_list(w->c.sm, w->c.session, ino - 1, &leased,
				  1) == 0)
			leased = 0;
		if (epoch == 0)
			version = none || below(w, 2) ? 0 : META_LOG_ORDERED;
		*want = want_log_set(w, ino, epoch, version,
				     none ? NULL : peers, leased == ino);
		got = sm_client_log_set(&w->c, ino, epoch, version, peers,
					none ? 0 : 2);
	}
	if (got == 0)
		assert_true(w->c.log.epoch == e->epoch &&
			    w->c.log.data_epoch == e->data_epoch &&
			    w->c.log.version == e->version &&
			    w->c.log.flags == e->flags);
	return got;
}

/* The last request comes again, as after a lost reply. */
static void repeat(struct world *w)
{
	static uint8_t body[4096];
	struct sm_reply first = w->c.r;

	assert_true(first.body_len <= sizeof(body));
	memcpy(body, first.body, first.body_len);
	assert_int_equal(sm_client_resend(&w->c), first.status);
	assert_true(w->c.r.replayed);
	assert_true(w->c.r.pos == first.pos && w->c.r.pos == sm_pos(w->c.sm));
	assert_int_equal(w->c.r.body_len, first.body_len);
	assert_memory_equal(w->c.r.body, body, first.body_len);
}

/* Goes on with what a snapshot holds. */
static void reload(struct world *w)
{
	struct sm *copy = sm_new();
	size_t len, copy_len;
	uint8_t *bytes = sm_client_snapshot(w->c.sm, &len);
	uint8_t *again;

	assert_int_equal(sm_restore(copy, bytes, len), 0);
	again = sm_client_snapshot(copy, &copy_len);
	assert_int_equal(len, copy_len);
	assert_memory_equal(bytes, again, len);
	sm_free(w->c.sm);
	w->c.sm = copy;
	free(bytes);
	free(again);
}

typedef int (*op_fn)(struct world *w, int *want);

static void step(struct world *w)
{
	static const op_fn ops[] = {
		op_create, op_create, op_create, op_symlink, op_tmpfile,
		op_unlink, op_unlink, op_rmdir, op_link, op_rename, op_rename,
		op_attr, op_truncate, op_xattr, op_give_back, op_give_back,
		op_logd, op_log, op_log, op_log, op_log_dir,
	};
	uint32_t pick = below(w, array_count(ops));
	int want = 0;
	int got = ops[pick](w, &want);

	if (got != want)
		fail_msg("operation %u: %d, model says %d", pick, got, want);
	w->counts[got == 0]++;
	if (ops[pick] != op_give_back && ops[pick] != op_xattr &&
	    ops[pick] != op_logd && ops[pick] != op_log_dir &&
	    below(w, 10) == 0)
		repeat(w);
	assert_same_attr(w, any_ino(w));
	assert_same_attr(w, any_dir(w));
	if (w->step % 500 == 499)
		assert_same_world(w);
	if (w->step % 1500 == 1499)
		reload(w);
}

static void run(uint64_t seed, uint64_t steps)
{
	static struct world w;

	memset(&w, 0, sizeof(w));
	w.rng = seed;
	print_message("SM_SEED=%llu\n", (unsigned long long)seed);
	sm_client_init(&w.c);
	w.m = model_fs_new(0755, w.c.now);
	for (w.step = 0; w.step < steps; w.step++)
		step(&w);
	assert_same_world(&w);
	print_message("%llu succeeded, %llu failed alike\n",
		      (unsigned long long)w.counts[1],
		      (unsigned long long)w.counts[0]);
	model_fs_free(w.m);
	sm_client_fini(&w.c);
}

static void random_operations_agree_with_the_model(void **state)
{
	const char *seed = getenv("SM_SEED");
	const char *steps = getenv("SM_STEPS");
	uint64_t count = steps != NULL ? strtoull(steps, NULL, 10) : 3000;

	(void)state;
	if (seed != NULL) {
		run(strtoull(seed, NULL, 10), count);
		return;
	}
	for (uint64_t s = 1; s <= 10; s++)
		run(s, count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_operations_agree_with_the_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
