/* How records come to a log peer: as requests over the connection that all else
 * goes over (tcp), or written into its memory (verbs). Regions are asked for
 * and given back over the former in any case.
 *
 * A peer has been told to forget a transport before the next one is used: what
 * was sent over the old one and given up does not arrive later (common:
 * LOG_CONNECT ends a connection, LOG_WRITE ends what was granted).
 */
#ifndef FUSE_CORE_LOG_XPORT_H
#define FUSE_CORE_LOG_XPORT_H

#include "fuse/core/core.h"

struct core;
struct log_conn;
struct log_file;
struct log_mirror;
struct log_post;
struct log_verbs;

struct log_xport {
	const char *name;
	/* Sends the peer's next post, if there is one. Returns whether. The
	 * outcome: log_link_posted(), log_link_lost(), never before return.
	 * Lock held. */
	bool (*post)(struct log_file *lf, uint32_t peer);
};

extern const struct log_xport log_xport_tcp; /* log_link.c */
extern const struct log_xport log_xport_verbs;

/* ---- log_xport_verbs.c; lock held ---- */
/* RDMA devices that a mount uses; a mirror has a place for each. */
#define LOG_VERBS_DEV_MAX 8u

/* Connects to @addr:@port, aside. NULL: it cannot be tried. Else there follows
 * log_link_connected() or log_link_lost(), until log_verbs_close(). */
struct log_conn *log_verbs_connect(struct log_file *lf, uint32_t peer,
				   const char *addr, uint16_t port,
				   uint64_t token);
/* Nothing more is heard of it. */
void log_verbs_close(struct log_conn *k);
/* Takes what is complete by now; never within the xport's post(). */
void log_verbs_look(struct core *c);
/* Is there hope for a device? */
bool log_verbs_maybe(struct core *c);
/* There is another mirror: its memory will be sent from. */
void log_verbs_mirror_new(struct core *c);
/* Registrations of a mirror that goes. */
void log_verbs_mirror_end(struct log_mirror *m);
/* Ends the thread, if there is one, and all connections, of which nothing more
 * is heard. Without the lock, while the core is being freed. */
void log_verbs_stop(struct core *c);

/* ---- log_link.c; lock held ---- */
void log_link_connected(struct log_file *lf, uint32_t peer);
/* The oldest post is there. */
void log_link_posted(struct log_file *lf, uint32_t peer,
		     const struct log_post *p);
/* The connection is gone, or could not be made, with all in flight. @again:
 * another one may do. */
void log_link_lost(struct log_file *lf, uint32_t peer, bool again,
		   const char *why);

#endif
