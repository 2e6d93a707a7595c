/* hailctl blockd give-up: a store is gone for good, and so is what was on it.
 */
#include "tools/hailctl/ctl.h"

#include <inttypes.h>

static void tell(struct ctl *c, uint32_t id)
{
	if (c->o.json) {
		out_json(json_pack("{s:I,s:b}", "blockd", (json_int_t)id,
				   "given_up", 1));
		return;
	}
	printf("blockd %u: its store is given up, nobody waits for it\n"
	       "Next: give it an empty one (hail-blockd --format, or "
	       "'hailctl local up DIR' with\nits data directory removed), "
	       "then 'hailctl fsck' names the files that lost data.\n", id);
}

static int give_up(struct ctl *c, struct link *metad, uint32_t id)
{
	struct admin_give_up m = { .daemon_id = id };
	struct rpc_frame *f;
	struct wire_out o;
	uint8_t body[8];
	int rv;

	wire_out_init(&o, body, sizeof(body));
	admin_give_up_encode(&o, &m);
	rv = link_call(metad, WIRE_OP_ADMIN_GIVE_UP, body, o.len,
		       c->o.timeout_ms, &f);
	if (rv == 0) {
		rpc_frame_free(f);
		tell(c, id);
		return CTL_OK;
	}
	if (rv == -EBUSY)
		ctl_err("blockd %u runs with its store, or did a moment ago: "
			"nothing is lost; if its data shall go, stop it and "
			"try again in 10 seconds", id);
	else if (rv == -EALREADY)
		ctl_err("blockd %u has no store that could be given up", id);
	else if (rv == -ENOENT)
		ctl_err("the cluster has no blockd %u", id);
	else
		ctl_err("%s: %s", link_name(metad), strerror(-rv));
	return CTL_FAILED;
}

int cmd_blockd_give_up(struct ctl *c, char **args)
{
	struct links ls;
	struct link *metad;
	char *end;
	unsigned long id = strtoul(args[0], &end, 10);
	int code = CTL_FAILED;

	if (*end || id == 0 || id > UINT32_MAX) {
		ctl_err("'%s' is no daemon id (a number above 0)", args[0]);
		return CTL_USAGE;
	}
	if (!c->o.yes) {
		ctl_err("this accepts that all data on the store of blockd %lu "
			"is lost: what was there will read as zeros, and the "
			"store is never let in again, even if it is found; say "
			"it with --yes", id);
		return CTL_USAGE;
	}
	if (links_open(c, &ls) < 0)
		return CTL_FAILED;
	metad = links_metad(&ls);
	if (metad)
		code = give_up(c, metad, (uint32_t)id);
	links_close(&ls);
	return code;
}
