/* Option tables: values, defaults, help. Parsing of argv: opt_argv.c. */
#include "common/opt.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>

static void *field(const struct opt *o, void *config)
{
	return (char *)config + o->offset;
}

static const void *field_const(const struct opt *o, const void *config)
{
	return (const char *)config + o->offset;
}

static const struct opt *find(const struct opt *table, const char *name)
{
	for (; table->name; table++)
		if (strcmp(table->name, name) == 0)
			return table;
	return NULL;
}

/* Fills @why and passes @err on. */
printf_like(4, 5)
static int refuse(char *why, size_t why_size, int err, const char *fmt, ...)
{
	va_list ap;

	if (why && why_size > 0) {
		va_start(ap, fmt);
		vsnprintf(why, why_size, fmt, ap);
		va_end(ap);
	}
	return err;
}

/* ---- values ---- */

struct suffix {
	const char *name;
	uint64_t factor;
};

static const struct suffix size_suffixes[] = {
	{ "t", 1ull << 40 }, { "g", 1ull << 30 }, { "m", 1ull << 20 },
	{ "k", 1ull << 10 }, { NULL, 0 },
};
static const struct suffix ms_suffixes[] = {
	{ "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 },
	{ "ms", 1 },
	{ NULL, 0 },
};
static const struct suffix no_suffixes[] = { { NULL, 0 } };

static const struct suffix *suffixes_of(enum opt_type type)
{
	if (type == OPT_SIZE)
		return size_suffixes;
	return type == OPT_MS ? ms_suffixes : no_suffixes;
}

/* Digits and an optional suffix, nothing else: no sign, space or fraction.
 * @plain: factor of a number without suffix. */
static int parse_number(const char *s, const struct suffix *suffixes,
			uint64_t plain, uint64_t *ret)
{
	uint64_t v = 0, factor = plain;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	for (; isdigit((unsigned char)*s); s++) {
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	}
	if (*s) {
		while (suffixes->name && strcasecmp(suffixes->name, s) != 0)
			suffixes++;
		if (!suffixes->name)
			return -EINVAL;
		factor = suffixes->factor;
	}
	if (__builtin_mul_overflow(v, factor, &v))
		return -ERANGE;
	*ret = v;
	return 0;
}

static const char *number_form(enum opt_type type)
{
	if (type == OPT_SIZE)
		return "a size like 4096, 64k, 16m, 2g or 1t";
	if (type == OPT_MS)
		return "a time like 500ms, 10s, 5m, 1h or 30d";
	return "a whole number";
}

/* @v in the shortest form that parse_number() reads back exactly. */
static void format_number(enum opt_type type, uint64_t v, char *to,
			  size_t size)
{
	for (const struct suffix *s = suffixes_of(type); s->name; s++) {
		if (v > 0 && v % s->factor == 0) {
			snprintf(to, size, "%" PRIu64 "%s", v / s->factor,
				 s->name);
			return;
		}
	}
	snprintf(to, size, "%" PRIu64, v);
}

static uint64_t max_of(const struct opt *o)
{
	return o->max == 0 ? UINT64_MAX : o->max;
}

static int set_number(const struct opt *o, void *config, const char *value,
		      char *why, size_t why_size)
{
	char min[32], max[32];
	uint64_t v = 0;
	int err = parse_number(value, suffixes_of(o->type),
			       o->type == OPT_MS ? 1000 : 1, &v);

	if (err == -EINVAL)
		return refuse(why, why_size, err, "%s: \"%s\" is not %s",
			      o->name, value, number_form(o->type));
	if (err == 0 && v >= o->min && v <= max_of(o)) {
		memcpy(field(o, config), &v, sizeof(v));
		return 0;
	}
	format_number(o->type, o->min, min, sizeof(min));
	format_number(o->type, max_of(o), max, sizeof(max));
	return refuse(why, why_size, -ERANGE,
		      "%s: %s is out of range (%s to %s)", o->name, value,
		      min, max);
}

static int set_flag(const struct opt *o, void *config, const char *value,
		    char *why, size_t why_size)
{
	static const char *const yes[] = { "yes", "true", "on", "1" };
	static const char *const no[] = { "no", "false", "off", "0" };
	bool *to = field(o, config);

	if (!value || !*value) {
		*to = true;
		return 0;
	}
	for (size_t i = 0; i < array_count(yes); i++) {
		if (strcmp(value, yes[i]) == 0) {
			*to = true;
			return 0;
		}
		if (strcmp(value, no[i]) == 0) {
			*to = false;
			return 0;
		}
	}
	return refuse(why, why_size, -EINVAL,
		      "%s: \"%s\" is neither yes nor no", o->name, value);
}

static int set_string(const struct opt *o, void *config, const char *value)
{
	char **to = field(o, config);
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*to);
	*to = copy;
	return 0;
}

/* "a, b or c" */
static void list_choices(const struct opt *o, char *to, size_t size)
{
	size_t len = 0;

	*to = '\0';
	for (int i = 0; o->choices[i] && len < size; i++) {
		const char *glue = i == 0 ? "" : ", ";

		if (i > 0 && !o->choices[i + 1])
			glue = " or ";
		len += (size_t)snprintf(to + len, size - len, "%s%s", glue,
					o->choices[i]);
	}
}

static int set_choice(const struct opt *o, void *config, const char *value,
		      char *why, size_t why_size)
{
	int *to = field(o, config);
	char list[128];

	for (int i = 0; o->choices[i]; i++) {
		if (strcmp(o->choices[i], value) == 0) {
			*to = i;
			return 0;
		}
	}
	list_choices(o, list, sizeof(list));
	return refuse(why, why_size, -EINVAL, "%s: \"%s\" is not %s", o->name,
		      value, list);
}

static int set_value(const struct opt *o, void *config, const char *value,
		     char *why, size_t why_size)
{
	int err;

	if (o->type == OPT_FLAG)
		return set_flag(o, config, value, why, why_size);
	if (!value)
		return refuse(why, why_size, -EINVAL, "%s: needs a value",
			      o->name);
	switch (o->type) {
	case OPT_STR:
		err = set_string(o, config, value);
		if (err < 0)
			return refuse(why, why_size, err, "out of memory");
		return 0;
	case OPT_CHOICE:
		return set_choice(o, config, value, why, why_size);
	default:
		return set_number(o, config, value, why, why_size);
	}
}

int opt_set(const struct opt *table, void *config, const char *name,
	    const char *value, char *why, size_t why_size)
{
	const struct opt *o = find(table, name);

	if (!o)
		return refuse(why, why_size, -ENOENT,
			      "%s: there is no such option", name);
	return set_value(o, config, value, why, why_size);
}

/* ---- whole tables ---- */

static size_t field_size(const struct opt *o)
{
	switch (o->type) {
	case OPT_FLAG:
		return sizeof(bool);
	case OPT_STR:
		return sizeof(char *);
	case OPT_CHOICE:
		return sizeof(int);
	default:
		return sizeof(uint64_t);
	}
}

int opt_defaults(const struct opt *table, void *config)
{
	/* First all fields, so that opt_fini() may follow any return. */
	for (const struct opt *o = table; o->name; o++)
		memset(field(o, config), 0, field_size(o));
	for (const struct opt *o = table; o->name; o++) {
		int err;

		if (!o->def)
			continue;
		err = set_value(o, config, o->def, NULL, 0);
		assert(err == 0 || err == -ENOMEM); /* the table is ours */
		if (err < 0)
			return err;
	}
	return 0;
}

void opt_fini(const struct opt *table, void *config)
{
	for (const struct opt *o = table; o->name; o++) {
		if (o->type == OPT_STR) {
			char **s = field(o, config);

			free(*s);
			*s = NULL;
		}
	}
}

void opt_dump(const struct opt *table, const void *config, FILE *out)
{
	for (const struct opt *o = table; o->name; o++) {
		const void *at = field_const(o, config);
		char text[32];
		uint64_t v;

		if (o->type == OPT_FLAG) {
			fprintf(out, "%s=%s\n", o->name,
				*(const bool *)at ? "yes" : "no");
		} else if (o->type == OPT_STR) {
			const char *s = *(char *const *)at;

			if (s)
				fprintf(out, "%s=%s\n", o->name, s);
		} else if (o->type == OPT_CHOICE) {
			fprintf(out, "%s=%s\n", o->name,
				o->choices[*(const int *)at]);
		} else {
			memcpy(&v, at, sizeof(v));
			format_number(o->type, v, text, sizeof(text));
			fprintf(out, "%s=%s\n", o->name, text);
		}
	}
}

#define HELP_COLUMN 31
#define HELP_WIDTH 79

/* "  @left" and @text beside it, wrapped between words. */
static void help_put(FILE *out, const char *left, const char *text)
{
	int column = fprintf(out, "  %-28s", left);

	while (*text) {
		int len = (int)strcspn(text, " ");

		if (column + 1 + len > HELP_WIDTH) {
			fprintf(out, "\n%*s", HELP_COLUMN - 1, "");
			column = HELP_COLUMN - 1;
		}
		column += fprintf(out, " %.*s", len, text);
		text += len;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

static void help_line(const struct opt *o, FILE *out)
{
	char left[64], text[512], letter[8] = "    ";
	char range[96] = "", def[64] = "";

	if (o->letter)
		snprintf(letter, sizeof(letter), "-%c, ", o->letter);
	if (o->type == OPT_FLAG)
		snprintf(left, sizeof(left), "%s--%s", letter, o->name);
	else
		snprintf(left, sizeof(left), "%s--%s %s", letter, o->name,
			 o->arg ? o->arg : "VALUE");
	if (o->type == OPT_CHOICE)
		list_choices(o, range, sizeof(range));
	if (o->def && o->type != OPT_FLAG)
		snprintf(def, sizeof(def), " (default %s)", o->def);
	snprintf(text, sizeof(text), "%s%s%s%s", o->help, *range ? ": " : "",
		 range, def);
	help_put(out, left, text);
}

void opt_help(const struct opt *table, FILE *out)
{
	for (const struct opt *o = table; o->name; o++)
		help_line(o, out);
	help_put(out, "    --dump-config",
		 "print the options in force and leave");
	help_put(out, "-h, --help", "print this and leave");
	help_put(out, "    --version", "print the version and leave");
}
