/* One very large directory, step by step, with rates and latencies.
 *
 * usage: bigdir create|list|stat|drain|unlink DIR COUNT
 *        bigdir watch DIR          (until its standard input ends)
 *
 * Names are a function of their number, so each step knows what must be
 * there: a name too few or too many fails it. create and unlink print the
 * rate at each tenth of COUNT. watch prints the longest stat and create it saw.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_LEN = 32 };

static int dir_fd;
static uint32_t count;

__attribute__((format(printf, 1, 2))) _Noreturn static void
fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("# FAILED: ");
	vprintf(fmt, ap);
	printf("\n");
	va_end(ap);
	exit(1);
}

static double now_s(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* An odd multiplier is a permutation of 32 bits: names do not arrive in the
 * order of the tree. */
static void name_of(uint32_t i, char name[static NAME_LEN])
{
	(void)snprintf(name, NAME_LEN, "%08x-%07u", i * 2654435761u, i);
}

/* Number of @name, or -1: none of ours. */
static int64_t number_of(const char *name)
{
	char want[NAME_LEN];
	unsigned hash, i;

	if (sscanf(name, "%8x-%7u", &hash, &i) != 2)
		return -1;
	name_of(i, want);
	return strcmp(want, name) == 0 ? (int64_t)i : -1;
}

/* Prints the rate since the last call at each tenth. */
static void rate(const char *what, uint32_t i)
{
	static double last;
	double now;

	if (i == 0) {
		last = now_s();
		return;
	}
	if (i % (count / 10) != 0)
		return;
	now = now_s();
	printf("# %s at %u: %.0f/s\n", what, i, (count / 10) / (now - last));
	last = now;
}

static void do_create(void)
{
	char name[NAME_LEN];
	int fd;

	rate("create", 0);
	for (uint32_t i = 0; i < count; i++) {
		name_of(i, name);
		fd = openat(dir_fd, name, O_CREAT | O_EXCL | O_WRONLY, 0644);
		if (fd < 0)
			fail("create %s: %s", name, strerror(errno));
		if (close(fd) < 0)
			fail("close %s: %s", name, strerror(errno));
		rate("create", i + 1);
	}
}

static void do_unlink(void)
{
	char name[NAME_LEN];

	rate("unlink", 0);
	for (uint32_t i = 0; i < count; i++) {
		name_of(i, name);
		if (unlinkat(dir_fd, name, 0) < 0)
			fail("unlink %s: %s", name, strerror(errno));
		rate("unlink", i + 1);
	}
}

/* Reads the whole directory; seen[i] counts each name. @with_stat: as ls -l;
 * @between: called after each thousandth name. */
static void scan(uint8_t *seen, bool with_stat, void (*between)(void))
{
	uint32_t names = 0;
	struct stat st;
	struct dirent *e;
	DIR *d;
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY);

	if (fd < 0 || (d = fdopendir(fd)) == NULL)
		fail("opendir: %s", strerror(errno));
	while (errno = 0, (e = readdir(d)) != NULL) {
		int64_t i;

		if (e->d_name[0] == '.')
			continue;
		i = number_of(e->d_name);
		if (i < 0 || i >= count)
			fail("a name that nobody made: %s", e->d_name);
		if (seen[i]++ != 0)
			fail("%s was listed twice", e->d_name);
		if (with_stat && (fstatat(dir_fd, e->d_name, &st,
					  AT_SYMLINK_NOFOLLOW) < 0 ||
				  st.st_ino != e->d_ino))
			fail("stat %s: %s", e->d_name, strerror(errno));
		if (++names % 1000 == 0 && between)
			between();
	}
	if (errno != 0)
		fail("readdir: %s", strerror(errno));
	(void)closedir(d);
}

static uint8_t *seen_new(void)
{
	uint8_t *seen = calloc(1, count);

	if (seen == NULL)
		fail("no memory");
	return seen;
}

static void list(const char *what, bool with_stat)
{
	uint8_t *seen = seen_new();
	double from = now_s();

	scan(seen, with_stat, NULL);
	printf("# %s of %u: %.0f/s\n", what, count, count / (now_s() - from));
	for (uint32_t i = 0; i < count; i++)
		if (seen[i] != 1)
			fail("name %u is missing", i);
	free(seen);
}

static void do_list(void)
{
	list("ls -f", false);
	list("ls -l", true);
	list("ls -f again", false);
}

static void do_stat(void)
{
	enum { STATS = 20000 };
	uint32_t i = 12345;
	char name[NAME_LEN];
	struct stat st;
	double from = now_s();

	for (int n = 0; n < STATS; n++) {
		i = i * 1664525u + 1013904223u;
		name_of((uint32_t)((uint64_t)i * count >> 32), name);
		if (fstatat(dir_fd, name, &st, 0) < 0)
			fail("stat %s: %s", name, strerror(errno));
	}
	printf("# stat at random in %u: %.0f/s\n", count,
	       STATS / (now_s() - from));
	from = now_s();
	for (int n = 0; n < STATS / 10; n++) {
		(void)snprintf(name, sizeof(name), "none-%d", n);
		if (fstatat(dir_fd, name, &st, 0) == 0 || errno != ENOENT)
			fail("%s: not ENOENT", name);
	}
	printf("# look-ups of what is not there in %u: %.0f/s\n", count,
	       STATS / 10 / (now_s() - from));
}

/* Every fifth name goes, some after each thousandth that is listed. */
static uint32_t drain_at;

static void drain_some(void)
{
	char name[NAME_LEN];

	for (int n = 0; n < 200 && drain_at < count; n++, drain_at += 5) {
		name_of(drain_at, name);
		if (unlinkat(dir_fd, name, 0) < 0)
			fail("unlink %s: %s", name, strerror(errno));
	}
}

/* Names go while the directory is read: the others must be listed exactly
 * once. Then those come back. */
static void do_drain(void)
{
	uint8_t *seen = seen_new();
	double from = now_s();
	char name[NAME_LEN];
	int fd;

	scan(seen, false, drain_some);
	while (drain_at < count)
		drain_some();
	printf("# ls -f and unlink of each fifth of %u: %.0f/s\n", count,
	       count / 5 / (now_s() - from));
	for (uint32_t i = 0; i < count; i++)
		if (i % 5 != 0 && seen[i] != 1)
			fail("name %u, which stays, was not listed", i);
	memset(seen, 0, count);
	scan(seen, false, NULL);
	for (uint32_t i = 0; i < count; i++)
		if (seen[i] != (i % 5 != 0))
			fail("name %u: listed %d times", i, seen[i]);
	for (uint32_t i = 0; i < count; i += 5) {
		name_of(i, name);
		fd = openat(dir_fd, name, O_CREAT | O_EXCL | O_WRONLY, 0644);
		if (fd < 0 || close(fd) < 0)
			fail("create %s: %s", name, strerror(errno));
	}
	free(seen);
}

/* A stat that the kernel cannot answer and a create, each few milliseconds.
 * The longest of each kind and how many took more than 5 ms. */
static void do_watch(void)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	double worst[2] = {0, 0};
	uint64_t total = 0, slow[2] = {0, 0};
	struct statx stx;
	char name[NAME_LEN];

	for (uint32_t i = 0; poll(&in, 1, 2) == 0; i++, total++) {
		double t[3];
		int fd;

		(void)snprintf(name, sizeof(name), "watch-%u", i % 64);
		t[0] = now_s();
		if (statx(dir_fd, ".", AT_STATX_FORCE_SYNC, STATX_ALL, &stx))
			fail("statx: %s", strerror(errno));
		t[1] = now_s();
		fd = openat(dir_fd, name, O_CREAT | O_EXCL | O_WRONLY, 0644);
		t[2] = now_s();
		if (fd < 0 || close(fd) < 0 || unlinkat(dir_fd, name, 0) < 0)
			fail("watch %s: %s", name, strerror(errno));
		for (int k = 0; k < 2; k++) {
			double d = t[k + 1] - t[k];

			worst[k] = d > worst[k] ? d : worst[k];
			slow[k] += d > 0.005;
		}
	}
	printf("# watch: %lu; longest stat %.1f ms, %lu > 5 ms; longest create "
	       "%.1f ms, %lu > 5 ms\n",
	       total, worst[0] * 1e3, slow[0], worst[1] * 1e3, slow[1]);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} step[] = {
		{"create", do_create}, {"list", do_list},
		{"stat", do_stat},     {"drain", do_drain},
		{"unlink", do_unlink}, {"watch", do_watch},
	};

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3)
		fail("usage: bigdir STEP DIR [COUNT]");
	dir_fd = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		fail("%s: %s", argv[2], strerror(errno));
	count = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
	for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++)
		if (strcmp(argv[1], step[i].name) == 0) {
			step[i].run();
			return 0;
		}
	fail("no step %s", argv[1]);
}
