/* The process: main.c (options, the loop, the end), start.c (how a metad comes
 * to serve).
 *
 * A metad of a group that led and does not any more ends all its parts and
 * starts anew, in the same process: one life follows another.
 */
#ifndef METAD_PROGRAM_H
#define METAD_PROGRAM_H

#include "common/daemon_conf.h"
#include "metad/datadir.h"
#include "metad/metad.h"

struct config {
	struct daemon_config d; /* first */
	char *data, *listen;
	uint64_t snapshot_bytes;
	uint64_t metrics_port;
	uint64_t spin_us;
	char *restore, *copy;
};

/* The one metad of this process. */
struct program {
	struct config cfg;
	struct conf conf;
	struct datadir dir;
	int stop_fd;
	int exit_status;
	bool ready; /* daemon_ready() was called */
	bool again; /* another life follows */

	/* of one life */
	struct metad md;
	struct stats *stats;
	struct stats_http *http;
	uv_prepare_t prepare;
	uv_check_t check;
	uv_poll_t stop_poll;
	uv_timer_t stop_timer;
	uv_timer_t start_timer; /* wakes who waits in program_start() */
	uint64_t wait_until_ms, wait_said_ms; /* uv_now() */
	bool raft_up, raft_closed, handles;
	bool lingers; /* it led, and helps to elect who leads next */
	bool copy_hangs; /* a thread still reads the state */
	/* How often polling before sleep has paid lately, in 1/256. */
	uint32_t spin_score;
	uint32_t spin_skipped;
};

/* ---- start.c ---- */
/* From nothing but a loop to a metad that serves; of a group: that follows.
 * Returns 0 or -errno, said on stderr. */
int program_start(struct program *p);
/* It was elected: makes the other parts, and serves. Returns as the former; not
 * from a callback. */
int program_lead(struct program *p);
/* The loop runs until @done says so (0), or the daemon stops (-EIO). */
int program_until(struct program *p, bool (*done)(struct program *p));
/* Says @what and -@rv on stderr; returns @rv. */
int program_fail(const char *what, int rv);

/* ---- main.c ---- */
/* Makes the handles of the loop. As program_start(). */
int program_handles(struct program *p);
/* A group's, which led: begins its end. */
void program_deposed(void *arg);
void program_raft_failed(void *arg, const char *why);

#endif
