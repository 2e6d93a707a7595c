/* cmocka fixture: each test gets a fresh machine with a session in *state. */
#ifndef TESTS_LIB_SM_FIXTURE_H
#define TESTS_LIB_SM_FIXTURE_H

#include "tests/lib/sm_client.h"

int sm_fixture_setup(void **state);
int sm_fixture_teardown(void **state); /* also verifies the whole state */

#define SM_TEST(fn)                                                           \
	cmocka_unit_test_setup_teardown(fn, sm_fixture_setup,                 \
					sm_fixture_teardown)

/* Inode number of the reply to @call, which must succeed. */
#define SM_INO(c, call) (assert_int_equal(call, 0), (c)->attr.ino)

#endif
