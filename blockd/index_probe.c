/* Reads the whole index in a child process before the daemon maps it: LMDB
 * trusts its file, so a damaged one may crash its reader.
 */
#include <endian.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blockd/index_priv.h"
#include "common/status.h"

#define PROBE_BAD 3
#define PROBE_FAILED 4
#define PROBE_MEMORY 5
#define PROBE_FUTURE 6

static int probe_blocks(struct index *x)
{
	struct image_key zero = { 0, 0 }, last = { 0, 0 }, key;
	struct image m = { .loc = x->loc, .crc = x->crc };
	const void *val;
	uint64_t count = 0;
	size_t len;
	MDB_stat st;
	int n, err;

	err = index_walk_begin(x, &zero);
	if (err != 0)
		return err;
	while ((n = index_walk_next(x, &key, &val, &len)) == 1) {
		if (count++ > 0 &&
		    (key.ino < last.ino ||
		     (key.ino == last.ino && key.index <= last.index)))
			return -EBADMSG;
		last = key;
		err = image_decode(&key, val, len, &m);
		if (err != 0)
			return err;
	}
	if (n == 0 && (mdb_stat(x->reader, x->blocks, &st) != 0 ||
		       st.ms_entries != count))
		n = -EBADMSG;
	index_walk_end(x);
	return n;
}

/* "cuts": an inode and its number. */
static int probe_cuts(struct index *x, MDB_txn *txn)
{
	MDB_cursor *c;
	MDB_val k, v;
	int rc = mdb_cursor_open(txn, x->cuts, &c);

	while (rc == 0 && (rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == 0) {
		uint64_t ino, cut;

		if (k.mv_size != sizeof(ino))
			return -EBADMSG;
		memcpy(&ino, k.mv_data, sizeof(ino));
		if (index_cut_get(&v, be64toh(ino), &cut) != 0)
			return -EBADMSG;
	}
	return rc == MDB_NOTFOUND ? 0 : status_from_lmdb(rc);
}

/* One record of LMDB's free list: a count, then page numbers that fall. A
 * wrong one would be given to somebody. */
static int free_pages_check(const MDB_val *v, uint64_t last)
{
	uint64_t above = last + 1, count, pgno;

	if (v->mv_size < sizeof(count) || v->mv_size % sizeof(count) != 0)
		return -EBADMSG;
	memcpy(&count, v->mv_data, sizeof(count));
	if (count > v->mv_size / sizeof(count) - 1)
		return -EBADMSG;
	for (uint64_t i = 1; i <= count; i++) {
		memcpy(&pgno, (const uint8_t *)v->mv_data + i * sizeof(pgno),
		       sizeof(pgno));
		/* 0 and 1 are LMDB's meta pages. */
		if (pgno < 2 || pgno >= above)
			return -EBADMSG;
		above = pgno;
	}
	return 0;
}

static int probe_free(struct index *x, MDB_txn *txn)
{
	MDB_envinfo info;
	MDB_cursor *c;
	MDB_val k, v;
	int err, rc = mdb_env_info(x->env, &info);

	if (rc == 0)
		rc = mdb_cursor_open(txn, 0, &c); /* LMDB's own */
	while (rc == 0 && (rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == 0) {
		err = free_pages_check(&v, info.me_last_pgno);
		if (err != 0)
			return err;
	}
	return rc == MDB_NOTFOUND ? 0 : status_from_lmdb(rc);
}

/* A file may be shorter than its last page number says: nobody wrote the free
 * pages at its end. Whether all that is used lies in it shows when it is read:
 * beyond the end there is a SIGBUS. */
static int probe_size(struct index *x)
{
	MDB_envinfo info;
	MDB_stat stat;
	struct stat st;
	int fd;

	if (mdb_env_info(x->env, &info) != 0 ||
	    mdb_env_stat(x->env, &stat) != 0 ||
	    mdb_env_get_fd(x->env, &fd) != 0 || fstat(fd, &st) != 0)
		return -EIO;
	return info.me_last_pgno >= ((uint64_t)st.st_size + INDEX_SHORT_MAX) /
					    stat.ms_psize ? -EBADMSG : 0;
}

/* Every page that is in use. */
static int probe_all(struct index *x)
{
	MDB_txn *txn;
	int err = probe_size(x);

	if (err == 0)
		err = status_from_lmdb(mdb_txn_begin(x->env, NULL, MDB_RDONLY,
						     &txn));
	if (err == 0)
		err = probe_free(x, txn);
	if (err == 0)
		err = probe_cuts(x, txn);
	return err != 0 ? err : probe_blocks(x);
}

static void child(const char *dir, uint64_t map_bytes) noreturn_fn;
static void child(const char *dir, uint64_t map_bytes)
{
	struct index_state st;
	struct index *x;
	char why[512];
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int err;

	/* LMDB's assertion would print; the parent says it better. */
	if (null >= 0)
		(void)dup2(null, 2);
	/* A crash is an answer: nobody's handler may take it for its own and
	 * go on, and it leaves no core behind. */
	(void)signal(SIGSEGV, SIG_DFL);
	(void)signal(SIGBUS, SIG_DFL);
	(void)signal(SIGFPE, SIG_DFL);
	(void)signal(SIGABRT, SIG_DFL);
	(void)prctl(PR_SET_DUMPABLE, 0);
	err = index_open(dir, map_bytes, true, &x, &st, why, sizeof(why));
	if (err == 0)
		err = probe_all(x);
	/* No clean-up: nothing of it is worth a crash. EINVAL and EAGAIN
	 * (larger than its map): what a meta page says cannot be. */
	_exit(err == 0 ? 0 :
	      err == -EBADMSG || err == -EINVAL || err == -EAGAIN ? PROBE_BAD :
	      err == -ENOMEM ? PROBE_MEMORY :
	      err == -EPROTONOSUPPORT ? PROBE_FUTURE : PROBE_FAILED);
}

static int verdict(const char *dir, int status, char *why, size_t why_size)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : PROBE_BAD;

	switch (code) {
	case 0:
		return 0;
	case PROBE_MEMORY:
		/* LMDB's map is as large as its file says. */
		(void)snprintf(why, why_size,
			       "%s/index: not enough memory or address space "
			       "(ulimit -v) to map it, or it is damaged",
			       dir);
		return -ENOMEM;
	case PROBE_FAILED:
		(void)snprintf(why, why_size,
			       "%s/index: cannot be read (permission, "
			       "disk or memory); see the kernel's log", dir);
		return -EIO;
	case PROBE_FUTURE:
		(void)snprintf(why, why_size,
			       "%s/index: of another format than this program "
			       "knows; run a newer hail-blockd", dir);
		return -EPROTONOSUPPORT;
	default:
		(void)snprintf(why, why_size,
			       "%s/index: damaged; the store cannot be used: "
			       "restore it or format it anew", dir);
		return -EBADMSG;
	}
}

int index_probe(const char *dir, uint64_t map_bytes, char *why,
		size_t why_size)
{
	char path[PATH_MAX];
	struct stat st;
	pid_t pid;
	int status;

	/* LMDB would make an empty file a new index. */
	(void)snprintf(path, sizeof(path), "%s/index/data.mdb", dir);
	if (stat(path, &st) == 0 && st.st_size == 0)
		return verdict(dir, W_EXITCODE(PROBE_BAD, 0), why, why_size);
	pid = fork();
	if (pid < 0) {
		(void)snprintf(why, why_size, "cannot fork: %s",
			       strerror(errno));
		return -errno;
	}
	if (pid == 0)
		child(dir, map_bytes);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return verdict(dir, status, why, why_size);
}
