/* Reads the whole index in a child process before the daemon maps it: LMDB
 * trusts its file, so a damaged one may crash its reader.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blockd/index_priv.h"

#define PROBE_BAD 3
#define PROBE_FAILED 4
#define PROBE_MEMORY 5

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
		if (image_decode(&key, val, len, &m) != 0)
			return -EBADMSG;
	}
	if (n == 0 && (mdb_stat(x->reader, x->blocks, &st) != 0 ||
		       st.ms_entries != count))
		n = -EBADMSG;
	index_walk_end(x);
	return n;
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
	err = index_open(dir, map_bytes, true, &x, &st, why, sizeof(why));
	if (err == 0)
		err = probe_blocks(x);
	/* No clean-up: nothing of it is worth a crash. */
	_exit(err == 0 ? 0 : err == -EBADMSG ? PROBE_BAD :
	      err == -ENOMEM ? PROBE_MEMORY : PROBE_FAILED);
}

int index_probe(const char *dir, uint64_t map_bytes, char *why,
		size_t why_size)
{
	pid_t pid = fork();
	int status;

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
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == PROBE_MEMORY)
		return -ENOMEM;
	if (WIFEXITED(status) && WEXITSTATUS(status) == PROBE_FAILED) {
		(void)snprintf(why, why_size,
			       "%s/index: cannot be read (permission, "
			       "disk or memory); see the kernel's log", dir);
		return -EIO;
	}
	(void)snprintf(why, why_size,
		       "%s/index: damaged; the store cannot be used: restore "
		       "it or format it anew", dir);
	return -EBADMSG;
}
