/* A program that is killed at a call: preloaded into a mount (LD_PRELOAD), of
 * the messages it sends to daemons, its answers to the kernel and the files
 * that its hailfs-kflush closes, the one that counts the number in the file
 * $KILL_AT down from one to zero is not begun: SIGKILL ends the mount.
 */
#include "countdown.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

static bool child;

__attribute__((constructor)) static void begin(void)
{
	countdown_begin("KILL_AT");
	child = strcmp(program_invocation_short_name, "hailfs-kflush") == 0;
}

static void count(void)
{
	if (!countdown_ends())
		return;
	if (child)
		(void)kill(getppid(), SIGKILL);
	(void)raise(SIGKILL);
}

#define REAL(fn) ((__typeof__(&fn))dlsym(RTLD_NEXT, #fn))

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	count();
	return REAL(sendmsg)(fd, m, flags);
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
	count();
	return REAL(writev)(fd, v, n);
}

int close(int fd)
{
	if (child)
		count();
	return REAL(close)(fd);
}
