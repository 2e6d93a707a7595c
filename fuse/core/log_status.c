/* What a mount tells of its logs. */
#include "fuse/core/log_priv.h"

static void dev_status(const struct log_dev *d, FILE *out)
{
	fprintf(out, "{\"id\":%u,\"addr\":\"%s\",\"port\":%u,\"up\":%s}",
		d->id, d->addr, d->port, d->up ? "true" : "false");
}

static const char *state_word(const struct log_file *lf)
{
	if (lf->fenced)
		return "fenced";
	switch (lf->state) {
	case LOG_OPENING:
		return "opening";
	case LOG_ACTIVE:
		return lf->giving_up ? "no majority" : "active";
	case LOG_DROPPING:
		return "ending";
	case LOG_DEAD:
		break;
	}
	return "ended";
}

static void file_status(const struct log_file *lf, FILE *out)
{
	bool first = true;

	fprintf(out,
		"{\"ino\":%llu,\"epoch\":%llu,\"state\":\"%s\",\"seq\":%llu,"
		"\"committed\":%llu,\"destaged\":%llu,\"mirror_bytes\":%llu,"
		"\"ordered\":%s,\"peers\":[",
		(unsigned long long)lf->in->ino, (unsigned long long)lf->epoch,
		state_word(lf), (unsigned long long)lf->w.seq,
		(unsigned long long)lf->w.committed,
		(unsigned long long)lf->destaged_seq,
		(unsigned long long)lf->mirror_bytes,
		lf->ordered ? "true" : "false");
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *p = &lf->w.peers[i];

		if (p->state == LOG_PEER_UNUSED)
			continue;
		fprintf(out, "%s{\"id\":%u,\"state\":\"%s\","
			"\"transport\":\"%s\",\"acknowledged\":%llu}",
			first ? "" : ",", p->id,
			p->state == LOG_PEER_UP ? "up" :
			p->state == LOG_PEER_DOWN ? "down" : "failed",
			lf->links[i].xport ? lf->links[i].xport->name :
					     "connecting",
			(unsigned long long)p->acked.seq);
		first = false;
	}
	fputs("]}", out);
}

/* Has it a peer less than it shall have? */
static bool degraded(const struct log_file *lf)
{
	uint32_t up = 0;

	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		up += lf->w.peers[i].state == LOG_PEER_UP &&
		      lf->w.peers[i].in_old;
	return lf->state == LOG_ACTIVE && up < lf->opts.peers;
}

static uint32_t degraded_count(const struct log_client *l)
{
	const struct dlist *n;
	uint32_t count = 0;

	for (n = l->files.next; n != &l->files; n = n->next)
		count += degraded((const void *)
				  ((const char *)n -
				   offsetof(struct log_file, node)));
	return count;
}

#define COUNTER(name)                                                         \
	fprintf(out, ",\"%s\":%llu", #name, (unsigned long long)l->n.name)

void log_status(struct core *c, FILE *out)
{
	const struct log_client *l = c->log;
	const struct dlist *n;
	uint32_t count = 0;

	core_lock(c);
	fprintf(out, "\"logs\":{\"mirror_bytes\":%llu,\"degraded\":%u,"
		"\"recovering\":%s",
		(unsigned long long)l->mirror_bytes, degraded_count(l),
		l->recovering || l->heir == HEIR_RUNS ? "true" : "false");
	COUNTER(opened);
	COUNTER(dropped);
	COUNTER(fallbacks);
	COUNTER(recovered);
	COUNTER(lost);
	COUNTER(went_back);
	COUNTER(appends);
	COUNTER(append_bytes);
	COUNTER(posts);
	COUNTER(post_bytes);
	COUNTER(destages);
	COUNTER(rounds);
	COUNTER(journals);
	COUNTER(journal_failed);
	COUNTER(redone);
	COUNTER(replaced);
	COUNTER(failed_peers);
	COUNTER(waits);
	fputs(",\"logds\":[", out);
	for (uint32_t i = 0; i < l->dev_count; i++) {
		if (i > 0)
			fputc(',', out);
		dev_status(l->devs[i], out);
	}
	fputs("],\"files\":[", out);
	for (n = l->files.next; n != &l->files && count < LOG_STATUS_MAX;
	     n = n->next) {
		if (count++ > 0)
			fputc(',', out);
		file_status((const void *)((const char *)n -
					   offsetof(struct log_file, node)),
			    out);
	}
	fputs("]}", out);
	core_unlock(c);
}
