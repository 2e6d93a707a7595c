/* Directory entries: key (directory, cookie), where the cookie is made of a
 * hash of the name and a slot among the names of that hash. So an entry's
 * place in the listing depends on nothing but itself: others may come and go
 * during a listing, and look-up is one descent of the tree.
 */
#include "metad/sm_priv.h"

#include <sys/stat.h>
#include <xxhash.h>

#define SLOT_COUNT_MAX (1u << SM_COOKIE_SLOT_BITS)
#define HASH_BITS 52u
_Static_assert(HASH_BITS + SM_COOKIE_SLOT_BITS < 63, "cookies are positive");

/* Cookie of slot 0. The directory is the seed, so that names that collide in
 * one do not in another. Never below SLOT_COUNT_MAX: cookies 0..2 are the
 * start, "." and "..". Part of the snapshot format. */
uint64_t sm_dirent_hash(const struct sm *sm, uint64_t dir, struct wire_str name)
{
	uint64_t h = XXH3_64bits_withSeed(name.p, name.len, dir);

	h = h >> (64 - HASH_BITS) & sm->hash_mask;
	return (h == 0 ? 1 : h) << SM_COOKIE_SLOT_BITS;
}

static struct sm_key dirent_key(uint64_t dir, uint64_t cookie)
{
	struct sm_key k = sm_key1(SM_K_DIRENT, dir);

	sm_key_fixed_u64(&k, cookie);
	return k;
}

bool sm_dirent_decode(struct wire_in *val, uint64_t *ino, uint32_t *type,
		      struct wire_str *name)
{
	*ino = sm_get_varint(val);
	*type = (uint32_t)wire_get_u8(val) << 12;
	name->p = val->p;
	name->len = (uint32_t)val->len;
	return !val->bad && name->len > 0 && name->len <= NAME_LEN_MAX;
}

static uint64_t key_cookie(const struct cow_iter *it)
{
	uint64_t be;

	memcpy(&be, it->key + it->klen - sizeof(be), sizeof(be));
	return __builtin_bswap64(be);
}

bool sm_dirent_find(const struct sm *sm, uint64_t dir, struct wire_str name,
		    struct sm_dirent *d)
{
	uint64_t base = sm_dirent_hash(sm, dir, name);
	struct sm_key k = dirent_key(dir, base);
	uint64_t free_at = base;
	struct cow_iter it;
	bool more;

	for (more = sm_seek_prefix(sm, &it, &k, k.len - 8); more;
	     more = sm_next_prefix(&it, &k, k.len - 8)) {
		uint64_t cookie = key_cookie(&it);
		struct wire_str have;
		struct wire_in val;

		if (cookie >= base + SLOT_COUNT_MAX)
			break;
		if (cookie == free_at)
			free_at++;
		wire_in_init(&val, it.val, it.vlen);
		if (!sm_dirent_decode(&val, &d->ino, &d->type, &have))
			continue;
		if (have.len == name.len &&
		    memcmp(have.p, name.p, name.len) == 0) {
			d->cookie = cookie;
			d->free = 0;
			return true;
		}
	}
	d->free = free_at < base + SLOT_COUNT_MAX ? free_at : 0;
	return false;
}

void sm_dirent_put(struct sm *sm, uint64_t dir, uint64_t cookie,
		   struct wire_str name, const struct sm_inode *in)
{
	struct sm_key k = dirent_key(dir, cookie);
	uint8_t buf[NAME_LEN_MAX + 16];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_put_varint(&o, in->ino);
	wire_put_u8(&o, (uint8_t)((in->mode & S_IFMT) >> 12));
	wire_put_raw(&o, name.p, name.len);
	sm_put(sm, &k, &o);
}

void sm_dirent_del(struct sm *sm, uint64_t dir, uint64_t cookie)
{
	struct sm_key k = dirent_key(dir, cookie);

	(void)sm_del(sm, &k); /* the caller found it */
}

static bool is_dots(struct wire_str name, bool *dotdot)
{
	*dotdot = sm_str_is(name, "..");
	return *dotdot || sm_str_is(name, ".");
}

int sm_run_lookup(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_lookup q;
	struct sm_inode dir, in;
	struct sm_dirent d;
	bool dotdot;
	int err = meta_lookup_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, q.parent, &dir))
		return -ENOENT;
	if (!S_ISDIR(dir.mode))
		return -ENOTDIR;
	if (is_dots(q.name, &dotdot))
		d.ino = dotdot ? dir.parent : dir.ino;
	else if (!sm_dirent_find(x->sm, q.parent, q.name, &d))
		return -ENOENT;
	if (!sm_inode_get(x->sm, d.ino, &in))
		return dotdot ? -ENOENT : -EIO;
	sm_reply_attr(x, &in);
	return 0;
}

/* Adds one entry to the page. False: it is full. */
static bool page_add(struct sm_ctx *x, const struct cow_iter *it, bool plus,
		     uint64_t bytes_max, struct wire_out *page)
{
	struct meta_dirent e = { .cookie = key_cookie(it) };
	struct meta_attr a;
	struct sm_inode in;
	struct wire_in val;
	size_t size;

	wire_in_init(&val, it->val, it->vlen);
	/* What cannot be read is left out here and found by fsck; looking it
	 * up says EIO. */
	if (!sm_dirent_decode(&val, &e.ino, &e.mode, &e.name))
		return true;
	memset(&a, 0, sizeof(a));
	if (plus) {
		if (!sm_inode_get(x->sm, e.ino, &in))
			return true;
		sm_inode_attr(x->sm, &in, &a);
		e.mode = in.mode;
	}
	size = meta_dirent_size(&e) + (plus ? meta_attr_size(&a) : 0);
	if (page->len + size > bytes_max)
		return false;
	meta_dirent_encode(page, &e);
	if (plus)
		meta_attr_encode(page, &a);
	return true;
}

int sm_run_readdir(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_readdir_reply r = { .eof = 1 };
	struct meta_readdir q;
	struct wire_out page, head;
	struct sm_inode dir;
	struct cow_iter it;
	struct sm_key k;
	uint64_t bytes_max;
	size_t head_size = meta_readdir_reply_size(&r);
	bool more;
	int err = meta_readdir_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, q.dir, &dir))
		return -ENOENT;
	if (!S_ISDIR(dir.mode))
		return -ENOTDIR;
	/* At least one entry always fits, so that a listing ends. */
	bytes_max = u64_min(u64_max(q.bytes_max, 512), READDIR_BYTES_MAX);
	wire_out_init(&page, x->out.p + head_size, bytes_max);
	k = dirent_key(q.dir, q.cookie + 1);
	for (more = sm_seek_prefix(x->sm, &it, &k, k.len - 8); more;
	     more = sm_next_prefix(&it, &k, k.len - 8)) {
		size_t before = page.len;

		if (!page_add(x, &it, q.plus != 0, bytes_max, &page)) {
			r.eof = 0;
			break;
		}
		r.count += page.len > before;
	}
	wire_out_init(&head, x->out.p, head_size);
	wire_put_u8(&head, r.eof);
	wire_put_u32(&head, r.count);
	wire_put_u32(&head, (uint32_t)page.len); /* the blob's length */
	x->out.len = head_size + page.len;
	return 0;
}
