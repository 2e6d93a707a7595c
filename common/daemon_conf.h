/* How a daemon learns what to do: the options that every daemon has, and its
 * line of the cluster file.
 */
#ifndef COMMON_DAEMON_CONF_H
#define COMMON_DAEMON_CONF_H

#include "common/conf.h"
#include "common/opt.h"

/* What every daemon is told; the first member of its own. */
struct daemon_config {
	char *cluster;
	uint64_t id;
	bool foreground;
	char *pidfile, *log, *debug;
};

/* Of the table of such a daemon: its first options and its last. @what: "block
 * daemon". */
#define DAEMON_OPTIONS_FIRST(what)                                            \
	{ "cluster", 'c', OPT_STR, offsetof(struct daemon_config, cluster),   \
	  NULL, 0, 0, NULL, "FILE", "the cluster file, hailfs.conf(5)" },     \
	{ "id", 'i', OPT_U64, offsetof(struct daemon_config, id), "0", 0,     \
	  UINT32_MAX, NULL, "N",                                              \
	  "which " what " of the cluster file this is" }
#define DAEMON_OPTIONS_LAST                                                   \
	{ "foreground", 'f', OPT_FLAG,                                        \
	  offsetof(struct daemon_config, foreground), "no", 0, 0, NULL, NULL, \
	  "stay in the foreground, messages to stderr" },                     \
	{ "pidfile", 0, OPT_STR, offsetof(struct daemon_config, pidfile),     \
	  NULL, 0, 0, NULL, "FILE", "write the process id there" },           \
	{ "log", 0, OPT_STR, offsetof(struct daemon_config, log), NULL, 0, 0, \
	  NULL, "FILE", "messages go there; default: syslog" },               \
	{ "debug", 0, OPT_STR, offsetof(struct daemon_config, debug), NULL,   \
	  0, 0, NULL, "LIST",                                                 \
	  "subsystems whose debug messages appear, or 'all'" }

enum daemon_kind { DAEMON_METAD, DAEMON_BLOCKD, DAEMON_LOGD };

/* Fills in @config, which begins with a struct daemon_config, and @conf: the
 * defaults of @table, then the daemon's keys in the cluster file, then the
 * command line. *self_ret: its line of the cluster file, @conf's.
 * Returns 0; 1: done (--help and its like); -errno, said on stderr. */
int daemon_configure(enum daemon_kind kind, const struct opt *table,
		     void *config, int argc, char **argv, struct conf *conf,
		     const struct conf_daemon **self_ret);

#endif
