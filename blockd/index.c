/* The index: LMDB open, reads, walks. */
#include "blockd/index.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blockd/index_priv.h"
#include "blockd/mem.h"
#include "common/status.h"

#define STATE_FORMAT 1u
#define STATE_SIZE 61u

void index_key_put(uint8_t *k, const struct image_key *key)
{
	uint64_t v[2] = { htobe64(key->ino), htobe64(key->index) };

	memcpy(k, v, INDEX_KEY_SIZE);
}

int index_key_get(const MDB_val *k, struct image_key *key)
{
	uint64_t v[2];

	if (k->mv_size != INDEX_KEY_SIZE)
		return -EBADMSG;
	memcpy(v, k->mv_data, INDEX_KEY_SIZE);
	key->ino = be64toh(v[0]);
	key->index = be64toh(v[1]);
	return 0;
}

size_t index_state_encode(uint8_t *buf, const struct index_state *st)
{
	struct wire_out o;

	wire_out_init(&o, buf, INDEX_STATE_MAX);
	wire_put_u8(&o, STATE_FORMAT);
	wire_put_u64(&o, st->tail_off);
	wire_put_u64(&o, st->tail_seq);
	wire_put_u64(&o, st->version);
	wire_put_u64(&o, st->ino_max);
	wire_put_u64(&o, st->session_max);
	wire_put_u64(&o, st->store_id_hi);
	wire_put_u64(&o, st->store_id_lo);
	wire_put_u32(&o, crc32c(0, buf, o.len));
	assert(!o.overflow && o.len == STATE_SIZE);
	return o.len;
}

int index_state_decode(const MDB_val *v, struct index_state *st)
{
	struct wire_in i;
	uint8_t format;

	/* Every format ends in a checksum of what is before it. */
	if (v->mv_size < 5)
		return -EBADMSG;
	wire_in_init(&i, (const uint8_t *)v->mv_data + v->mv_size - 4, 4);
	if (wire_get_u32(&i) != crc32c(0, v->mv_data, v->mv_size - 4))
		return -EBADMSG;
	wire_in_init(&i, v->mv_data, v->mv_size - 4);
	format = wire_get_u8(&i);
	if (format != STATE_FORMAT)
		return format > STATE_FORMAT ? -EPROTONOSUPPORT : -EBADMSG;
	st->tail_off = wire_get_u64(&i);
	st->tail_seq = wire_get_u64(&i);
	st->version = wire_get_u64(&i);
	st->ino_max = wire_get_u64(&i);
	st->session_max = wire_get_u64(&i);
	st->store_id_hi = wire_get_u64(&i);
	st->store_id_lo = wire_get_u64(&i);
	return wire_in_end(&i);
}

static int env_open(const char *dir, uint64_t map_bytes, unsigned flags,
		    MDB_env **ret)
{
	char path[4096];
	MDB_env *env;
	int err;

	if (snprintf(path, sizeof(path), "%s/index", dir) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	if ((flags & MDB_RDONLY) == 0 && mkdir(path, 0700) != 0 &&
	    errno != EEXIST)
		return -errno;
	err = mdb_env_create(&env);
	if (err != 0)
		return status_from_lmdb(err);
	err = mdb_env_set_mapsize(env, map_bytes);
	if (err == 0)
		err = mdb_env_set_maxdbs(env, 4);
	if (err == 0)
		err = mdb_env_open(env, path, flags | MDB_NOTLS |
				   MDB_NORDAHEAD, 0600);
	if (err != 0) {
		mdb_env_close(env);
		return status_from_lmdb(err);
	}
	*ret = env;
	return 0;
}

/* A transaction takes page numbers at the end of the file and may give them
 * back before it ends: those pages are never written, and the file would be
 * shorter than the last number says. LMDB maps it, and a page beyond its end
 * would be a SIGBUS. So it is made longer (by a hole) than any transaction
 * needs before each begins. */
static int lengthen(int fd, uint64_t used)
{
	uint64_t want = used + INDEX_AHEAD;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return -EIO;
	if ((uint64_t)st.st_size >= want)
		return 0;
	return ftruncate(fd, (off_t)(want + INDEX_AHEAD)) < 0 ? -errno : 0;
}

static int allocate_to(struct index *x, int fd, uint64_t end)
{
	int rv;

	if (x->allocated >= end)
		return 0;
	do
		rv = fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)x->allocated,
			       (off_t)(end - x->allocated));
	while (rv < 0 && errno == EINTR);
	if (rv < 0 && errno != EOPNOTSUPP)
		return -errno;
	x->allocated = end;
	return 0;
}

/* A commit for which the disk has no room would stop the store, and freeing
 * what was deleted takes a commit. So the disk's blocks are taken beforehand,
 * for two transactions where there is room; with less than one's it is not
 * begun. From the file's start on, since pages there may be holes, too. */
static int allocate(struct index *x, int fd, uint64_t used)
{
	uint64_t txn = u64_min(INDEX_TXN_MAX, 2 * used + INDEX_TXN_NEW);

	if (x->allocated >= used + txn + txn / 2)
		return 0;
	if (allocate_to(x, fd, used + 2 * txn) == 0)
		return 0;
	return allocate_to(x, fd, used + txn);
}

int index_make_room(struct index *x)
{
	MDB_envinfo info;
	MDB_stat stat;
	uint64_t used;
	int fd, err;

	if (mdb_env_info(x->env, &info) != 0 ||
	    mdb_env_stat(x->env, &stat) != 0 ||
	    mdb_env_get_fd(x->env, &fd) != 0)
		return -EIO;
	used = (info.me_last_pgno + 1) * stat.ms_psize;
	err = lengthen(fd, used);
	return err != 0 ? err : allocate(x, fd, used);
}

static int dbis_open(struct index *x, MDB_txn *txn, unsigned flags)
{
	int err = mdb_dbi_open(txn, "blocks", flags, &x->blocks);

	if (err == 0)
		err = mdb_dbi_open(txn, "cuts", flags, &x->cuts);
	if (err == 0)
		err = mdb_dbi_open(txn, "meta", flags, &x->meta);
	return status_from_lmdb(err);
}

static int state_read(struct index *x, MDB_txn *txn, struct index_state *st)
{
	MDB_val k = { 5, INDEX_STATE_KEY };
	MDB_val v;
	int err = status_from_lmdb(mdb_get(txn, x->meta, &k, &v));

	return err != 0 ? err : index_state_decode(&v, st);
}

static void remove_old(const char *dir)
{
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/index/data.mdb", dir);
	(void)unlink(path); /* there may be none */
	(void)snprintf(path, sizeof(path), "%s/index/lock.mdb", dir);
	(void)unlink(path);
}

int index_format(const char *dir, const struct index_state *st,
		 uint64_t map_bytes)
{
	struct index_batch b = { .last = true, .state = *st };
	struct index x = { 0 };
	MDB_txn *txn;
	int err;

	remove_old(dir);
	err = env_open(dir, map_bytes, 0, &x.env);
	if (err != 0)
		return err;
	err = status_from_lmdb(mdb_txn_begin(x.env, NULL, 0, &txn));
	if (err == 0) {
		err = dbis_open(&x, txn, MDB_CREATE);
		if (err == 0)
			err = status_from_lmdb(mdb_txn_commit(txn));
		else
			mdb_txn_abort(txn);
	}
	if (err == 0)
		err = index_apply(&x, &b);
	mdb_env_close(x.env);
	return err;
}

static int open_txns(struct index *x, struct index_state *st)
{
	MDB_txn *txn;
	int err;

	err = status_from_lmdb(mdb_txn_begin(x->env, NULL, MDB_RDONLY, &txn));
	if (err != 0)
		return err;
	err = dbis_open(x, txn, 0);
	if (err == 0)
		err = state_read(x, txn, st);
	if (err != 0) {
		mdb_txn_abort(txn);
		return err;
	}
	/* Handles opened in a reader stay valid once it has committed. */
	err = status_from_lmdb(mdb_txn_commit(txn));
	if (err == 0)
		err = status_from_lmdb(mdb_txn_begin(x->env, NULL, MDB_RDONLY,
						     &x->reader));
	if (err == 0)
		mdb_txn_reset(x->reader);
	return err;
}

int index_open(const char *dir, uint64_t map_bytes, bool read_only,
	       struct index **ret, struct index_state *st, char *why,
	       size_t why_size)
{
	struct index *x = mem_alloc(sizeof(*x));
	int err = -ENOMEM;

	if (x == NULL)
		goto out;
	err = env_open(dir, map_bytes, read_only ? MDB_RDONLY : 0, &x->env);
	if (err == 0 && !read_only)
		err = index_make_room(x);
	if (err == -ENOSPC)
		err = 0; /* only the next checkpoint needs it */
	if (err == 0)
		err = open_txns(x, st);
	if (err == 0) {
		*ret = x;
		return 0;
	}
	if (err == -ENOENT)
		err = -EBADMSG;
	index_close(x);
out:
	(void)snprintf(why, why_size,
		       "%s/index: cannot be opened: %s; restore the store "
		       "or format it anew", dir, strerror(-err));
	return err;
}

void index_close(struct index *x)
{
	if (x == NULL)
		return;
	index_walk_end(x);
	if (x->reader != NULL)
		mdb_txn_abort(x->reader);
	if (x->env != NULL)
		mdb_env_close(x->env);
	mem_free(x);
}

/* LMDB uses no page again that the reader may still see. */
void index_reads_over(struct index *x)
{
	assert(x->walk == NULL);
	mdb_txn_reset(x->reader);
}

/* The reader's snapshot lives until the next read, so that what it returned
 * stays valid. */
static int reader_renew(struct index *x)
{
	mdb_txn_reset(x->reader);
	return status_from_lmdb(mdb_txn_renew(x->reader));
}

int index_get_block(struct index *x, const struct image_key *key,
		    const void **val, size_t *len)
{
	uint8_t kb[INDEX_KEY_SIZE];
	MDB_val k = { sizeof(kb), kb };
	MDB_val v;
	int err = reader_renew(x);

	if (err != 0)
		return err;
	index_key_put(kb, key);
	err = status_from_lmdb(mdb_get(x->reader, x->blocks, &k, &v));
	if (err != 0)
		return err;
	*val = v.mv_data;
	*len = v.mv_size;
	return 0;
}

static uint32_t cut_crc(uint64_t ino, uint64_t cut)
{
	uint64_t v[2] = { htole64(ino), htole64(cut) };

	return crc32c(0, v, sizeof(v));
}

void index_cut_put(uint8_t *v, uint64_t ino, uint64_t cut)
{
	struct wire_out o;

	wire_out_init(&o, v, INDEX_CUT_SIZE);
	wire_put_u64(&o, cut);
	wire_put_u32(&o, cut_crc(ino, cut));
}

int index_cut_get(const MDB_val *v, uint64_t ino, uint64_t *cut)
{
	struct wire_in i;

	wire_in_init(&i, v->mv_data, v->mv_size);
	*cut = wire_get_u64(&i);
	/* Older builds wrote the number alone. */
	if (v->mv_size == sizeof(*cut))
		return 0;
	if (wire_get_u32(&i) != cut_crc(ino, *cut))
		return -EBADMSG;
	return wire_in_end(&i);
}

int index_get_cut(struct index *x, uint64_t ino, uint64_t *cut)
{
	uint64_t kb = htobe64(ino);
	MDB_val k = { sizeof(kb), &kb };
	MDB_val v;
	int err = reader_renew(x);

	*cut = 0;
	if (err != 0)
		return err;
	err = status_from_lmdb(mdb_get(x->reader, x->cuts, &k, &v));
	if (err != 0)
		return err == -ENOENT ? 0 : err;
	return index_cut_get(&v, ino, cut);
}

int index_walk_begin(struct index *x, const struct image_key *from)
{
	int err = reader_renew(x);

	assert(x->walk == NULL);
	if (err == 0)
		err = status_from_lmdb(mdb_cursor_open(x->reader, x->blocks,
						       &x->walk));
	if (err != 0)
		return err;
	x->walk_from = *from;
	x->walk_started = false;
	return 0;
}

int index_walk_next(struct index *x, struct image_key *key, const void **val,
		    size_t *len)
{
	uint8_t kb[INDEX_KEY_SIZE];
	MDB_val k = { sizeof(kb), kb };
	MDB_val v;
	MDB_cursor_op op = x->walk_started ? MDB_NEXT : MDB_SET_RANGE;
	int err;

	index_key_put(kb, &x->walk_from);
	x->walk_started = true;
	err = status_from_lmdb(mdb_cursor_get(x->walk, &k, &v, op));
	if (err == -ENOENT)
		return 0;
	if (err == 0)
		err = index_key_get(&k, key);
	if (err != 0)
		return err;
	*val = v.mv_data;
	*len = v.mv_size;
	return 1;
}

void index_walk_end(struct index *x)
{
	if (x->walk == NULL)
		return;
	mdb_cursor_close(x->walk);
	x->walk = NULL;
	mdb_txn_reset(x->reader);
}
