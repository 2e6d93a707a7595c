/* Which threads' allocations never fail; see the header. */
#include "tests/lib/fail_malloc.h"

__thread bool fail_malloc_spared;
