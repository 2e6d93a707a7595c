/* Error numbers: the wire's table is pinned here number by number, because a
 * changed one would be misread by every other version.
 */
#include "common/status.h"

#include <setjmp.h>
#include <stdarg.h>

#include <lmdb.h>
#include <raft.h>

#include <cmocka.h>

static const struct {
	uint32_t number;
	int err;
} pinned[] = {
	{ 1, EPERM }, { 2, ENOENT }, { 3, EIO }, { 4, EBADF }, { 5, EAGAIN },
	{ 6, ENOMEM }, { 7, EACCES }, { 8, EBUSY }, { 9, EEXIST },
	{ 10, EXDEV }, { 11, ENODEV }, { 12, ENOTDIR }, { 13, EISDIR },
	{ 14, EINVAL }, { 15, EFBIG }, { 16, ENOSPC }, { 17, EROFS },
	{ 18, EMLINK }, { 19, ERANGE }, { 20, EDEADLK },
	{ 21, ENAMETOOLONG }, { 22, ENOLCK }, { 23, ENOSYS },
	{ 24, ENOTEMPTY }, { 25, ELOOP }, { 26, ENODATA }, { 27, EOVERFLOW },
	{ 28, EPROTO }, { 29, EBADMSG }, { 30, EOPNOTSUPP },
	{ 31, ETIMEDOUT }, { 32, ECONNRESET }, { 33, ECANCELED },
	{ 34, ESTALE }, { 35, EDQUOT }, { 36, EPROTONOSUPPORT },
	{ 37, ENXIO }, { 38, EINTR }, { 39, ENOTCONN }, { 40, EINPROGRESS },
	{ 41, EALREADY }, { 42, ETXTBSY }, { 43, EFAULT }, { 44, EMFILE },
	{ 45, ENFILE }, { 46, ESPIPE }, { 47, EPIPE }, { 48, ECONNREFUSED },
	{ 49, EHOSTUNREACH }, { 50, ENETUNREACH }, { 51, ECONNABORTED },
	{ 52, ESHUTDOWN }, { 53, EMSGSIZE }, { 54, E2BIG }, { 55, ENOTBLK },
	{ 56, EKEYREJECTED }, { 57, EUCLEAN },
	{ 58, EIDRM }, { 59, EREMCHG },
};

static bool is_pinned(int err)
{
	for (size_t i = 0; i < array_count(pinned); i++)
		if (pinned[i].err == err)
			return true;
	return false;
}

static void success_is_zero_both_ways(void **state)
{
	(void)state;
	assert_int_equal(status_to_wire(0), 0);
	assert_int_equal(status_from_wire(0), 0);
}

static void every_pinned_errno_has_its_number(void **state)
{
	(void)state;
	for (size_t i = 0; i < array_count(pinned); i++)
		assert_int_equal(status_to_wire(-pinned[i].err),
				 pinned[i].number);
}

static void every_pinned_number_has_its_errno(void **state)
{
	(void)state;
	for (size_t i = 0; i < array_count(pinned); i++)
		assert_int_equal(status_from_wire(pinned[i].number),
				 -pinned[i].err);
}

static void enotsup_travels_as_eopnotsupp(void **state)
{
	(void)state;
	assert_int_equal(status_to_wire(-ENOTSUP), 30);
}

static void every_other_errno_becomes_eio(void **state)
{
	(void)state;
	for (int err = 1; err < 5000; err++)
		if (!is_pinned(err))
			assert_int_equal(status_to_wire(-err), 3);
}

static void every_other_number_becomes_eio(void **state)
{
	(void)state;
	for (uint32_t n = array_count(pinned) + 1; n < 5000; n++)
		assert_int_equal(status_from_wire(n), -EIO);
	assert_int_equal(status_from_wire(UINT32_MAX), -EIO);
	assert_int_equal(status_from_wire(0x80000000u), -EIO);
}

static void a_positive_or_extreme_err_becomes_eio(void **state)
{
	(void)state;
	assert_int_equal(status_to_wire(EPERM), 3);
	assert_int_equal(status_to_wire(INT32_MAX), 3);
	assert_int_equal(status_to_wire(INT32_MIN), 3);
}

static void lost_leadership_asks_to_try_again(void **state)
{
	(void)state;
	assert_int_equal(status_from_raft(RAFT_NOTLEADER), -EAGAIN);
	assert_int_equal(status_from_raft(RAFT_LEADERSHIPLOST), -EAGAIN);
}

static void raft_codes_become_their_errno(void **state)
{
	(void)state;
	assert_int_equal(status_from_raft(0), 0);
	assert_int_equal(status_from_raft(RAFT_NOMEM), -ENOMEM);
	assert_int_equal(status_from_raft(RAFT_NOSPACE), -ENOSPC);
	assert_int_equal(status_from_raft(RAFT_CORRUPT), -EBADMSG);
	assert_int_equal(status_from_raft(RAFT_SHUTDOWN), -ECANCELED);
	assert_int_equal(status_from_raft(RAFT_CANTBOOTSTRAP), -EEXIST);
	assert_int_equal(status_from_raft(RAFT_IOERR), -EIO);
}

static void every_raft_code_is_an_error(void **state)
{
	(void)state;
	for (int code = 1; code < 100; code++)
		assert_true(status_from_raft(code) < 0);
}

static void lmdb_codes_become_their_errno(void **state)
{
	(void)state;
	assert_int_equal(status_from_lmdb(MDB_SUCCESS), 0);
	assert_int_equal(status_from_lmdb(MDB_NOTFOUND), -ENOENT);
	assert_int_equal(status_from_lmdb(MDB_MAP_FULL), -ENOSPC);
	assert_int_equal(status_from_lmdb(MDB_CORRUPTED), -EBADMSG);
	assert_int_equal(status_from_lmdb(MDB_PAGE_NOTFOUND), -EBADMSG);
	assert_int_equal(status_from_lmdb(MDB_PANIC), -EIO);
}

static void errno_from_lmdb_passes_through(void **state)
{
	(void)state;
	assert_int_equal(status_from_lmdb(ENOSPC), -ENOSPC);
	assert_int_equal(status_from_lmdb(EIO), -EIO);
}

static void every_lmdb_code_is_an_error(void **state)
{
	(void)state;
	for (int code = MDB_KEYEXIST - 10; code < 0; code++)
		assert_true(status_from_lmdb(code) < 0);
	for (int code = MDB_KEYEXIST; code <= MDB_LAST_ERRCODE; code++)
		assert_true(status_from_lmdb(code) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(success_is_zero_both_ways),
		cmocka_unit_test(every_pinned_errno_has_its_number),
		cmocka_unit_test(every_pinned_number_has_its_errno),
		cmocka_unit_test(enotsup_travels_as_eopnotsupp),
		cmocka_unit_test(every_other_errno_becomes_eio),
		cmocka_unit_test(every_other_number_becomes_eio),
		cmocka_unit_test(a_positive_or_extreme_err_becomes_eio),
		cmocka_unit_test(lost_leadership_asks_to_try_again),
		cmocka_unit_test(raft_codes_become_their_errno),
		cmocka_unit_test(every_raft_code_is_an_error),
		cmocka_unit_test(lmdb_codes_become_their_errno),
		cmocka_unit_test(errno_from_lmdb_passes_through),
		cmocka_unit_test(every_lmdb_code_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
