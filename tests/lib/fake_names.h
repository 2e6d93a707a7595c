/* A name service on demand: a test that calls these has a getaddrinfo() that
 * knows the names it was told, and asks the real one for all others.
 */
#ifndef TESTS_LIB_FAKE_NAMES_H
#define TESTS_LIB_FAKE_NAMES_H

#include "common/base.h"

#define FAKE_NAMES_UNKNOWN ""
#define FAKE_NAMES_SILENT "?" /* who asks, waits until it is something else */

/* The one name it knows stands for @addrs: numeric, with a blank between; or
 * one of the above. Both are literals. */
void fake_names_set(const char *name, const char *addrs);
/* How many look-ups of it have begun. */
unsigned fake_names_asked(void);
/* Waits until no look-up is under way. */
void fake_names_idle(void);

#endif
