/* How long requests take, from the handler to the answer, by kind. What the
 * kernel adds before and after is not in it, nor are waits for locks, which
 * say nothing of us.
 */
#include "fuse/rim.h"

#include "common/stats.h"

static struct stats *registry; /* for the process's life */
static struct stats_hist *hists[RIM_KIND_COUNT];

int rim_latency_init(void)
{
	static const struct {
		const char *name, *help;
	} kinds[RIM_KIND_COUNT] = {
		[RIM_NAMES] = { "names_seconds",
				"Names and attributes: request to answer." },
		[RIM_READ] = { "read_seconds", "Reads: request to answer." },
		[RIM_WRITE] = { "write_seconds",
				"Writes: request to answer." },
		[RIM_SYNC] = { "sync_seconds", "fsync: request to answer." },
	};

	registry = stats_new("hailfs");
	for (size_t i = 0; registry && i < RIM_KIND_COUNT; i++) {
		hists[i] = stats_hist(registry, kinds[i].name, NULL,
				      kinds[i].help);
		if (!hists[i])
			return -ENOMEM;
	}
	return registry ? 0 : -ENOMEM;
}

void rim_latency_add(enum rim_kind kind, int64_t ns)
{
	if (hists[kind])
		stats_hist_add(hists[kind], ns > 0 ? (uint64_t)ns : 0);
}

char *rim_latency_json(void)
{
	return registry ? stats_json(registry) : NULL;
}

char *rim_latency_openmetrics(void)
{
	return registry ? stats_openmetrics(registry) : NULL;
}
