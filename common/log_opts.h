/* The options of a log directory: the text of META_XATTR_LOG. [pure] */
#ifndef COMMON_LOG_OPTS_H
#define COMMON_LOG_OPTS_H

#include "common/wire.h"

enum log_destage {
	LOG_DESTAGE_AUTO = 0, /* by the peers' failure domains */
	LOG_DESTAGE_CLOSE = 1,
	LOG_DESTAGE_INTERVAL = 2,
	LOG_DESTAGE_OFF = 3,
};

enum log_fallback {
	LOG_FALLBACK_BLOCKS = 0,
	LOG_FALLBACK_REFUSE = 1,
};

struct log_opts {
	char match[NAME_LEN_MAX + 1]; /* of names, see log_opts_match() */
	uint32_t peers; /* odd */
	uint8_t region_log2;
	uint8_t destage; /* enum log_destage */
	uint8_t fallback; /* enum log_fallback */
};

/* No text is longer. */
#define LOG_OPTS_TEXT_MAX 512u

/* Words as wire_meta.h has them, each once at most; what is not said has its
 * default. Returns 0 or -EINVAL (@o undefined). */
int log_opts_parse(struct wire_str text, struct log_opts *o) must_check;
/* All of it as one such text, with a NUL; @buf: LOG_OPTS_TEXT_MAX bytes.
 * Returns its length. */
size_t log_opts_format(const struct log_opts *o, char *buf);

/* Is it a pattern? Brackets and backslashes are complete, and there are no
 * character classes. */
bool log_opts_pattern_ok(const char *pattern, size_t len);
/* fnmatch(3) without flags, byte by byte: of a pattern that is one. */
bool log_opts_match(const struct log_opts *o, struct wire_str name);

#endif
