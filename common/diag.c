/* Diagnostics: formatting, rate limit, and the choice of the target. */
#include "common/diag.h"

#include <pthread.h>
#include <stdarg.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024
#define DEBUG_LIST_MAX 256
#define RATE_LINES_PER_S 20u
/* (subsys, fmt) pairs whose rate is known at a time; a power of two. */
#define RATE_SLOTS 256u

/* How often one source line spoke in the current second. String literals are
 * compared by address, which is what "one source line" means. */
struct rate {
	const char *subsys;
	const char *fmt;
	int64_t second;
	uint32_t count;
	uint32_t held;
};

static struct {
	pthread_mutex_t lock; /* protects everything here */
	const char *program;
	bool to_syslog;
	bool debug_any;
	char debug[DEBUG_LIST_MAX];
	struct rate rates[RATE_SLOTS];
} diag = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.program = "hailfs",
};

static const char *const level_names[] = { "err", "warn", "info", "debug" };
static const int level_priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO,
					LOG_DEBUG };

void diag_init(const char *program, bool to_syslog)
{
	pthread_mutex_lock(&diag.lock);
	diag.program = program;
	diag.to_syslog = to_syslog;
	if (to_syslog)
		openlog(program, LOG_PID | LOG_NDELAY, LOG_DAEMON);
	pthread_mutex_unlock(&diag.lock);
}

int diag_set_debug(const char *list)
{
	size_t len = strlen(list);

	if (len >= DEBUG_LIST_MAX)
		return -EINVAL;
	pthread_mutex_lock(&diag.lock);
	memcpy(diag.debug, list, len + 1);
	__atomic_store_n(&diag.debug_any,
			 len > 0 && strcmp(list, "none") != 0,
			 __ATOMIC_RELAXED);
	pthread_mutex_unlock(&diag.lock);
	return 0;
}

/* Is @word an element of the comma list, or the list "all"? */
static bool in_list(const char *list, const char *word)
{
	size_t word_len = strlen(word);

	while (*list) {
		size_t len = strcspn(list, ",");

		if (len == 3 && memcmp(list, "all", 3) == 0)
			return true;
		if (len == word_len && memcmp(list, word, len) == 0)
			return true;
		list += len;
		list += *list == ',';
	}
	return false;
}

bool diag_debug_on(const char *subsys)
{
	bool on;

	/* Debug lines stand on data paths: off must cost next to nothing. */
	if (!__atomic_load_n(&diag.debug_any, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&diag.lock);
	on = in_list(diag.debug, subsys);
	pthread_mutex_unlock(&diag.lock);
	return on;
}

/* ---- output, under the lock ---- */

/* Copies @from so that one event stays one line, whatever a peer put into its
 * name: control bytes become \xNN. Returns the length, < @size. */
static size_t escape(char *to, size_t size, const char *from)
{
	static const char hex[] = "0123456789abcdef";
	size_t len = 0;

	for (; *from && len + 5 < size; from++) {
		unsigned char c = (unsigned char)*from;

		if (c >= 0x20 && c != 0x7f) {
			to[len++] = *from;
			continue;
		}
		to[len++] = '\\';
		to[len++] = 'x';
		to[len++] = hex[c >> 4];
		to[len++] = hex[c & 15];
	}
	to[len] = '\0';
	return len;
}

static void put_line(enum diag_level level, const char *subsys,
		     const char *text)
{
	char clean[LINE_MAX_BYTES], line[LINE_MAX_BYTES + 128];
	struct timespec now;
	struct tm tm;
	int len;

	escape(clean, sizeof(clean), text);
	if (diag.to_syslog) {
		syslog(level_priorities[level], "%s %s: %s",
		       level_names[level], subsys, clean);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	len = snprintf(line, sizeof(line),
		       "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s %s: %s\n",
		       tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
		       tm.tm_hour, tm.tm_min, tm.tm_sec,
		       now.tv_nsec / 1000000, diag.program,
		       level_names[level], subsys, clean);
	if (len < 0)
		return;
	if ((size_t)len >= sizeof(line)) {
		len = (int)sizeof(line) - 1;
		line[len - 1] = '\n';
	}
	/* One write, so that lines of several processes do not mix. There is
	 * nowhere to report that reporting failed. */
	if (write(STDERR_FILENO, line, (size_t)len) < 0)
		return;
}

static void put_held(enum diag_level level, struct rate *r)
{
	char text[64];

	if (r->held == 0)
		return;
	snprintf(text, sizeof(text), "held_back=%u reason=rate", r->held);
	put_line(level, r->subsys, text);
	r->held = 0;
}

static struct rate *rate_find(const char *subsys, const char *fmt)
{
	uintptr_t hash = (uintptr_t)fmt * 31 + (uintptr_t)subsys;

	hash ^= hash >> 17;
	hash ^= hash >> 9;
	return &diag.rates[hash & (RATE_SLOTS - 1)];
}

/* May (subsys, fmt) speak now? Says first what was held back before. */
static bool rate_allow(enum diag_level level, const char *subsys,
		       const char *fmt)
{
	struct rate *r = rate_find(subsys, fmt);
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	if (r->fmt != fmt || r->subsys != subsys || r->second != now.tv_sec) {
		put_held(level, r);
		r->subsys = subsys;
		r->fmt = fmt;
		r->second = now.tv_sec;
		r->count = 0;
	}
	if (r->count >= RATE_LINES_PER_S) {
		r->held++;
		return false;
	}
	r->count++;
	return true;
}

__attribute__((format(printf, 3, 0)))
static void diag_vput(enum diag_level level, const char *subsys,
		      const char *fmt, va_list ap)
{
	char text[LINE_MAX_BYTES];
	int saved_errno = errno;

	pthread_mutex_lock(&diag.lock);
	if (rate_allow(level, subsys, fmt)) {
		errno = saved_errno; /* for %m */
		vsnprintf(text, sizeof(text), fmt, ap);
		put_line(level, subsys, text);
	}
	pthread_mutex_unlock(&diag.lock);
	errno = saved_errno;
}

void diag_err(const char *subsys, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	diag_vput(DIAG_ERR, subsys, fmt, ap);
	va_end(ap);
}

void diag_warn(const char *subsys, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	diag_vput(DIAG_WARN, subsys, fmt, ap);
	va_end(ap);
}

void diag_info(const char *subsys, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	diag_vput(DIAG_INFO, subsys, fmt, ap);
	va_end(ap);
}

void diag_debug(const char *subsys, const char *fmt, ...)
{
	va_list ap;

	if (!diag_debug_on(subsys))
		return;
	va_start(ap, fmt);
	diag_vput(DIAG_DEBUG, subsys, fmt, ap);
	va_end(ap);
}
