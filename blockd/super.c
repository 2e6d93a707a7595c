/* The superblock and the making of an empty store. */
#include <sys/random.h>

#include "blockd/mem.h"
#include "blockd/store_priv.h"
#include "common/crc32c.h"

#define SUPER_MAGIC 0x5245505553534148u /* "HASSUPER" */
#define SUPER_FORMAT 1u
#define SUPER_LEN 68u
#define JOURNAL_BYTES_MIN (1u << 20)
#define JOURNAL_BYTES_DEFAULT (64u << 20)

uint64_t store_index_bytes(const struct store_options *o)
{
	/* Address space only: small files need up to an eighth of their
	 * space as index. */
	uint64_t bytes = o->capacity_bytes != 0 ? o->capacity_bytes / 8 :
						  (uint64_t)256 << 30;

	return u64_round_up(bytes + (1u << 30), UNIT_SIZE);
}

void super_encode(uint8_t *buf, const struct super *sp)
{
	struct wire_out o;

	memset(buf, 0, UNIT_SIZE);
	wire_out_init(&o, buf, UNIT_SIZE);
	wire_put_u64(&o, SUPER_MAGIC);
	wire_put_u32(&o, SUPER_FORMAT);
	wire_put_u32(&o, sp->daemon_id);
	wire_put_u64(&o, sp->store_id_hi);
	wire_put_u64(&o, sp->store_id_lo);
	wire_put_u64(&o, sp->nonce);
	wire_put_u64(&o, sp->cluster_id);
	wire_put_u64(&o, sp->journal_bytes);
	wire_put_u64(&o, 0);
	wire_put_u32(&o, 0);
	assert(o.len == SUPER_LEN);
	wire_put_u32(&o, crc32c(0, buf, SUPER_LEN));
}

int super_decode(const uint8_t *buf, struct super *sp, uint32_t *format)
{
	struct wire_in i;

	wire_in_init(&i, buf, SUPER_LEN + 4);
	if (wire_get_u64(&i) != SUPER_MAGIC)
		return -EBADMSG;
	*format = wire_get_u32(&i);
	sp->daemon_id = wire_get_u32(&i);
	sp->store_id_hi = wire_get_u64(&i);
	sp->store_id_lo = wire_get_u64(&i);
	sp->nonce = wire_get_u64(&i);
	sp->cluster_id = wire_get_u64(&i);
	sp->journal_bytes = wire_get_u64(&i);
	(void)wire_get_u64(&i);
	(void)wire_get_u32(&i);
	if (wire_get_u32(&i) != crc32c(0, buf, SUPER_LEN))
		return -EBADMSG;
	if (*format == SUPER_FORMAT &&
	    (sp->journal_bytes < JOURNAL_BYTES_MIN ||
	     sp->journal_bytes % UNIT_SIZE != 0))
		return -EBADMSG;
	return i.bad ? -EBADMSG : 0;
}

static int super_compare(const struct store_options *o, const struct super *sp,
			 char *why, size_t why_size)
{
	if (o->cluster_id != 0 && sp->cluster_id != o->cluster_id) {
		(void)snprintf(why, why_size, "%s/super: the store belongs to "
			       "cluster %016llx, not %016llx; check the "
			       "cluster file or --data", o->dir,
			       (unsigned long long)sp->cluster_id,
			       (unsigned long long)o->cluster_id);
		return -EXDEV;
	}
	if (o->daemon_id != 0 && sp->daemon_id != o->daemon_id) {
		(void)snprintf(why, why_size, "%s/super: the store belongs to "
			       "block daemon %u, not %u; check --id or --data",
			       o->dir, sp->daemon_id, o->daemon_id);
		return -EXDEV;
	}
	return 0;
}

/* While it is there the store is not made yet, whatever else there is. */
static bool unfinished(struct dev *d)
{
	int file = d->vt->open(d, STORE_UNFINISHED, false);

	if (file >= 0)
		d->vt->close(d, file);
	return file >= 0;
}

int super_read(struct dev *d, const struct store_options *o,
	       struct super *sp, char *why, size_t why_size)
{
	uint8_t *buf;
	uint32_t format = 0;
	int err, file = d->vt->open(d, "super", false);

	if (file >= 0 && unfinished(d)) {
		d->vt->close(d, file);
		file = -ENOENT;
	}
	if (file < 0) {
		(void)snprintf(why, why_size, file == -ENOENT ?
			       "%s/super: no store here (%s); make one with "
			       "--format" : "%s/super: cannot be opened: %s",
			       o->dir, strerror(-file));
		return file;
	}
	buf = mem_alloc_io(UNIT_SIZE);
	err = buf == NULL ? -ENOMEM :
			    d->vt->read_now(d, file, 0, buf, UNIT_SIZE);
	d->vt->close(d, file);
	if (err == 0)
		err = super_decode(buf, sp, &format);
	mem_free(buf);
	if (err != 0) {
		(void)snprintf(why, why_size, "%s/super: damaged (%s); the "
			       "store cannot be used: restore the file or "
			       "format anew", o->dir, strerror(-err));
		return err;
	}
	if (format != SUPER_FORMAT) {
		(void)snprintf(why, why_size, "%s/super: store format %u, "
			       "this program knows %u; run a newer hail-blockd",
			       o->dir, format, SUPER_FORMAT);
		return -EPROTONOSUPPORT;
	}
	return super_compare(o, sp, why, why_size);
}

/* Zeros are written, not only space taken: overwriting them later costs no
 * metadata write, which halves the price of a sync. */
static int journal_zero(struct dev *d, uint64_t bytes)
{
	const size_t chunk = 1u << 20;
	int err, file = d->vt->open(d, "journal", true);
	uint8_t *buf;

	if (file < 0)
		return file;
	buf = mem_alloc_io(chunk);
	err = buf == NULL ? -ENOMEM : 0;
	if (err == 0) {
		memset(buf, 0, chunk);
		err = d->vt->resize(d, file, bytes);
	}
	for (uint64_t off = 0; off < bytes && err == 0; off += chunk)
		err = d->vt->write_now(d, file, off, buf,
				       (size_t)u64_min(chunk, bytes - off));
	if (err == 0)
		err = d->vt->sync_now(d, file);
	mem_free(buf);
	d->vt->close(d, file);
	return err;
}

static int super_write(struct dev *d, const struct super *sp)
{
	uint8_t *buf = mem_alloc_io(UNIT_SIZE);
	int err, file;

	if (buf == NULL)
		return -ENOMEM;
	super_encode(buf, sp);
	file = d->vt->open(d, "super", true);
	err = file < 0 ? file : d->vt->write_now(d, file, 0, buf, UNIT_SIZE);
	if (err == 0)
		err = d->vt->sync_now(d, file);
	if (file >= 0)
		d->vt->close(d, file);
	mem_free(buf);
	return err;
}

static int random_ids(struct super *sp)
{
	uint64_t v[3];

	if (getrandom(v, sizeof(v), 0) != (ssize_t)sizeof(v))
		return -EIO;
	sp->store_id_hi = v[0];
	sp->store_id_lo = v[1];
	sp->nonce = v[2];
	return 0;
}

static int unfinished_begin(struct dev *d)
{
	int file = d->vt->open(d, STORE_UNFINISHED, true);

	if (file < 0)
		return file;
	d->vt->close(d, file);
	return d->vt->sync_dir(d);
}

int store_format(struct dev *d, const struct store_options *o)
{
	struct index_state st = { .tail_seq = 1 };
	struct super sp = {
		.cluster_id = o->cluster_id,
		.daemon_id = o->daemon_id,
		.journal_bytes = o->journal_bytes,
	};
	int err, file = unfinished(d) ? -ENOENT :
				       d->vt->open(d, "super", false);

	if (file >= 0) {
		d->vt->close(d, file);
		return -EEXIST;
	}
	if (file != -ENOENT)
		return file;
	if (sp.journal_bytes == 0)
		sp.journal_bytes = JOURNAL_BYTES_DEFAULT;
	sp.journal_bytes = u64_round_up(u64_max(sp.journal_bytes,
						JOURNAL_BYTES_MIN), UNIT_SIZE);
	err = random_ids(&sp);
	if (err == 0)
		err = unfinished_begin(d);
	if (err == 0)
		err = journal_zero(d, sp.journal_bytes);
	st.store_id_hi = sp.store_id_hi;
	st.store_id_lo = sp.store_id_lo;
	if (err == 0)
		err = index_format(o->dir, &st, store_index_bytes(o));
	if (err == 0)
		err = d->vt->sync_dir(d);
	if (err == 0)
		err = super_write(d, &sp);
	if (err == 0)
		err = d->vt->sync_dir(d);
	/* Last: from now on it is a store. */
	if (err == 0)
		err = d->vt->unlink(d, STORE_UNFINISHED);
	if (err == 0)
		err = d->vt->sync_dir(d);
	return err;
}
