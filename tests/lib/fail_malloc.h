/* Allocation failures on demand. Linking a reference to these puts wrappers
 * around the process's malloc(), calloc() and realloc() (strdup() and others
 * of libc call them). Not under sanitizers, which have their own.
 */
#ifndef TESTS_LIB_FAIL_MALLOC_H
#define TESTS_LIB_FAIL_MALLOC_H

#include "common/base.h"

/* False: built without the wrappers; nothing will fail. */
bool fail_malloc_works(void);
/* Lets the @nth allocation of this thread from now (1: the next) fail, once;
 * 0: none. */
void fail_malloc_at(unsigned nth);
/* Has it failed? Also disarms. */
bool fail_malloc_hit(void);

#endif
