/* Language-level helpers every file may use: no policy, no state. */
#ifndef COMMON_BASE_H
#define COMMON_BASE_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define array_count(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#define must_check __attribute__((warn_unused_result))
#define printf_like(fmt, first) __attribute__((format(printf, fmt, first)))
#define noreturn_fn __attribute__((noreturn))

static inline uint64_t u64_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t u64_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* @align: a power of two. */
static inline uint64_t u64_round_down(uint64_t v, uint64_t align)
{
	return v & ~(align - 1);
}

/* @align: a power of two; @v + @align - 1 must not overflow. */
static inline uint64_t u64_round_up(uint64_t v, uint64_t align)
{
	return (v + align - 1) & ~(align - 1);
}

/* Unbounded or locale-dependent calls are refused at compile time (after
 * git's banned.h). */
#ifndef __cplusplus
#undef strcpy
#undef strcat
#undef sprintf
#undef vsprintf
#undef strtok
#undef atoi
#undef atol
#undef alloca
#define strcpy(d, s) banned_strcpy_use_memcpy_or_snprintf
#define strcat(d, s) banned_strcat_use_snprintf
#define sprintf(...) banned_sprintf_use_snprintf
#define vsprintf(...) banned_vsprintf_use_vsnprintf
#define strtok(s, d) banned_strtok_use_strtok_r
#define atoi(s) banned_atoi_use_strtoull
#define atol(s) banned_atol_use_strtoull
#define alloca(n) banned_alloca
#endif

#endif
