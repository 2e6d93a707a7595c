/* hailctl log salvage: what its parts share. */
#ifndef TOOLS_HAILCTL_SALVAGE_H
#define TOOLS_HAILCTL_SALVAGE_H

#include "fuse/core/log_choose.h"
#include "fuse/core/log_salvage.h"
#include "tools/hailctl/ctl.h"

/* What one peer of a log's list has of it. */
struct salvage_peer {
	struct meta_log_peer id;
	int error; /* 0: it answered */
	struct log_answer answer; /* as a recovery takes it */
	struct log_salvage_region *regions;
	uint32_t region_count;
	struct log_salvaged s;
};

/* A log without a writer. */
struct salvage_log {
	struct meta_log_entry e; /* its peers are: */
	struct salvage_peer peers[LOG_PEER_COUNT_MAX];
	uint32_t count;
	enum log_choice choice; /* a recovery's, now */
	int best; /* peer; -ENOENT: none has a record */
};

/* Reads from the daemons of @ls what they have of log @e; they are not changed.
 * 0, or -EBADMSG, -ENOMEM; a peer that does not tell is in the result. */
int salvage_read(struct ctl *c, struct links *ls,
		 const struct meta_log_entry *e, struct salvage_log *ret);
void salvage_free(struct salvage_log *g);
static inline struct log_salvage_what
salvage_what(struct ctl *c, const struct salvage_log *g)
{
	return (struct log_salvage_what){ c->conf.cluster_id, g->e.ino,
					  g->e.data_epoch };
}
struct link *salvage_link(struct links *ls, enum daemon_kind kind, uint32_t id);

/* Writes the file to @fd, which is empty: the blocks' content and then, where
 * @g is not NULL, the records of its best peer. False after a message. */
bool salvage_write(struct ctl *c, struct links *ls, const struct meta_attr *a,
		   const struct salvage_log *g, int fd);

#endif
