/* The checkpoint's transactions, on the store's thread. */
#include <endian.h>

#include "blockd/index_priv.h"
#include "blockd/mem.h"
#include "common/status.h"
#include "common/wire_blk.h"

/* Blocks a transaction may change by cuts before it is committed: bounds its
 * dirty pages. A cut can be applied in parts: it stays in the journal until
 * the last part is on disk. */
#define APPLY_CUT_BLOCKS 4096u

static int lmdb_status(int rc)
{
	int err = status_from_lmdb(rc);

	return err == -ENOSPC ? -EIO : err;
}

static int puts_apply(struct index *x, MDB_txn *txn, struct index_batch *b)
{
	uint8_t kb[INDEX_KEY_SIZE];
	int err = 0;

	for (size_t i = 0; i < b->put_count && err == 0; i++) {
		MDB_val k = { sizeof(kb), kb };
		MDB_val v = { b->puts[i].len, b->values + b->puts[i].off };

		index_key_put(kb, &b->puts[i].key);
		if (v.mv_size > 0)
			err = mdb_put(txn, x->blocks, &k, &v, 0);
		else
			err = mdb_del(txn, x->blocks, &k, NULL);
		if (err == MDB_NOTFOUND)
			err = 0;
	}
	return lmdb_status(err);
}

static void freed_add(struct index_batch *b, uint32_t loc, uint32_t count)
{
	struct extent_run *last = NULL;

	if (b->freed_count > 0)
		last = &b->freed[b->freed_count - 1];
	if (last != NULL && last->loc + last->count == loc &&
	    loc % SEG_UNITS != 0) {
		last->count += count;
		return;
	}
	if (b->freed_count == b->freed_cap) {
		size_t cap = b->freed_cap == 0 ? 256 : b->freed_cap * 2;
		void *p = mem_grow(b->freed, cap * sizeof(*b->freed));

		if (p == NULL) {
			/* Found free again at the next start. */
			b->freed_lost += count;
			return;
		}
		b->freed = p;
		b->freed_cap = cap;
	}
	/* NOLINTNEXTLINE: grown above when full */
	b->freed[b->freed_count++] = (struct extent_run){ loc, count };
}

/* Removes units [first, last) of @m. Returns whether any was there. */
static bool image_remove(struct index_batch *b, struct image *m,
			 const struct image_hit *hit)
{
	bool changed = false;

	for (uint32_t u = hit->first; u < hit->last; u++) {
		if (m->loc[u] == LOC_HOLE)
			continue;
		if (loc_is_disk(m->loc[u]))
			freed_add(b, m->loc[u], 1);
		else
			b->unwritten++;
		m->loc[u] = LOC_HOLE;
		changed = true;
	}
	if (m->end != hit->end) {
		m->end = hit->end;
		changed = true;
	}
	return changed;
}

/* Applies @c to the block under @cur. */
static int cut_block(struct index *x, struct index_batch *b, MDB_cursor *cur,
		     const struct image_cut *c, const struct image_key *key,
		     const MDB_val *v)
{
	/* Our own copy: the cursor's key lies in the page that changes. */
	uint8_t kb[INDEX_KEY_SIZE];
	MDB_val k = { sizeof(kb), kb };
	struct image m = { .loc = x->loc, .crc = x->crc };
	struct image_hit hit;
	struct wire_out o;
	MDB_val nv;
	int err;

	err = image_decode(key, v->mv_data, v->mv_size, &m);
	if (err != 0)
		return err;
	if (!image_cut_hit(c, key->index, &m, &hit) ||
	    !image_remove(b, &m, &hit))
		return 0;
	m.version = c->version;
	if (image_allocated(&m) == 0)
		return lmdb_status(mdb_cursor_del(cur, 0));
	wire_out_init(&o, x->value, sizeof(x->value));
	image_encode(&o, key, &m);
	assert(!o.overflow);
	nv = (MDB_val){ o.len, x->value };
	index_key_put(kb, key);
	return lmdb_status(mdb_cursor_put(cur, &k, &nv, MDB_CURRENT));
}

/* Applies @c to blocks from @from on, as many as the transaction may change;
 * @from: where to go on. 1: more is left; 0: done; -errno. */
static int cut_some(struct index *x, struct index_batch *b, MDB_txn *txn,
		    const struct image_cut *c, struct image_key *from,
		    uint64_t last)
{
	uint8_t kb[INDEX_KEY_SIZE];
	MDB_val k = { sizeof(kb), kb };
	MDB_val v;
	MDB_cursor *cur;
	int rc, err;

	err = lmdb_status(mdb_cursor_open(txn, x->blocks, &cur));
	if (err != 0)
		return err;
	index_key_put(kb, from);
	rc = mdb_cursor_get(cur, &k, &v, MDB_SET_RANGE);
	while (rc == 0) {
		struct image_key key;

		err = index_key_get(&k, &key);
		if (err != 0 || key.ino != c->ino || key.index > last)
			break;
		if (b->cut_blocks++ == APPLY_CUT_BLOCKS) {
			*from = key;
			err = 1;
			break;
		}
		err = cut_block(x, b, cur, c, &key, &v);
		if (err != 0)
			break;
		rc = mdb_cursor_get(cur, &k, &v, MDB_NEXT);
	}
	mdb_cursor_close(cur);
	if (rc != 0 && rc != MDB_NOTFOUND)
		return lmdb_status(rc);
	return err;
}

static int cut_number(struct index *x, MDB_txn *txn, const struct image_cut *c)
{
	uint64_t kb = htobe64(c->ino);
	uint8_t vb[INDEX_CUT_SIZE];
	uint64_t old = 0;
	MDB_val k = { sizeof(kb), &kb };
	MDB_val v;
	int err;

	if (c->cut == IMAGE_CUT_PURGE) {
		err = mdb_del(txn, x->cuts, &k, NULL);
		return err == MDB_NOTFOUND ? 0 : lmdb_status(err);
	}
	err = mdb_get(txn, x->cuts, &k, &v);
	if (err == 0 && index_cut_get(&v, c->ino, &old) != 0)
		return -EBADMSG;
	if (old >= c->cut)
		return 0;
	index_cut_put(vb, c->ino, c->cut);
	v = (MDB_val){ sizeof(vb), vb };
	return lmdb_status(mdb_put(txn, x->cuts, &k, &v, 0));
}

/* Nothing is half done when this says -ENOSPC; of LMDB it would not be so. */
static int txn_begin(struct index *x, MDB_txn **txn)
{
	int err = index_make_room(x);

	return err != 0 ? err :
	       lmdb_status(mdb_txn_begin(x->env, NULL, 0, txn));
}

static int txn_next(struct index *x, struct index_batch *b, MDB_txn **txn)
{
	int err = lmdb_status(mdb_txn_commit(*txn));

	*txn = NULL;
	if (err != 0)
		return err;
	b->put_done = true;
	b->cut_blocks = 0;
	return txn_begin(x, txn);
}

static int cut_apply(struct index *x, struct index_batch *b, MDB_txn **txn,
		     const struct image_cut *c)
{
	struct image_key from = { .ino = c->ino };
	uint64_t last;
	int err;

	if (!image_cut_blocks(c, &from.index, &last))
		return cut_number(x, *txn, c);
	while ((err = cut_some(x, b, *txn, c, &from, last)) == 1) {
		err = txn_next(x, b, txn);
		if (err != 0)
			return err;
	}
	return err != 0 ? err : cut_number(x, *txn, c);
}

int index_apply(struct index *x, struct index_batch *b)
{
	uint8_t sb[INDEX_STATE_MAX];
	MDB_val k = { 5, INDEX_STATE_KEY };
	MDB_val v = { 0, sb };
	MDB_txn *txn = NULL;
	int err;

	b->cut_blocks = 0;
	err = txn_begin(x, &txn);
	if (err == 0 && !b->put_done)
		err = puts_apply(x, txn, b);
	for (size_t i = 0; i < b->cut_count && err == 0; i++) {
		err = cut_apply(x, b, &txn, &b->cuts[i]);
		if (err == 0 && ++b->cut_blocks > APPLY_CUT_BLOCKS)
			err = txn_next(x, b, &txn);
	}
	if (err == 0 && b->last) {
		v.mv_size = index_state_encode(sb, &b->state);
		err = lmdb_status(mdb_put(txn, x->meta, &k, &v, 0));
	}
	if (err != 0) {
		if (txn != NULL)
			mdb_txn_abort(txn);
		return err;
	}
	return lmdb_status(mdb_txn_commit(txn));
}
