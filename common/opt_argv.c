/* Option tables: getopt_long over argv. */
#include "common/opt.h"

#include <getopt.h>

/* Values getopt_long() returns: the table's index above any letter. */
enum {
	VAL_HELP = 'h',
	VAL_VERSION = 0x1000,
	VAL_DUMP,
	VAL_TABLE = 0x2000, /* + 2 * index, + 1: --no-NAME */
};

/* The arrays getopt_long() wants. */
struct argv_spec {
	struct option *longs;
	char **no_names; /* "no-NAME" of flags; owned */
	char *letters;
	size_t count; /* entries of the table */
};

static void spec_fini(struct argv_spec *s)
{
	for (size_t i = 0; s->no_names && i < s->count; i++)
		free(s->no_names[i]);
	free(s->no_names);
	free(s->longs);
	free(s->letters);
}

static char *no_name(const char *name)
{
	size_t size = strlen(name) + 4;
	char *s = malloc(size);

	if (s)
		snprintf(s, size, "no-%s", name);
	return s;
}

static int spec_init(struct argv_spec *s, const struct opt *table)
{
	struct option *l;
	char *letter;

	memset(s, 0, sizeof(*s));
	while (table[s->count].name)
		s->count++;
	s->longs = calloc(s->count * 2 + 4, sizeof(*s->longs));
	s->no_names = calloc(s->count + 1, sizeof(*s->no_names));
	s->letters = malloc(s->count * 2 + 4);
	if (!s->longs || !s->no_names || !s->letters)
		goto out_fini;

	l = s->longs;
	letter = s->letters;
	*letter++ = ':'; /* tell a missing argument from an unknown option */
	*letter++ = 'h';
	*l++ = (struct option){ "help", no_argument, NULL, VAL_HELP };
	*l++ = (struct option){ "version", no_argument, NULL, VAL_VERSION };
	*l++ = (struct option){ "dump-config", no_argument, NULL, VAL_DUMP };
	for (size_t i = 0; i < s->count; i++) {
		bool flag = table[i].type == OPT_FLAG;
		int val = VAL_TABLE + 2 * (int)i;

		*l++ = (struct option){ table[i].name, flag ? no_argument :
					required_argument, NULL, val };
		if (flag) {
			s->no_names[i] = no_name(table[i].name);
			if (!s->no_names[i])
				goto out_fini;
			*l++ = (struct option){ s->no_names[i], no_argument,
						NULL, val + 1 };
		}
		if (table[i].letter) {
			*letter++ = table[i].letter;
			if (!flag)
				*letter++ = ':';
		}
	}
	*letter = '\0';
	return 0;

out_fini:
	spec_fini(s);
	return -ENOMEM;
}

static const struct opt *by_letter(const struct opt *table, int letter)
{
	for (; table->name; table++)
		if (table->letter == letter && letter != 0)
			return table;
	return NULL;
}

static int complain(const char *text)
{
	fprintf(stderr, "%s: %s\nTry '%s --help'.\n",
		program_invocation_short_name, text,
		program_invocation_short_name);
	return -EINVAL;
}

/* getopt_long() refused the argument behind which it goes on; where it began
 * tells nothing, since it passes over what is no option. */
static int complain_argv(int c, char **argv)
{
	int at = optind - 1;
	char text[160];

	if (c == ':')
		snprintf(text, sizeof(text), "option '%s' needs a value",
			 argv[at]);
	else if (optopt > 0 && optopt < VAL_VERSION)
		snprintf(text, sizeof(text), "there is no option '-%c'",
			 optopt);
	else if (optopt > 0)
		snprintf(text, sizeof(text), "option '%s' takes no value",
			 argv[at]);
	else
		snprintf(text, sizeof(text), "there is no option '%s'",
			 argv[at]);
	return complain(text);
}

/* Stores the option getopt_long() returned as @c. */
static int take(const struct opt *table, void *config, int c)
{
	const struct opt *o;
	const char *value = optarg;
	char why[160];
	int err;

	if (c >= VAL_TABLE) {
		o = &table[(c - VAL_TABLE) / 2];
		if (o->type == OPT_FLAG)
			value = (c - VAL_TABLE) % 2 ? "no" : "yes";
	} else {
		o = by_letter(table, c);
	}
	assert(o); /* getopt_long() returns only what spec_init() gave it */
	err = opt_set(table, config, o->name, value, why, sizeof(why));
	return err < 0 ? complain(why) : 0;
}

int opt_parse(const struct opt *table, void *config, int argc, char **argv)
{
	struct argv_spec spec;
	bool dump = false;
	int err = spec_init(&spec, table);

	if (err < 0)
		return complain("out of memory");
	optind = 0; /* glibc: start anew */
	opterr = 0;
	for (;;) {
		int c = getopt_long(argc, argv, spec.letters, spec.longs,
				    NULL);

		if (c == -1) {
			err = dump ? OPT_DUMP : optind;
			break;
		}
		if (c == VAL_HELP) {
			printf("Usage: %s [options] ...\n",
			       program_invocation_short_name);
			opt_help(table, stdout);
			err = OPT_HELP;
			break;
		}
		if (c == VAL_VERSION) {
			printf("%s (hailfs) %s\n",
			       program_invocation_short_name, HAILFS_VERSION);
			err = OPT_VERSION;
			break;
		}
		if (c == VAL_DUMP) {
			dump = true;
			continue;
		}
		if (c == '?' || c == ':')
			err = complain_argv(c, argv);
		else
			err = take(table, config, c);
		if (err < 0)
			break;
	}
	spec_fini(&spec);
	return err;
}
