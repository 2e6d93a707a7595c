/* The cluster map: construction, and its encoding (a blob on the wire and in
 * metad's state).
 */
#include "common/cmap.h"

/* First field of the encoding; another number is another layout. A map without
 * log daemons is written as it was before there were any. */
#define CMAP_FORMAT 1u
#define CMAP_FORMAT_LOGS 2u

struct cmap *cmap_new(void)
{
	struct cmap *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->replica_count = 1;
	for (uint32_t s = 0; s < SLOT_COUNT; s++)
		for (uint32_t r = 0; r < REPLICA_COUNT_MAX; r++)
			m->slots[s][r] = CMAP_SLOT_NONE;
	return m;
}

void cmap_free(struct cmap *m)
{
	if (!m)
		return;
	free(m->daemons);
	free(m->sessions);
	free(m->logs);
	free(m);
}

/* malloc() of @size bytes with a copy of @p; size 0 gives NULL and no
 * error. */
static int dup_array(const void *p, size_t size, void **ret)
{
	void *copy = NULL;

	if (size > 0) {
		copy = malloc(size);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, p, size);
	}
	*ret = copy;
	return 0;
}

struct cmap *cmap_dup(const struct cmap *m)
{
	struct cmap *copy = malloc(sizeof(*copy));
	void *daemons = NULL, *sessions = NULL, *logs = NULL;

	if (!copy)
		return NULL;
	memcpy(copy, m, sizeof(*copy));
	if (dup_array(m->daemons, m->daemon_count * sizeof(*m->daemons),
		      &daemons) < 0)
		goto out_free_copy;
	if (dup_array(m->sessions, m->session_count * sizeof(*m->sessions),
		      &sessions) < 0)
		goto out_free_daemons;
	if (dup_array(m->logs, m->log_count * sizeof(*m->logs), &logs) < 0)
		goto out_free_sessions;
	copy->daemons = daemons;
	copy->sessions = sessions;
	copy->logs = logs;
	return copy;

out_free_sessions:
	free(sessions);
out_free_daemons:
	free(daemons);
out_free_copy:
	free(copy);
	return NULL;
}

int cmap_add_daemon(struct cmap *m, const struct cmap_daemon *d)
{
	struct cmap_daemon *grown;

	if (d->id == 0)
		return -EINVAL;
	if (cmap_find_daemon(m, d->id) >= 0)
		return -EEXIST;
	if (m->daemon_count >= DAEMON_COUNT_MAX)
		return -ENOSPC;
	grown = realloc(m->daemons, (m->daemon_count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	m->daemons = grown;
	grown[m->daemon_count] = *d;
	return (int)m->daemon_count++;
}

_Static_assert(DAEMON_COUNT_MAX < CMAP_SLOT_NONE, "an index fits a slot");

void cmap_fill_slots(struct cmap *m)
{
	for (uint32_t s = 0; s < SLOT_COUNT; s++) {
		for (uint32_t r = 0; r < REPLICA_COUNT_MAX; r++) {
			uint16_t daemon = CMAP_SLOT_NONE;

			if (r < m->replica_count && r < m->daemon_count)
				daemon = (uint16_t)((s + r) % m->daemon_count);
			m->slots[s][r] = daemon;
		}
	}
}

int cmap_find_daemon(const struct cmap *m, uint32_t id)
{
	for (uint32_t i = 0; i < m->daemon_count; i++)
		if (m->daemons[i].id == id)
			return (int)i;
	return -ENOENT;
}

bool cmap_session_live(const struct cmap *m, uint64_t session)
{
	uint32_t lo = 0, hi = m->session_count;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (m->sessions[mid] == session)
			return true;
		if (m->sessions[mid] < session)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

/* Index of the first log daemon with an id of at least @id. */
static uint32_t log_index(const struct cmap *m, uint32_t id)
{
	uint32_t i = 0;

	while (i < m->log_count && m->logs[i].id < id)
		i++;
	return i;
}

const struct cmap_log *cmap_find_log(const struct cmap *m, uint32_t id)
{
	uint32_t i = log_index(m, id);

	return i < m->log_count && m->logs[i].id == id ? &m->logs[i] : NULL;
}

int cmap_set_log(struct cmap *m, const struct cmap_log *l)
{
	uint32_t i = log_index(m, l->id);
	struct cmap_log *grown;

	if (l->id == 0)
		return -EINVAL;
	if (i < m->log_count && m->logs[i].id == l->id) {
		m->logs[i] = *l;
		return 0;
	}
	if (m->log_count >= LOG_DAEMON_COUNT_MAX)
		return -ENOSPC;
	grown = realloc(m->logs, (m->log_count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	m->logs = grown;
	memmove(&grown[i + 1], &grown[i],
		(m->log_count - i) * sizeof(*grown));
	grown[i] = *l;
	m->log_count++;
	return 0;
}

/* ---- encoding ----
 *
 * u32 format, u64 epoch, u64 cluster_id, u32 replica_count, u32 daemon_count,
 * daemons, SLOT_COUNT * replica_count u16, u32 session_count, u64 sessions;
 * with CMAP_FORMAT_LOGS: u32 log_count, log daemons.
 */

static struct wire_str text(const char *s)
{
	return (struct wire_str){ s, (uint32_t)strnlen(s, CMAP_ADDR_LEN_MAX) };
}

static size_t daemon_size(const struct cmap_daemon *d)
{
	return 4 + 2 + text(d->addr).len + 2 + 8 + 8 + 1;
}

static size_t log_size(const struct cmap_log *l)
{
	return 4 + 2 + text(l->addr).len + 2 + 2 + text(l->rdma_addr).len + 2 +
	       2 + text(l->domain).len + 8;
}

size_t cmap_encoded_size(const struct cmap *m)
{
	size_t size = 4 + 8 + 8 + 4 + 4 + 4;

	for (uint32_t i = 0; i < m->daemon_count; i++)
		size += daemon_size(&m->daemons[i]);
	size += (size_t)SLOT_COUNT * m->replica_count * 2;
	size += (size_t)m->session_count * 8;
	if (m->log_count > 0)
		size += 4;
	for (uint32_t i = 0; i < m->log_count; i++)
		size += log_size(&m->logs[i]);
	return size;
}

/* The largest map: longest texts, most replicas and sessions. */
_Static_assert(32 + DAEMON_COUNT_MAX * (25 + CMAP_ADDR_LEN_MAX) +
			       SLOT_COUNT * REPLICA_COUNT_MAX * 2 +
			       SESSION_COUNT_MAX * 8 +
			       LOG_DAEMON_COUNT_MAX *
				       (22 + 3 * CMAP_ADDR_LEN_MAX) + 4096 <
		       FRAME_BODY_MAX,
	       "a map is one body");

void cmap_encode(struct wire_out *o, const struct cmap *m)
{
	wire_put_u32(o, m->log_count > 0 ? CMAP_FORMAT_LOGS : CMAP_FORMAT);
	wire_put_u64(o, m->epoch);
	wire_put_u64(o, m->cluster_id);
	wire_put_u32(o, m->replica_count);
	wire_put_u32(o, m->daemon_count);
	for (uint32_t i = 0; i < m->daemon_count; i++) {
		const struct cmap_daemon *d = &m->daemons[i];

		wire_put_u32(o, d->id);
		wire_put_str(o, text(d->addr));
		wire_put_u16(o, d->port);
		wire_put_u64(o, d->store_id_hi);
		wire_put_u64(o, d->store_id_lo);
		wire_put_u8(o, d->state);
	}
	for (uint32_t s = 0; s < SLOT_COUNT; s++)
		for (uint32_t r = 0; r < m->replica_count; r++)
			wire_put_u16(o, m->slots[s][r]);
	wire_put_u32(o, m->session_count);
	for (uint32_t i = 0; i < m->session_count; i++)
		wire_put_u64(o, m->sessions[i]);
	if (m->log_count > 0)
		wire_put_u32(o, m->log_count);
	for (uint32_t i = 0; i < m->log_count; i++) {
		const struct cmap_log *l = &m->logs[i];

		wire_put_u32(o, l->id);
		wire_put_str(o, text(l->addr));
		wire_put_u16(o, l->port);
		wire_put_str(o, text(l->rdma_addr));
		wire_put_u16(o, l->rdma_port);
		wire_put_str(o, text(l->domain));
		wire_put_u64(o, l->boot_id);
	}
}

/* A text of a daemon; latches in->bad. */
static void get_text(struct wire_in *in, char to[CMAP_ADDR_LEN_MAX + 1])
{
	struct wire_str s = wire_get_str(in);

	if (in->bad || s.len > CMAP_ADDR_LEN_MAX ||
	    (s.len > 0 && memchr(s.p, '\0', s.len))) {
		in->bad = true;
		return;
	}
	if (s.len > 0)
		memcpy(to, s.p, s.len);
}

/* One daemon, appended to @m. */
static int decode_daemon(struct wire_in *in, struct cmap *m)
{
	struct cmap_daemon d;
	int index;

	memset(&d, 0, sizeof(d));
	d.id = wire_get_u32(in);
	get_text(in, d.addr);
	d.port = wire_get_u16(in);
	d.store_id_hi = wire_get_u64(in);
	d.store_id_lo = wire_get_u64(in);
	d.state = wire_get_u8(in);

	if (in->bad || d.state > CMAP_STATE_LOST)
		return -EBADMSG;
	index = cmap_add_daemon(m, &d);
	if (index == -ENOMEM)
		return -ENOMEM;
	return index < 0 ? -EBADMSG : 0; /* id 0, given twice, too many */
}

/* Slots are filled from the first replica on, with different daemons. */
static int decode_slots(struct wire_in *in, struct cmap *m)
{
	for (uint32_t s = 0; s < SLOT_COUNT; s++) {
		for (uint32_t r = 0; r < m->replica_count; r++) {
			uint16_t daemon = wire_get_u16(in);

			m->slots[s][r] = daemon;
			if (daemon == CMAP_SLOT_NONE)
				continue;
			if (daemon >= m->daemon_count)
				return -EBADMSG;
			for (uint32_t q = 0; q < r; q++)
				if (m->slots[s][q] == daemon ||
				    m->slots[s][q] == CMAP_SLOT_NONE)
					return -EBADMSG;
		}
	}
	return in->bad ? -EBADMSG : 0;
}

static int decode_sessions(struct wire_in *in, struct cmap *m)
{
	uint32_t count = wire_get_u32(in);
	uint64_t last = 0;

	if (in->bad || count > SESSION_COUNT_MAX)
		return -EBADMSG;
	if (count == 0)
		return 0;
	m->sessions = malloc(count * sizeof(*m->sessions));
	if (!m->sessions)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t session = wire_get_u64(in);

		if (session <= last) /* 0 is no session */
			return -EBADMSG;
		m->sessions[i] = last = session;
	}
	m->session_count = count;
	return 0;
}

/* Log daemons ascend, and there is one at least. */
static int decode_logs(struct wire_in *in, struct cmap *m)
{
	uint32_t count = wire_get_u32(in), last = 0;

	if (in->bad || count == 0 || count > LOG_DAEMON_COUNT_MAX)
		return -EBADMSG;
	m->logs = calloc(count, sizeof(*m->logs));
	if (!m->logs)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		struct cmap_log *l = &m->logs[i];

		l->id = wire_get_u32(in);
		get_text(in, l->addr);
		l->port = wire_get_u16(in);
		get_text(in, l->rdma_addr);
		l->rdma_port = wire_get_u16(in);
		get_text(in, l->domain);
		l->boot_id = wire_get_u64(in);
		if (in->bad || l->id <= last)
			return -EBADMSG;
		last = l->id;
	}
	m->log_count = count;
	return 0;
}

static int decode_all(struct wire_in *in, struct cmap *m)
{
	uint32_t format = wire_get_u32(in), daemon_count;
	int err;

	if (format != CMAP_FORMAT && format != CMAP_FORMAT_LOGS)
		return -EBADMSG;
	m->epoch = wire_get_u64(in);
	m->cluster_id = wire_get_u64(in);
	m->replica_count = wire_get_u32(in);
	daemon_count = wire_get_u32(in);
	if (in->bad || m->replica_count == 0 ||
	    m->replica_count > REPLICA_COUNT_MAX ||
	    daemon_count > DAEMON_COUNT_MAX)
		return -EBADMSG;

	for (uint32_t i = 0; i < daemon_count; i++) {
		err = decode_daemon(in, m);
		if (err < 0)
			return err;
	}
	err = decode_slots(in, m);
	if (err < 0)
		return err;
	err = decode_sessions(in, m);
	if (err == 0 && format == CMAP_FORMAT_LOGS)
		err = decode_logs(in, m);
	return err < 0 ? err : wire_in_end(in);
}

int cmap_decode(const void *p, size_t len, struct cmap **ret)
{
	struct cmap *m = cmap_new();
	struct wire_in in;
	int err;

	if (!m)
		return -ENOMEM;
	wire_in_init(&in, p, len);
	err = decode_all(&in, m);
	if (err < 0) {
		cmap_free(m);
		return err;
	}
	*ret = m;
	return 0;
}
