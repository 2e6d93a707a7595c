/* hailctl metad add, remove, transfer: who is one of a group of metads, and
 * which one leads.
 */
#include "tools/hailctl/ctl.h"

#include <inttypes.h>
#include <unistd.h>

#include "common/clock.h"

#define LOOK_US 100000u

static int change(struct link *metad, enum admin_metad_what what, uint32_t id)
{
	struct admin_metad m = { .what = (uint8_t)what, .id = id };
	struct wire_out o;
	uint8_t body[8];

	wire_out_init(&o, body, sizeof(body));
	admin_metad_encode(&o, &m);
	return link_call(metad, WIRE_OP_ADMIN_METAD, body, o.len,
			 metad->c->o.timeout_ms, NULL);
}

/* One that was just started is found in a moment. */
static int change_soon(struct ctl *c, struct link *metad,
		       enum admin_metad_what what, uint32_t id)
{
	uint64_t end_ms = clock_now_ms(CLOCK_MONOTONIC) + c->o.timeout_ms;
	int rv;

	while ((rv = change(metad, what, id)) == -ENOTCONN &&
	       what == ADMIN_METAD_ADD &&
	       clock_now_ms(CLOCK_MONOTONIC) < end_ms)
		usleep(LOOK_US);
	return rv;
}

static void complain(const struct link *metad, enum admin_metad_what what,
		     uint32_t id, int err)
{
	const char *name = link_name(metad);

	switch (-err) {
	case EOPNOTSUPP:
		ctl_err("%s: its cluster file names no other metad: add the "
			"others to the file and start it again", name);
		break;
	case EAGAIN:
		ctl_err("%s: another change is under way; try again", name);
		break;
	case EALREADY:
		ctl_err("metad %" PRIu32 " %s already", id,
			what == ADMIN_METAD_ADD ? "is one of the group" :
						  "leads");
		break;
	case ENOENT:
		ctl_err(what == ADMIN_METAD_ADD ?
			"metad %" PRIu32 " is not in the cluster file of the "
			"one that leads: correct that, and start it again" :
			"metad %" PRIu32 " is none of the group", id);
		break;
	case EBUSY:
		ctl_err("metad %" PRIu32 " leads: 'hailctl metad transfer' to "
			"another one first", id);
		break;
	case ENOTCONN:
		ctl_err("metad %" PRIu32 " does not run, or cannot be reached "
			"by the one that leads: start it first", id);
		break;
	case ETIMEDOUT:
		if (what != ADMIN_METAD_TRANSFER) {
			ctl_err("%s: no answer in time: a metad that is taken "
				"in gets everything first, which goes on; say "
				"this again until it is done, or look at "
				"'hailctl status'", name);
			break;
		}
		ctl_err("metad %" PRIu32 " did not take over in time; try "
			"again", id);
		break;
	default:
		ctl_err("%s: %s", name, strerror(-err));
	}
}

static bool leads(struct ctl *c, uint32_t id)
{
	struct links ls;
	bool yes = false;

	if (links_open(c, &ls) == 0) {
		yes = !ls.no_leader && ls.count > 0 && ls.v[0].d->id == id;
		links_close(&ls);
	}
	return yes;
}

/* Who led has closed the connection, maybe before it answered. */
static int transferred(struct ctl *c, uint32_t id, int rv)
{
	uint64_t end_ms = clock_now_ms(CLOCK_MONOTONIC) + c->o.timeout_ms;

	if (rv != 0 && rv != -ECONNRESET && rv != -EREMCHG)
		return rv;
	while (!leads(c, id)) {
		if (clock_now_ms(CLOCK_MONOTONIC) >= end_ms)
			return -ETIMEDOUT;
		usleep(LOOK_US);
	}
	return 0;
}

static int member(struct ctl *c, const char *arg, enum admin_metad_what what)
{
	static const char *const done[] = {
		[ADMIN_METAD_ADD] = "is one of the group",
		[ADMIN_METAD_REMOVE] = "is none of the group any more",
		[ADMIN_METAD_TRANSFER] = "leads",
	};
	char *end;
	unsigned long n = strtoul(arg, &end, 10);
	uint32_t id = (uint32_t)n;
	struct link *metad;
	struct links ls;
	int rv = -EIO;

	if (*end || n == 0 || n > UINT32_MAX) {
		ctl_err("'%s' is no daemon id (a number above 0)", arg);
		return CTL_USAGE;
	}
	if (links_open(c, &ls) < 0)
		return CTL_FAILED;
	metad = links_metad(&ls);
	if (metad) {
		rv = change_soon(c, metad, what, id);
		if (what == ADMIN_METAD_TRANSFER)
			rv = transferred(c, id, rv);
		if (rv < 0)
			complain(metad, what, id, rv);
	}
	links_close(&ls);
	if (rv < 0)
		return CTL_FAILED;
	if (c->o.json)
		out_json(json_pack("{s:I,s:s}", "metad", (json_int_t)id, "now",
				   done[what]));
	else
		printf("metad %" PRIu32 " %s\n", id, done[what]);
	return CTL_OK;
}

int cmd_metad_add(struct ctl *c, char **args)
{
	return member(c, args[0], ADMIN_METAD_ADD);
}

int cmd_metad_remove(struct ctl *c, char **args)
{
	return member(c, args[0], ADMIN_METAD_REMOVE);
}

int cmd_metad_transfer(struct ctl *c, char **args)
{
	return member(c, args[0], ADMIN_METAD_TRANSFER);
}
