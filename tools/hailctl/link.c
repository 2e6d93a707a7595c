/* hailctl: connections to daemons. */
#include "tools/hailctl/ctl.h"

#include <pthread.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/cmap.h"
#include "common/gate.h"

/* Between two looks for the metad that leads. */
#define LEADER_WAIT_US 100000u

struct link_wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool up;
	int error; /* of the last try */
	struct link_wait *next; /* c->waits */
};

static void on_up(struct rpc_peer *p, const struct hello_reply *hr, void *arg)
{
	struct link_wait *w = arg;

	(void)p;
	(void)hr;
	pthread_mutex_lock(&w->lock);
	w->up = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void on_down(struct rpc_peer *p, int err, void *arg)
{
	struct link_wait *w = arg;

	(void)p;
	pthread_mutex_lock(&w->lock);
	w->up = false;
	w->error = err;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static const struct rpc_peer_ops ops = { .up = on_up, .down = on_down };

static int net_get(struct ctl *c)
{
	struct rpc_identity id = { .role = WIRE_ROLE_ADMIN,
				   .cluster_id = c->conf.cluster_id,
				   .name = "hailctl",
				   .gate = c->conf.gate };

	return c->net ? 0 : rpc_net_new(&id, &c->net);
}

const char *daemon_word(enum daemon_kind kind)
{
	return daemon_program(kind) + strlen("hail-");
}

const char *daemon_program(enum daemon_kind kind)
{
	static const char *const programs[] = {
		[DAEMON_METAD] = "hail-metad",
		[DAEMON_BLOCKD] = "hail-blockd",
		[DAEMON_LOGD] = "hail-logd",
	};

	return programs[kind];
}

const char *link_name(const struct link *l)
{
	static char buf[CMAP_ADDR_LEN_MAX + 32];

	snprintf(buf, sizeof(buf), "%s %u (%s:%u)", daemon_word(l->kind),
		 l->d->id, l->d->addr, l->d->port);
	return buf;
}

/* A daemon that is there answers at once; the first refusal is an answer,
 * too. */
static int wait_up(struct link_wait *w, uint64_t timeout_ms)
{
	struct timespec end = clock_deadline(timeout_ms);
	int rv = 0;

	pthread_mutex_lock(&w->lock);
	while (!w->up && w->error == 0 && rv == 0)
		rv = -pthread_cond_timedwait(&w->cond, &w->lock, &end);
	if (w->up)
		rv = 0;
	else if (w->error)
		rv = w->error;
	pthread_mutex_unlock(&w->lock);
	return rv;
}

int link_open(struct ctl *c, enum daemon_kind kind,
	      const struct conf_daemon *d, struct link *l)
{
	struct link_wait *w = calloc(1, sizeof(*w));
	pthread_condattr_t attr;
	int rv;

	memset(l, 0, sizeof(*l));
	l->c = c;
	l->kind = kind;
	l->d = d;
	if (!w) {
		l->error = -ENOMEM;
		return l->error;
	}
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->cond, &attr);
	pthread_condattr_destroy(&attr);
	w->next = c->waits;
	c->waits = w;
	rv = net_get(c);
	if (rv == 0)
		rv = rpc_peer_new(c->net, d->addr, d->port, &ops, w, &l->peer);
	if (rv == 0)
		rv = wait_up(w, c->o.timeout_ms);
	l->error = rv;
	return rv;
}

void link_close(struct link *l)
{
	if (l->peer)
		rpc_peer_close(l->peer);
	l->peer = NULL;
}

void links_end(struct ctl *c)
{
	struct link_wait *w, *next;

	rpc_net_free(c->net);
	c->net = NULL;
	/* Peers used them until now. */
	for (w = c->waits; w; w = next) {
		next = w->next;
		pthread_cond_destroy(&w->cond);
		pthread_mutex_destroy(&w->lock);
		free(w);
	}
	c->waits = NULL;
}

static const char *advice(const struct link *l)
{
	switch (-l->error) {
	case ECONNREFUSED:
		return "it does not run; start it ('hailctl local up DIR' for "
		       "a local cluster), or correct the cluster file";
	case EXDEV:
		return "that daemon belongs to another cluster; compare 'id' "
		       "in its cluster file with yours";
	case ETIMEDOUT:
		return "it does not answer; look at its log, or give it more "
		       "time with --timeout";
	case EKEYREJECTED:
	case ENOKEY:
		return gate_error(l->error);
	case EHOSTUNREACH:
	case ENETUNREACH:
		return "its name is not known, or there is no way to it; "
		       "compare the address in the cluster file";
	case EPROTONOSUPPORT:
		return "it speaks another version of the protocol; use the "
		       "hailctl of its release, or it wants 'wire' of its "
		       "cluster file";
	case EREMCHG:
		return "another metad leads; try again";
	case ENOENT:
		return "it does not know this daemon; compare the cluster "
		       "files";
	default:
		return "look at its log";
	}
}

void link_complain(const struct link *l)
{
	ctl_err("%s: %s: %s", link_name(l), strerror(-l->error), advice(l));
}

int link_call(struct link *l, uint16_t op, const void *body, size_t body_len,
	      uint64_t timeout_ms, struct rpc_frame **ret)
{
	if (l->error)
		return l->error;
	return rpc_call_wait(l->peer, op, body, (uint32_t)body_len, timeout_ms,
			     ret);
}

int link_json(struct link *l, uint16_t op, json_t **ret)
{
	return link_json_of(l, op, NULL, 0, ret);
}

int link_json_of(struct link *l, uint16_t op, const void *body, size_t body_len,
		 json_t **ret)
{
	struct admin_text m;
	struct rpc_frame *f;
	int rv = link_call(l, op, body, body_len, l->c->o.timeout_ms, &f);

	if (rv != 0)
		return rv;
	rv = admin_text_parse(f->body, f->h.body_len, &m);
	if (rv == 0) {
		*ret = json_loadb(m.json.p, m.json.len, 0, NULL);
		if (!*ret)
			rv = -EBADMSG;
	}
	rpc_frame_free(f);
	return rv;
}

int meta_body(const struct rpc_frame *f, struct wire_in *in)
{
	struct meta_rhdr rh;

	wire_in_init(in, f->body, f->h.body_len);
	meta_rhdr_decode(in, &rh);
	return in->bad ? -EBADMSG : 0;
}

int meta_map(struct link *metad, struct cmap **ret)
{
	struct meta_blob m;
	struct rpc_frame *f;
	struct wire_in in;
	int rv = link_call(metad, WIRE_OP_META_MAP_GET, NULL, 0,
			   metad->c->o.timeout_ms, &f);

	if (rv != 0)
		return rv;
	rv = meta_body(f, &in);
	meta_blob_decode(&in, &m);
	if (rv == 0)
		rv = wire_in_known(&in);
	if (rv == 0)
		rv = cmap_decode(m.value.p, m.value.len, ret);
	rpc_frame_free(f);
	return rv;
}

int meta_getattr(struct link *metad, uint64_t ino, struct meta_attr *ret)
{
	struct meta_ino m = { .ino = ino };
	struct rpc_frame *f;
	struct wire_out o;
	struct wire_in in;
	uint8_t body[16];
	int rv;

	wire_out_init(&o, body, sizeof(body));
	meta_ino_encode(&o, &m);
	rv = link_call(metad, WIRE_OP_META_GETATTR, body, o.len,
		       metad->c->o.timeout_ms, &f);
	if (rv != 0)
		return rv;
	rv = meta_body(f, &in);
	meta_attr_decode(&in, ret);
	if (rv == 0)
		rv = wire_in_known(&in);
	rpc_frame_free(f);
	return rv;
}

/* ---- all daemons ---- */

static void open_kind(struct ctl *c, struct links *ls, enum daemon_kind kind,
		      const struct conf_daemon *d, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (link_open(c, kind, &d[i], &ls->v[ls->count++]) < 0)
			ls->failed++;
}

/* What it says of itself: does it lead? */
static bool leads(struct link *l)
{
	json_t *o = NULL;
	bool yes = false;

	if (l->error == 0 && link_json(l, WIRE_OP_ADMIN_STATUS, &o) == 0)
		yes = json_u64(o, "leader") == l->d->id &&
		      json_object_get(o, "epoch");
	json_decref(o);
	return yes;
}

/* The metad that leads comes first. While a majority is there, one will soon.
 */
static void leader_first(struct ctl *c, struct links *ls)
{
	uint64_t end_ms = clock_now_ms(CLOCK_MONOTONIC) + c->o.timeout_ms;
	uint32_t up = 0;

	if (ls->count < 2)
		return;
	for (uint32_t i = 0; i < ls->count; i++)
		up += ls->v[i].error == 0;
	for (;;) {
		for (uint32_t i = 0; i < ls->count; i++)
			if (leads(&ls->v[i])) {
				struct link l = ls->v[i];

				ls->v[i] = ls->v[0];
				ls->v[0] = l;
				return;
			}
		if (up <= ls->count / 2 ||
		    clock_now_ms(CLOCK_MONOTONIC) >= end_ms)
			break;
		usleep(LEADER_WAIT_US);
	}
	ls->no_leader = true;
}

int links_open(struct ctl *c, struct links *ls)
{
	const struct conf *conf = &c->conf;

	ls->count = ls->failed = 0;
	ls->no_leader = false;
	ls->v = calloc(conf->metad_count + conf->blockd_count +
		       conf->logd_count, sizeof(*ls->v));
	if (!ls->v)
		return -ENOMEM;
	open_kind(c, ls, DAEMON_METAD, conf->metads, conf->metad_count);
	leader_first(c, ls);
	open_kind(c, ls, DAEMON_BLOCKD, conf->blockds, conf->blockd_count);
	return 0;
}

int links_open_all(struct ctl *c, struct links *ls)
{
	int rv = links_open(c, ls);

	if (rv == 0)
		open_kind(c, ls, DAEMON_LOGD, c->conf.logds,
			  c->conf.logd_count);
	return rv;
}

void links_close(struct links *ls)
{
	for (uint32_t i = 0; i < ls->count; i++)
		link_close(&ls->v[i]);
	free(ls->v);
	ls->v = NULL;
	ls->count = 0;
}

struct link *links_metad(struct links *ls)
{
	if (ls->count == 0 || ls->v[0].kind != DAEMON_METAD) {
		ctl_err("the cluster file names no metad");
		return NULL;
	}
	if (ls->no_leader) {
		for (uint32_t i = 0; i < ls->count; i++)
			if (ls->v[i].error && ls->v[i].kind == DAEMON_METAD)
				link_complain(&ls->v[i]);
		ctl_err("no metad leads: more than half of them have to run "
			"and to reach each other; 'hailctl status' shows them");
		return NULL;
	}
	if (ls->v[0].error) {
		link_complain(&ls->v[0]);
		return NULL;
	}
	return &ls->v[0];
}

int links_exit(const struct links *ls)
{
	if (ls->failed == 0)
		return CTL_OK;
	return ls->failed == ls->count ? CTL_FAILED : CTL_PARTLY;
}
