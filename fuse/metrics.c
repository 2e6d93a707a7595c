/* -o metrics_port: what the mount says of itself, as OpenMetrics text.
 *
 * The status that hailctl shows has everything: its numbers become metrics
 * named by the way to them, a list's by a label, and its words the labels of
 * one metric. Which of them only grow it does not tell, so none claims to.
 */
#include "fuse/rim.h"

#include <jansson.h>

#include "common/stats.h"

#define NAME_MAX_BYTES 160

static bool is_number(const json_t *v)
{
	return json_is_integer(v) || json_is_boolean(v);
}

static long long number(const json_t *v)
{
	return json_is_integer(v) ? json_integer_value(v) : json_is_true(v);
}

static void put_type(FILE *out, const char *name)
{
	fprintf(out, "# TYPE %s unknown\n", name);
}

/* One metric for each number of a list's elements, which are alike: all its
 * samples stand together. */
static void put_list(FILE *out, const char *prefix, json_t *list)
{
	char name[2 * NAME_MAX_BYTES]; /* as @prefix, and a key */
	const char *key;
	json_t *first = json_array_get(list, 0), *v, *o;
	size_t i;

	json_object_foreach(first, key, v) {
		if (!is_number(v) || strcmp(key, "id") == 0)
			continue;
		snprintf(name, sizeof(name), "%s_%s", prefix, key);
		put_type(out, name);
		json_array_foreach(list, i, o)
			fprintf(out, "%s{id=\"%lld\"} %lld\n", name,
				(long long)json_integer_value(
					json_object_get(o, "id")),
				number(json_object_get(o, key)));
	}
}

static void put_object(FILE *out, const char *prefix, json_t *o)
{
	char name[NAME_MAX_BYTES];
	const char *key;
	json_t *v;

	json_object_foreach(o, key, v) {
		snprintf(name, sizeof(name), "%s_%s", prefix, key);
		if (is_number(v)) {
			put_type(out, name);
			fprintf(out, "%s %lld\n", name, number(v));
		} else if (json_is_object(v)) {
			put_object(out, name, v);
		} else if (json_is_array(v)) {
			put_list(out, name, v);
		}
	}
}

static void put_label(FILE *out, const char *key, const char *value)
{
	fprintf(out, "%s=\"", key);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', out);
		if (*value == '\n')
			fputs("\\n", out);
		else
			fputc(*value, out);
	}
	fputc('"', out);
}

static void put_words(FILE *out, json_t *o)
{
	const char *key, *glue = "";
	json_t *v;

	fputs("# TYPE hailfs_mount info\nhailfs_mount_info{", out);
	json_object_foreach(o, key, v) {
		if (!json_is_string(v))
			continue;
		fputs(glue, out);
		put_label(out, key, json_string_value(v));
		glue = ",";
	}
	fputs("} 1\n", out);
}

static char *page(void *arg)
{
	struct rim *r = arg;
	char *status = core_status_json(r->core), *text = NULL;
	json_t *o = status ? json_loads(status, 0, NULL) : NULL;
	size_t len;
	FILE *out = o ? open_memstream(&text, &len) : NULL;

	free(status);
	if (out) {
		put_words(out, o);
		/* As what they are: histograms. */
		json_object_del(o, "latency");
		put_object(out, "hailfs", o);
		char *latency = rim_latency_openmetrics();
		fputs(latency ? latency : "# EOF\n", out);
		free(latency);
		if (fclose(out)) {
			free(text);
			text = NULL;
		}
	}
	json_decref(o);
	return text;
}

int rim_metrics_start(struct rim *r, struct stats_http **ret)
{
	int err;

	*ret = NULL;
	if (r->opt->metrics_port == 0)
		return 0;
	err = stats_http_start(page, r, (uint16_t)r->opt->metrics_port, ret);
	if (err)
		fprintf(stderr, "hailfs: metrics_port=%llu: %s\n",
			(unsigned long long)r->opt->metrics_port,
			strerror(-err));
	return err;
}
