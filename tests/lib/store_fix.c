#include "tests/lib/store_fix.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define BLOCK STORE_FIX_BLOCK

uint8_t store_fix_pattern[BLOCK] __attribute__((aligned(4096)));
uint8_t store_fix_got[BLOCK] __attribute__((aligned(4096)));

void store_fix_fill(uint8_t seed)
{
	for (uint32_t i = 0; i < BLOCK; i++)
		store_fix_pattern[i] = (uint8_t)(seed + i * 7 + i / 4096);
}

int store_fix_setup(void **state)
{
	struct store_box *b = calloc(1, sizeof(*b));

	store_box_init(b, 1, 64 * MIB, MIB, MIB);
	*state = b;
	store_fix_fill(1);
	return 0;
}

int store_fix_teardown(void **state)
{
	store_box_fini(*state);
	free(*state);
	return 0;
}

void store_fix_reopen(struct store_box *b)
{
	store_box_kill(b);
	if (store_box_open(b) != 0)
		fail_msg("%s", b->why);
}

void store_fix_write(struct store_box *b, uint64_t ino, uint64_t index,
		     uint32_t off, uint32_t len)
{
	assert_int_equal(store_box_write(b, ino, index, 0, off,
					 store_fix_pattern + off, len, false),
			 0);
}

void store_fix_read_same(struct store_box *b, uint64_t ino, uint64_t index,
		      uint32_t off, uint32_t len)
{
	memset(store_fix_got, 0xee, len);
	assert_int_equal(
		store_box_read(b, ino, index, 0, off, store_fix_got, len), 0);
	assert_memory_equal(store_fix_got, store_fix_pattern + off, len);
}

void store_fix_read_zeros(struct store_box *b, uint64_t ino, uint64_t index,
		       uint32_t off, uint32_t len)
{
	memset(store_fix_got, 0xee, len);
	assert_int_equal(
		store_box_read(b, ino, index, 0, off, store_fix_got, len), 0);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(store_fix_got[i], 0);
}
