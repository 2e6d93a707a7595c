/* What a log's records come to: each byte of the file that one of them says
 * something of, once, as the last one says. [pure]
 *
 * Who applies them so may stop anywhere: a byte is then what it was, or what
 * it is behind the last record. One after the other they would first take back
 * what is in the blocks already, where a log begins before that; and the next
 * to recover it may read a peer whose log begins later, and never mend it. */
#ifndef FUSE_CORE_LOG_NET_H
#define FUSE_CORE_LOG_NET_H

#include "common/log_rec.h"

struct log_net_rec {
	uint64_t off, end; /* bytes of the file */
	const uint8_t *data; /* NULL: zeros */
};

struct log_net {
	/* The file has this length behind it; but without @sized (a record set
	 * it) it is no shorter than it was. */
	bool sized;
	uint64_t length;
	/* private */
	struct log_net_rec *recs; /* in their order */
	uint32_t count, cap;
	bool plain; /* none is about a byte of an earlier one */
	uint64_t end; /* of all */
	/* Else: where they begin and end, in order, and of the bytes from each
	 * to the next: whose they are, the next that is nobody's yet. */
	uint64_t *marks;
	uint32_t *owner, *free_next;
	uint32_t mark_count;
	uint32_t at; /* what comes next */
};

#define LOG_NET_COUNT_MAX (UINT32_MAX / 4)

void log_net_init(struct log_net *n);
void log_net_fini(struct log_net *n);
/* The next record; its data stays where it is. 0, -ENOMEM, or -EFBIG: there
 * are LOG_NET_COUNT_MAX. */
int log_net_add(struct log_net *n, const struct log_rec *r) must_check;
/* That was the last one. 0 or -ENOMEM. */
int log_net_end(struct log_net *n) must_check;
/* A piece of the file, in no order that matters: no two are about the same
 * byte. With n->sized zeros end at n->length. false: there is none left. */
bool log_net_next(struct log_net *n, struct log_net_rec *piece);

#endif
