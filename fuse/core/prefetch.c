/* Reading ahead of sequential readers: pieces of at most PF_CHUNK bytes, many
 * in flight, so that all daemons work at once.
 *
 * An entry is never made where something is buffered, and is dropped when
 * somebody writes or cuts there: what it has is what the daemon had, and
 * nothing newer is known. A reader that waits for it when it is dropped still
 * gets its bytes: it began before the write.
 */
#include "fuse/core/read_priv.h"

#include <sys/stat.h>

#define PF_CHUNK (1u << 20)
#define PF_WINDOW_MIN (256u << 10)
#define PF_RUN_MIN 2u

enum pf_state { PF_FETCHING, PF_READY, PF_FAILED };

struct pf_entry {
	struct core *c;
	struct core_inode *in; /* NULL: dropped */
	struct pf_entry *next, *prev; /* of the inode, by off */
	struct dlist lru; /* prefetch.lru */
	struct pf_entry *send_next;
	uint64_t off;
	uint32_t len, taken;
	uint32_t refs; /* pieces, the inode's list, the call */
	enum pf_state state;
	struct read_piece *waiters;
	struct rpc_frame *frame; /* NULL: a hole */
	const uint8_t *bytes;
	struct blk_dev *dev;
	uint32_t block_off; /* in the block */
	struct rpc_call call;
	uint8_t body[40];
};

struct prefetch {
	struct core *c;
	struct dlist lru; /* in inodes' lists, oldest first */
	uint64_t bytes; /* of all entries */
};

/* ---- entries; lock held ---- */

static void pf_unref(struct core *c, struct pf_entry *e)
{
	if (--e->refs > 0)
		return;
	assert(!e->in && !e->waiters);
	c->prefetch->bytes -= e->len;
	if (e->frame)
		rpc_frame_free(e->frame);
	free(e);
}

/* Out of the inode's list. */
static void pf_detach(struct core *c, struct pf_entry *e)
{
	if (!e->in)
		return;
	if (e->prev)
		e->prev->next = e->next;
	else
		e->in->pf = e->next;
	if (e->next)
		e->next->prev = e->prev;
	dlist_del(&e->lru);
	e->in = NULL;
	if (e->taken < e->len)
		c->blk->n.prefetch_dropped++;
	pf_unref(c, e);
}

void prefetch_drop(struct core *c, struct core_inode *in, uint64_t from,
		   uint64_t to)
{
	struct pf_entry *e = in->pf, *next;

	for (; e && e->off < to; e = next) {
		next = e->next;
		if (e->off + e->len > from)
			pf_detach(c, e);
	}
}

struct pf_entry *pf_find(struct core_inode *in, uint64_t pos, uint64_t *end)
{
	struct pf_entry *e = in->pf;

	while (e && e->off + e->len <= pos)
		e = e->next;
	if (!e)
		return NULL;
	if (e->off > pos) {
		*end = u64_min(*end, e->off);
		return NULL;
	}
	*end = u64_min(*end, e->off + e->len);
	return e;
}

uint32_t pf_count(const struct core_inode *in, uint64_t from, uint64_t to)
{
	const struct pf_entry *e;
	uint32_t count = 0;

	for (e = in->pf; e && e->off < to; e = e->next)
		if (e->off + e->len > from)
			count++;
	return count;
}

void pf_use(struct core *c, struct pf_entry *e, struct read_piece *p,
	    uint64_t pos)
{
	e->refs++;
	p->pf = e;
	p->pf_off = (uint32_t)(pos - e->off);
	if (e->state == PF_READY) {
		p->pf_bytes = e->bytes + p->pf_off;
	} else {
		p->pf_next = e->waiters;
		e->waiters = p;
	}
	c->blk->n.prefetch_hits++;
}

void pf_put(struct core *c, struct pf_entry *e, uint32_t len)
{
	e->taken = (uint32_t)u64_min((uint64_t)e->taken + len, e->len);
	/* The kernel has it now and does not ask again. */
	if (e->taken == e->len)
		pf_detach(c, e);
	pf_unref(c, e);
}

/* ---- answers ---- */

static void pf_answered(struct rpc_call *call, int status,
			const struct rpc_frame *f)
{
	struct pf_entry *e = container_of(call, struct pf_entry, call);
	struct core *c = e->c;
	struct read_piece *w, *next;
	const uint8_t *bytes = NULL;
	bool ok;

	ok = status == 0 &&
	     read_reply_check(f, e->block_off, e->len, &bytes) == 0;
	if (ok && bytes == f->data)
		e->frame = rpc_take_frame(f);
	core_lock(c);
	e->bytes = bytes;
	e->state = ok ? PF_READY : PF_FAILED;
	w = e->waiters;
	e->waiters = NULL;
	if (!ok)
		pf_detach(c, e);
	e->refs++; /* its bytes are used below */
	pf_unref(c, e);
	core_unlock(c);
	for (; w; w = next) {
		next = w->pf_next;
		/* A failure is the reader's to repeat and to report. */
		if (ok)
			read_piece_ready(w, bytes + w->pf_off);
		else
			read_piece_fetch(w);
	}
	core_lock(c);
	pf_unref(c, e);
	core_unlock(c);
}

void prefetch_send(struct core *c, struct pf_entry *list)
{
	while (list) {
		struct pf_entry *e = list;

		list = e->send_next; /* the answer may free it */
		blk_send(e->dev, &e->call);
	}
	(void)c;
}

/* ---- deciding; lock held ---- */

/* What a reader is about to take. */
struct pf_window {
	uint64_t from, to;
};

/* Room for @len more: what nobody took for longest goes. */
static bool pf_room(struct core *c, const struct core_inode *in, uint32_t len,
		    const struct pf_window *keep)
{
	struct prefetch *p = c->prefetch;
	struct dlist *l, *save;

	if (p->bytes + len <= c->opt.prefetch_bytes_max)
		return true;
	dlist_for(l, save, &p->lru) {
		struct pf_entry *e = dlist_entry(l, struct pf_entry, lru);

		if (p->bytes + len <= c->opt.prefetch_bytes_max)
			return true;
		if (e->in == in && e->off < keep->to &&
		    e->off + e->len > keep->from)
			continue;
		if (e->state == PF_READY && e->refs == 1)
			pf_detach(c, e);
	}
	return p->bytes + len <= c->opt.prefetch_bytes_max;
}

static void pf_encode(struct pf_entry *e, struct core_inode *in)
{
	uint8_t log2 = in->attr.block_log2;
	struct blk_read m = {
		.ino = in->ino,
		.index = e->off >> log2,
		.cut = in->attr.cut,
		.off = (uint32_t)(e->off & (((uint64_t)1 << log2) - 1)),
		.len = e->len,
		.block_log2 = log2,
	};
	struct wire_out o;

	e->block_off = m.off;
	wire_out_init(&o, e->body, sizeof(e->body));
	blk_read_encode(&o, &m);
	e->call = (struct rpc_call){
		.opcode = WIRE_OP_BLK_READ,
		.flags = RPC_F_RETRY,
		.timeout_ms = e->c->opt.timeout_ms,
		.body = e->body,
		.body_len = (uint32_t)o.len,
		.cb = pf_answered,
	};
}

/* One entry at [off, off+len), behind @prev in the list. */
static struct pf_entry *pf_new(struct core *c, struct core_inode *in,
			       struct pf_entry *prev, uint64_t off,
			       uint32_t len)
{
	int err;
	struct blk_dev *d = blk_dev_of(c, in->ino,
				       off >> in->attr.block_log2, &err);
	struct pf_entry *e;

	if (!d)
		return NULL;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->c = c;
	e->in = in;
	e->dev = d;
	e->off = off;
	e->len = len;
	e->refs = 2; /* list and call */
	e->prev = prev;
	e->next = prev ? prev->next : in->pf;
	if (e->next)
		e->next->prev = e;
	if (prev)
		prev->next = e;
	else
		in->pf = e;
	dlist_add(&c->prefetch->lru, &e->lru);
	c->prefetch->bytes += len;
	c->blk->n.prefetched++;
	pf_encode(e, in);
	return e;
}

/* Entries for the gaps of [from, to). Lowers to where it stopped. */
static struct pf_entry *pf_fill(struct core *c, struct core_inode *in,
				uint64_t from, uint64_t *to)
{
	uint64_t pos = from;
	struct pf_window keep = { from - u64_min(from, PF_CHUNK), *to };
	struct pf_entry *list = NULL, **tail = &list, *e, *prev = NULL;

	/* First, lest what is found below goes. */
	if (!pf_room(c, in, (uint32_t)(*to - from), &keep)) {
		*to = from;
		return NULL;
	}
	for (e = in->pf; e && e->off + e->len <= pos; e = e->next)
		prev = e;
	while (pos < *to) {
		uint64_t end = u64_min(*to, u64_round_down(pos, PF_CHUNK) +
					    PF_CHUNK);
		uint64_t block = (uint64_t)1 << in->attr.block_log2;
		const struct wbuf_ext *w;

		e = prev ? prev->next : in->pf;
		if (e && e->off <= pos) {
			pos = e->off + e->len;
			prev = e;
			continue;
		}
		end = u64_min(end, u64_round_down(pos, block) + block);
		if (e)
			end = u64_min(end, e->off);
		w = in->wb ? wbuf_find(&in->wb->buf, pos) : NULL;
		if (w && w->off < end) {
			/* Buffered: read through the buffer, not ahead. */
			pos = end;
			continue;
		}
		e = pf_new(c, in, prev, pos, (uint32_t)(end - pos));
		if (!e) {
			*to = pos;
			break;
		}
		*tail = e;
		tail = &e->send_next;
		prev = e;
		pos = end;
	}
	return list;
}

static bool is_sequential(const struct core_file *f, uint64_t off,
			  uint32_t len)
{
	/* The kernel's requests for one stream come on several threads, not
	 * quite in order. */
	uint64_t slack = 4 * (uint64_t)len;

	return off <= f->ra_next + slack && off + slack >= f->ra_next;
}

struct pf_entry *prefetch_note(struct core *c, struct core_file *f,
			       uint64_t off, uint32_t len)
{
	struct core_inode *in = f->in;
	uint64_t end = off + len, window, to;
	struct pf_entry *list;

	if (!is_sequential(f, off, len)) {
		f->ra_run = 0;
		f->ra_next = end;
		f->ra_done = 0;
		return NULL;
	}
	f->ra_next = u64_max(f->ra_next, end);
	if (f->ra_run < 31)
		f->ra_run++;
	if (f->ra_run < PF_RUN_MIN || in->cut_busy || !in->attr_valid ||
	    end >= in->attr.size || c->fenced || in->bad)
		return NULL;
	window = u64_max(2 * (uint64_t)len, PF_WINDOW_MIN) << (f->ra_run - 1);
	window = u64_min(window, c->opt.prefetch_bytes_max / 2);
	if (f->ra_done > f->ra_next + window / 2)
		return NULL;
	to = u64_min(f->ra_next + window, in->attr.size);
	if (to < in->attr.size && window >= PF_CHUNK)
		to = u64_round_down(to, PF_CHUNK);
	if (to <= u64_max(f->ra_next, f->ra_done))
		return NULL;
	list = pf_fill(c, in, u64_max(f->ra_next, f->ra_done), &to);
	f->ra_done = u64_max(f->ra_done, to);
	return list;
}

/* ---- life ---- */

int prefetch_new(struct core *c, struct prefetch **ret)
{
	struct prefetch *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->c = c;
	dlist_init(&p->lru);
	*ret = p;
	return 0;
}

void prefetch_free(struct prefetch *p)
{
	if (!p)
		return;
	/* Frees of entries account in it. */
	while (!dlist_empty(&p->lru))
		pf_detach(p->c, dlist_entry(p->lru.next, struct pf_entry,
					    lru));
	free(p);
}
