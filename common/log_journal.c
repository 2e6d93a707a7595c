#include "common/log_journal.h"

#include "common/crc32c.h"
#include "common/wire.h"

#define MAGIC UINT64_C(0x31314e524a534648) /* HFSJRN11 */

static void section_encode(struct wire_out *o,
			   const struct log_journal_section *s)
{
	wire_put_u64(o, s->ino);
	wire_put_u64(o, s->epoch);
	wire_put_u64(o, s->seq);
	wire_put_u64(o, s->len);
	wire_put_u32(o, s->crc);
	wire_put_u32(o, 0);
	wire_put_u64(o, 0);
}

void log_journal_encode(const struct log_journal_head *h,
			const struct log_journal_section *s, uint8_t *to)
{
	uint8_t *table = to + LOG_JOURNAL_HEAD;
	size_t len = (size_t)h->count * LOG_JOURNAL_SECTION;
	struct wire_out o;

	wire_out_init(&o, table, len);
	for (uint32_t i = 0; i < h->count; i++)
		section_encode(&o, &s[i]);
	memset(to, 0, LOG_JOURNAL_HEAD);
	wire_out_init(&o, to, LOG_JOURNAL_HEAD);
	wire_put_u64(&o, MAGIC);
	wire_put_u64(&o, h->cluster_id);
	wire_put_u64(&o, h->round);
	wire_put_u64(&o, h->bytes);
	wire_put_u32(&o, h->count);
	wire_put_u32(&o, crc32c(0, table, len));
	o.len = LOG_JOURNAL_HEAD - 4;
	wire_put_u32(&o, crc32c(0, to, LOG_JOURNAL_HEAD - 4));
}

int log_journal_head_decode(const uint8_t *p, uint64_t cluster_id,
			    struct log_journal_head *h)
{
	struct wire_in in;
	uint64_t magic;

	wire_in_init(&in, p + LOG_JOURNAL_HEAD - 4, 4);
	if (wire_get_u32(&in) != crc32c(0, p, LOG_JOURNAL_HEAD - 4))
		return -EBADMSG;
	wire_in_init(&in, p, LOG_JOURNAL_HEAD);
	magic = wire_get_u64(&in);
	h->cluster_id = wire_get_u64(&in);
	h->round = wire_get_u64(&in);
	h->bytes = wire_get_u64(&in);
	h->count = wire_get_u32(&in);
	h->crc = wire_get_u32(&in);
	if (magic != MAGIC || h->cluster_id != cluster_id)
		return -ENODATA;
	return h->round > 0 && h->count > 0 &&
			       h->count <= LOG_COUNT_MAX &&
			       h->bytes < LOG_JOURNAL_SLOT / 2 ?
		       0 : -EBADMSG;
}

int log_journal_sections_decode(const struct log_journal_head *h,
				const uint8_t *p,
				struct log_journal_section *s)
{
	size_t len = (size_t)h->count * LOG_JOURNAL_SECTION;
	uint64_t bytes = 0;
	struct wire_in in;

	if (crc32c(0, p, len) != h->crc)
		return -EBADMSG;
	wire_in_init(&in, p, len);
	for (uint32_t i = 0; i < h->count; i++) {
		s[i].ino = wire_get_u64(&in);
		s[i].epoch = wire_get_u64(&in);
		s[i].seq = wire_get_u64(&in);
		s[i].len = wire_get_u64(&in);
		s[i].crc = wire_get_u32(&in);
		(void)wire_get_u32(&in);
		(void)wire_get_u64(&in);
		if (s[i].seq == 0 || s[i].len == 0 || s[i].len > UINT32_MAX)
			return -EBADMSG;
		bytes += s[i].len;
	}
	return bytes == h->bytes ? 0 : -EBADMSG;
}
