/* Makes the disk of a power cut out of recfs's log.
 *
 *	replay LOG IMAGE SIZE_MIB COUNT SEED
 *
 * The first COUNT records have happened. What was flushed is there. Of the
 * writes after the last flush any may be missing and any may be torn: each
 * sector of 512 bytes is kept or not, seed 0 keeps all, other seeds choose,
 * seed "last" keeps the last write alone.
 *
 *	replay LOG FIRST LAST
 *
 * Prints the COUNTs from FIRST to LAST at which "last" shows whether a block
 * daemon's data are flushed before the record that points to them: the last
 * write is a record of a journal. What was to be on the disk before is missing
 * then; so many bytes are printed, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/power/rec.h"

#define SECTOR 512u
#define JOURNAL "JRNL" /* jrec.c's magic, as on the disk */

static uint64_t rng;

static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static int put(int image, const struct rec_header *h, const char *data,
	       int lossy)
{
	/* whole writes kept, whole ones lost, and torn ones, a third each */
	unsigned fate = lossy ? (unsigned)(rnd() % 3) : 0;
	if (fate == 1)
		return 0;
	for (uint64_t at = 0; at < h->len; at += SECTOR) {
		size_t len = h->len - at < SECTOR ? (size_t)(h->len - at) :
						    SECTOR;
		if (fate == 0)
			len = (size_t)(h->len - at);
		else if (rnd() % 2)
			continue;
		if (pwrite(image, data + at, len, (off_t)(h->off + at)) !=
		    (ssize_t)len)
			return -1;
		if (fate == 0)
			break;
	}
	return 0;
}

/* Number of the last flush among the first @count records, 0 if none. */
static uint64_t last_flush(FILE *log, uint64_t count)
{
	struct rec_header h;
	uint64_t last = 0;
	rewind(log);
	for (uint64_t i = 1; i <= count; i++) {
		if (fread(&h, sizeof(h), 1, log) != 1 || h.magic != REC_MAGIC)
			break;
		if (h.type == REC_FLUSH)
			last = i;
		if (h.type == REC_WRITE &&
		    fseeko(log, (off_t)h.len, SEEK_CUR))
			break;
	}
	rewind(log);
	return last;
}

static int list_counts(const char *path, uint64_t first, uint64_t last)
{
	FILE *log = fopen(path, "r");
	struct rec_header h;
	uint64_t before = 0;
	char begin[4];
	if (!log) {
		perror(path);
		return 1;
	}
	for (uint64_t i = 1; i <= last; i++) {
		if (fread(&h, sizeof(h), 1, log) != 1 || h.magic != REC_MAGIC)
			break;
		if (h.type == REC_WRITE &&
		    (fread(begin, sizeof(begin), 1, log) != 1 ||
		     fseeko(log, (off_t)(h.len - sizeof(begin)), SEEK_CUR)))
			break;
		if (h.type == REC_WRITE && before > 0 && i >= first &&
		    memcmp(begin, JOURNAL, sizeof(begin)) == 0)
			printf("%llu %llu\n", (unsigned long long)i,
			       (unsigned long long)before);
		before = h.type == REC_FLUSH ? 0 : before + h.len;
	}
	fclose(log);
	return 0;
}

int main(int argc, char **argv)
{
	struct rec_header h;
	if (argc == 4)
		return list_counts(argv[1], strtoull(argv[2], NULL, 10),
				   strtoull(argv[3], NULL, 10));
	if (argc != 6) {
		fprintf(stderr, "usage: replay LOG IMAGE SIZE_MIB COUNT "
			"SEED | LOG FIRST LAST\n");
		return 2;
	}
	FILE *log = fopen(argv[1], "r");
	int image = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
	uint64_t count = strtoull(argv[4], NULL, 10);
	uint64_t seed = strtoull(argv[5], NULL, 10);
	rng = seed * 0x9e3779b97f4a7c15u + 1;
	if (!log || image < 0 ||
	    ftruncate(image, (off_t)strtoull(argv[3], NULL, 10) << 20)) {
		perror("replay");
		return 1;
	}
	int last_only = strcmp(argv[5], "last") == 0;
	uint64_t flushed = last_flush(log, count);
	for (uint64_t i = 1; i <= count; i++) {
		if (fread(&h, sizeof(h), 1, log) != 1 || h.magic != REC_MAGIC)
			break;
		if (h.type == REC_FLUSH)
			continue;
		char *data = calloc(1, h.len ? h.len : 1);
		if (!data || (h.type == REC_WRITE &&
			      fread(data, h.len, 1, log) != 1) ||
		    (!(last_only && i > flushed && i < count) &&
		     put(image, &h, data, seed && i > flushed))) {
			perror("replay");
			return 1;
		}
		free(data);
	}
	fclose(log);
	close(image);
	return 0;
}
