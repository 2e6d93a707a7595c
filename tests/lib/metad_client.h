/* A session of hail-metad that a test plays by hand: blocking, one request at
 * a time unless said. A failed step ends the test program.
 */
#ifndef TESTS_LIB_METAD_CLIENT_H
#define TESTS_LIB_METAD_CLIENT_H

#include "tests/lib/metad_run.h"

struct metad_client {
	struct metad_run *x;
	struct blk_raw r;
	bool connected;
	uint64_t session;
	uint64_t seq; /* last one used */
	uint64_t seq_low;
	struct meta_rhdr rhdr; /* of the last good reply */
	struct meta_attr attr; /* of the last reply that had one */
	uint8_t *reply; /* the last good one's body after rhdr */
	size_t reply_len;
};

/* Opens a session; 0 or -errno. @c is zeroed. */
int metad_client_open(struct metad_run *x, struct metad_client *c,
		      uint64_t client_id);
/* The same with @flags, META_SESSION_*. */
int metad_client_open_as(struct metad_run *x, struct metad_client *c,
			 uint64_t client_id, uint32_t flags);
/* With META_SESSION_SHARED, or the test that runs has failed. */
void metad_client_join(struct metad_run *x, struct metad_client *c,
		       uint64_t client_id);
/* What most tests begin with: hail-metad without further options, a new store
 * in each block daemon of the cluster file (11 in the first, 12 in the second),
 * and the session of client 1, or the test that runs has failed. */
void metad_client_begin(struct metad_run *x, struct metad_client *c);
void metad_client_fini(struct metad_client *c);
void metad_client_disconnect(struct metad_client *c);
/* HELLO with the session; the status. */
int metad_client_reconnect(struct metad_client *c);

/* Sends without waiting; @fields: the body after meta_mhdr for mutations (then
 * it gets c->seq + 1 and c->seq grows), else the whole body. Returns the
 * request's id. */
uint64_t metad_client_send(struct metad_client *c, uint16_t op,
			   const void *fields, size_t len);
/* The same sequence again. */
uint64_t metad_client_send_seq(struct metad_client *c, uint16_t op,
			       uint64_t seq, const void *fields, size_t len);
/* Waits for the answer to @id. Returns 0 or -errno (-ETIMEDOUT: none came in
 * @timeout_ms; -ECONNRESET). */
int metad_client_recv(struct metad_client *c, uint64_t id, int timeout_ms);
int metad_client_call(struct metad_client *c, uint16_t op, const void *fields,
		      size_t len);

/* c->attr is set by these. */
int metad_client_create(struct metad_client *c, uint64_t dir, const char *name,
			uint32_t flags);
int metad_client_mkdir(struct metad_client *c, uint64_t dir, const char *name);
int metad_client_unlink(struct metad_client *c, uint64_t dir,
			const char *name);
int metad_client_rename(struct metad_client *c, uint64_t dir, const char *name,
			uint64_t newdir, const char *newname);
int metad_client_lookup(struct metad_client *c, uint64_t dir,
			const char *name);
int metad_client_getattr(struct metad_client *c, uint64_t ino);
int metad_client_lease(struct metad_client *c, uint64_t ino);
int metad_client_give_back(struct metad_client *c, uint64_t ino,
			   uint32_t what);
int metad_client_wanted(struct metad_client *c, uint64_t ino, bool write);
/* META_WANT and META_EVENTS, without waiting: the request's id. */
uint64_t metad_client_want(struct metad_client *c, uint64_t ino, bool write);
uint64_t metad_client_listen(struct metad_client *c);
/* The answer to metad_client_listen() is this one event, or the test that runs
 * has failed. */
void metad_client_told(struct metad_client *c, uint64_t id, uint8_t kind,
		       uint64_t ino);
uint64_t metad_client_cut_begin(struct metad_client *c, uint64_t ino,
				uint64_t size_now, uint64_t size);
int metad_client_sync(struct metad_client *c);
/* All names of @dir, sorted, one a line, malloc'd. */
char *metad_client_list(struct metad_client *c, uint64_t dir);
/* They are @want, or the test that runs has failed. */
void metad_client_check_list(struct metad_client *c, uint64_t dir,
			     const char *want);
/* So many files with names of two hundred bytes, which begin with @first: they
 * fill the state and the log. Then a sync. */
void metad_client_create_long(struct metad_client *c, char first,
			      unsigned count);

/* Asks for a session in the place of client 1's, without waiting. @d: for
 * raw_recv() and raw_close() of d->r only. */
void metad_client_replace_begin(struct metad_run *x, struct metad_client *d);

#endif
