/* Options of a program, each described once: drives getopt_long, the cluster
 * file's per-daemon keys, --help, --dump-config and the manual test.
 */
#ifndef COMMON_OPT_H
#define COMMON_OPT_H

#include "common/base.h"

enum opt_type {
	OPT_FLAG, /* bool; no argument */
	OPT_U64, /* uint64_t, min..max, plain number */
	OPT_SIZE, /* uint64_t bytes, suffixes k m g t (1024) */
	OPT_MS, /* uint64_t milliseconds, suffixes ms s m h; default unit s */
	OPT_STR, /* char *, allocated; NULL when not given */
	OPT_CHOICE, /* int: index into choices, a NULL-ended list */
};

struct opt {
	const char *name; /* long option, "io-uring" */
	char letter; /* 0: none */
	enum opt_type type;
	size_t offset; /* of the field in the config struct */
	const char *def; /* as a user would write it; NULL: none */
	uint64_t min, max; /* of numbers; max 0: no upper bound */
	const char *const *choices;
	const char *arg; /* name of the argument in help */
	const char *help;
};

/* A table ends with name == NULL. */

/* Sets every field to its default. Returns 0 or -ENOMEM. */
int opt_defaults(const struct opt *table, void *config);
/* Sets one option by name. A flag's @value: yes, no and their like; NULL or
 * empty: yes. Returns 0; -ENOENT unknown name; -EINVAL bad value; -ERANGE;
 * -ENOMEM. @why (may be NULL) gets a sentence for the user. */
int opt_set(const struct opt *table, void *config, const char *name,
	    const char *value, char *why, size_t why_size);
/* getopt_long over the table; adds --no-NAME for flags, -h/--help, --version,
 * --dump-config (the caller acts on the latter's return value). Returns the
 * index of the first argument that is no option; OPT_HELP/OPT_VERSION/OPT_DUMP
 * when asked for (help and version have been printed); -EINVAL with a line on
 * stderr. */
#define OPT_HELP (-1000)
#define OPT_VERSION (-1001)
#define OPT_DUMP (-1002)
int opt_parse(const struct opt *table, void *config, int argc, char **argv);
void opt_help(const struct opt *table, FILE *out);
void opt_dump(const struct opt *table, const void *config, FILE *out);
/* Frees strings. */
void opt_fini(const struct opt *table, void *config);

#define HAILFS_VERSION "0.1.0"

#endif
