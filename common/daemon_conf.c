#include "common/daemon_conf.h"

#include "common/diag.h"

static const char *const kinds[] = { [DAEMON_METAD] = "metad",
				     [DAEMON_BLOCKD] = "blockd",
				     [DAEMON_LOGD] = "logd" };

/* Returns 0; 1: done; -errno. */
static int parse(const char *kind, const struct opt *table,
		 struct daemon_config *c, int argc, char **argv)
{
	int rv = opt_defaults(table, c);

	if (rv == 0)
		rv = opt_parse(table, c, argc, argv);
	if (rv == OPT_HELP || rv == OPT_VERSION)
		return 1;
	if (rv == OPT_DUMP) {
		opt_dump(table, c, stdout);
		return 1;
	}
	if (rv < 0)
		return rv;
	if (rv < argc) {
		fprintf(stderr, "hail-%s: unexpected argument '%s'\n", kind,
			argv[rv]);
		return -EINVAL;
	}
	if (!c->cluster || c->id == 0) {
		fprintf(stderr, "hail-%s: --cluster FILE and --id N are "
			"needed; see hail-%s(8)\n", kind, kind);
		return -EINVAL;
	}
	return 0;
}

static int apply_keys(const char *kind, const struct opt *table,
		      struct daemon_config *c, const struct conf_daemon *d)
{
	char why[160];

	for (uint32_t i = 0; i < d->opt_count; i++) {
		int rv = opt_set(table, c, d->opt_keys[i], d->opt_values[i],
				 why, sizeof(why));

		if (rv < 0) {
			fprintf(stderr, "hail-%s: %s:%u:%u: %s; see "
				"hail-%s(8)\n", kind, c->cluster,
				d->opt_at[i].line, d->opt_at[i].column, why,
				kind);
			return rv;
		}
	}
	return 0;
}

static const struct conf_daemon *find_self(enum daemon_kind kind,
					   const struct conf *conf,
					   uint32_t id)
{
	switch (kind) {
	case DAEMON_METAD:
		return conf_find(conf->metads, conf->metad_count, id);
	case DAEMON_BLOCKD:
		return conf_find(conf->blockds, conf->blockd_count, id);
	case DAEMON_LOGD:
		return conf_find(conf->logds, conf->logd_count, id);
	}
	return NULL;
}

int daemon_configure(enum daemon_kind kind, const struct opt *table,
		     void *config, int argc, char **argv, struct conf *conf,
		     const struct conf_daemon **self_ret)
{
	struct daemon_config *c = config;
	const char *name = kinds[kind];
	const struct conf_daemon *self;
	int rv = parse(name, table, c, argc, argv);

	if (rv != 0)
		return rv;
	rv = conf_load(c->cluster, conf);
	if (rv < 0)
		return rv;
	self = find_self(kind, conf, (uint32_t)c->id);
	if (!self) {
		fprintf(stderr, "hail-%s: %s has no line '%s %llu'\n", name,
			c->cluster, name, (unsigned long long)c->id);
		return -ENOENT;
	}
	rv = apply_keys(name, table, c, self);
	/* Again, so that the command line wins. */
	if (rv == 0)
		rv = opt_parse(table, c, argc, argv);
	if (rv < 0)
		return rv;
	*self_ret = self;
	return c->debug ? diag_set_debug(c->debug) : 0;
}
