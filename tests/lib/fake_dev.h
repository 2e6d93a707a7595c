/* A disk in memory behind blockd/dev.h, for tests: completions come late and
 * in any order, the k-th I/O fails, and a power cut keeps any subset of the
 * 4 KiB pages that were written but not flushed. All choices from one seed.
 */
#ifndef TESTS_LIB_FAKE_DEV_H
#define TESTS_LIB_FAKE_DEV_H

#include "blockd/dev.h"

struct fake_dev;

struct fake_dev *fake_dev_new(uint64_t seed);
void fake_dev_free(struct fake_dev *f);
struct dev *fake_dev_dev(struct fake_dev *f);

/* Lets one thing that is under way happen. False: nothing was. */
bool fake_dev_step(struct fake_dev *f);
/* Reads stay under way; taking names away fails with @err (0: it does not). */
void fake_dev_hold_reads(struct fake_dev *f, bool on);
void fake_dev_fail_unlink(struct fake_dev *f, int err);
/* Completes in the order of submission (default: any). */
void fake_dev_in_order(struct fake_dev *f, bool on);
void fake_dev_advance(struct fake_dev *f, uint64_t ms);
void fake_dev_set_space(struct fake_dev *f, uint64_t bytes);

/* The @k-th submitted I/O (1: the next) fails with @err, once; with @sticky
 * all after it as well. 0: none. Whether it has happened: */
void fake_dev_fail_at(struct fake_dev *f, uint64_t k, int err, bool sticky);
bool fake_dev_failed(const struct fake_dev *f);

/* Before the @k-th step that changes the disk (a write, a flush, a name, a
 * size) everything stops: fake_dev_step() does nothing more until kill or
 * power cut. Whether it has happened: */
void fake_dev_die_at(struct fake_dev *f, uint64_t k);
bool fake_dev_dead(const struct fake_dev *f);

/* The process dies: I/Os under way happen or not, nothing is answered. */
void fake_dev_kill(struct fake_dev *f);
/* The power goes: of what is not flushed, any pages stay. */
void fake_dev_power_cut(struct fake_dev *f);

/* Flips a bit. */
void fake_dev_flip(struct fake_dev *f, const char *name, uint64_t off);
/* The page at @off cannot be read at a start until it is written anew. */
void fake_dev_spoil(struct fake_dev *f, const char *name, uint64_t off);
uint64_t fake_dev_size(struct fake_dev *f, const char *name);
bool fake_dev_peek(struct fake_dev *f, const char *name, uint64_t off,
		   void *page);

struct fake_dev_count {
	uint64_t reads, writes, dsyncs, flushes;
	uint64_t read_bytes, write_bytes, dsync_bytes;
};
struct fake_dev_count fake_dev_count(const struct fake_dev *f);

#endif
