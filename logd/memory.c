#include "logd/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#define HUGE_SIZE (UINT64_C(2) << 20)

/* All of a mapping of reserved huge pages is there at once, or none is. */
static void *map_huge(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void *map_small(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* An improvement that a kernel need not have. */
	(void)madvise(p, bytes, MADV_HUGEPAGE);
	/* A core of the daemon is not one of all that it lent. */
	(void)madvise(p, bytes, MADV_DONTDUMP);
	return p;
}

/* What can be had without that others are killed for it. */
static uint64_t available(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib;
	uint64_t bytes = UINT64_MAX;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			bytes = (uint64_t)kib << 10;
	if (f)
		fclose(f);
	return bytes;
}

static int not_there(int err, uint64_t bytes, char *why, size_t why_size)
{
	snprintf(why, why_size, "no %llu MiB of memory: %s; %llu MiB are "
		 "available: give less (--memory)",
		 (unsigned long long)(bytes >> 20), strerror(err),
		 (unsigned long long)(available() >> 20));
	return -err;
}

static int pin_failed(int err, uint64_t bytes, char *why, size_t why_size)
{
	struct rlimit r = { 0, 0 };

	(void)getrlimit(RLIMIT_MEMLOCK, &r);
	snprintf(why, why_size, "the %llu MiB of --memory cannot be pinned: "
		 "%s; the limit of locked memory is %llu KiB: raise it "
		 "(LimitMEMLOCK=, ulimit -l), or give the process "
		 "CAP_IPC_LOCK", (unsigned long long)(bytes >> 20),
		 strerror(err), (unsigned long long)(r.rlim_cur >> 10));
	return -EPERM;
}

int lend_memory_map(uint64_t bytes, enum lend_pin pin, struct lend_memory *ret,
		    char *why, size_t why_size)
{
	uint64_t whole = u64_round_up(bytes, HUGE_SIZE);
	struct lend_memory m = { .bytes = bytes, .mapped_bytes = whole };
	int rv = 0;

	why[0] = '\0';
	m.base = map_huge(whole);
	m.huge = m.base != NULL;
	/* To pin it is to have it, whoever has to die for it. */
	if (!m.huge && pin != LEND_PIN_NO && whole > available())
		return not_there(ENOMEM, bytes, why, why_size);
	if (!m.huge)
		m.base = map_small(whole);
	if (!m.base)
		return not_there(errno, bytes, why, why_size);
	if (pin != LEND_PIN_NO && mlock(m.base, whole) < 0)
		rv = pin_failed(errno, bytes, why, why_size);
	else
		m.pinned = pin != LEND_PIN_NO;
	if (rv < 0 && pin == LEND_PIN_MUST) {
		lend_memory_unmap(&m);
		return rv;
	}
	*ret = m;
	return 0;
}

void lend_memory_unmap(struct lend_memory *m)
{
	if (m->base)
		(void)munmap(m->base, m->mapped_bytes);
	memset(m, 0, sizeof(*m));
}
