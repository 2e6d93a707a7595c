#include "metad/log_pick.h"

/* How many of a domain are taken: of those in use and of the first @picked. */
static size_t taken(const struct log_candidate *c, size_t picked,
		    const char *const *used, size_t used_count,
		    const char *domain)
{
	size_t count = 0, i;

	for (i = 0; i < used_count; i++)
		count += strcmp(used[i], domain) == 0;
	for (i = 0; i < picked; i++)
		count += strcmp(c[i].domain, domain) == 0;
	return count;
}

static bool better(const struct log_candidate *a, size_t a_taken,
		   const struct log_candidate *b, size_t b_taken)
{
	if (a_taken != b_taken)
		return a_taken < b_taken;
	if (a->free_bytes != b->free_bytes)
		return a->free_bytes > b->free_bytes;
	return a->id < b->id;
}

size_t log_pick(struct log_candidate *c, size_t count, const char *const *used,
		size_t used_count, size_t max, bool *shared)
{
	size_t picked;

	*shared = false;
	for (picked = 0; picked < count && picked < max; picked++) {
		size_t best = picked, best_taken = 0, i;
		struct log_candidate swap = c[picked];

		for (i = picked; i < count; i++) {
			size_t t = taken(c, picked, used, used_count,
					 c[i].domain);

			if (i == picked || better(&c[i], t, &c[best],
						  best_taken)) {
				best = i;
				best_taken = t;
			}
		}
		if (taken(c, picked, NULL, 0, c[best].domain) > 0)
			*shared = true;
		c[picked] = c[best];
		c[best] = swap;
	}
	return picked;
}
