/* Without memory libraft frees lists twice, of files that it then removes, and
 * closes twice: it hears of no lack. As behind a kill nothing is lost.
 */
#include "metad/raft.h"

#include <raft.h>
#include <unistd.h>

static void *had(void *p)
{
	static const char text[] = "hail-metad: out of memory\n";

	if (p)
		return p;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(METARAFT_EXIT);
}

static void *heap_malloc(void *data, size_t size)
{
	(void)data;
	return had(malloc(size ? size : 1));
}

static void *heap_calloc(void *data, size_t count, size_t size)
{
	(void)data;
	return had(calloc(count ? count : 1, size ? size : 1));
}

static void *heap_realloc(void *data, void *p, size_t size)
{
	(void)data;
	return had(realloc(p, size ? size : 1));
}

static void *heap_aligned_alloc(void *data, size_t align, size_t size)
{
	(void)data;
	return had(aligned_alloc(align, size));
}

static void heap_free(void *data, void *p)
{
	(void)data;
	free(p);
}

static void heap_aligned_free(void *data, size_t align, void *p)
{
	(void)data;
	(void)align;
	free(p);
}

static struct raft_heap heap = {
	.malloc = heap_malloc,
	.free = heap_free,
	.calloc = heap_calloc,
	.realloc = heap_realloc,
	.aligned_alloc = heap_aligned_alloc,
	.aligned_free = heap_aligned_free,
};

void metaraft_heap_start(void)
{
	raft_heap_set(&heap);
}
