/* The store's own thread: runs jobs that block (LMDB commits, making
 * segments), one at a time in order, and ticks while asked to.
 */
#ifndef BLOCKD_WORKER_H
#define BLOCKD_WORKER_H

#include "blockd/dev.h"

struct worker;

/* The owner's memory until @done. */
struct worker_job {
	void (*run)(struct worker_job *j); /* on the thread */
	void (*done)(struct worker_job *j); /* on the loop, by dev's post */
	struct worker_job *next;
	struct worker *worker;
};

/* @inline_run: no thread; worker_submit() runs the job itself (tests that
 * must replay exactly). @tick(@arg): on the loop. NULL: no memory/thread. */
struct worker *worker_new(struct dev *d, bool inline_run,
			  void (*tick)(void *arg), void *arg);
/* Waits for the job that runs; those behind it never run, done never. */
void worker_free(struct worker *w);
void worker_submit(struct worker *w, struct worker_job *j);
/* Calls tick each second until switched off. */
void worker_tick(struct worker *w, bool on);
/* A tick is on its way to the loop. */
bool worker_tick_posted(struct worker *w);

#endif
