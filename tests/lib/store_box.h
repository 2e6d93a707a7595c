/* A store on a fake disk for tests: synchronous calls over the asynchronous
 * interface, restarts, and a directory of its own for the index.
 */
#ifndef TESTS_LIB_STORE_BOX_H
#define TESTS_LIB_STORE_BOX_H

#include "blockd/store.h"
#include "tests/lib/fake_dev.h"

struct store_box {
	struct fake_dev *f;
	struct store *s;
	struct store_options o;
	char dir[64];
	char why[512];
	int64_t units_delta; /* of the last request */
};

/* Formats and opens. */
void store_box_init(struct store_box *b, uint64_t seed, uint64_t capacity,
		    uint64_t journal, uint64_t cache);
/* Only the directory and the disk. */
void store_box_init_empty(struct store_box *b, uint64_t seed,
			  uint64_t capacity, uint64_t journal,
			  uint64_t cache);
void store_box_fini(struct store_box *b);
int store_box_open(struct store_box *b);
/* 0 or the error given. */
int store_box_close(struct store_box *b);
void store_box_kill(struct store_box *b);
void store_box_power_cut(struct store_box *b);
/* Until nothing is under way. */
void store_box_settle(struct store_box *b);

int store_box_write(struct store_box *b, uint64_t ino, uint64_t index,
		    uint64_t cut, uint32_t off, const void *data,
		    uint32_t len, bool sync);
/* Checks the sums, fills holes with zeros. */
int store_box_read(struct store_box *b, uint64_t ino, uint64_t index,
		   uint64_t cut, uint32_t off, void *data, uint32_t len);
int store_box_sync(struct store_box *b, uint64_t ino);
int store_box_cut(struct store_box *b, uint64_t ino, uint64_t cut,
		  uint64_t from, uint64_t to);
int store_box_alloc(struct store_box *b, uint64_t ino, uint64_t index,
		    uint64_t cut, uint32_t off, uint32_t len);
int store_box_purge(struct store_box *b, uint64_t ino);
struct store_stat store_box_stat(struct store_box *b);

/* Block size of all these. */
#define STORE_BOX_LOG2 17u

#endif
