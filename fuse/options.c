/* Mount options: one table for ours, one for the kernel's flags.
 *
 * mount(8) calls its helper with a generated list that leaves out the defaults
 * of a root mount (dev, suid, exec), while libfuse assumes nodev,nosuid: what
 * was not said is therefore said here, when root mounts.
 */
#include "fuse/options.h"

#include <sys/mount.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/opt.h"

static const char *const uring_choices[] = { "auto", "on", "off", NULL };
/* enum core_log_transport */
static const char *const transport_choices[] = { "auto", "verbs", "tcp", NULL };

#define O(field) offsetof(struct mount_options, field)
static const struct opt own_table[] = {
	{ "io_uring", 0, OPT_CHOICE, O(uring), "auto", 0, 0, uring_choices,
	  "auto|on|off", "talk to the kernel over io_uring" },
	{ "transport", 0, OPT_CHOICE, O(transport), "auto", 0, 0,
	  transport_choices, "auto|verbs|tcp",
	  "how logs reach their peers; auto: over RDMA where both ends can" },
	{ "wb_size", 0, OPT_SIZE, O(wb_size), "64m", 1u << 20, 1ull << 40, NULL,
	  "SIZE", "bound of data written but not yet durable" },
	{ "prefetch", 0, OPT_SIZE, O(prefetch), "32m", 0, 1ull << 36, NULL,
	  "SIZE", "bound of data read ahead" },
	{ "timeo", 0, OPT_MS, O(timeo_ms), "30s", 100, 86400000, NULL, "TIME",
	  "soft: an operation fails after this" },
	{ "flush_age", 0, OPT_MS, O(flush_age_ms), "1s", 10, 3600000, NULL,
	  "TIME", "written data goes to the daemons after this" },
	{ "metrics_port", 0, OPT_U64, O(metrics_port), "0", 0, 65535, NULL,
	  "PORT", "serve OpenMetrics on loopback; 0: do not" },
	{ "threads", 0, OPT_U64, O(threads), "0", 0, 64, NULL, "N",
	  "threads that receive requests; 0: one more than processors" },
	/* Each may be a write of 1 MiB that has to be copied and waits for the
	 * write-back bound: memory beside it. */
	{ "max_background", 0, OPT_U64, O(max_background), "64", 12, 65535,
	  NULL, "N", "requests the kernel may have in the background" },
	{ "log", 0, OPT_STR, O(log), NULL, 0, 0, NULL, "FILE",
	  "diagnostics go here instead of syslog" },
	{ "pidfile", 0, OPT_STR, O(pidfile), NULL, 0, 0, NULL, "FILE",
	  "holds the process id, locked while mounted" },
	{ "debug_subsys", 0, OPT_STR, O(debug_list), NULL, 0, 0, NULL, "LIST",
	  "debug lines of these subsystems (colon-separated, or all)" },
	{ NULL }
};

struct word {
	const char *name;
	size_t offset; /* of a bool */
	bool value;
	const char *help; /* NULL: not shown again */
};

static const struct word words[] = {
	{ "writeback", O(writeback), true,
	  "let the kernel gather small writes (one mount has the tree)" },
	{ "nowriteback", O(writeback), false, "the opposite; the default" },
	{ "shared", O(shared), true,
	  "beside other mounts that are; nothing waits in this machine's "
	  "kernel" },
	{ "hard", O(hard), true,
	  "wait for a dead daemon to come back; the default" },
	{ "soft", O(hard), false, "fail with ETIMEDOUT after timeo" },
	{ "allow_other", O(allow_other), true,
	  "every user may use the mount; root's default" },
	{ "debug", O(debug), true, "print each request" },
	{ "remount", O(remount), true, NULL },
	{ NULL, 0, false, NULL }
};

struct flag {
	const char *name;
	unsigned long ms;
	bool on;
};

static const struct flag flags[] = {
	{ "ro", MS_RDONLY, true },	 { "rw", MS_RDONLY, false },
	{ "nosuid", MS_NOSUID, true },	 { "suid", MS_NOSUID, false },
	{ "nodev", MS_NODEV, true },	 { "dev", MS_NODEV, false },
	{ "noexec", MS_NOEXEC, true },	 { "exec", MS_NOEXEC, false },
	{ "sync", MS_SYNCHRONOUS, true }, { "async", MS_SYNCHRONOUS, false },
	{ "dirsync", MS_DIRSYNC, true }, { "noatime", MS_NOATIME, true },
	{ "atime", MS_NOATIME, false },
	{ "nodiratime", MS_NODIRATIME, true },
	{ "diratime", MS_NODIRATIME, false },
	{ "relatime", MS_RELATIME, true },
	{ "norelatime", MS_RELATIME, false },
	{ "strictatime", MS_STRICTATIME, true },
	{ "nostrictatime", MS_STRICTATIME, false },
	{ NULL, 0, false }
};

/* mount(8)'s own words that mean nothing to a file system. */
static const char *const ignored[] = { "defaults", "auto",  "noauto", "nofail",
				       "_netdev",  "user",  "nouser", "users",
				       "owner",	   "group", NULL };

static bool is_ignored(const char *w)
{
	if (strncmp(w, "x-", 2) == 0 || strncmp(w, "X-", 2) == 0 ||
	    strncmp(w, "comment=", 8) == 0 || strncmp(w, "user=", 5) == 0)
		return true;
	for (size_t i = 0; ignored[i]; i++)
		if (strcmp(w, ignored[i]) == 0)
			return true;
	return false;
}

/* What /proc/mounts says of a mount beside its flags; mount(8) hands all of it
 * to a remount. The last ones are a security module's. */
static bool is_kernels(const char *w)
{
	static const char *const kernels[] = {
		"default_permissions", "user_id=", "group_id=", "max_read=",
		"blksize=", "seclabel", "context=", "fscontext=",
		"defcontext=", "rootcontext=", NULL
	};

	for (size_t i = 0; kernels[i]; i++)
		if (strncmp(w, kernels[i], strlen(kernels[i])) == 0)
			return true;
	return false;
}

static bool set_word(struct mount_options *o, const char *w)
{
	for (const struct word *k = words; k->name; k++) {
		if (strcmp(w, k->name) == 0) {
			*(bool *)((char *)o + k->offset) = k->value;
			/* Of what was said before it, as by 'local up'. */
			if (k->offset == O(shared))
				o->writeback = false;
			return true;
		}
	}
	return false;
}

static bool set_flag(struct mount_options *o, const char *w)
{
	for (const struct flag *f = flags; f->name; f++) {
		if (strcmp(w, f->name) == 0) {
			if (f->on)
				o->remount_flags |= f->ms;
			else
				o->remount_flags &= ~f->ms;
			return true;
		}
	}
	return false;
}

static int no_memory(char *why, size_t why_size)
{
	snprintf(why, why_size, "out of memory");
	return -ENOMEM;
}

static int set_one(struct mount_options *o, char *w, char *why,
		   size_t why_size)
{
	if (*w == 0 || is_ignored(w) || set_word(o, w) || set_flag(o, w) ||
	    (o->remount && is_kernels(w)))
		return 0;
	char *eq = strchr(w, '=');
	if (eq)
		*eq = 0;
	int err = opt_set(own_table, o, w, eq ? eq + 1 : NULL, why, why_size);
	if (err == -ENOENT && o->quiet_unknown)
		return 0;
	if (err == -ENOENT)
		snprintf(why, why_size,
			 "unknown mount option '%s'; 'hailfs --help' lists "
			 "them", w);
	if (err == -ENOMEM)
		return no_memory(why, why_size);
	return err ? -EINVAL : 0;
}

/* Ends the option at *@list and moves on to the next. As libfuse has it, a
 * backslash takes away what a comma, or a backslash, means. */
static char *next_option(char **list)
{
	char *w = *list, *from = w, *to = w;
	while (*from && *from != ',') {
		if (from[0] == '\\' && (from[1] == ',' || from[1] == '\\'))
			from++;
		*to++ = *from++;
	}
	*list = *from ? from + 1 : from;
	*to = 0;
	return w;
}

static int set_list(struct mount_options *o, const char *list, char *why,
		    size_t why_size)
{
	char *copy = strdup(list), *rest = copy;
	if (!copy)
		return no_memory(why, why_size);
	int err = 0;
	char *hit = strstr(copy, "remount");
	if (hit && (hit == copy || hit[-1] == ',') &&
	    (hit[7] == 0 || hit[7] == ','))
		o->remount = true; /* whatever comes before it */
	while (*rest && !err)
		err = set_one(o, next_option(&rest), why, why_size);
	free(copy);
	return err;
}

/* The mount flags in words, complete, for libfuse. */
static int build_kernel_opts(struct mount_options *o)
{
	size_t cap = 512;
	char *s = malloc(cap);
	if (!s)
		return -ENOMEM;
	size_t len = (size_t)snprintf(s, cap, "%s",
				      o->allow_other ? "allow_other" : "");
	for (const struct flag *f = flags; f->name; f++) {
		/* libfuse knows neither these two (the kernel's default) nor
		 * the positive forms it would print back. */
		if (f->ms == MS_RELATIME || f->ms == MS_STRICTATIME)
			continue;
		if (strcmp(f->name, "atime") == 0 ||
		    strcmp(f->name, "diratime") == 0)
			continue;
		if (f->on != ((o->remount_flags & f->ms) != 0))
			continue;
		len += (size_t)snprintf(s + len, cap - len, "%s%s",
					len ? "," : "", f->name);
	}
	o->kernel_opts = s;
	return 0;
}

static int take_argument(struct mount_options *o, const char *a, char *why,
			 size_t why_size)
{
	if (!o->source)
		o->source = a;
	else if (!o->mountpoint)
		o->mountpoint = a;
	else {
		snprintf(why, why_size, "too many arguments: '%s'", a);
		return -EINVAL;
	}
	return 0;
}

static int take_letters(struct mount_options *o, const char *letters,
			bool helper, char *why, size_t why_size)
{
	for (const char *l = letters; *l; l++) {
		switch (*l) {
		case 'f': /* mount(8): fake; on its own: foreground */
			if (helper)
				o->fake = true;
			else
				o->foreground = true;
			break;
		case 'd':
			o->debug = o->foreground = true;
			break;
		case 'h':
			o->show_help = true;
			break;
		case 'V':
			o->show_version = true;
			break;
		case 'r':
			o->remount_flags |= MS_RDONLY;
			break;
		case 'w':
			o->remount_flags &= ~(unsigned long)MS_RDONLY;
			break;
		case 's': /* mount(8): tolerate unknown options */
			o->quiet_unknown = true;
			break;
		case 'n':
		case 'v':
			break;
		default:
			snprintf(why, why_size, "unknown option -%c; see "
				 "'hailfs --help'", *l);
			return -EINVAL;
		}
	}
	return 0;
}

static int take_word(struct mount_options *o, const char *a, char *why,
		     size_t why_size)
{
	if (strcmp(a, "--help") == 0)
		o->show_help = true;
	else if (strcmp(a, "--version") == 0)
		o->show_version = true;
	else if (strcmp(a, "--foreground") == 0)
		o->foreground = true;
	else {
		snprintf(why, why_size, "unknown option %s; see "
			 "'hailfs --help'", a);
		return -EINVAL;
	}
	return 0;
}

int mount_options_parse(struct mount_options *o, int argc, char **argv,
			char *why, size_t why_size)
{
	memset(o, 0, sizeof(*o));
	int err = opt_defaults(own_table, o);
	if (err)
		return no_memory(why, why_size);
	const char *base = strrchr(argv[0], '/');
	base = base ? base + 1 : argv[0];
	bool helper = strncmp(base, "mount.", 6) == 0;
	o->hard = true;
	o->allow_other = geteuid() == 0;
	if (geteuid() != 0)
		o->remount_flags = MS_NOSUID | MS_NODEV;
	for (int i = 1; i < argc && !err; i++) {
		char *a = argv[i];
		if (strcmp(a, "-o") == 0 || strcmp(a, "-t") == 0) {
			if (i + 1 == argc) {
				snprintf(why, why_size, "%s needs a value", a);
				return -EINVAL;
			}
			i++;
			if (a[1] == 'o')
				err = set_list(o, argv[i], why, why_size);
		} else if (strncmp(a, "-o", 2) == 0) {
			err = set_list(o, a + 2, why, why_size);
		} else if (strncmp(a, "--", 2) == 0) {
			err = take_word(o, a, why, why_size);
		} else if (a[0] == '-' && a[1]) {
			err = take_letters(o, a + 1, helper, why, why_size);
		} else {
			err = take_argument(o, a, why, why_size);
		}
	}
	if (err || o->show_help || o->show_version)
		return err;
	if (!o->mountpoint) {
		snprintf(why, why_size,
			 "usage: hailfs [-o OPTIONS] CLUSTERFILE MOUNTPOINT");
		return -EINVAL;
	}
	if (o->shared && o->writeback) {
		snprintf(why, why_size, "shared and writeback exclude each "
			 "other: what waits in the kernel is known to nobody");
		return -EINVAL;
	}
	o->read_only = (o->remount_flags & MS_RDONLY) != 0;
	o->noatime = (o->remount_flags & MS_NOATIME) != 0;
	o->nodiratime = (o->remount_flags & MS_NODIRATIME) != 0;
	o->strictatime = (o->remount_flags & MS_STRICTATIME) != 0;
	o->dirsync = (o->remount_flags & (MS_SYNCHRONOUS | MS_DIRSYNC)) != 0;
	/* A comma ends a mount option. */
	for (char *c = o->debug_list; c && (c = strchr(c, ':'));)
		*c = ',';
	if (o->debug)
		o->foreground = true;
	if (build_kernel_opts(o) != 0)
		return no_memory(why, why_size);
	return 0;
}

void mount_options_fini(struct mount_options *o)
{
	opt_fini(own_table, o);
	free(o->kernel_opts);
	o->kernel_opts = NULL;
}

void mount_options_help(FILE *out)
{
	fputs("usage: hailfs [-dfhV] [-o OPTION[,OPTION]...] CLUSTERFILE "
	      "MOUNTPOINT\n"
	      "       mount -t hailfs [-o OPTIONS] CLUSTERFILE MOUNTPOINT\n\n"
	      "Mounts a hailfs cluster.\n\n"
	      "  -f, --foreground      stay in the foreground\n"
	      "  -d                    the same, and print each request\n"
	      "  -h, --help            this text\n"
	      "  -V, --version         the version\n\n"
	      "Mount options (-o):\n",
	      out);
	for (const struct word *w = words; w->name; w++)
		if (w->help)
			fprintf(out, "  %-28s %s\n", w->name, w->help);
	for (const struct opt *t = own_table; t->name; t++) {
		char left[64];
		snprintf(left, sizeof(left), "%s=%s", t->name, t->arg);
		fprintf(out, "  %-28s %s%s%s%s\n", left, t->help,
			t->def ? " (default " : "", t->def ? t->def : "",
			t->def ? ")" : "");
	}
	fputs("  ro rw noatime nodiratime strictatime noexec nosuid nodev\n"
	      "  sync dirsync\n"
	      "  remount                      as for every file system\n\n"
	      "example:\n"
	      "  hailfs -o writeback /etc/hailfs/cluster.conf /mnt/db\n",
	      out);
}
