#include "tools/hailctl/mounts.h"

#include <limits.h>
#include <unistd.h>

#include "tools/hailctl/ctl.h"

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* mountinfo writes blanks and backslashes as \ooo. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && is_octal(s[1]) && is_octal(s[2]) &&
		    is_octal(s[3])) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 +
				       (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

void mounts_each(void (*fn)(const struct mount_line *m, void *arg), void *arg)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, *words[5], *save = NULL, *type, *source;
	struct mount_line m;
	size_t cap = 0;

	if (!f)
		return;
	while (getline(&line, &cap, f) > 0) {
		char *dash = strstr(line, " - ");

		for (size_t i = 0; i < array_count(words); i++)
			words[i] = strtok_r(i ? NULL : line, " ", &save);
		if (!dash || !words[4])
			continue;
		unescape(words[4]);
		type = strtok_r(dash + 3, " ", &save);
		source = strtok_r(NULL, " ", &save);
		if (!type || !source)
			continue;
		unescape(source);
		m = (struct mount_line){ words[4], type, source };
		fn(&m, arg);
	}
	free(line);
	fclose(f);
}

/* Appends the names of @path to @buf, which holds an absolute path ("" for
 * the root). */
static bool append(const char *path, char *buf, size_t size, size_t *len)
{
	while (*path) {
		size_t n;

		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (n == 0 || (n == 1 && path[0] == '.')) {
			path += n;
			continue;
		}
		if (n == 2 && path[0] == '.' && path[1] == '.') {
			while (*len > 0 && buf[--*len] != '/')
				;
			buf[*len] = '\0';
			path += n;
			continue;
		}
		if (*len + n + 2 > size)
			return false;
		buf[(*len)++] = '/';
		memcpy(buf + *len, path, n);
		*len += n;
		buf[*len] = '\0';
		path += n;
	}
	return true;
}

bool mounts_absolute(const char *path, char *buf, size_t size)
{
	char cwd[PATH_MAX];
	size_t len = 0;

	buf[0] = '\0';
	if (path[0] != '/' && (!getcwd(cwd, sizeof(cwd)) ||
			       !append(cwd, buf, size, &len)))
		return false;
	if (!append(path, buf, size, &len))
		return false;
	if (len == 0)
		snprintf(buf, size, "/");
	return true;
}

struct search {
	const char *path;
	size_t len; /* of the longest mount point above it */
	bool ours;
	char *source;
};

static void consider(const struct mount_line *m, void *arg)
{
	struct search *s = arg;
	size_t len = strcmp(m->mountpoint, "/") == 0 ? 0 :
		     strlen(m->mountpoint);

	if (strncmp(s->path, m->mountpoint, len) != 0 ||
	    (s->path[len] != '/' && s->path[len] != '\0') || len < s->len)
		return;
	s->len = len;
	s->ours = strcmp(m->type, "fuse.hailfs") == 0;
	snprintf(s->source, PATH_MAX, "%s", s->ours ? m->source : "");
}

static void search(struct search *s, const char *path)
{
	s->path = path;
	s->len = 0;
	s->ours = false;
	s->source[0] = '\0';
	mounts_each(consider, s);
}

/* @full over the symbolic links on the way to it; @last: it may be one, too.
 * @real: [PATH_MAX]. */
static bool follow(const char *full, bool last, char *real)
{
	const char *name = strrchr(full, '/') + 1;
	char way[PATH_MAX];
	size_t len;

	snprintf(way, sizeof(way), "%.*s",
		 (int)(last ? strlen(full) : (size_t)(name - full)), full);
	if (!realpath(way, real))
		return false;
	len = strlen(real);
	return last || (size_t)snprintf(real + len, PATH_MAX - len, "%s%s",
					len > 1 ? "/" : "", name) <
			       PATH_MAX - len;
}

bool mounts_inside(const char *path, char *buf, size_t size, char *source)
{
	char full[PATH_MAX], real[PATH_MAX];
	struct search s = { .source = source };
	const char *at = full;

	source[0] = '\0';
	if (!mounts_absolute(path, full, sizeof(full))) {
		ctl_err("%s: %s", path, strerror(ENAMETOOLONG));
		return false;
	}
	search(&s, full);
	/* Links are followed only when it is on none by its name: a mount that
	 * does not answer is not asked. */
	for (int last = 0; last < 2 && !s.ours; last++)
		if (follow(full, last, real)) {
			search(&s, real);
			at = s.ours ? real : full;
		}
	if (!s.ours && path[0] != '/') {
		ctl_err("%s is on no hailfs mount; give a path below one, or "
			"an absolute path inside the cluster", path);
		return false;
	}
	snprintf(buf, size, "%s", at + (s.ours ? s.len : 0));
	if (!buf[0])
		snprintf(buf, size, "/");
	return true;
}
