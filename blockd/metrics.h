/* OpenMetrics over HTTP for collectors: GET /metrics. */
#ifndef BLOCKD_METRICS_H
#define BLOCKD_METRICS_H

#include "blockd/serve.h"

struct metrics;

/* Listens at @addr:@port with a thread of its own that asks the loop for the
 * text. Returns 0 or -errno. */
int metrics_new(struct ring *r, struct serve *s, const char *addr,
		uint16_t port, struct metrics **ret) must_check;
/* On the loop; what it asked the loop for is answered with "unavailable".
 * NULL: no-op. */
void metrics_free(struct metrics *m);

#endif
