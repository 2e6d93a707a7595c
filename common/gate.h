/* With what a program proves itself to others and what it asks of them
 * (hailfs-security(7)): the cluster's key, read from its file, and what the
 * cluster file says that shall protect the frames.
 *
 * The key file is looked at for each connection and read when it is another
 * one, so that a key is replaced without a stop. What cannot be read then is
 * said once, and the keys from before stay.
 *
 * A cluster without a key stays on loopback: other machines are neither
 * connected to nor listened to.
 *
 * Any thread may call; a gate is borrowed by all who connect or accept.
 */
#ifndef COMMON_GATE_H
#define COMMON_GATE_H

#include <sys/socket.h>

#include "common/conf.h"
#include "common/greet.h"

struct gate;

/* Of @c, the cluster file at @conf_path, beside which a relative name of a key
 * file is looked for. Returns 0 or -errno, said on stderr. */
int gate_new(const struct conf *c, const char *conf_path, struct gate **ret)
	must_check;
void gate_free(struct gate *g); /* NULL: no-op */

/* May somebody listen at @at? Returns 0; -ENOKEY: beyond loopback, without a
 * key. NULL: anybody may. */
int gate_listen(const struct gate *g, const struct sockaddr *at) must_check;

/* How a connection to @to begins; @try: how often that was refused for the
 * key, from 0, the newest. Returns 0: *ret is the handshake, NULL: with none
 * (there is no key, or no gate);
 *   -EKEYREJECTED  no more keys to try
 *   -ENOKEY        beyond loopback, without a key
 *   -EPROTONOSUPPORT  plain frames beyond loopback
 *   -ENOMEM */
int gate_connect(struct gate *g, const struct sockaddr *to, unsigned try,
		 struct greet **ret) must_check;
/* The same for the accepted socket @fd. */
int gate_accept(struct gate *g, int fd, struct greet **ret) must_check;

/* What an error of a connection that began so says to people; NULL: it is none
 * of these. */
const char *gate_error(int err);

#endif
