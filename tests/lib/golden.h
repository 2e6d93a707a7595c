/* Golden files: lines "NAME HEXBYTES" of what was once written to a disk. */
#ifndef TESTS_LIB_GOLDEN_H
#define TESTS_LIB_GOLDEN_H

#include "common/base.h"

#include <stdio.h>

/* The bytes of the line of @name, at most @cap. Returns how many; 0: there is
 * no such line, or no such file. */
size_t golden_read(const char *path, const char *name, uint8_t *buf,
		   size_t cap);
void golden_put(FILE *f, const char *name, const uint8_t *p, size_t len);

#endif
