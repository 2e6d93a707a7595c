/* Allocation failures on demand. Unit tests are linked with wrappers around
 * malloc(), strdup() and the like as the program calls them; what libraries
 * allocate for themselves never fails.
 */
#ifndef TESTS_LIB_FAIL_MALLOC_H
#define TESTS_LIB_FAIL_MALLOC_H

#include "common/base.h"

/* Lets the @nth allocation of this thread from now (1: the next) fail, once;
 * 0: none. */
void fail_malloc_at(unsigned nth);
/* Has it failed? Also disarms. */
bool fail_malloc_hit(void);

/* The same of the @nth in all threads that are not spared; 0: none. */
void fail_malloc_once(unsigned nth);
/* Has it failed? Also disarms. */
bool fail_malloc_once_hit(void);

/* About one allocation of @every fails, in all threads that are not spared;
 * 0: none any more. Returns how many failed since the last call. */
unsigned fail_malloc_all(unsigned every);
/* Set: this thread's are. (In a file of its own, for programs that are linked
 * without the wrappers.) */
extern __thread bool fail_malloc_spared;

#endif
