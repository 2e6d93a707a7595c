/* A store on a fake disk and one block of known bytes, for cmocka tests of what
 * single operations promise.
 */
#ifndef TESTS_LIB_STORE_FIX_H
#define TESTS_LIB_STORE_FIX_H

#include "tests/lib/store_box.h"

#define STORE_FIX_BLOCK (1u << STORE_BOX_LOG2)

extern uint8_t store_fix_pattern[STORE_FIX_BLOCK]; /* aligned as a page */
extern uint8_t store_fix_got[STORE_FIX_BLOCK]; /* what was read last */

/* *state: a store_box of 64 MiB, open. */
int store_fix_setup(void **state);
int store_fix_teardown(void **state);
/* The pattern, from now on; first 1. */
void store_fix_fill(uint8_t seed);
/* kill -9 and start. */
void store_fix_reopen(struct store_box *b);
/* The pattern's bytes at the same offset in the block. */
void store_fix_write(struct store_box *b, uint64_t ino, uint64_t index,
		     uint32_t off, uint32_t len);
void store_fix_read_same(struct store_box *b, uint64_t ino, uint64_t index,
			 uint32_t off, uint32_t len);
void store_fix_read_zeros(struct store_box *b, uint64_t ino, uint64_t index,
			  uint32_t off, uint32_t len);

#endif
