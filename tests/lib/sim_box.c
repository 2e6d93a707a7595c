/* A cluster in one process, for simulations. */
#include "tests/lib/sim_box.h"

#include <time.h>

#define CLUSTER_ID 0x6d696e69u /* the mini metad's */
#define MOUNT_MS 20000u

/* Unlike assert(), also for effects. */
static void must(bool ok)
{
	if (!ok)
		abort();
}

/* ---- what metad asks of the daemons ---- */

static int64_t on_cut(void *arg, const struct sm_cut *s)
{
	struct sim_box *x = arg;
	struct blk_cut cut = { s->ino, s->cut, s->from, s->to, s->block_log2 };
	int64_t delta = 0;

	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		delta += mini_blockd_cut(x->b[i], &cut);
	return delta;
}

static void on_purge(void *arg, uint64_t ino)
{
	struct sim_box *x = arg;

	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		mini_blockd_purge(x->b[i], ino);
}

static uint64_t on_end(void *arg, uint64_t ino, uint64_t *units)
{
	struct sim_box *x = arg;
	uint64_t end = 0;

	*units = 0;
	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		end = u64_max(end, mini_blockd_end(x->b[i], ino, units));
	return end;
}

/* ---- life ---- */

void sim_box_init(struct sim_box *x)
{
	struct mini_metad_options o = { .blockd_count = SIM_BLOCKDS,
					.keepalive_ms = 100, .cut = on_cut,
					.purge = on_purge, .end = on_end,
					.arg = x };

	for (uint32_t i = 0; i < SIM_BLOCKDS; i++) {
		must(mini_blockd_new(i + 1, CLUSTER_ID, &x->b[i]) == 0);
		o.blockd_ports[i] = mini_blockd_port(x->b[i]);
	}
	must(mini_metad_new(&o, &x->m) == 0);
}

void sim_box_fini(struct sim_box *x)
{
	mini_metad_free(x->m);
	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		mini_blockd_free(x->b[i]);
}

void sim_box_mount(struct sim_box *x)
{
	struct core_options o = {
		.conf = mini_metad_conf(x->m),
		.host = "here",
		.mountpoint = "/mnt/sim",
		.early = true,
		.client_id = 1,
		.wb_bytes_max = 1u << 20, /* sometimes full */
		.prefetch_bytes_max = 1u << 20,
		.flush_age_ms = 20,
		.noatime = true,
	};

	must(core_new(&o, &x->c) == 0);
	must(core_start(x->c, MOUNT_MS) == 0);
}

void sim_box_unmount(struct sim_box *x)
{
	must(core_stop(x->c, MOUNT_MS) == 0);
	must(mini_metad_lease_count(x->m) == 0);
	must(mini_metad_session_count(x->m) == 0);
	core_free(x->c);
	x->c = NULL;
}

void sim_box_abandon(struct sim_box *x)
{
	core_free(x->c);
	x->c = NULL;
	/* What is still in a socket came too late. */
	mini_metad_drop(x->m);
	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		mini_blockd_drop(x->b[i]);
}

/* ---- calls ---- */

struct sim_call *sim_call_new(void)
{
	struct sim_call *k = calloc(1, sizeof(*k));
	pthread_condattr_t attr;

	must(k);
	pthread_mutex_init(&k->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&k->cond, &attr);
	pthread_condattr_destroy(&attr);
	return k;
}

bool sim_call_wait(struct sim_call *k, unsigned ms)
{
	struct timespec t;
	bool done;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000 + 1; /* at least @ms */
	pthread_mutex_lock(&k->mutex);
	while (!k->done)
		if (pthread_cond_timedwait(&k->cond, &k->mutex, &t))
			break;
	done = k->done;
	pthread_mutex_unlock(&k->mutex);
	return done;
}

void sim_call_free(struct sim_call *k)
{
	pthread_cond_destroy(&k->cond);
	pthread_mutex_destroy(&k->mutex);
	free(k);
}

void sim_pause(unsigned us)
{
	nanosleep(&(struct timespec){ .tv_nsec = (long)us * 1000 }, NULL);
}

void sim_on_err(void *arg, int err)
{
	struct sim_call *k = arg;

	pthread_mutex_lock(&k->mutex);
	must(!k->done);
	k->done = true;
	k->err = err;
	pthread_cond_signal(&k->cond);
	pthread_mutex_unlock(&k->mutex);
}

void sim_on_attr(void *arg, int err, const struct meta_attr *a)
{
	struct sim_call *k = arg;

	if (a)
		k->attr = *a;
	sim_on_err(k, err);
}

void sim_on_data(void *arg, int err, const struct iovec *iov, int iov_count,
		 size_t len)
{
	struct sim_call *k = arg;

	for (int i = 0; !err && i < iov_count; i++) {
		memcpy(k->to + k->len, iov[i].iov_base, iov[i].iov_len);
		k->len += iov[i].iov_len;
	}
	must(err || k->len == len);
	sim_on_err(k, err);
}
