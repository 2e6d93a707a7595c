/* hailctl: administers a cluster. Options, the table of commands, help. */
#include "tools/hailctl/ctl.h"

#include <getopt.h>
#include <limits.h>
#include <unistd.h>

#include "common/diag.h"
#include "common/opt.h"

#define CLUSTER_DEFAULT "/etc/hailfs/cluster.conf"
#define WORDS_MAX 4u

const char *const wire_words[] = { "plain", "mac", "tls", NULL };

#define O(field) offsetof(struct ctl_options, field)
static const struct opt table[] = {
	{ "cluster", 'c', OPT_STR, O(cluster), NULL, 0, 0, NULL, "FILE",
	  "cluster file ($HAILFS_CLUSTER, else " CLUSTER_DEFAULT ")" },
	{ "json", 0, OPT_FLAG, O(json), "no", 0, 0, NULL, NULL,
	  "print JSON" },
	{ "timeout", 0, OPT_MS, O(timeout_ms), "5s", 10, 86400000, NULL,
	  "TIME", "wait this long for a daemon" },
	{ "blockds", 0, OPT_U64, O(blockds), NULL, 1, DAEMON_COUNT_MAX, NULL,
	  "N", "local up: block daemons of a new cluster, 3 if not given" },
	{ "logds", 0, OPT_U64, O(logds), "3", 0, LOG_DAEMON_COUNT_MAX, NULL,
	  "N", "local up: log daemons of a new cluster" },
	{ "log-memory", 0, OPT_SIZE, O(log_memory), "64m", 1u << 20, 0, NULL,
	  "SIZE", "local up: memory that each of them lends" },
	{ "metads", 0, OPT_U64, O(metads), NULL, 1, 5, NULL, "N",
	  "local up: metadata daemons of a new cluster: 1, 3 or 5" },
	{ "replicas", 0, OPT_U64, O(replicas), NULL, 1, REPLICA_COUNT_MAX,
	  NULL, "N", "local up: copies of each block; only 1 for now" },
	{ "wire", 0, OPT_CHOICE, O(wire), "plain", 0, 0, wire_words, "HOW",
	  "local up: what protects the frames of a new cluster" },
	{ "mount", 0, OPT_FLAG, O(mount), "yes", 0, 0, NULL, NULL,
	  "local up: mount DIR/mnt, the default (--no-mount: do not)" },
	{ "options", 'o', OPT_STR, O(mount_options), NULL, 0, 0, NULL,
	  "LIST", "local up: mount options, see hailfs(8)" },
	{ "scrub", 0, OPT_FLAG, O(scrub), "no", 0, 0, NULL, NULL,
	  "fsck: also verify the checksums of all data" },
	{ "repair", 0, OPT_FLAG, O(repair), "no", 0, 0, NULL, NULL,
	  "fsck: purge blocks of inodes that are not, correct counts" },
	{ "yes", 0, OPT_FLAG, O(yes), "no", 0, 0, NULL, NULL,
	  "blockd give-up, evict, local down: the loss is understood" },
	{ "deadline", 0, OPT_MS, O(deadline_ms), "30s", 0, UINT32_MAX, NULL,
	  "TIME", "logd drain: what is not back by then is taken" },
	{ "off", 0, OPT_FLAG, O(off), "no", 0, 0, NULL, NULL,
	  "logd drain: no more, it lends again" },
	{ "wait", 0, OPT_FLAG, O(wait), "no", 0, 0, NULL, NULL,
	  "logd drain: until nothing is lent" },
	{ "limit", 0, OPT_U64, O(limit), "32", 0, 1u << 30, NULL, "N",
	  "why, locks, leases, fsck: at most N lines of a kind, 0: all" },
	{ "interval", 0, OPT_MS, O(interval_ms), "2s", 100, 86400000, NULL,
	  "TIME", "top: the time between two looks" },
	{ "count", 0, OPT_U64, O(count), "0", 0, 0, NULL, "N",
	  "top: end after N looks; 0: when it is stopped" },
	{ "match", 0, OPT_STR, O(log_match), NULL, 0, 0, NULL, "GLOB",
	  "log enable: names of the files that get a log; all" },
	{ "peers", 0, OPT_U64, O(log_peers), NULL, 1, LOG_PEER_COUNT_MAX, NULL,
	  "N", "log enable: copies of a log in memory, odd; 3" },
	{ "region", 0, OPT_STR, O(log_region), NULL, 0, 0, NULL, "SIZE",
	  "log enable: memory is lent in pieces of it, 64K to 64M; 256K" },
	{ "destage", 0, OPT_STR, O(log_destage), NULL, 0, 0, NULL, "WHEN",
	  "log enable: copied to blocks on close, at an interval, off" },
	{ "fallback", 0, OPT_STR, O(log_fallback), NULL, 0, 0, NULL, "HOW",
	  "log enable: without peers write to blocks, or refuse" },
	{ "destaged", 0, OPT_FLAG, O(destaged), "no", 0, 0, NULL, NULL,
	  "log salvage: only what the blocks have" },
	{ NULL }
};

struct command {
	const char *pattern; /* words; an argument in capitals */
	const char *options; /* its own ones, space-separated */
	bool cluster; /* wants the cluster file */
	int (*run)(struct ctl *c, char **args);
	const char *help;
	const char *example;
};

static const struct command commands[] = {
	{ "local up DIR",
	  "blockds logds log-memory metads replicas wire mount options", false,
	  cmd_local_up,
	  "make, start and mount a cluster in DIR; start what does not run",
	  "hailctl local up /srv/hail --blockds 3" },
	{ "local down DIR", "yes", false, cmd_local_down,
	  "unmount (flushing) and stop the cluster in DIR",
	  "hailctl local down /srv/hail" },
	{ "local status DIR", "", false, cmd_local_status,
	  "each process of the cluster in DIR",
	  "hailctl local status /srv/hail --json" },
	{ "status", "", true, cmd_status, "all daemons and mounts",
	  "hailctl -c /srv/hail/cluster.conf status" },
	{ "df", "", true, cmd_df, "space of each block daemon and in all",
	  "hailctl df" },
	{ "stats", "", true, cmd_stats, "counters of all daemons",
	  "hailctl stats --json | jq .blockd1" },
	{ "top", "interval count", true, cmd_top,
	  "what mounts and daemons do, again and again",
	  "hailctl top --interval 5s" },
	{ "map", "", true, cmd_map,
	  "the cluster map: block daemons and their shares of the slots",
	  "hailctl map" },
	{ "sessions", "", true, cmd_sessions, "mounts as metad knows them",
	  "hailctl sessions" },
	{ "locks", "limit", true, cmd_locks,
	  "locks of programs on mounts that share, and who waits for one",
	  "hailctl locks" },
	{ "leases", "limit", true, cmd_leases,
	  "which mount has which file for writing",
	  "hailctl leases --limit 0" },
	{ "evict SESSION", "yes", true, cmd_evict,
	  "end a mount that hangs: its files and locks are free then",
	  "hailctl evict 12 --yes" },
	{ "why PATH", "limit", false, cmd_why,
	  "inode, size, lease and place of each block of a file",
	  "hailctl why /srv/hail/mnt/db/base/1/1259" },
	{ "block-size DIR", "", false, cmd_block_size,
	  "size of the blocks of files made in a directory",
	  "hailctl block-size /srv/hail/mnt/db" },
	{ "block-size DIR SIZE", "", false, cmd_block_size_set,
	  "set it, from 64K to 4M, for files made from now on",
	  "hailctl block-size /srv/hail/mnt/backup 4M" },
	{ "log enable DIR", "match peers region destage fallback", false,
	  cmd_log_enable,
	  "files made in a directory have their log in memory of peers",
	  "hailctl log enable /srv/hail/mnt/db/pg_wal" },
	{ "log disable DIR", "", false, cmd_log_disable,
	  "files made from now on are ordinary ones",
	  "hailctl log disable /srv/hail/mnt/db/pg_wal" },
	{ "log status DIR", "", false, cmd_log_status,
	  "is it a log directory, and how",
	  "hailctl log status /srv/hail/mnt/db/pg_wal" },
	{ "log salvage", "", true, cmd_log_salvage_list,
	  "logs that no mount has recovered, and what is left of them",
	  "hailctl log salvage" },
	{ "log salvage FILE", "", false, cmd_log_salvage,
	  "what is left of the log of a file, and what is missing",
	  "hailctl log salvage /srv/hail/mnt/app/db-wal" },
	{ "log salvage FILE OUT", "destaged", false, cmd_log_salvage_out,
	  "write the file as far as it can be had to a new one",
	  "hailctl log salvage /srv/hail/mnt/app/db-wal /tmp/db-wal" },
	{ "fsck", "scrub repair limit", true, cmd_fsck,
	  "compare metadata with what the block daemons store",
	  "hailctl fsck --scrub" },
	{ "blockd scrub ID", "", true, cmd_blockd_scrub,
	  "verify the checksums of all data of a block daemon",
	  "hailctl blockd scrub 2" },
	{ "metad add ID", "", true, cmd_metad_add,
	  "take a metad that runs into the group, when it has everything",
	  "hailctl metad add 3" },
	{ "metad remove ID", "", true, cmd_metad_remove,
	  "have the group do without a metad, whose disk is lost",
	  "hailctl metad remove 3" },
	{ "metad transfer ID", "", true, cmd_metad_transfer,
	  "have that metad lead",
	  "hailctl metad transfer 2" },
	{ "blockd give-up ID", "yes", true, cmd_blockd_give_up,
	  "accept that a block daemon's store is lost for good",
	  "hailctl blockd give-up 2 --yes" },
	{ "logd drain ID", "deadline off wait", true, cmd_logd_drain,
	  "have a log daemon take back the memory that it has lent",
	  "hailctl logd drain 2 --wait" },
	{ "key new FILE", "", false, cmd_key_new,
	  "make a cluster's key; FILE goes to each of its machines",
	  "hailctl key new /etc/hailfs/cluster.key" },
	{ "key rotate FILE", "", false, cmd_key_rotate,
	  "put a new key before the one in use, which stays valid",
	  "hailctl key rotate /etc/hailfs/cluster.key" },
	{ "metad backup FILE", "", true, cmd_metad_backup,
	  "write a consistent copy of all metadata to FILE",
	  "hailctl metad backup /backup/meta-$(date +%F)" },
	{ "metad restore FILE DATADIR", "", true, cmd_metad_restore,
	  "make a new metad's DATADIR from a backup",
	  "hailctl metad restore /backup/meta-2026-01-31 /srv/meta" },
};

static void help(void)
{
	printf("Usage: hailctl [options] COMMAND\n\nCommands:\n");
	for (size_t i = 0; i < array_count(commands); i++)
		printf("  %-28s %s\n", commands[i].pattern, commands[i].help);
	printf("\nOptions:\n");
	opt_help(table, stdout);
	printf("\nExamples:\n");
	for (size_t i = 0; i < array_count(commands); i++)
		printf("  %s\n", commands[i].example);
	printf("\nExit status: 0 done, 1 failed, 2 wrong usage, 3 partly "
	       "(some daemons did not answer).\nSee hailctl(8).\n");
}

/* "-h" and "--help" are answered here: opt_parse() knows no commands. */
static bool help_wanted(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--help") == 0 ||
		    strcmp(argv[i], "-h") == 0)
			return true;
	return false;
}

/* Next word of @s. Returns its length; *@s is moved behind it. */
static size_t word(const char **s, const char **at)
{
	while (**s == ' ')
		(*s)++;
	*at = *s;
	while (**s && **s != ' ')
		(*s)++;
	return (size_t)(*s - *at);
}

static bool is_argument(const char *w)
{
	return *w >= 'A' && *w <= 'Z';
}

/* Compares words with a pattern. Returns how many matched; *@whole: all did,
 * and nothing is left over. @args: [WORDS_MAX] gets the arguments. */
static int match(const char *pattern, int count, char **words, char **args,
		 bool *whole)
{
	const char *s = pattern, *w;
	int n = 0, arg_count = 0;
	size_t len;

	*whole = false;
	while ((len = word(&s, &w)) > 0) {
		if (n == count)
			return n;
		if (is_argument(w))
			args[arg_count++] = words[n];
		else if (strlen(words[n]) != len ||
			 memcmp(words[n], w, len) != 0)
			return n;
		n++;
	}
	*whole = n == count;
	return n;
}

static void list_commands(const char *first)
{
	for (size_t i = 0; i < array_count(commands); i++)
		if (!first || strncmp(commands[i].pattern, first,
				      strlen(first)) == 0)
			fprintf(stderr, "  hailctl %-28s %s\n",
				commands[i].pattern, commands[i].help);
	fprintf(stderr, "See 'hailctl --help'.\n");
}

static const struct command *command_find(int count, char **words,
					  char **args)
{
	const struct command *best = NULL;
	int best_matched = 0;
	bool whole;

	for (size_t i = 0; i < array_count(commands); i++) {
		int n = match(commands[i].pattern, count, words, args, &whole);

		if (whole)
			return &commands[i];
		if (n > best_matched) {
			best_matched = n;
			best = &commands[i];
		}
	}
	if (count == 0)
		ctl_err("which command?");
	else if (!best)
		ctl_err("there is no command '%s'", words[0]);
	else if (best_matched < count)
		ctl_err("'%s' is not understood after '%s'",
			words[best_matched], words[best_matched - 1]);
	else
		ctl_err("something is missing after '%s'", words[count - 1]);
	list_commands(best ? words[0] : NULL);
	return NULL;
}

static bool listed(const char *list, const char *name)
{
	const char *w;
	size_t len;

	while ((len = word(&list, &w)) > 0)
		if (strlen(name) == len && memcmp(w, name, len) == 0)
			return true;
	return false;
}

/* The entry of an argument that begins with "-"; opt_parse() has accepted it,
 * an abbreviation perhaps. */
static const struct opt *option_of(const char *arg)
{
	size_t len = strcspn(arg, "=");

	for (const struct opt *o = table; o->name; o++) {
		if (arg[1] != '-') {
			if (o->letter == arg[1])
				return o;
			continue;
		}
		if (strncmp(arg + 2, o->name, len - 2) == 0 ||
		    (o->type == OPT_FLAG && strncmp(arg, "--no-", 5) == 0 &&
		     strncmp(arg + 5, o->name, len - 5) == 0))
			return o;
	}
	return NULL;
}

/* Are all options given (argv[1..end), words removed) those of @cmd? */
static bool options_fit(const struct command *cmd, int end, char **argv)
{
	static const char common[] = "cluster json timeout";

	for (int i = 1; i < end; i++) {
		const struct opt *o = argv[i][0] == '-' ? option_of(argv[i]) :
							  NULL;
		bool joined;

		if (!o)
			continue;
		if (!listed(common, o->name) &&
		    !listed(cmd->options, o->name)) {
			ctl_err("'%s' is no option of 'hailctl %s'", argv[i],
				cmd->pattern);
			return false;
		}
		joined = argv[i][1] == '-' ? strchr(argv[i], '=') != NULL :
					     argv[i][2] != '\0';
		if (o->type != OPT_FLAG && !joined)
			i++; /* its value */
	}
	return true;
}

bool ctl_load(struct ctl *c, const char *path)
{
	if (!path)
		path = c->o.cluster;
	if (!path)
		path = getenv("HAILFS_CLUSTER");
	if (!path || !*path)
		path = CLUSTER_DEFAULT;
	if (access(path, R_OK) < 0) {
		ctl_err("cluster file %s: %s; name another with -c FILE",
			path, strerror(errno));
		return false;
	}
	if (conf_load(path, &c->conf) < 0)
		return false;
	c->conf_loaded = true;
	c->conf_path = realpath(path, NULL);
	return c->conf_path != NULL;
}

static int run(struct ctl *c, int argc, char **argv)
{
	const struct command *cmd;
	char *args[WORDS_MAX] = { NULL };
	int end;

	if (help_wanted(argc, argv)) {
		help();
		return CTL_OK;
	}
	if (opt_defaults(table, &c->o) < 0)
		return CTL_FAILED;
	end = opt_parse(table, &c->o, argc, argv);
	if (end == OPT_HELP || end == OPT_VERSION)
		return CTL_OK;
	if (end == OPT_DUMP) {
		opt_dump(table, &c->o, stdout);
		return CTL_OK;
	}
	if (end < 0)
		return CTL_USAGE;
	cmd = command_find(argc - end, argv + end, args);
	if (!cmd || !options_fit(cmd, end, argv))
		return CTL_USAGE;
	if (cmd->cluster && !ctl_load(c, NULL))
		return CTL_FAILED;
	return cmd->run(c, args);
}

int main(int argc, char **argv)
{
	struct ctl c = { .conf_loaded = false };
	int code;

	diag_init("hailctl", false);
	code = run(&c, argc, argv);
	links_end(&c);
	if (c.conf_loaded)
		conf_fini(&c.conf);
	free(c.conf_path);
	opt_fini(table, &c.o);
	if (fflush(stdout) != 0 && code == CTL_OK) {
		ctl_err("writing the output: %s", strerror(errno));
		code = CTL_FAILED;
	}
	return code;
}
