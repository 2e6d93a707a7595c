/* hailctl: tables, sizes, JSON. */
#include "tools/hailctl/ctl.h"

#include <inttypes.h>
#include <stdarg.h>

struct row {
	struct row *next;
	char *cells[];
};

struct table {
	uint32_t column_count;
	size_t *widths;
	struct row *first, **tail;
};

void ctl_err(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	progress_clear();
	fputs("hailctl: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

void ctl_say(const struct ctl *c, const char *fmt, ...)
{
	va_list ap;

	if (c->o.json)
		return;
	fflush(stdout);
	progress_clear();
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* hailctl ends anyway when there is no memory for its output. */
static void *must(void *p)
{
	if (!p) {
		fputs("hailctl: out of memory\n", stderr);
		exit(CTL_FAILED);
	}
	return p;
}

void out_json(json_t *o)
{
	json_dumpf(must(o), stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

struct table *table_new(const char *const *columns, uint32_t column_count)
{
	struct table *t = must(calloc(1, sizeof(*t)));

	t->column_count = column_count;
	t->widths = must(calloc(column_count, sizeof(*t->widths)));
	t->tail = &t->first;
	table_row(t, columns);
	return t;
}

void table_row(struct table *t, const char *const *cells)
{
	struct row *r = must(malloc(sizeof(*r) +
				    t->column_count * sizeof(r->cells[0])));

	r->next = NULL;
	for (uint32_t i = 0; i < t->column_count; i++) {
		size_t len = strlen(cells[i]);

		r->cells[i] = must(strdup(cells[i]));
		if (len > t->widths[i])
			t->widths[i] = len;
	}
	*t->tail = r;
	t->tail = &r->next;
}

static void row_print(const struct table *t, const struct row *r)
{
	uint32_t count = t->column_count;

	/* no blanks at the end of a line */
	while (count > 0 && !r->cells[count - 1][0])
		count--;
	for (uint32_t i = 0; i < count; i++)
		printf("%-*s", i + 1 < count ? (int)t->widths[i] + 2 : 0,
		       r->cells[i]);
	putchar('\n');
}

void table_free(struct table *t)
{
	struct row *r, *next;

	for (r = t->first; r; r = next) {
		next = r->next;
		for (uint32_t i = 0; i < t->column_count; i++)
			free(r->cells[i]);
		free(r);
	}
	free(t->widths);
	free(t);
}

void table_print_free(struct table *t)
{
	for (const struct row *r = t->first; r; r = r->next)
		row_print(t, r);
	table_free(t);
}

const char *out_size(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB",
					     "PiB", "EiB" };
	double v = (double)bytes;
	size_t i = 0;

	while (v >= 1024 && i + 1 < array_count(units)) {
		v /= 1024;
		i++;
	}
	snprintf(buf, size, i == 0 ? "%.0f %s" : "%.1f %s", v, units[i]);
	return buf;
}

const char *out_duration(uint64_t ms, char *buf, size_t size)
{
	uint64_t s = ms / 1000;

	if (s < 60)
		snprintf(buf, size, "%.1f s", (double)ms / 1000);
	else if (s < 3600)
		snprintf(buf, size, "%" PRIu64 "m %" PRIu64 "s", s / 60,
			 s % 60);
	else if (s < 86400)
		snprintf(buf, size, "%" PRIu64 "h %" PRIu64 "m", s / 3600,
			 s / 60 % 60);
	else
		snprintf(buf, size, "%" PRIu64 "d %" PRIu64 "h", s / 86400,
			 s / 3600 % 24);
	return buf;
}

static bool listed(const char *key, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(*list, key) == 0)
			return true;
	return false;
}

/* As JSON, without quotes where a word needs none. malloc'd. */
static char *scalar_text(json_t *v)
{
	const char *s = json_string_value(v);

	if (s && *s && !strpbrk(s, " \"\\"))
		return strdup(s);
	return json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
}

void out_details(json_t *o, const char *const *skip, char *buf, size_t size)
{
	const char *key;
	size_t len = 0;
	json_t *v;

	buf[0] = '\0';
	json_object_foreach(o, key, v) {
		char *text;
		int n;

		if (listed(key, skip) || json_is_null(v) ||
		    json_is_object(v) || json_is_array(v))
			continue;
		text = scalar_text(v);
		n = snprintf(buf + len, size - len, "%s%s=%s", len ? " " : "",
			     key, text ? text : "?");
		free(text);
		if (n < 0 || (size_t)n >= size - len)
			break;
		len += (size_t)n;
	}
}

const char *json_text(json_t *o, const char *key, const char *def)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : def;
}

uint64_t json_u64(json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}
