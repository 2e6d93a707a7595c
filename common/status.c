/* Error numbers at our borders: wire, libraft, LMDB. */
#include "common/status.h"

#include <lmdb.h>
#include <raft.h>

/* Wire numbers are ours and never change or are used again: errno values
 * differ between architectures. ENOTSUP is EOPNOTSUPP on Linux. */
#define STATUS_EIO 3u
#define STATUS_LIST(S)       \
	S(1, EPERM)          \
	S(2, ENOENT)         \
	S(STATUS_EIO, EIO)   \
	S(4, EBADF)          \
	S(5, EAGAIN)         \
	S(6, ENOMEM)         \
	S(7, EACCES)         \
	S(8, EBUSY)          \
	S(9, EEXIST)         \
	S(10, EXDEV)         \
	S(11, ENODEV)        \
	S(12, ENOTDIR)       \
	S(13, EISDIR)        \
	S(14, EINVAL)        \
	S(15, EFBIG)         \
	S(16, ENOSPC)        \
	S(17, EROFS)         \
	S(18, EMLINK)        \
	S(19, ERANGE)        \
	S(20, EDEADLK)       \
	S(21, ENAMETOOLONG)  \
	S(22, ENOLCK)        \
	S(23, ENOSYS)        \
	S(24, ENOTEMPTY)     \
	S(25, ELOOP)         \
	S(26, ENODATA)       \
	S(27, EOVERFLOW)     \
	S(28, EPROTO)        \
	S(29, EBADMSG)       \
	S(30, EOPNOTSUPP)    \
	S(31, ETIMEDOUT)     \
	S(32, ECONNRESET)    \
	S(33, ECANCELED)     \
	S(34, ESTALE)        \
	S(35, EDQUOT)        \
	S(36, EPROTONOSUPPORT) \
	S(37, ENXIO)         \
	S(38, EINTR)         \
	S(39, ENOTCONN)      \
	S(40, EINPROGRESS)   \
	S(41, EALREADY)      \
	S(42, ETXTBSY)       \
	S(43, EFAULT)        \
	S(44, EMFILE)        \
	S(45, ENFILE)        \
	S(46, ESPIPE)        \
	S(47, EPIPE)         \
	S(48, ECONNREFUSED)  \
	S(49, EHOSTUNREACH)  \
	S(50, ENETUNREACH)   \
	S(51, ECONNABORTED)  \
	S(52, ESHUTDOWN)     \
	S(53, EMSGSIZE)      \
	S(54, E2BIG)         \
	S(55, ENOTBLK)       \
	S(56, EKEYREJECTED)  \
	S(57, EUCLEAN)       \
	S(58, EIDRM)         \
	S(59, EREMCHG)

#define TO_WIRE(number, err) \
	case err:            \
		return number;
#define FROM_WIRE(number, err) \
	case number:           \
		return -err;

/* A switch makes the compiler refuse a number or an errno given twice. */
uint32_t status_to_wire(int err)
{
	if (err == 0)
		return 0;
	switch (-(int64_t)err) {
	STATUS_LIST(TO_WIRE)
	default:
		return STATUS_EIO;
	}
}

int status_from_wire(uint32_t status)
{
	switch (status) {
	case 0:
		return 0;
	STATUS_LIST(FROM_WIRE)
	default:
		return -EIO;
	}
}

int status_from_raft(int raft_err)
{
	switch (raft_err) {
	case 0:
		return 0;
	case RAFT_NOMEM:
		return -ENOMEM;
	case RAFT_NOTLEADER:
	case RAFT_LEADERSHIPLOST:
	case RAFT_CANTCHANGE:
		return -EAGAIN;
	case RAFT_DUPLICATEID:
	case RAFT_DUPLICATEADDRESS:
	case RAFT_CANTBOOTSTRAP:
		return -EEXIST;
	case RAFT_BADID:
	case RAFT_BADROLE:
	case RAFT_INVALID:
		return -EINVAL;
	case RAFT_MALFORMED:
	case RAFT_CORRUPT:
		return -EBADMSG;
	case RAFT_SHUTDOWN:
	case RAFT_CANCELED:
		return -ECANCELED;
	case RAFT_NAMETOOLONG:
		return -ENAMETOOLONG;
	case RAFT_TOOBIG:
		return -EFBIG;
	case RAFT_NOCONNECTION:
		return -ENOTCONN;
	case RAFT_BUSY:
		return -EBUSY;
	case RAFT_NOTFOUND:
		return -ENOENT;
	case RAFT_UNAUTHORIZED:
		return -EACCES;
	case RAFT_NOSPACE:
		return -ENOSPC;
	case RAFT_TOOMANY:
		return -EMFILE;
	default:
		return -EIO; /* RAFT_IOERR, or newer than this table */
	}
}

int status_from_lmdb(int mdb_err)
{
	/* LMDB passes errno values through; its own codes are negative. */
	if (mdb_err >= 0)
		return -mdb_err;
	switch (mdb_err) {
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_KEYEXIST:
		return -EEXIST;
	case MDB_MAP_FULL:
	case MDB_TXN_FULL:
	case MDB_CURSOR_FULL:
	case MDB_PAGE_FULL:
		return -ENOSPC;
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_INVALID:
	case MDB_VERSION_MISMATCH:
		return -EBADMSG;
	case MDB_READERS_FULL:
	case MDB_TLS_FULL:
	case MDB_DBS_FULL:
		return -EMFILE;
	case MDB_MAP_RESIZED:
		return -EAGAIN;
	case MDB_BAD_VALSIZE:
	case MDB_BAD_DBI:
	case MDB_BAD_RSLOT:
	case MDB_BAD_TXN:
	case MDB_INCOMPATIBLE:
		return -EINVAL;
	default:
		return -EIO; /* MDB_PANIC, or newer than this table */
	}
}
