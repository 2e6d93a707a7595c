/* What users write: values of options with their suffixes, and argument lists
 * of mount(8). Accepted or explained; an accepted value is within its bounds
 * and is written, by --dump-config, so that it is read as the same.
 *
 * Input: a byte (0-5: an option of the table; else a mount), then the value,
 * or words that a NUL ends.
 */
#include "common/opt.h"
#include "fuse/options.h"

#include "tests/lib/fuzz.h"

#define ARGS_MAX 16

struct config {
	bool flag;
	int choice;
	uint64_t number, size, ms;
	char *text;
};

static const char *const choices[] = { "auto", "on", "off", NULL };

#define AT(field) .offset = offsetof(struct config, field)
static const struct opt table[] = {
	{ .name = "number",
	  .type = OPT_U64,
	  .def = "1",
	  .min = 1,
	  .max = 500,
	  AT(number) },
	{ .name = "size", .type = OPT_SIZE, .def = "4k", .min = 512, AT(size) },
	{ .name = "ms", .type = OPT_MS, .def = "1s", .max = 86400000, AT(ms) },
	{ .name = "flag", .type = OPT_FLAG, AT(flag) },
	{ .name = "choice",
	  .type = OPT_CHOICE,
	  .def = "on",
	  .choices = choices,
	  AT(choice) },
	{ .name = "text", .type = OPT_STR, AT(text) },
	{ .name = NULL },
};

static struct config fresh(void)
{
	struct config c = { 0 };

	fuzz_expect(opt_defaults(table, &c) == 0);
	return c;
}

static bool same(const struct config *a, const struct config *b)
{
	return a->flag == b->flag && a->choice == b->choice &&
	       a->number == b->number && a->size == b->size && a->ms == b->ms &&
	       strcmp(a->text ? a->text : "", b->text ? b->text : "") == 0;
}

/* Reads lines of "name=value" as --dump-config writes them. */
static void read_dump(char *text, struct config *c)
{
	while (*text) {
		char *value = strchr(text, '='), *end = strchr(text, '\n');

		fuzz_expect(value && end);
		*value++ = '\0';
		*end = '\0';
		fuzz_expect(opt_set(table, c, text, value, NULL, 0) == 0);
		text = end + 1;
	}
}

static void check_dump(const struct config *c)
{
	struct config again = fresh();
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	fuzz_expect(f);
	opt_dump(table, c, f);
	fuzz_expect(fclose(f) == 0);
	read_dump(text, &again);
	fuzz_expect(same(c, &again));
	free(text);
	opt_fini(table, &again);
}

static void check_value(const char *name, const char *value)
{
	struct config c = fresh();
	char why[160] = "";
	int err = opt_set(table, &c, name, value, why, sizeof(why));

	fuzz_expect(err == 0 || err == -EINVAL || err == -ERANGE);
	fuzz_expect((err == 0) == !*why);
	fuzz_expect(c.number >= 1 && c.number <= 500);
	fuzz_expect(c.size >= 512 && c.ms <= 86400000);
	fuzz_expect(c.choice >= 0 && c.choice < 3);
	/* A text may hold what ends a line. */
	if (err == 0 && !(c.text && strchr(c.text, '\n')))
		check_dump(&c);
	opt_fini(table, &c);
}

static void check_mount(char *words, size_t len)
{
	char *argv[ARGS_MAX + 1];
	struct mount_options o;
	char why[200] = "";
	int argc = 0, err;

	for (size_t at = 0; at < len && argc < ARGS_MAX;
	     at += strlen(words + at) + 1)
		argv[argc++] = words + at;
	if (argc == 0)
		return;
	argv[argc] = NULL;
	err = mount_options_parse(&o, argc, argv, why, sizeof(why));
	fuzz_expect(err == 0 || err == -EINVAL || err == -ERANGE ||
		    err == -ENOENT);
	fuzz_expect(err == 0 || *why);
	if (err == 0 && !o.show_help && !o.show_version) {
		fuzz_expect(o.source && o.mountpoint && o.kernel_opts);
		fuzz_expect(!!strstr(o.kernel_opts, "ro") >= o.read_only);
		fuzz_expect(o.metrics_port <= 65535);
	}
	mount_options_fini(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size == 0)
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (data[0] < array_count(table) - 1)
		check_value(table[data[0]].name, text);
	else
		check_mount(text, size);
	free(text);
	return 0;
}

static size_t value_seed(struct fuzz_rng *rng, char *buf, size_t cap)
{
	static const char *const ends[] = { "", "", "k", "M", "g", "T", "ms",
					    "s", "m", "h", "d", "kk", " ",
					    "-" };
	static const char *const words[] = { "yes",  "no", "true", "off", "on",
					     "auto", "1",  "0",	   "" };

	if (fuzz_below(rng, 3) == 0)
		return (size_t)snprintf(
			buf, cap, "%s",
			words[fuzz_below(rng, array_count(words))]);
	return (size_t)snprintf(
		buf, cap, "%llu%s",
		(unsigned long long)(fuzz_below(rng, 2) ?
					     fuzz_odd_u64(rng) :
					     fuzz_below(rng, 1000)),
		ends[fuzz_below(rng, array_count(ends))]);
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	static const char *const words[] = {
		"-o",
		"-onoatime",
		"-f",
		"-r",
		"-w",
		"-s",
		"--help",
		"conf",
		"/mnt",
		"-t",
		"fuse.hailfs",
		"-",
		"--",
		"-ofsname=x,rw",
		"-fd",
		"soft,timeo=3s",
		"wb_size=64m,flush_age=1h",
		"remount,ro",
		"writeback,nowriteback,sync",
		"io_uring=off,threads=3",
		"metrics_port=70000",
		"x-systemd.automount,_netdev",
		",,=,",
	};
	size_t len = 1;

	buf[0] = (uint8_t)fuzz_below(rng, 12);
	if (buf[0] < array_count(table) - 1)
		return 1 + value_seed(rng, (char *)buf + 1, cap - 1);
	len += 1 +
	       (size_t)snprintf((char *)buf + 1, cap - 1, "%s",
				fuzz_below(rng, 2) ? "mount.hailfs" : "hailfs");
	for (uint32_t i = fuzz_below(rng, 8); i > 0; i--)
		len += 1 + (size_t)snprintf(
				   (char *)buf + len, cap - len, "%s",
				   words[fuzz_below(rng, array_count(words))]);
	return len;
}
