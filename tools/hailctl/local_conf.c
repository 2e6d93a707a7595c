/* hailctl local: the cluster file of a new local cluster. */
#include "tools/hailctl/local.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/key.h"

/* Below the kernel's range for outgoing connections, so that none of those
 * takes a port while its daemon is down. */
#define PORT_MIN 10000u
#define PORT_MAX 32000u
#define PORT_TRIES 20000u
#define KEY_PATH_MAX (PATH_MAX + 16)

static uint64_t random_u64(void)
{
	uint64_t v;

	if (getrandom(&v, sizeof(v), 0) != sizeof(v)) {
		ctl_err("getrandom: %s", strerror(errno));
		exit(CTL_FAILED);
	}
	return v;
}

static bool port_free(uint32_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool is_free;

	if (fd < 0)
		return false;
	is_free = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
		  listen(fd, 1) == 0;
	close(fd);
	return is_free;
}

/* @count free ports in a row are not needed, different ones are. */
static bool pick_ports(uint32_t *ports, uint32_t count)
{
	uint32_t port, found = 0;

	port = PORT_MIN + (uint32_t)(random_u64() % (PORT_MAX - PORT_MIN));
	for (uint32_t i = 0; i < PORT_TRIES && found < count; i++) {
		if (port_free(port))
			ports[found++] = port;
		if (++port == PORT_MAX)
			port = PORT_MIN;
	}
	if (found < count)
		ctl_err("no %u free TCP ports between %u and %u on 127.0.0.1",
			count, PORT_MIN, PORT_MAX);
	return found == count;
}

/* A word of the cluster file. */
static void put_quoted(FILE *f, const char *s)
{
	fputc('"', f);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', f);
		fputc(*s, f);
	}
	fputc('"', f);
}

/* The directory's name as a cluster's: letters, digits and ._- */
static void put_name(FILE *f, const struct local *l)
{
	const char *s = strrchr(l->dir, '/') + 1;

	if (!*s)
		s = "local";
	for (; *s; s++)
		fputc(strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
			     "uvwxyz0123456789._-", *s) ? *s : '-', f);
}

static void put_logd(FILE *f, uint32_t id, uint32_t port, uint64_t memory)
{
	fprintf(f, "%-6s %u 127.0.0.1:%u memory=%llu\n", "logd", id, port,
		(unsigned long long)memory);
}

static void put_daemon(FILE *f, const struct local *l, const char *kind,
		       uint32_t id, uint32_t port)
{
	char path[PATH_MAX + 48];

	snprintf(path, sizeof(path), "%s/%s%u", l->dir, kind, id);
	fprintf(f, "%-6s %u 127.0.0.1:%u data=", kind, id, port);
	put_quoted(f, path);
	fputc('\n', f);
}

static void key_path(const struct local *l, char *ret, size_t size)
{
	snprintf(ret, size, "%s/cluster.key", l->dir);
}

static uint32_t metad_count(const struct local *l)
{
	return l->c->o.metads ? (uint32_t)l->c->o.metads : 1;
}

static void put_conf(FILE *f, const struct local *l, uint32_t blockd_count,
		     const uint32_t *ports)
{
	char path[KEY_PATH_MAX];

	fprintf(f, "# Made by 'hailctl local up'; see hailfs.conf(5).\n"
		"cluster ");
	put_name(f, l);
	fprintf(f, "\nid 0x%016llx\nreplicas 1\nkey ",
		(unsigned long long)(random_u64() | 1));
	key_path(l, path, sizeof(path));
	put_quoted(f, path);
	fprintf(f, "\nwire %s\n", wire_words[l->c->o.wire]);
	for (uint32_t i = 1; i <= metad_count(l); i++)
		put_daemon(f, l, "metad", i, *ports++);
	for (uint32_t i = 1; i <= blockd_count; i++)
		put_daemon(f, l, "blockd", i, *ports++);
	for (uint32_t i = 1; i <= l->c->o.logds; i++)
		put_logd(f, i, *ports++, l->c->o.log_memory);
}

/* One that is there already is of a start that was cut off. */
static bool put_key(const struct local *l)
{
	char path[KEY_PATH_MAX];
	struct keyring k;
	int rv = keyring_new(&k);

	key_path(l, path, sizeof(path));
	if (rv == 0)
		rv = keyring_save(path, &k, true);
	keyring_fini(&k);
	if (rv == 0 || rv == -EEXIST)
		return true;
	ctl_err("%s: %s", path, strerror(-rv));
	return false;
}

/* Written aside and renamed: a file that exists is whole. */
bool local_conf_write(struct local *l, uint32_t blockd_count)
{
	uint32_t ports[METAD_COUNT_MAX + DAEMON_COUNT_MAX +
		       LOG_DAEMON_COUNT_MAX] = { 0 };
	char tmp[PATH_MAX + 32];
	FILE *f;
	bool ok;
	int rv;

	if (!pick_ports(ports, metad_count(l) + blockd_count +
				       (uint32_t)l->c->o.logds) ||
	    !put_key(l))
		return false;
	snprintf(tmp, sizeof(tmp), "%s.new", l->conf);
	f = fopen(tmp, "we");
	if (!f) {
		ctl_err("%s: %s", tmp, strerror(errno));
		return false;
	}
	put_conf(f, l, blockd_count, ports);
	ok = fflush(f) == 0 && fsync(fileno(f)) == 0;
	ok = fclose(f) == 0 && ok;
	if (!ok || rename(tmp, l->conf) < 0) {
		ctl_err("%s: %s", l->conf, strerror(errno));
		(void)unlink(tmp);
		return false;
	}
	/* Stores will say that they belong to this cluster. */
	rv = local_sync_parent(l->conf);
	if (rv < 0)
		ctl_err("%s: %s", l->dir, strerror(-rv));
	return rv == 0;
}
