#include "tests/lib/sm_scene.h"

#include "common/wire_blk.h"

#include <linux/fs.h>
#include <sys/stat.h>

uint32_t sm_scene_below(struct sm_scene *s, uint64_t limit)
{
	uint64_t z = (s->rng += 0x9e3779b97f4a7c15ull); /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (uint32_t)((z ^ z >> 31) % limit);
}

void sm_scene_init(struct sm_scene *s, struct sm *sm, uint64_t seed)
{
	memset(s, 0, sizeof(*s));
	s->rng = seed;
	s->ino_max = ROOT_INO;
	sm_client_init_in(&s->c, sm);
	/* Some directories that no step removes: inodes 2 to 6. */
	for (char i = '0'; i < '5'; i++) {
		const char name[] = { 'd', i, '\0' };

		if (sm_client_mkdir(&s->c, ROOT_INO, name) != 0)
			abort();
		s->ino_max = s->c.attr.ino;
	}
}

void sm_scene_fini(struct sm_scene *s)
{
	sm_client_fini(&s->c);
}

void sm_scene_copy(struct sm_scene *s, struct sm *sm)
{
	size_t len;
	uint8_t *bytes = sm_client_snapshot(s->c.sm, &len);

	if (sm_restore(sm, bytes, len) != 0)
		abort();
	free(bytes);
}

static uint64_t any_ino(struct sm_scene *s)
{
	return 1 + sm_scene_below(s, s->ino_max);
}

/* Often a directory: the first few usually are. */
static uint64_t any_dir(struct sm_scene *s)
{
	return sm_scene_below(s, 3) == 0 ? any_ino(s) :
					   1 + sm_scene_below(s, 6);
}

static const char *any_name(struct sm_scene *s)
{
	static char name[8];

	(void)snprintf(name, sizeof(name), "n%u", sm_scene_below(s, 40));
	return name;
}

static int step_create(struct sm_scene *s)
{
	static const uint32_t types[] = { S_IFREG, S_IFDIR, S_IFREG, S_IFLNK,
					  S_IFIFO, S_IFDIR };
	const char *name = any_name(s);
	struct meta_create p = {
		.parent = any_dir(s),
		.name = { name, (uint32_t)strlen(name) },
		.mode = types[sm_scene_below(s, array_count(types))] |
			sm_scene_below(s, 010000),
		.uid = sm_scene_below(s, 3),
		.flags = sm_scene_below(s, 16) & ~META_CREATE_TMPFILE,
	};

	if (S_ISLNK(p.mode))
		p.target = (struct wire_str){ "some/where", 10 };
	if (S_ISREG(p.mode) && sm_scene_below(s, 8) == 0) {
		p.flags |= META_CREATE_TMPFILE;
		p.name.len = 0;
	}
	return sm_client_create(&s->c, &p);
}

static int step_rename(struct sm_scene *s)
{
	static const uint32_t flags[] = { 0, 0, RENAME_NOREPLACE,
					  RENAME_EXCHANGE, RENAME_WHITEOUT };
	uint64_t dir = any_dir(s), newdir = any_dir(s);
	char name[8], newname[8];

	(void)snprintf(name, sizeof(name), "%s", any_name(s));
	(void)snprintf(newname, sizeof(newname), "%s", any_name(s));
	return sm_client_rename(&s->c, dir, name, newdir, newname,
				flags[sm_scene_below(s, array_count(flags))],
				NULL);
}

static int step_xattr(struct sm_scene *s)
{
	static const char *const names[] = { "user.a", "trusted.b",
					     "security.capability" };
	static const uint8_t acl[] = { 2, 0, 0, 0,
		1, 0, 7, 0, 255, 255, 255, 255,
		2, 0, 5, 0, 1, 0, 0, 0,
		4, 0, 5, 0, 255, 255, 255, 255,
		16, 0, 5, 0, 255, 255, 255, 255,
		32, 0, 4, 0, 255, 255, 255, 255 };
	static uint8_t value[3000];
	const char *name = names[sm_scene_below(s, 3)];
	uint64_t ino = any_ino(s);

	switch (sm_scene_below(s, 6)) {
	case 4:
		return sm_client_setxattr(&s->c, any_dir(s), META_XATTR_LOG,
					  "match=n[1-9]", 12, 0);
	case 5:
		return sm_client_removexattr(&s->c, any_dir(s),
					     META_XATTR_LOG);
	case 0:
		return sm_client_removexattr(&s->c, ino, name);
	case 1:
		return sm_client_setxattr(&s->c, ino,
					  sm_scene_below(s, 2) == 0 ?
					  "system.posix_acl_access" :
					  "system.posix_acl_default",
					  acl, sizeof(acl), 0);
	default:
		memset(value, 'v', sizeof(value));
		return sm_client_setxattr(&s->c, ino, name, value,
					  sm_scene_below(s, sizeof(value)), 0);
	}
}

static int step_return(struct sm_scene *s)
{
	struct meta_return items[40];
	uint32_t count = sm_scene_below(s, sm_scene_below(s, 2) == 0 ? 3 : 40);

	for (uint32_t i = 0; i < count; i++)
		items[i] = (struct meta_return){
			.ino = any_ino(s), .what = sm_scene_below(s, 16),
			.size = sm_scene_below(s, 100000),
			.units_delta = (int64_t)sm_scene_below(s, 20) - 9,
			.mtime_ns = s->c.now, .ctime_ns = s->c.now,
			.atime_ns = s->c.now,
		};
	return sm_client_return(&s->c, items, count);
}

static int step_attr(struct sm_scene *s)
{
	struct meta_setattr a = {
		.ino = any_ino(s),
		.valid = sm_scene_below(s, 0x200),
		.mode = sm_scene_below(s, 010000),
		.uid = sm_scene_below(s, 9),
		.size = 1u << sm_scene_below(s, 30),
		.atime_ns = s->c.now,
	};

	return sm_client_setattr(&s->c, &a);
}

static int step_cut(struct sm_scene *s)
{
	struct sm_cut job;
	size_t count;

	if (sm_scene_below(s, 2) == 0)
		return sm_client_truncate(&s->c, any_ino(s),
					  sm_scene_below(s, 100000),
					  sm_scene_below(s, 100000));
	count = sm_cut_list(s->c.sm, 0, 0, &job, 1);
	return count == 0 ? sm_client_cut_done(&s->c, 1, 1, 1) :
			    sm_client_cut_done(&s->c, job.ino, job.cut, -3);
}

static int step_purge(struct sm_scene *s)
{
	struct sm_purge p[32];
	size_t count = sm_purge_list(s->c.sm, 0, p, 1 + sm_scene_below(s, 32));
	uint8_t inos[32 * 8], buf[512];
	struct sm_purge_done q;
	struct wire_out o;

	wire_out_init(&o, inos, sizeof(inos));
	for (size_t i = 0; i < count; i++)
		wire_put_u64(&o, p[i].ino);
	q.inos = (struct wire_str){ inos, (uint32_t)o.len };
	wire_out_init(&o, buf, sizeof(buf));
	sm_purge_done_encode(&o, &q);
	return sm_client_internal(&s->c, WIRE_OP_SM_PURGE_DONE, buf, o.len);
}

/* A log daemon registers, for the first time or with another boot id. */
static int step_logd(struct sm_scene *s)
{
	uint32_t id = 1 + sm_scene_below(s, 5);

	return sm_client_logd(&s->c, id, 1 + sm_scene_below(s, 2));
}

/* Leased inodes, so that commands find something to do. */
static uint64_t leased_ino(struct sm_scene *s)
{
	uint64_t ino;

	return sm_lease_list(s->c.sm, s->c.session, any_ino(s) - 1, &ino,
			     1) == 1 ? ino : any_ino(s);
}

static int step_log(struct sm_scene *s)
{
	struct meta_log_peer peers[3] = { { 0 } };
	uint64_t ino = leased_ino(s);
	struct sm_log l = { 0 };
	uint32_t i, count = sm_scene_below(s, 4);
	bool there = sm_log_find(s->c.sm, ino, &l);

	for (i = 0; i < count; i++) {
		peers[i].id = 1 + i + sm_scene_below(s, 2);
		peers[i].boot_id = 1 + sm_scene_below(s, 2);
	}
	switch (sm_scene_below(s, 5)) {
	case 0:
		return sm_client_log_raise(&s->c, ino);
	case 2:
		return sm_client_log_lose(&s->c, ino, l.epoch);
	case 1:
		return sm_client_log_drop(&s->c, ino, l.epoch);
	default:
		return sm_client_log_set(&s->c, ino, there ? l.epoch : 0,
					 there ? l.version : 0, peers, count);
	}
}

/* The session ends, with all it has, and another begins. */
static int step_session(struct sm_scene *s)
{
	struct sm_session_open open = { .client_id = 3,
					.host = { "h", 1 },
					.mountpoint = { "/m", 2 } };
	struct sm_session_info info[8];
	size_t count = sm_session_list(s->c.sm, 0, info, 8);
	uint8_t buf[64];
	struct wire_out o;
	struct wire_in in;
	int err;

	if (count > 1)
		return sm_client_close(&s->c, info[0].session,
				       (uint8_t)(1 + sm_scene_below(s, 2)));
	wire_out_init(&o, buf, sizeof(buf));
	sm_session_open_encode(&o, &open);
	err = sm_client_internal(&s->c, WIRE_OP_SM_SESSION_OPEN, buf, o.len);
	if (err != 0)
		return err;
	wire_in_init(&in, s->c.r.body, s->c.r.body_len);
	s->c.session = wire_get_u64(&in);
	s->c.seq = 0;
	s->c.seq_low = 1;
	return 0;
}

static int step_any(struct sm_scene *s)
{
	uint32_t what = sm_scene_below(s, 100);

	if (what < 35)
		return step_create(s);
	if (what < 45)
		return sm_client_unlink(&s->c, any_dir(s), any_name(s));
	if (what < 50)
		return sm_client_rmdir(&s->c, any_dir(s), any_name(s));
	if (what < 55)
		return sm_client_link(&s->c, any_ino(s), any_dir(s),
				      any_name(s));
	if (what < 65)
		return step_rename(s);
	if (what < 70)
		return step_attr(s);
	if (what < 78)
		return step_xattr(s);
	if (what < 83)
		return sm_client_lease(&s->c, any_ino(s));
	if (what < 88)
		return step_return(s);
	if (what < 92)
		return step_cut(s);
	if (what < 96)
		return step_log(s);
	if (what < 98)
		return step_purge(s);
	return what < 99 ? step_logd(s) : step_session(s);
}

int sm_scene_step(struct sm_scene *s)
{
	int err = step_any(s);

	if (err == 0 && s->c.attr.ino > s->ino_max)
		s->ino_max = s->c.attr.ino;
	return err;
}
