/* Reads: the newest of each unit, from memory or disk, checked.
 *
 * Nobody waits for reads, so a unit may be moved or overwritten while it is
 * read; the checksum then differs, the block's version too, and the read is
 * done again. A difference without a new version is damage. Where changes are
 * faster than the reads, the last of these holds them up.
 */
#include "blockd/op.h"
#include "common/crc32c.h"
#include "common/diag.h"

static void read_start(struct op *op);
static void read_run(struct op *op);
static void read_more(struct op *op);

void store_read(struct store *s, struct store_req *r,
		const struct blk_read *rd, struct store_read_out *out)
{
	struct op *op;

	store_enter(s);
	s->st.reads++;
	r->units_delta = 0;
	out->hole = false;
	out->data_off = rd->off % UNIT_SIZE;
	op = op_new(s, r);
	if (op != NULL) {
		op->is_read = true;
		op->u.r.rd = *rd;
		op->u.r.out = out;
		op_enter(op, rd->ino, read_start);
	}
	store_leave(s, true);
}

void read_inner(struct op *op)
{
	op->is_read = true;
	op->u.r.out->hole = false;
	op_enter(op, op->u.r.rd.ino, read_start);
}

static void read_start(struct op *op)
{
	struct op_read *r = &op->u.r;
	int err = 0;

	if (r->rd.cut < op->in->cut)
		err = -ESTALE;
	if (err == 0)
		err = block_get(op->s, op->in, r->rd.index,
				r->rd.block_log2, false, &op->b);
	if (err == -ENOENT) {
		r->out->hole = true;
		err = 0;
	}
	if (err != 0 || op->b == NULL) {
		op_done(op, err);
		return;
	}
	op->first = r->rd.off >> UNIT_SHIFT;
	op->last = (r->rd.off + r->rd.len + UNIT_SIZE - 1) >> UNIT_SHIFT;
	if (op_order(op, read_run))
		read_run(op);
}

static uint8_t *unit_mem(const struct op *op, uint32_t u)
{
	return (uint8_t *)op->u.r.out->buf +
	       ((size_t)(u - op->first) << UNIT_SHIFT);
}

static void sum_put(const struct op *op, uint32_t u, uint32_t crc)
{
	struct wire_out o;

	wire_out_init(&o, op->u.r.out->sums + (size_t)(u - op->first) * 4, 4);
	wire_put_u32(&o, crc);
}

static uint32_t sum_get(const struct op *op, uint32_t u)
{
	struct wire_in i;

	wire_in_init(&i, op->u.r.out->sums + (size_t)(u - op->first) * 4, 4);
	return wire_get_u32(&i);
}

static bool all_holes(const struct op *op)
{
	for (uint32_t u = op->first; u < op->last; u++) {
		if (loc_is_data(op->b->m.loc[u]))
			return false;
	}
	return true;
}

static void read_run(struct op *op)
{
	struct op_read *r = &op->u.r;

	assert((size_t)(op->last - op->first) << UNIT_SHIFT <=
	       r->out->buf_cap);
	r->version = op->b->m.version;
	r->next = op->first;
	memset(r->disk, 0, sizeof(r->disk));
	if (all_holes(op)) {
		r->out->hole = true;
		op_done(op, 0);
		return;
	}
	read_more(op);
}

static void read_arrived(struct dev_io *io, int res)
{
	struct op *op = io->priv[0];
	struct store *s = op->s;

	store_enter(s);
	segment_put(s, io->priv[1]);
	if (res != 0) {
		op->err = -EIO;
		s->st.checksum_errors++;
		diag_err("store", "event=read-failed ino=%llu block=%llu "
			 "error=\"%s\"", (unsigned long long)op->in->ino,
			 (unsigned long long)op->b->index, strerror(-res));
	}
	io->priv[0] = NULL;
	op->pending--;
	read_more(op);
	store_leave(s, false);
}

/* A unit that is not read from disk. */
static void from_memory(struct op *op, uint32_t u)
{
	struct store *s = op->s;
	struct ubuf *ub = block_ubuf(s, op->b, u);

	if (ub != NULL) {
		memcpy(unit_mem(op, u), ubuf_mem(s, ub), UNIT_SIZE);
		sum_put(op, u, op->b->m.crc[u]);
	} else {
		memset(unit_mem(op, u), 0, UNIT_SIZE);
		sum_put(op, u, crc32c_zero_unit());
	}
}

/* Units [u, u + return) lie in a row on the disk. */
static uint32_t disk_run(struct op *op, uint32_t u)
{
	uint32_t end = u;

	while (end < op->last && loc_is_disk(op->b->m.loc[end]) &&
	       op->b->ubuf[end] == 0)
		end++;
	return end == u ? 0 : image_run_at(&op->b->m, u, end).count;
}

static struct dev_io *io_slot(struct op *op)
{
	for (uint32_t i = 0; i < OP_IO_MAX; i++) {
		if (op->io[i].priv[0] == NULL)
			return &op->io[i];
	}
	return NULL;
}

static void from_disk(struct op *op, struct dev_io *io, uint32_t count)
{
	struct op_read *r = &op->u.r;
	struct store *s = op->s;
	uint32_t loc = op->b->m.loc[r->next];
	struct segment *seg = s->segs[loc >> SEG_SHIFT];

	segment_hold(seg);
	*io = (struct dev_io){
		.op = DEV_READ,
		.file = seg->file,
		.off = (uint64_t)(loc % SEG_UNITS) << UNIT_SHIFT,
		.buf = unit_mem(op, r->next),
		.len = count << UNIT_SHIFT,
		.done = read_arrived,
		.priv = { op, seg },
	};
	for (uint32_t i = 0; i < count; i++, r->next++) {
		sum_put(op, r->next, op->b->m.crc[r->next]);
		bits_put(r->disk, r->next - op->first, true);
	}
	op_io(op, io);
}

/* The first unit that is not as its sum says, or op->last. */
static uint32_t find_bad(const struct op *op)
{
	uint32_t count = op->last - op->first;
	uint32_t i = bits_next(op->u.r.disk, 0, count);

	while (i < count) {
		uint32_t u = op->first + i;

		if (crc32c(0, unit_mem(op, u), UNIT_SIZE) != sum_get(op, u))
			return u;
		i = bits_next(op->u.r.disk, i + 1, count);
	}
	return op->last;
}

/* A partial first or last unit is sent with the sum of its part. */
static void edge_sums(struct op *op)
{
	uint32_t end = op->u.r.rd.off + op->u.r.rd.len;
	uint32_t edges[2] = { op->first, op->last - 1 };

	for (uint32_t i = 0; i < 2; i++) {
		uint32_t base = edges[i] << UNIT_SHIFT;
		uint32_t from = op->u.r.rd.off > base ?
				op->u.r.rd.off - base : 0;
		uint32_t to = end - base < UNIT_SIZE ? end - base : UNIT_SIZE;

		if (to - from < UNIT_SIZE)
			sum_put(op, edges[i],
				crc32c(0, unit_mem(op, edges[i]) + from,
				       to - from));
	}
}

static void read_finish(struct op *op)
{
	struct op_read *r = &op->u.r;
	uint32_t bad = op->err == 0 ? find_bad(op) : op->last;

	if (bad == op->last) {
		if (op->err == 0)
			edge_sums(op);
		op_done(op, op->err);
		return;
	}
	if (r->version != op->b->m.version && op->is_read) {
		if (r->tries++ < READ_RETRY_MAX ||
		    op_order_as_change(op, read_run))
			read_run(op);
		return;
	}
	op->s->st.checksum_errors++;
	diag_err("store", "event=bad-checksum ino=%llu block=%llu unit=%u "
		 "loc=%u", (unsigned long long)op->in->ino,
		 (unsigned long long)op->b->index, bad, op->b->m.loc[bad]);
	op_done(op, -EIO);
}

static void read_more(struct op *op)
{
	struct op_read *r = &op->u.r;
	struct dev_io *io;

	while (r->next < op->last && op->err == 0) {
		uint32_t count = disk_run(op, r->next);

		if (count == 0) {
			from_memory(op, r->next++);
			continue;
		}
		io = io_slot(op);
		if (io == NULL)
			return;
		from_disk(op, io, count);
	}
	if (op->pending == 0)
		read_finish(op);
}
