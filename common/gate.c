#include "common/gate.h"

#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

#include "common/diag.h"
#include "common/local_sock.h"

struct gate {
	enum wire_guard guard;
	bool keyed;
	char path[PATH_MAX];
	pthread_mutex_t lock;
	/* protected by lock */
	struct keyring ring;
	struct stat seen; /* the file whose keys these are, or that is bad */
};

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
	       a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Takes the keys of the file when it is another one. locked. */
static void look(struct gate *g)
{
	struct keyring ring;
	struct stat st;
	char why[PATH_MAX + 200];
	int rv;

	/* While there is none the keys from before are the last word. */
	if (stat(g->path, &st) < 0 || same_file(&st, &g->seen))
		return;
	g->seen = st;
	rv = keyring_load(g->path, &ring, why, sizeof(why));
	if (rv < 0) {
		diag_warn("gate", "event=key-file-bad why=\"%s\" "
			  "action=keys-from-before", why);
		return;
	}
	g->ring = ring;
	diag_info("gate", "event=keys-read count=%u newest=%016llx",
		  ring.count, (unsigned long long)ring.keys[0].id);
	keyring_fini(&ring);
}

/* Beside the cluster file. Returns 0 or -ENAMETOOLONG. */
static int key_path(const char *key, const char *conf_path, char *ret,
		    size_t size)
{
	const char *slash = strrchr(conf_path, '/');
	int dir_len = *key == '/' || !slash ? 0 : (int)(slash - conf_path) + 1;
	int len = snprintf(ret, size, "%.*s%s", dir_len, conf_path, key);

	return len >= 0 && (size_t)len < size ? 0 : -ENAMETOOLONG;
}

static int load(struct gate *g, const char *key, const char *conf_path)
{
	char why[PATH_MAX + 200];
	int rv = key_path(key, conf_path, g->path, sizeof(g->path));

	if (rv < 0) {
		fprintf(stderr, "%s: the key file's name is too long\n",
			conf_path);
		return rv;
	}
	/* Before it is read: who writes it meanwhile is seen the next time. */
	if (stat(g->path, &g->seen) < 0)
		memset(&g->seen, 0, sizeof(g->seen));
	rv = keyring_load(g->path, &g->ring, why, sizeof(why));
	if (rv < 0)
		fprintf(stderr, "%s: its key: %s%s\n", conf_path, why,
			rv == -ENOENT ? "; if its directory was moved or "
					"copied, correct the key line" : "");
	return rv;
}

int gate_new(const struct conf *c, const char *conf_path, struct gate **ret)
{
	struct gate *g = calloc(1, sizeof(*g));
	int rv = 0;

	if (!g)
		return -ENOMEM;
	pthread_mutex_init(&g->lock, NULL);
	g->guard = c->wire;
	g->keyed = c->key != NULL;
	if (g->keyed)
		rv = load(g, c->key, conf_path);
	if (rv < 0) {
		gate_free(g);
		return rv;
	}
	*ret = g;
	return 0;
}

void gate_free(struct gate *g)
{
	if (!g)
		return;
	keyring_fini(&g->ring);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

int gate_listen(const struct gate *g, const struct sockaddr *at)
{
	return !g || g->keyed || sock_is_local(at) ? 0 : -ENOKEY;
}

/* What the connection must bear to be begun at all. */
static int check(const struct gate *g, const struct sockaddr *other)
{
	if (!g->keyed)
		return sock_is_local(other) ? 0 : -ENOKEY;
	if (g->guard == GUARD_PLAIN && !sock_is_local(other))
		return -EPROTONOSUPPORT;
	return 0;
}

int gate_connect(struct gate *g, const struct sockaddr *to, unsigned try,
		 struct greet **ret)
{
	int rv;

	*ret = NULL;
	if (!g || !g->keyed) {
		rv = g ? check(g, to) : 0;
		return rv == 0 && try > 0 ? -EKEYREJECTED : rv;
	}
	rv = check(g, to);
	if (rv < 0)
		return rv;
	pthread_mutex_lock(&g->lock);
	look(g);
	if (try < g->ring.count)
		rv = greet_connect(&g->ring.keys[try], g->guard, ret);
	else
		rv = -EKEYREJECTED;
	pthread_mutex_unlock(&g->lock);
	return rv;
}

/* As much as the cluster file asks for, or more. */
static uint32_t enough(enum wire_guard guard)
{
	uint32_t all = GUARD_PLAIN | GUARD_MAC | GUARD_CRYPT;

	return all & ~((uint32_t)guard - 1);
}

int gate_accept(struct gate *g, int fd, struct greet **ret)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int rv;

	*ret = NULL;
	if (!g)
		return 0;
	if (getpeername(fd, (struct sockaddr *)&ss, &len) < 0)
		return -errno;
	rv = check(g, (struct sockaddr *)&ss);
	if (rv < 0 || !g->keyed)
		return rv;
	pthread_mutex_lock(&g->lock);
	look(g);
	rv = greet_accept(&g->ring, enough(g->guard), ret);
	pthread_mutex_unlock(&g->lock);
	return rv;
}

const char *gate_error(int err)
{
	switch (err) {
	case -EKEYREJECTED:
		return "the other side does not take our key, or wants one; "
		       "see key in hailfs.conf(5)";
	case -ENOKEY:
		return "another machine, and the cluster file names no key; "
		       "see hailctl key new";
	default:
		return NULL;
	}
}
