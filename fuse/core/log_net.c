/* What a log's records come to.
 *
 * The file is cut where records begin and end; from the last record to the
 * first each takes those parts in it that none has taken, found by links over
 * the others (union-find). */
#include "fuse/core/log_net.h"

#define NOBODY UINT32_MAX

void log_net_init(struct log_net *n)
{
	memset(n, 0, sizeof(*n));
	n->plain = true;
}

void log_net_fini(struct log_net *n)
{
	free(n->recs);
	free(n->marks);
	free(n->owner);
	free(n->free_next);
	memset(n, 0, sizeof(*n));
}

static int grow(struct log_net *n)
{
	uint32_t cap = n->cap ? 2 * n->cap : 64;
	struct log_net_rec *r;

	if (n->count == LOG_NET_COUNT_MAX)
		return -EFBIG;
	r = realloc(n->recs, cap * sizeof(*r));
	if (!r)
		return -ENOMEM;
	n->recs = r;
	n->cap = cap;
	return 0;
}

int log_net_add(struct log_net *n, const struct log_rec *r)
{
	struct log_net_rec *to;

	if (n->count == n->cap) {
		int err = grow(n);

		if (err)
			return err;
	}
	to = &n->recs[n->count++];
	to->off = r->off;
	to->data = NULL;
	switch (r->kind) {
	case LOG_REC_WRITE:
		to->end = r->off + r->len;
		to->data = r->data;
		break;
	case LOG_REC_SIZE:
		to->end = UINT64_MAX;
		n->sized = true;
		break;
	case LOG_REC_ZERO:
		to->end = r->off + r->arg;
		break;
	}
	n->plain &= to->data && to->off >= n->end;
	n->end = u64_max(n->end, to->end);
	n->length = log_rec_length(r, n->length);
	return 0;
}

static int by_place(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void set_marks(struct log_net *n)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n->count; i++) {
		n->marks[2 * i] = n->recs[i].off;
		n->marks[2 * i + 1] = n->recs[i].end;
	}
	qsort(n->marks, (size_t)2 * n->count, sizeof(n->marks[0]), by_place);
	for (uint32_t i = 0; i < 2 * n->count; i++)
		if (count == 0 || n->marks[i] != n->marks[count - 1])
			n->marks[count++] = n->marks[i];
	n->mark_count = count;
}

/* The mark at @off; there is one. */
static uint32_t mark_of(const struct log_net *n, uint64_t off)
{
	uint32_t lo = 0, hi = n->mark_count - 1;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (n->marks[mid] < off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The first part from @i on that is nobody's. */
static uint32_t free_from(struct log_net *n, uint32_t i)
{
	uint32_t *next = n->free_next;

	while (next[i] != i) {
		next[i] = next[next[i]];
		i = next[i];
	}
	return i;
}

int log_net_end(struct log_net *n)
{
	size_t max = (size_t)2 * n->count;

	if (n->plain)
		return 0;
	n->marks = malloc(max * sizeof(n->marks[0]));
	n->owner = malloc(max * sizeof(n->owner[0]));
	n->free_next = malloc(max * sizeof(n->free_next[0]));
	if (!n->marks || !n->owner || !n->free_next)
		return -ENOMEM;
	set_marks(n);
	for (uint32_t i = 0; i < n->mark_count; i++) {
		n->owner[i] = NOBODY;
		n->free_next[i] = i;
	}
	for (uint32_t r = n->count; r-- > 0;) {
		uint32_t end = mark_of(n, n->recs[r].end), i;

		for (i = free_from(n, mark_of(n, n->recs[r].off)); i < end;
		     i = free_from(n, i)) {
			n->owner[i] = r;
			n->free_next[i] = i + 1;
		}
	}
	return 0;
}

/* The next parts of one record, or of zeros. */
static bool next_parts(struct log_net *n, struct log_net_rec *piece)
{
	const struct log_net_rec *r;
	uint32_t i = n->at, first;

	while (i < n->mark_count && n->owner[i] == NOBODY)
		i++;
	if (i == n->mark_count)
		return false;
	first = n->owner[i];
	r = &n->recs[first];
	piece->off = n->marks[i];
	piece->data = r->data ? r->data + (piece->off - r->off) : NULL;
	/* The last mark has no part. */
	do
		i++;
	while (n->owner[i] == first ||
	       (!r->data && n->owner[i] != NOBODY &&
		!n->recs[n->owner[i]].data));
	piece->end = n->marks[i];
	n->at = i;
	return true;
}

bool log_net_next(struct log_net *n, struct log_net_rec *piece)
{
	while (!n->plain) {
		if (!next_parts(n, piece))
			return false;
		if (!piece->data && n->sized)
			piece->end = u64_min(piece->end, n->length);
		if (piece->off < piece->end)
			return true;
	}
	if (n->at == n->count)
		return false;
	*piece = n->recs[n->at++];
	return true;
}
