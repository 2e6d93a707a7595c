/* hailctl log: directories whose files have a log (hailfs-log(7)).
 *
 * It is an extended attribute that metad understands, read and written through
 * the mount: who may is the kernel's affair.
 */
#include "tools/hailctl/ctl.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "common/json_bytes.h"
#include "tools/hailctl/mounts.h"

#define TEXT_MAX 1024u

static bool is_directory(const char *path)
{
	char inside[PATH_MAX], source[PATH_MAX];
	struct stat st;

	if (!mounts_inside(path, inside, sizeof(inside), source))
		return false;
	if (!source[0]) {
		ctl_err("%s is on no hailfs mount", path);
		return false;
	}
	if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		errno = ENOTDIR;
	else if (S_ISDIR(st.st_mode))
		return true;
	ctl_err("%s: %s", path, strerror(errno));
	return false;
}

/* The words of the attribute that are given as options. */
static void words(const struct ctl_options *o, char *text, size_t size)
{
	int len = 0;

	text[0] = '\0';
	if (o->log_match)
		len += snprintf(text + len, size - (size_t)len, "match=%s ",
				o->log_match);
	if (o->log_peers && len < (int)size)
		len += snprintf(text + len, size - (size_t)len, "peers=%llu ",
				(unsigned long long)o->log_peers);
	if (o->log_region && len < (int)size)
		len += snprintf(text + len, size - (size_t)len, "region=%s ",
				o->log_region);
	if (o->log_destage && len < (int)size)
		len += snprintf(text + len, size - (size_t)len, "destage=%s ",
				o->log_destage);
	if (o->log_fallback && len < (int)size)
		len += snprintf(text + len, size - (size_t)len, "fallback=%s ",
				o->log_fallback);
	if (len > 0 && len < (int)size)
		text[len - 1] = '\0'; /* the last blank */
}

int cmd_log_status(struct ctl *c, char **args)
{
	char text[TEXT_MAX];
	ssize_t len;
	bool on;

	if (!is_directory(args[0]))
		return CTL_FAILED;
	len = getxattr(args[0], META_XATTR_LOG, text, sizeof(text) - 1);
	on = len >= 0;
	if (!on && errno != ENODATA) {
		ctl_err("%s: %s", args[0], strerror(errno));
		return CTL_FAILED;
	}
	text[on ? len : 0] = '\0';
	if (c->o.json)
		out_json(json_pack("{s:o,s:b,s:s}", "path",
				   json_bytes(args[0]), "enabled", on,
				   "options", text));
	else
		printf("%s: %s%s%s\n", args[0],
		       on ? "log directory" : "no log directory",
		       text[0] ? ", " : "", text);
	return CTL_OK;
}

int cmd_log_enable(struct ctl *c, char **args)
{
	char text[TEXT_MAX];

	if (!is_directory(args[0]))
		return CTL_FAILED;
	words(&c->o, text, sizeof(text));
	if (setxattr(args[0], META_XATTR_LOG, text, strlen(text), 0) == 0)
		return cmd_log_status(c, args);
	if (errno == EINVAL)
		ctl_err("%s: '%s' is not understood, see hailctl(8)", args[0],
			text);
	else
		ctl_err("%s: %s", args[0], strerror(errno));
	return CTL_FAILED;
}

int cmd_log_disable(struct ctl *c, char **args)
{
	if (!is_directory(args[0]))
		return CTL_FAILED;
	if (removexattr(args[0], META_XATTR_LOG) == 0 || errno == ENODATA)
		return cmd_log_status(c, args);
	ctl_err("%s: %s", args[0], strerror(errno));
	return CTL_FAILED;
}
