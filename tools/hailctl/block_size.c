/* hailctl block-size: the size of the blocks of files made in a directory.
 *
 * It is an extended attribute that metad understands, read and written through
 * the mount: who may is the kernel's affair.
 */
#include "tools/hailctl/ctl.h"

#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "common/json_bytes.h"
#include "tools/hailctl/mounts.h"

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
	if (stat(path, &st) < 0) {
		ctl_err("%s: %s", path, strerror(errno));
		return false;
	}
	if (!S_ISDIR(st.st_mode)) {
		ctl_err("%s: %s; a file keeps the blocks that it was made with "
			"(hailctl why tells)", path, strerror(ENOTDIR));
		return false;
	}
	return true;
}

static int show(struct ctl *c, const char *path)
{
	char text[32], size[32];
	uint64_t bytes = 1u << BLOCK_LOG2_DEFAULT;
	ssize_t len = getxattr(path, META_XATTR_BLOCK_SIZE, text,
			       sizeof(text) - 1);

	if (len >= 0) {
		text[len] = '\0';
		bytes = strtoull(text, NULL, 10);
	} else if (errno != ENODATA) {
		ctl_err("%s: %s", path, strerror(errno));
		return CTL_FAILED;
	}
	if (c->o.json)
		out_json(json_pack("{s:o,s:I}", "path", json_bytes(path),
				   "block_bytes", (json_int_t)bytes));
	else
		printf("%s: blocks of %s\n", path,
		       out_size(bytes, size, sizeof(size)));
	return CTL_OK;
}

int cmd_block_size(struct ctl *c, char **args)
{
	return is_directory(args[0]) ? show(c, args[0]) : CTL_FAILED;
}

int cmd_block_size_set(struct ctl *c, char **args)
{
	if (!is_directory(args[0]))
		return CTL_FAILED;
	if (setxattr(args[0], META_XATTR_BLOCK_SIZE, args[1], strlen(args[1]),
		     0) == 0)
		return show(c, args[0]);
	if (errno == EINVAL)
		ctl_err("%s: '%s' is no size of blocks: give a power of two "
			"from 64K to 4M", args[0], args[1]);
	else
		ctl_err("%s: %s", args[0], strerror(errno));
	return CTL_FAILED;
}
