/* The journal's circle: where records go. Offsets in bytes, multiples of
 * UNIT_SIZE. head is where the next record goes, tail where replay begins;
 * equal when nothing is to be replayed.
 */
#include "blockd/store_priv.h"

uint64_t journal_used(const struct store *s)
{
	uint64_t size = s->super.journal_bytes;

	return (s->head + size - s->tail) % size;
}

bool journal_place(const struct store *s, uint64_t len, uint64_t *off)
{
	uint64_t size = s->super.journal_bytes;

	/* The head may come up to the tail, but never reach it. */
	if (s->head < s->tail) {
		*off = s->head;
		return s->head + len < s->tail;
	}
	if (s->head + len <= size) {
		*off = s->head;
		return s->head + len < size || s->tail > 0;
	}
	/* Replay looks for the next record at offset 0, too. */
	*off = 0;
	return len < s->tail;
}
