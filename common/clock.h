/* Time that a clock of the system tells, in one number. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <time.h>

#include "common/base.h"

/* @clock: CLOCK_MONOTONIC, CLOCK_BOOTTIME and others of the kernel's, which are
 * there always. */
uint64_t clock_now_ns(clockid_t clock);
uint64_t clock_now_ms(clockid_t clock);

/* What CLOCK_MONOTONIC shows in @ms: for pthread_cond_timedwait() where the
 * condition goes by that clock. */
struct timespec clock_deadline(uint64_t ms);

#endif
