/* Parsing, and a matcher of our own: that of the C library takes time beyond
 * all bounds for some patterns, and a directory's owner chooses his. */
#include "common/log_opts.h"

static const char *const destages[] = { "auto", "close", "interval", "off" };
static const char *const fallbacks[] = { "blocks", "refuse" };

/* ---- patterns ---- */

/* The end of the bracket expression that begins at @p, behind its "]"; NULL: it
 * has none, or has what we do not take. */
static const char *bracket_end(const char *p, const char *end)
{
	p++;
	if (p < end && (*p == '!' || *p == '^'))
		p++;
	for (const char *first = p; p < end; p++) {
		if (*p == ']' && p > first)
			return p + 1;
		if (*p == '[' && p + 1 < end && memchr(":.=", p[1], 3))
			return NULL;
		if (*p == '\\' && ++p == end)
			return NULL;
	}
	return NULL;
}

bool log_opts_pattern_ok(const char *pattern, size_t len)
{
	const char *p = pattern, *end = pattern + len;

	if (len == 0 || len > NAME_LEN_MAX || memchr(p, '\0', len))
		return false;
	while (p < end) {
		if (*p == '[') {
			p = bracket_end(p, end);
			if (!p)
				return false;
			continue;
		}
		if (*p == '\\' && ++p == end)
			return false;
		p++;
	}
	return true;
}

/* A byte of a bracket expression, perhaps behind a backslash. */
static uint8_t bracket_byte(const char **p)
{
	if (**p == '\\')
		(*p)++;
	return (uint8_t)*(*p)++;
}

/* Does the expression at *@p have @c? Moves behind it. */
static bool bracket_has(const char **p, uint8_t c)
{
	bool negated, found = false;
	const char *first, *s = *p + 1;

	negated = *s == '!' || *s == '^';
	s += negated ? 1 : 0;
	for (first = s; *s != ']' || s == first;) {
		uint8_t low = bracket_byte(&s), high = low;

		if (s[0] == '-' && s[1] != ']') {
			s++;
			high = bracket_byte(&s);
		}
		found |= low <= c && c <= high;
	}
	*p = s + 1;
	return found != negated;
}

/* Matches one element of the pattern that is no "*" with one byte. */
static bool element_has(const char **p, uint8_t c)
{
	switch (**p) {
	case '?':
		(*p)++;
		return true;
	case '[':
		return bracket_has(p, c);
	default:
		return bracket_byte(p) == c;
	}
}

/* After a mismatch only the last "*" need take one byte more. */
bool log_opts_match(const struct log_opts *o, struct wire_str name)
{
	const char *p = o->match, *star = NULL;
	const uint8_t *n = name.p;
	uint32_t at = 0, star_at = 0;

	while (at < name.len) {
		if (*p == '*') {
			star = ++p;
			star_at = at;
		} else if (*p != '\0' && element_has(&p, n[at])) {
			at++;
		} else if (star) {
			p = star;
			at = ++star_at;
		} else {
			return false;
		}
	}
	while (*p == '*')
		p++;
	return *p == '\0';
}

/* ---- words ---- */

/* The index of @s in @words, -EINVAL: none. */
static int word_index(struct wire_str s, const char *const *words, int count)
{
	for (int i = 0; i < count; i++)
		if (strlen(words[i]) == s.len &&
		    memcmp(words[i], s.p, s.len) == 0)
			return i;
	return -EINVAL;
}

/* A number with k or m behind it, if one likes. */
static int number_of(struct wire_str s, uint64_t *ret)
{
	const char *p = s.p;
	uint64_t v = 0;
	uint32_t i;

	for (i = 0; i < s.len && p[i] >= '0' && p[i] <= '9'; i++) {
		v = v * 10 + (uint64_t)(p[i] - '0');
		if (v > UINT32_MAX)
			return -EINVAL;
	}
	if (i == 0)
		return -EINVAL;
	if (i + 1 == s.len && (p[i] == 'k' || p[i] == 'K'))
		v <<= 10;
	else if (i + 1 == s.len && (p[i] == 'm' || p[i] == 'M'))
		v <<= 20;
	else if (i != s.len)
		return -EINVAL;
	*ret = v;
	return 0;
}

static int set_match(struct log_opts *o, struct wire_str value)
{
	if (!log_opts_pattern_ok(value.p, value.len))
		return -EINVAL;
	memset(o->match, 0, sizeof(o->match));
	memcpy(o->match, value.p, value.len);
	return 0;
}

static int set_peers(struct log_opts *o, struct wire_str value)
{
	uint64_t v;

	if (number_of(value, &v) < 0 || v % 2 == 0 || v > LOG_PEER_COUNT_MAX)
		return -EINVAL;
	o->peers = (uint32_t)v;
	return 0;
}

static int set_region(struct log_opts *o, struct wire_str value)
{
	uint64_t v;

	if (number_of(value, &v) < 0 || v < 1u << LOG_REGION_LOG2_MIN ||
	    v > 1u << LOG_REGION_LOG2_MAX || (v & (v - 1)) != 0)
		return -EINVAL;
	o->region_log2 = (uint8_t)__builtin_ctzll(v);
	return 0;
}

static int set_destage(struct log_opts *o, struct wire_str value)
{
	int i = word_index(value, destages, array_count(destages));

	if (i < 0)
		return i;
	o->destage = (uint8_t)i;
	return 0;
}

static int set_fallback(struct log_opts *o, struct wire_str value)
{
	int i = word_index(value, fallbacks, array_count(fallbacks));

	if (i < 0)
		return i;
	o->fallback = (uint8_t)i;
	return 0;
}

static const struct {
	const char *key;
	int (*set)(struct log_opts *o, struct wire_str value);
} words[] = {
	{ "match", set_match },
	{ "peers", set_peers },
	{ "region", set_region },
	{ "destage", set_destage },
	{ "fallback", set_fallback },
};

static int take_word(struct log_opts *o, const char *p, size_t len,
		     uint32_t *seen)
{
	for (uint32_t i = 0; i < array_count(words); i++) {
		size_t key = strlen(words[i].key);

		if (len <= key || memcmp(p, words[i].key, key) != 0 ||
		    p[key] != '=')
			continue;
		if ((*seen & 1u << i) != 0)
			return -EINVAL;
		*seen |= 1u << i;
		return words[i].set(o, (struct wire_str){
					       p + key + 1,
					       (uint32_t)(len - key - 1) });
	}
	return -EINVAL;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n';
}

int log_opts_parse(struct wire_str text, struct log_opts *o)
{
	const char *p = text.p;
	uint32_t seen = 0, at = 0;
	int err = 0;

	*o = (struct log_opts){ .match = "*", .peers = 3,
				.region_log2 = LOG_REGION_LOG2_DEFAULT };
	if (text.len >= LOG_OPTS_TEXT_MAX)
		return -EINVAL;
	while (err == 0 && at < text.len) {
		uint32_t begin = at;

		while (at < text.len && !is_blank(p[at]))
			at++;
		if (at > begin)
			err = take_word(o, p + begin, at - begin, &seen);
		else
			at++;
	}
	return err;
}

_Static_assert(NAME_LEN_MAX + 128 < LOG_OPTS_TEXT_MAX, "all options fit");

size_t log_opts_format(const struct log_opts *o, char *buf)
{
	return (size_t)snprintf(buf, LOG_OPTS_TEXT_MAX,
				"match=%s peers=%u region=%uK destage=%s "
				"fallback=%s", o->match, o->peers,
				1u << (o->region_log2 - 10),
				destages[o->destage],
				fallbacks[o->fallback]);
}
