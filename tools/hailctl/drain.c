/* hailctl logd drain: memory that a log daemon has lent is wanted back. */
#include "tools/hailctl/ctl.h"

#include <inttypes.h>
#include <time.h>

#define LOOK_MS 100u

static void nap(void)
{
	struct timespec t = { .tv_nsec = LOOK_MS * 1000000 };

	(void)nanosleep(&t, NULL);
}

static int ask(struct link *l, bool on, uint64_t deadline_ms)
{
	struct admin_drain m = { .on = on,
				 .deadline_ms = (uint32_t)deadline_ms };
	struct rpc_frame *f;
	struct wire_out o;
	uint8_t body[8];
	int rv;

	wire_out_init(&o, body, sizeof(body));
	admin_drain_encode(&o, &m);
	rv = link_call(l, WIRE_OP_ADMIN_DRAIN, body, o.len,
		       l->c->o.timeout_ms, &f);
	if (rv == 0)
		rpc_frame_free(f);
	return rv;
}

/* Until no log is here any more, or the deadline is over: what is here then
 * stays. A writer may have given back its memory and not yet the log. */
static int wait_empty(struct link *l, json_t **status)
{
	for (uint32_t over = 0; over < 5;) {
		int rv = link_json(l, WIRE_OP_ADMIN_STATUS, status);

		if (rv < 0 || !l->c->o.wait || l->c->o.off ||
		    json_u64(*status, "logs") == 0)
			return rv;
		over += json_u64(*status, "drain_ms") == 0;
		progress(l->c, "%s: %" PRIu64 " logs, %" PRIu64 " MiB",
			 link_name(l), json_u64(*status, "logs"),
			 json_u64(*status, "lent_bytes") >> 20);
		json_decref(*status);
		nap();
	}
	return link_json(l, WIRE_OP_ADMIN_STATUS, status);
}

static int drain(struct link *l)
{
	const struct ctl_options *o = &l->c->o;
	json_t *status = NULL;
	int code = CTL_OK;
	int rv = ask(l, !o->off, o->deadline_ms);

	if (rv == 0)
		rv = wait_empty(l, &status);
	progress_clear();
	if (rv < 0) {
		ctl_err("%s: %s", link_name(l), strerror(-rv));
		return CTL_FAILED;
	}
	if (o->wait && !o->off && json_u64(status, "logs") > 0) {
		ctl_err("%s: %" PRIu64 " logs were not moved and stay: their "
			"mount is stopped, or has died and another must "
			"recover them",
			link_name(l), json_u64(status, "logs"));
		code = CTL_PARTLY;
	}
	if (o->json) {
		out_json(status);
		return code;
	}
	printf("%s: %s, %" PRIu64 " logs here, %" PRIu64 " taken from their "
	       "owners\n", link_name(l), json_text(status, "state", "?"),
	       json_u64(status, "logs"), json_u64(status, "reclaimed"));
	json_decref(status);
	return code;
}

int cmd_logd_drain(struct ctl *c, char **args)
{
	const struct conf_daemon *d;
	struct link l;
	char *end;
	unsigned long id = strtoul(args[0], &end, 10);
	int code = CTL_FAILED;

	if (*end || id == 0 || id > UINT32_MAX) {
		ctl_err("'%s' is no daemon id (a number above 0)", args[0]);
		return CTL_USAGE;
	}
	d = conf_find(c->conf.logds, c->conf.logd_count, (uint32_t)id);
	if (!d) {
		ctl_err("the cluster file names no logd %lu", id);
		return CTL_FAILED;
	}
	if (link_open(c, DAEMON_LOGD, d, &l) < 0)
		link_complain(&l);
	else
		code = drain(&l);
	link_close(&l);
	return code;
}
