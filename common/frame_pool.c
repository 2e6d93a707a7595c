#include "common/frame_pool.h"

#include <pthread.h>

/* Classes are powers of two, so that a buffer of one frame suits the next of
 * about its size. */
#define CLASS_LOG2_MIN 15u
#define CLASS_LOG2_MAX 22u
#define CLASS_COUNT (CLASS_LOG2_MAX - CLASS_LOG2_MIN + 1)

_Static_assert(FRAME_DATA_ALONE_MIN == 1u << CLASS_LOG2_MIN, "smallest");
_Static_assert(FRAME_DATA_MAX == 1u << CLASS_LOG2_MAX, "largest");

/* In the first bytes of a free buffer. */
struct kept {
	struct kept *next;
};

static struct {
	pthread_mutex_t lock; /* protects everything here */
	struct kept *kept[CLASS_COUNT];
	size_t bytes;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

static unsigned class_of(size_t len)
{
	unsigned log2 = CLASS_LOG2_MIN;

	assert(len <= FRAME_DATA_MAX);
	while ((size_t)1 << log2 < len)
		log2++;
	return log2 - CLASS_LOG2_MIN;
}

static size_t class_size(unsigned class)
{
	return (size_t)1 << (class + CLASS_LOG2_MIN);
}

static void *pool_get(const struct frame_bufs *b, size_t len)
{
	unsigned class = class_of(len);
	struct kept *k;

	(void)b;
	pthread_mutex_lock(&pool.lock);
	k = pool.kept[class];
	if (k) {
		pool.kept[class] = k->next;
		pool.bytes -= class_size(class);
	}
	pthread_mutex_unlock(&pool.lock);
	return k ? k : aligned_alloc(FRAME_DATA_ALIGN, class_size(class));
}

static void pool_put(const struct frame_bufs *b, void *p, size_t len)
{
	unsigned class = class_of(len);
	struct kept *k = p;

	(void)b;
	pthread_mutex_lock(&pool.lock);
	if (pool.bytes + class_size(class) <= FRAME_POOL_KEPT_MAX) {
		k->next = pool.kept[class];
		pool.kept[class] = k;
		pool.bytes += class_size(class);
		k = NULL;
	}
	pthread_mutex_unlock(&pool.lock);
	free(k);
}

const struct frame_bufs frame_pool_bufs = { pool_get, pool_put };

void frame_pool_trim(void)
{
	struct kept *k, *next;

	pthread_mutex_lock(&pool.lock);
	for (unsigned i = 0; i < CLASS_COUNT; i++) {
		for (k = pool.kept[i]; k; k = next) {
			next = k->next;
			free(k);
		}
		pool.kept[i] = NULL;
	}
	pool.bytes = 0;
	pthread_mutex_unlock(&pool.lock);
}

size_t frame_pool_kept(void)
{
	size_t bytes;

	pthread_mutex_lock(&pool.lock);
	bytes = pool.bytes;
	pthread_mutex_unlock(&pool.lock);
	return bytes;
}
