/* Real files behind blockd/dev.h, synchronously: an I/O is done when it is
 * submitted, its answer is given by file_dev_run(). For tests and measuring.
 */
#ifndef TESTS_LIB_FILE_DEV_H
#define TESTS_LIB_FILE_DEV_H

#include "blockd/dev.h"

struct file_dev;

/* @dir must exist. NULL and errno. */
struct file_dev *file_dev_new(const char *dir, bool direct);
void file_dev_free(struct file_dev *f);
struct dev *file_dev_dev(struct file_dev *f);
/* Reads from now on begin when that is over. Returns how many were held. */
unsigned file_dev_hold_reads(struct file_dev *f, bool on);
/* Gives all answers that are due, posts from other threads too; waits up to
 * @wait_ms for one. Returns their number. */
unsigned file_dev_run(struct file_dev *f, int wait_ms);

#endif
