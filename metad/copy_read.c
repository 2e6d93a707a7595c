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

/* The next frame's bytes, malloc'd; NULL: there is no whole one. */
static uint8_t *frame_read(FILE *f, uint32_t *len)
{
	uint8_t head[12], *buf;
	struct wire_in in;
	uint32_t magic, crc;

	if (fread(head, sizeof(head), 1, f) != 1)
		return NULL;
	wire_in_init(&in, head, sizeof(head));
	magic = wire_get_u32(&in);
	*len = wire_get_u32(&in);
	crc = wire_get_u32(&in);
	if (magic != COPY_MAGIC || *len > BATCH_BYTES_MAX)
		return NULL;
	buf = malloc(*len ? *len : 1);
	if (buf && (fread(buf, 1, *len, f) != *len ||
		    crc32c(0, buf, *len) != crc)) {
		free(buf);
		buf = NULL;
	}
	return buf;
}

/* The end may be torn; more than that is damage. @used: of whole frames. */
static void tell_rest(FILE *f, const char *path, long used)
{
	long all;

	if (fseek(f, 0, SEEK_END) == 0 && (all = ftell(f)) > used)
		diag_warn("copy", "event=torn log=%s bytes_left_out=%ld", path,
			  all - used);
}

int copy_read_log(struct sm *sm, const char *path, char *why, size_t why_size)
{
	FILE *f = fopen(path, "re");
	uint64_t count = 0;
	uint8_t *buf;
	uint32_t len;
	long used = 0;
	int rv = 0;

	if (!f && errno != ENOENT) {
		rv = -errno;
		(void)snprintf(why, why_size, "cannot read %s: %s", path,
			       strerror(-rv));
		return rv;
	}
	while (f && rv == 0 && (buf = frame_read(f, &len))) {
		rv = metaraft_batch_apply(sm, buf, len);
		free(buf);
		count += rv == 0;
		used = ftell(f);
	}
	if (f && rv == 0)
		tell_rest(f, path, used);
	if (f)
		fclose(f);
	if (rv < 0)
		(void)snprintf(why, why_size, "%s is damaged behind %" PRIu64
			       " batches: %s; the base beside it can be "
			       "restored without", path, count, strerror(-rv));
	else
		diag_info("copy", "event=read log=%s batches=%" PRIu64, path,
			  count);
	return rv;
}
