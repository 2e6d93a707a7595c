/* The machine: its table of commands and queries, and how one is executed. */
#include "metad/sm_priv.h"

enum op_kind {
	OP_NONE,
	OP_QUERY,
	OP_MUTATION, /* from a session: mhdr first, reply kept */
	OP_INTERNAL, /* SM_* */
};

struct sm_op {
	enum op_kind kind;
	bool bulk; /* touches any number of records: undone by roll-back */
	uint32_t changes; /* to reserve before it, unless it can be undone */
	sm_check_fn check;
	int (*run)(struct sm_ctx *x, const void *body, size_t len);
};

/* What keeping a reply takes: reply, session, forgotten replies. */
#define LEAVE_CHANGES 4u
/* Names, inodes, links of one ordinary command. */
#define USUAL_CHANGES 16u
#define CREATE_CHANGES (USUAL_CHANGES + 2 * SM_BLOB_CHANGES(SM_ACL_ENCODED_MAX))
#define XATTR_CHANGES (USUAL_CHANGES + SM_BLOB_CHANGES(XATTR_VALUE_MAX))
/* A bulk command with a body of up to SMALL_BULK bytes is small enough to
 * reserve for all of it. */
#define SMALL_BULK 512u
#define BULK_CHANGES 128u

#define OP_FIRST WIRE_OP_META_SESSION_OPEN
#define OP_COUNT (WIRE_OP_SM_LOCK + 1 - OP_FIRST)
#define AT(name) [WIRE_OP_##name - OP_FIRST]

static const struct sm_op ops[OP_COUNT] = {
	AT(META_MAP_GET) = { OP_QUERY, false, 0, sm_check_empty,
			     sm_run_map_get },
	AT(META_LOOKUP) = { OP_QUERY, false, 0, sm_check_lookup,
			    sm_run_lookup },
	AT(META_GETATTR) = { OP_QUERY, false, 0, sm_check_ino,
			     sm_run_getattr },
	AT(META_READDIR) = { OP_QUERY, false, 0, sm_check_readdir,
			     sm_run_readdir },
	AT(META_READLINK) = { OP_QUERY, false, 0, sm_check_ino,
			      sm_run_readlink },
	AT(META_GETXATTR) = { OP_QUERY, false, 0, sm_check_getxattr,
			      sm_run_getxattr },
	AT(META_LISTXATTR) = { OP_QUERY, false, 0, sm_check_ino,
			       sm_run_listxattr },
	AT(META_STATFS) = { OP_QUERY, false, 0, sm_check_empty,
			    sm_run_statfs },
	AT(META_LOG_OPTS) = { OP_QUERY, false, 0, sm_check_ino,
			      sm_run_log_opts },
	AT(META_LOG_LIST) = { OP_QUERY, false, 0, sm_check_log_list,
			      sm_run_log_list },

	AT(META_LOCK_GET) = { OP_QUERY, false, 0, sm_check_lock,
			      sm_run_lock_get },

	AT(META_CREATE) = { OP_MUTATION, false, CREATE_CHANGES,
			    sm_check_create, sm_run_create },
	AT(META_UNLINK) = { OP_MUTATION, false, USUAL_CHANGES,
			    sm_check_unlink, sm_run_unlink },
	AT(META_RENAME) = { OP_MUTATION, false, CREATE_CHANGES,
			    sm_check_rename, sm_run_rename },
	AT(META_LINK) = { OP_MUTATION, false, USUAL_CHANGES, sm_check_link,
			  sm_run_link },
	AT(META_SETATTR) = { OP_MUTATION, false, CREATE_CHANGES,
			     sm_check_setattr, sm_run_setattr },
	AT(META_SETXATTR) = { OP_MUTATION, false, XATTR_CHANGES,
			      sm_check_setxattr, sm_run_setxattr },
	AT(META_REMOVEXATTR) = { OP_MUTATION, false, USUAL_CHANGES,
				 sm_check_removexattr, sm_run_removexattr },
	AT(META_LEASE) = { OP_MUTATION, false, USUAL_CHANGES, sm_check_ino,
			   sm_run_lease },
	AT(META_RETURN) = { OP_MUTATION, true, BULK_CHANGES, sm_check_return,
			    sm_run_return },
	AT(META_CUT) = { OP_MUTATION, false, USUAL_CHANGES, sm_check_cut,
			 sm_run_cut },

	AT(META_LOG_SET) = { OP_MUTATION, false, USUAL_CHANGES,
			     sm_check_log_set, sm_run_log_set },
	AT(META_LOG_RAISE) = { OP_MUTATION, false, USUAL_CHANGES, sm_check_ino,
			       sm_run_log_raise },
	AT(META_LOG_DROP) = { OP_MUTATION, false, USUAL_CHANGES,
			      sm_check_log_drop, sm_run_log_drop },
	AT(META_LOG_LOSE) = { OP_MUTATION, false, USUAL_CHANGES,
			      sm_check_log_drop, sm_run_log_lose },
	AT(META_LOG_HEIR) = { OP_MUTATION, false, USUAL_CHANGES,
			      sm_check_log_heir, sm_run_log_heir },

	AT(META_LOCK) = { OP_MUTATION, false, USUAL_CHANGES, sm_check_lock,
			  sm_run_lock },

	AT(SM_SESSION_OPEN) = { OP_INTERNAL, false,
				SM_MAP_CHANGES + USUAL_CHANGES,
				sm_check_session_open, sm_run_session_open },
	AT(SM_SESSION_CLOSE) = { OP_INTERNAL, true, 0, sm_check_session_close,
				 sm_run_session_close },
	AT(SM_DAEMON_SET) = { OP_INTERNAL, false,
			      SM_MAP_CHANGES + USUAL_CHANGES,
			      sm_check_daemon_set, sm_run_daemon_set },
	AT(SM_PURGE_DONE) = { OP_INTERNAL, true, 0, sm_check_purge_done,
			      sm_run_purge_done },
	AT(SM_CUT_DONE) = { OP_INTERNAL, false, USUAL_CHANGES,
			    sm_check_cut_done, sm_run_cut_done },
	AT(SM_SIZE_SET) = { OP_INTERNAL, false, USUAL_CHANGES,
			    sm_check_size_set, sm_run_size_set },
	AT(SM_RAISE) = { OP_INTERNAL, false, SM_MAP_CHANGES + USUAL_CHANGES,
			 sm_check_raise, sm_run_raise },
	AT(SM_BOOTSTRAP) = { OP_INTERNAL, false,
			     SM_MAP_CHANGES + USUAL_CHANGES,
			     sm_check_bootstrap, sm_run_bootstrap },
	AT(SM_LOGD_SET) = { OP_INTERNAL, false, SM_MAP_CHANGES + USUAL_CHANGES,
			    sm_check_logd_set, sm_run_logd_set },
	AT(SM_LOCK) = { OP_INTERNAL, false, USUAL_CHANGES,
			sm_check_lock_granted, sm_run_lock_granted },
};

static const struct sm_op *op_find(uint16_t op)
{
	static const struct sm_op none = { .kind = OP_NONE };

	return op >= OP_FIRST && op - OP_FIRST < OP_COUNT ?
	       &ops[op - OP_FIRST] : &none;
}

bool sm_is_command(uint16_t op)
{
	enum op_kind kind = op_find(op)->kind;

	return kind == OP_MUTATION || kind == OP_INTERNAL;
}

bool sm_is_query(uint16_t op)
{
	return op_find(op)->kind == OP_QUERY;
}

int sm_validate(uint16_t op, const void *body, size_t len)
{
	const struct sm_op *o = op_find(op);
	struct meta_mhdr h;
	int err;

	if (o->kind == OP_NONE)
		return -EINVAL;
	if (o->kind == OP_MUTATION) {
		err = sm_mhdr_split(&body, &len, &h);
		if (err == 0)
			err = sm_check_mhdr(&h);
		if (err != 0)
			return err;
	}
	return o->check(body, len);
}

struct sm *sm_new(void)
{
	return sm_new_mem(NULL);
}

struct sm *sm_new_mem(const struct cow_mem *mem)
{
	struct sm *sm = calloc(1, sizeof(*sm));

	if (sm == NULL)
		return NULL;
	sm->mem = mem;
	sm->hash_mask = UINT64_MAX;
	sm->tree = cow_new(mem);
	sm->map = cmap_new();
	sm->out = malloc(SM_REPLY_MAX);
	if (sm->tree == NULL || sm->map == NULL || sm->out == NULL) {
		sm_free(sm);
		return NULL;
	}
	return sm;
}

void sm_free(struct sm *sm)
{
	if (sm == NULL)
		return;
	cow_free(sm->tree);
	cmap_free(sm->map);
	free(sm->out);
	free(sm);
}

static void ctx_init(struct sm_ctx *x, struct sm *sm, uint64_t session)
{
	*x = (struct sm_ctx){ .sm = sm, .session = session,
			      .pos = sm->g.pos + 1 };
	wire_out_init(&x->out, sm->out, SM_REPLY_MAX);
}

/* Memory for what comes after the handler: the map, the kept reply. */
static int reserve_tail(struct sm_ctx *x)
{
	uint32_t map = x->map_new != NULL ? SM_MAP_CHANGES : 0;

	return cow_reserve(x->sm->tree, map + LEAVE_CHANGES);
}

/* Runs a handler: afterwards either all of it is done, or, with an error,
 * nothing is. */
static int run(struct sm_ctx *x, const struct sm_op *o, const void *body,
	       size_t len)
{
	bool undo = o->bulk && (len > SMALL_BULK || o->kind == OP_INTERNAL);
	uint32_t changes = undo ? USUAL_CHANGES : o->changes + LEAVE_CHANGES;
	struct sm *sm = x->sm;
	struct sm_globals before = sm->g;
	struct cow_snap *snap = NULL;
	int err;

	/* A name that goes may leave an orphan of each. */
	if (o->kind == OP_MUTATION)
		changes += SM_ORPHAN_CHANGES(sm);
	(void)cow_trim(sm->tree); /* the next one goes on */
	if (undo) {
		snap = cow_snap_begin(sm->tree);
		if (snap == NULL)
			return -ENOMEM;
	}
	err = cow_reserve(sm->tree, changes);
	if (err == 0)
		err = o->run(x, body, len);
	if (undo && err == 0)
		err = reserve_tail(x);
	if (undo && err == 0) {
		cow_snap_end(sm->tree, snap);
	} else if (undo) {
		cow_rollback(sm->tree, snap);
		sm->g = before;
	}
	if (err != 0) {
		cmap_free(x->map_new);
		x->map_new = NULL;
		x->out.len = 0;
		x->cut_ino = 0;
		x->cut_job = 0;
	}
	return err;
}

static void apply_internal(struct sm_ctx *x, const struct sm_op *o,
			   const void *body, size_t len, struct sm_reply *r)
{
	r->status = run(x, o, body, len);
	if (r->status != 0)
		return; /* nothing changed */
	x->sm->g.pos = x->pos;
	if (x->map_new != NULL) {
		sm_map_commit(x);
		r->map_changed = true;
	}
	r->body_len = (uint32_t)x->out.len;
}

static void apply_mutation(struct sm_ctx *x, const struct sm_op *o,
			   const void *body, size_t len, struct sm_reply *r)
{
	struct meta_mhdr h;

	if (sm_mhdr_split(&body, &len, &h) != 0) {
		r->status = -EBADMSG;
		return;
	}
	switch (sm_session_enter(x->sm, x->session, &h, r)) {
	case 0:
		break;
	case 1:
		/* The reply must not move with the tree. */
		memcpy(x->sm->out, r->body, r->body_len);
		r->body = x->sm->out;
		return;
	default:
		r->status = -ESTALE;
		return;
	}
	x->now = h.now_ns;
	r->status = run(x, o, body, len);
	if (r->status == -ENOMEM)
		return;
	x->sm->g.pos = x->pos;
	r->pos = x->pos;
	r->body_len = (uint32_t)x->out.len;
	r->cut_ino = x->cut_ino;
	r->cut_job = x->cut_job;
	sm_session_leave(x, &h, r);
}

void sm_apply(struct sm *sm, uint16_t op, uint64_t session, const void *body,
	      size_t len, struct sm_reply *r)
{
	const struct sm_op *o = op_find(op);
	struct sm_ctx x;

	assert(o->kind == OP_MUTATION || o->kind == OP_INTERNAL);
	ctx_init(&x, sm, session);
	*r = (struct sm_reply){ .body = sm->out, .pos = sm->g.pos };
	if (o->kind == OP_MUTATION) {
		apply_mutation(&x, o, body, len, r);
	} else {
		apply_internal(&x, o, body, len, r);
		r->pos = sm->g.pos;
	}
}

void sm_query(struct sm *sm, uint16_t op, uint64_t session, const void *body,
	      size_t len, struct sm_reply *r)
{
	const struct sm_op *o = op_find(op);
	struct sm_ctx x;

	assert(o->kind == OP_QUERY);
	ctx_init(&x, sm, session);
	*r = (struct sm_reply){ .body = sm->out, .pos = sm->g.pos };
	r->status = o->run(&x, body, len);
	if (r->status == 0)
		r->body_len = (uint32_t)x.out.len;
}

uint64_t sm_pos(const struct sm *sm)
{
	return sm->g.pos;
}

uint64_t sm_batch(const struct sm *sm)
{
	return sm->g.batch;
}

void sm_set_batch(struct sm *sm, uint64_t batch)
{
	sm->g.batch = batch;
}

const struct cmap *sm_map(const struct sm *sm)
{
	return sm->map;
}

uint64_t sm_bytes(const struct sm *sm)
{
	return cow_memory(sm->tree);
}

bool sm_trim(struct sm *sm)
{
	return cow_trim(sm->tree);
}

uint64_t sm_inode_count(const struct sm *sm)
{
	return sm->g.inode_count;
}
