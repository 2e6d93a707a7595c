#include "tests/lib/log_mount.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LEN_MAX (1u << 20)

/* ---- life ---- */

struct lmount *lm_new(const struct dfix_options *o, const char *opts)
{
	const struct dfix_options three = { .logd_count = 3 };
	struct lmount *m = calloc(1, sizeof(*m));
	struct meta_attr a;
	char text[256];

	assert_non_null(m);
	m->d = dfix_new(o ? o : &three);
	assert_int_equal(op_mkdir(&m->d->f, ROOT_INO, "logs", &a), 0);
	m->dir = a.ino;
	snprintf(text, sizeof(text), "region=64K %s", opts ? opts : "");
	assert_int_equal(op_setxattr(&m->d->f, m->dir, META_XATTR_LOG, text,
				     strlen(text), 0), 0);
	return m;
}

static bool is_known(void *arg, uint64_t ino, uint64_t epoch)
{
	struct lmount *m = arg;
	struct sm_log l;

	return mini_metad_log_find(m->d->f.m, ino, &l) &&
	       l.data_epoch == epoch;
}

void lm_stop(struct lmount *m)
{
	assert_int_equal(core_stop(m->d->f.c, WAIT_MS), 0);
	/* Who did not hear that he was to free it, asks metad. */
	for (uint32_t i = 0; i < m->d->logd_count; i++)
		mini_logd_collect(m->d->l[i], is_known, m);
	assert_int_equal(lm_lent_bytes(m), 0);
	dfix_stop(m->d);
	free(m);
}

void lm_kill(struct lmount *m)
{
	core_free(m->d->f.c);
	m->d->f.c = NULL;
	/* What the test holds of it goes with its connections. */
	for (uint32_t i = 0; i < m->d->logd_count; i++)
		mini_logd_drop(m->d->l[i]);
}

int lm_start(struct lmount *m)
{
	m->d->f.c = dfix_core_new(m->d);
	return core_start(m->d->f.c, WAIT_MS);
}

void lm_remount(struct lmount *m)
{
	lm_kill(m);
	assert_int_equal(lm_start(m), 0);
}

void lm_power_cut(struct lmount *m)
{
	lm_power_cut_keep(m, 0);
}

void lm_power_cut_keep(struct lmount *m, uint32_t keep)
{
	lm_kill(m);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_restart(m->d->b[i], !(keep >> i & 1));
	d_hold_replies(m->d, WIRE_OP_BLK_WRITE, false);
	d_hold(m->d, WIRE_OP_BLK_WRITE, false);
	mini_metad_restart(m->d->f.m, true);
	for (uint32_t i = 0; i < m->d->logd_count; i++) {
		mini_logd_restart(m->d->l[i]);
		lm_tell(m, i, true);
	}
}

void lm_hold_behind_journal(struct lmount *m)
{
	uint64_t was = d_executed(m->d, WIRE_OP_BLK_WRITE);

	wait_until(d_held(m->d) > 0);
	d_hold_replies(m->d, WIRE_OP_BLK_WRITE, true);
	d_hold(m->d, WIRE_OP_BLK_WRITE, false);
	wait_until(d_executed(m->d, WIRE_OP_BLK_WRITE) > was);
	/* One frame: a small one. */
	assert_int_equal(d_executed(m->d, WIRE_OP_BLK_WRITE), was + 1);
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	d_hold_replies(m->d, WIRE_OP_BLK_WRITE, false);
}

void lm_free(struct lmount *m)
{
	dfix_kill(m->d);
	free(m);
}

/* ---- files ---- */

struct core_file *lm_create(struct lmount *m, const char *name)
{
	struct core_file *f = NULL;
	struct meta_attr a;

	assert_int_equal(op_open_new(&m->d->f, m->dir, name, O_RDWR, &f, &a),
			 0);
	assert_true(a.flags & META_ATTR_LOG);
	return f;
}

struct core_file *lm_open(struct lmount *m, uint64_t dir, const char *name)
{
	struct core_file *f = NULL;
	struct meta_attr a;

	assert_int_equal(op_lookup(&m->d->f, dir, name, &a), 0);
	assert_int_equal(op_open(&m->d->f, a.ino, O_RDWR, &f), 0);
	return f;
}

/* ---- log daemons ---- */

void lm_tell(struct lmount *m, uint32_t i, bool there)
{
	static const char *const domains[DFIX_LOGDS_MAX] = { "a", "b", "c", "d",
							     "e", "f" };
	struct mini_logd *l = m->d->l[i];

	mini_metad_logd(m->d->f.m, &(struct mini_metad_logd){
		.id = i + 1, .boot_id = mini_logd_boot_id(l),
		.port = mini_logd_port(l), .domain = domains[i],
		.free_bytes = mini_logd_free_bytes(l), .there = there });
}

void lm_hold(struct lmount *m, uint32_t from, uint16_t op, bool hold)
{
	for (uint32_t i = from; i < m->d->logd_count; i++)
		mini_logd_hold(m->d->l[i], op, hold);
}

void lm_entry(struct lmount *m, uint64_t ino, struct sm_log *ret)
{
	assert_true(mini_metad_log_find(m->d->f.m, ino, ret));
}

bool lm_has_log(struct lmount *m, uint64_t ino)
{
	struct sm_log l;

	return mini_metad_log_find(m->d->f.m, ino, &l);
}

bool lm_listed(struct lmount *m, uint64_t ino, uint32_t id)
{
	struct sm_log l;

	if (!mini_metad_log_find(m->d->f.m, ino, &l))
		return false;
	for (uint32_t i = 0; i < l.peer_count; i++)
		if (l.peers[i].id == id)
			return true;
	return false;
}

uint32_t lm_have(struct lmount *m, uint64_t ino, uint64_t seq)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < m->d->logd_count; i++)
		count += mini_logd_seq(m->d->l[i], ino) >= seq;
	return count;
}

uint64_t lm_lent_bytes(struct lmount *m)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < m->d->logd_count; i++) {
		struct lend_stats n;

		mini_logd_stats(m->d->l[i], &n);
		sum += n.lent_bytes;
	}
	return sum;
}

/* ---- content ---- */

static uint8_t *bytes_of(uint32_t len, uint64_t seed)
{
	uint8_t *p = malloc(len);

	assert_true(p && len <= LEN_MAX);
	d_fill(p, len, seed);
	return p;
}

struct fix_call *lm_write_start(struct lmount *m, struct core_file *f,
				uint64_t off, uint32_t len, uint64_t seed)
{
	uint8_t *p = bytes_of(len, seed);
	struct fix_call *k = d_write_start(m->d, f, off, p, len, 0);

	free(p);
	return k;
}

int lm_write(struct lmount *m, struct core_file *f, uint64_t off, uint32_t len,
	     uint64_t seed)
{
	return fix_call_end(lm_write_start(m, f, off, len, seed), NULL);
}

void lm_check(struct lmount *m, struct core_file *f, uint64_t off,
	      uint32_t len, uint64_t seed)
{
	uint8_t *p = bytes_of(len, seed);

	d_check_read(m->d, f, off, p, len);
	free(p);
}

void lm_check_durable(struct lmount *m, struct core_file *f, uint64_t off,
		      uint32_t len, uint64_t seed)
{
	uint8_t *p = bytes_of(len, seed);

	d_check_durable(m->d, f, off, p, len);
	free(p);
}

void lm_check_zeros(struct lmount *m, struct core_file *f, uint64_t off,
		    uint32_t len)
{
	uint8_t *p = calloc(1, len);

	assert_non_null(p);
	d_check_read(m->d, f, off, p, len);
	free(p);
}
