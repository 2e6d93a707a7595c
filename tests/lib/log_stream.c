#include "tests/lib/log_stream.h"

void log_stream_init(struct log_stream *g, uint64_t ino, uint64_t epoch,
		     uint8_t log2)
{
	*g = (struct log_stream){ .ino = ino, .epoch = epoch,
				.writer = epoch, .log2 = log2,
				.end = LOG_DATA_OFF };
	g->mirror = calloc(1, (size_t)1 << log2);
	if (!g->mirror)
		abort();
}

void log_stream_fini(struct log_stream *g)
{
	free(g->mirror);
}

void log_stream_next(struct log_stream *g)
{
	memset(g->mirror, 0, (size_t)1 << g->log2);
	g->end = LOG_DATA_OFF;
	g->index++;
}

void log_stream_append(struct log_stream *g, uint32_t len)
{
	uint8_t *data = malloc(len);
	struct log_rec rec = { .kind = LOG_REC_WRITE, .seq = ++g->seq,
			       .off = g->length, .time_ns = 1, .len = len,
			       .data = data };

	if (!data)
		abort();
	assert(g->end + log_rec_size(len) <= 1u << g->log2);
	for (uint32_t i = 0; i < len; i++)
		data[i] = (uint8_t)(g->seq * 31 + i * 7);
	log_rec_encode(&rec, g->mirror + g->end);
	free(data);
	g->end += log_rec_size(len);
	g->length += len;
}

void log_stream_slot(const struct log_stream *g, uint8_t *to)
{
	struct log_slot s = { .cluster_id = LOG_STREAM_CLUSTER_ID,
			      .ino = g->ino, .epoch = g->epoch, .seq = g->seq,
			      .length = g->length, .index = g->index,
			      .end = g->end };

	log_slot_encode(&s, to);
}
