/* Reading a copy back. */
#include "metad/copy.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>

#include "common/crc32c.h"
#include "common/diag.h"

#define BATCH_BYTES_MAX (1u << 30) /* more than any is */

int64_t copy_newest(const char *path)
{
	DIR *d = opendir(path);
	const struct dirent *e;
	int64_t newest = 0;

	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		int64_t g;
		int end = 0;

		/* "base-N.part" is none. */
		if (sscanf(e->d_name, "base-%" SCNd64 "%n", &g, &end) == 1 &&
		    e->d_name[end] == '\0' && g > newest)
			newest = g;
	}
	closedir(d);
	return newest;
}

/* The next frame's bytes, malloc'd: 1; 0: there is no whole one; -errno. */
static int frame_read(FILE *f, uint8_t **ret, uint32_t *len)
{
	uint8_t head[12], *buf;
	struct wire_in in;
	uint32_t magic, crc;
	bool whole;

	errno = 0;
	if (fread(head, sizeof(head), 1, f) != 1)
		goto short_one;
	wire_in_init(&in, head, sizeof(head));
	magic = wire_get_u32(&in);
	*len = wire_get_u32(&in);
	crc = wire_get_u32(&in);
	if (magic != COPY_MAGIC || *len > BATCH_BYTES_MAX)
		return 0;
	buf = malloc(*len ? *len : 1);
	if (!buf)
		return -ENOMEM;
	whole = fread(buf, 1, *len, f) == *len;
	if (whole && crc32c(0, buf, *len) == crc) {
		*ret = buf;
		return 1;
	}
	free(buf);
	if (whole)
		return 0;
short_one:
	return ferror(f) ? (errno ? -errno : -EIO) : 0;
}

/* The end may be torn; more than that is damage. @used: of whole frames. */
static void tell_rest(FILE *f, const char *path, long used)
{
	long all;

	if (fseek(f, 0, SEEK_END) == 0 && (all = ftell(f)) > used)
		diag_warn("copy", "event=torn log=%s bytes_left_out=%ld", path,
			  all - used);
}

int copy_read_log(struct sm *sm, FILE *f, const char *path, char *why,
		  size_t why_size)
{
	uint64_t count = 0;
	uint8_t *buf = NULL;
	uint32_t len = 0;
	long used = 0;
	int got;

	while ((got = frame_read(f, &buf, &len)) > 0) {
		int rv = metaraft_batch_apply(sm, buf, len);

		free(buf);
		if (rv < 0) {
			(void)snprintf(why, why_size, "%s is damaged behind %"
				       PRIu64 " batches: %s; the base beside "
				       "it can be restored without", path,
				       count, strerror(-rv));
			return rv;
		}
		count++;
		used = ftell(f);
	}
	if (got < 0) {
		(void)snprintf(why, why_size, "cannot read %s: %s", path,
			       strerror(-got));
		return got;
	}
	tell_rest(f, path, used);
	diag_info("copy", "event=read log=%s batches=%" PRIu64, path, count);
	return 0;
}
