/* Holds a quiet store's books against its blocks: units used, promised,
 * mapped twice. For tests; knows the store's inside.
 */
#ifndef TESTS_LIB_STORE_AUDIT_H
#define TESTS_LIB_STORE_AUDIT_H

#include "blockd/store.h"

/* No request, record or checkpoint may be under way. @leaks_ok: used units
 * that nobody has are fine. Number of defects, which are printed to stderr. */
int store_audit(struct store *s, bool leaks_ok);

#endif
