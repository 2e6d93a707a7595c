/* The memory of write-back buffers: bytes, extents, what they are charged. */
#include "fuse/core/wbuf_priv.h"

#define POOLED_MIN (64u << 10)
#define EXT_FREE_MAX 1024u

void wbuf_mem_init(struct wbuf_mem *m, uint64_t kept_max)
{
	*m = (struct wbuf_mem){ .kept_max = kept_max };
}

/* Free buffers make room for what is in use. */
static void pool_trim(struct wbuf_mem *m)
{
	while (m->pool && m->bytes + m->pool_bytes > m->kept_max) {
		struct wbuf_data *d = m->pool;

		m->pool = d->pool_next;
		m->pool_bytes -= d->cap;
		free(d);
	}
}

void wbuf_mem_fini(struct wbuf_mem *m)
{
	while (m->ext_free) {
		struct wbuf_ext *e = m->ext_free;

		m->ext_free = e->next;
		free(e);
	}
	while (m->pool) {
		struct wbuf_data *d = m->pool;

		m->pool = d->pool_next;
		free(d);
	}
}

struct wbuf_data *wbuf_data_new(uint32_t cap)
{
	struct wbuf_data *d = malloc(sizeof(*d) + cap);

	if (!d)
		return NULL;
	d->refs = 1;
	d->cap = cap;
	d->used = 0;
	d->charged = NULL;
	d->pool_next = NULL;
	return d;
}

struct wbuf_data *wbuf_data_pooled(struct wbuf_mem *m, uint32_t cap)
{
	struct wbuf_data **at = &m->pool;

	/* At most twice what was asked for, lest small ones eat big ones. */
	while (*at && ((*at)->cap < cap || (*at)->cap / 2 > cap))
		at = &(*at)->pool_next;
	if (*at) {
		struct wbuf_data *d = *at;

		*at = d->pool_next;
		m->pool_bytes -= d->cap;
		d->refs = 1;
		d->used = 0;
		return d;
	}
	return wbuf_data_new(cap);
}

void wbuf_data_get(struct wbuf_data *d)
{
	d->refs++;
}

static uint64_t data_charge(const struct wbuf_data *d)
{
	return sizeof(*d) + d->cap;
}

void wbuf_data_put(struct wbuf_mem *m, struct wbuf_data *d)
{
	assert(d->refs > 0);
	if (--d->refs > 0)
		return;
	if (d->charged) {
		assert(d->charged == m);
		m->bytes -= data_charge(d);
		d->charged = NULL;
	}
	if (d->cap >= POOLED_MIN &&
	    m->bytes + m->pool_bytes + d->cap <= m->kept_max) {
		d->pool_next = m->pool;
		m->pool = d;
		m->pool_bytes += d->cap;
		return;
	}
	free(d);
}

void wbuf_data_charge(struct wbuf_mem *m, struct wbuf_data *d)
{
	if (d->charged)
		return;
	d->charged = m;
	m->bytes += data_charge(d);
	pool_trim(m);
}

int wbuf_ext_reserve(struct wbuf_mem *m, uint32_t count)
{
	while (m->ext_free_count < count) {
		struct wbuf_ext *e = malloc(sizeof(*e));

		if (!e)
			return -ENOMEM;
		e->next = m->ext_free;
		m->ext_free = e;
		m->ext_free_count++;
	}
	return 0;
}

struct wbuf_ext *wbuf_ext_new(struct wbuf *b)
{
	struct wbuf_mem *m = b->mem;
	struct wbuf_ext *e = m->ext_free;

	assert(e);
	m->ext_free = e->next;
	m->ext_free_count--;
	m->bytes += sizeof(*e);
	b->ext_count++;
	return e;
}

void wbuf_ext_release(struct wbuf *b, struct wbuf_ext *e)
{
	struct wbuf_mem *m = b->mem;

	m->bytes -= sizeof(*e);
	b->ext_count--;
	if (m->ext_free_count >= EXT_FREE_MAX) {
		free(e);
		return;
	}
	e->next = m->ext_free;
	m->ext_free = e;
	m->ext_free_count++;
}
