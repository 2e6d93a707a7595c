#include "common/key.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two keys and room for comments. */
#define FILE_SIZE_MAX 4096u

/* @digits of them; others, or more, are an error. */
static bool hex_parse(const char **p, const char *end, uint8_t *out,
		      size_t digits)
{
	for (size_t i = 0; i < digits; i++, (*p)++) {
		static const char set[] = "0123456789abcdef";
		const char *at = *p < end && **p ? strchr(set, **p) : NULL;
		unsigned v;

		if (!at)
			return false;
		v = (unsigned)(at - set);
		out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | v : v << 4);
	}
	return true;
}

static bool blanks_skip(const char **p, const char *end)
{
	const char *from = *p;

	while (*p < end && (**p == ' ' || **p == '\t' || **p == '\r'))
		(*p)++;
	return *p > from;
}

/* "key ID SECRET". Returns NULL, or what is wrong. */
static const char *line_parse(const char *p, const char *end, struct key *k)
{
	static const char word[] = "key";
	uint8_t id[KEY_ID_DIGITS / 2];

	if (end - p < 3 || memcmp(p, word, 3) != 0)
		return "'key ID SECRET' is expected";
	p += 3;
	if (!blanks_skip(&p, end))
		return "'key ID SECRET' is expected";
	if (!hex_parse(&p, end, id, KEY_ID_DIGITS) || !blanks_skip(&p, end))
		return "the id has 16 hexadecimal digits";
	if (!hex_parse(&p, end, k->secret, 2 * KEY_SECRET_SIZE))
		return "the secret has 64 hexadecimal digits";
	blanks_skip(&p, end);
	if (p < end)
		return "something follows the secret";
	k->id = 0;
	for (size_t i = 0; i < sizeof(id); i++)
		k->id = k->id << 8 | id[i];
	return k->id ? NULL : "the id is zero";
}

/* As line_parse(); also adds it. */
static const char *line_add(const char *p, const char *end, struct keyring *k)
{
	struct key one = { 0 };
	const char *wrong = line_parse(p, end, &one);

	if (!wrong && k->count == KEY_COUNT_MAX)
		wrong = "there are more than two keys";
	else if (!wrong && keyring_find(k, one.id))
		wrong = "two keys have this id";
	if (!wrong)
		k->keys[k->count++] = one;
	explicit_bzero(&one, sizeof(one));
	return wrong;
}

int keyring_parse(const char *text, size_t len, struct keyring *k, char *why,
		  size_t why_size)
{
	const char *p = text, *end = text + len, *wrong = NULL;
	unsigned line = 0;

	memset(k, 0, sizeof(*k));
	while (p < end && !wrong) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));

		if (!eol)
			eol = end;
		line++;
		blanks_skip(&p, eol);
		if (p < eol && *p != '#')
			wrong = line_add(p, eol, k);
		p = eol < end ? eol + 1 : end;
	}
	if (!wrong && k->count == 0)
		wrong = "no key is in it";
	if (!wrong)
		return 0;
	snprintf(why, why_size, "line %u: %s", line, wrong);
	keyring_fini(k);
	return -EINVAL;
}

static const char *owner_wrong(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "is not a file";
	if (st->st_mode & 077)
		return "may be read or written by others: chmod 600";
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return "belongs to somebody else";
	return NULL;
}

/* Reads the whole file. Returns its length or -errno. */
static ssize_t read_all(int fd, char *text, size_t size)
{
	size_t len = 0;

	for (;;) {
		ssize_t n = read(fd, text + len, size - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return (ssize_t)len;
		len += (size_t)n;
		if (len == size)
			return -EFBIG;
	}
}

int keyring_load(const char *path, struct keyring *k, char *why,
		 size_t why_size)
{
	char text[FILE_SIZE_MAX], what[128];
	const char *wrong;
	struct stat st;
	ssize_t len;
	int rv, fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	memset(k, 0, sizeof(*k));
	if (fd < 0 || fstat(fd, &st) < 0) {
		rv = -errno;
		snprintf(why, why_size, "%s: %s", path, strerror(-rv));
		if (fd >= 0)
			close(fd);
		return rv;
	}
	wrong = owner_wrong(&st);
	if (wrong) {
		snprintf(why, why_size, "%s: %s", path, wrong);
		close(fd);
		return -EPERM;
	}
	len = read_all(fd, text, sizeof(text));
	close(fd);
	if (len < 0) {
		rv = (int)len;
		snprintf(why, why_size, "%s: %s", path, strerror(-rv));
	} else {
		rv = keyring_parse(text, (size_t)len, k, what, sizeof(what));
		if (rv < 0)
			snprintf(why, why_size, "%s: %s", path, what);
	}
	explicit_bzero(text, sizeof(text));
	return rv;
}

static size_t key_print(const struct key *k, char *out, size_t size)
{
	size_t len = (size_t)snprintf(out, size, "key %016llx ",
				      (unsigned long long)k->id);

	for (size_t i = 0; i < KEY_SECRET_SIZE; i++)
		len += (size_t)snprintf(out + len, size - len, "%02x",
					k->secret[i]);
	return len + (size_t)snprintf(out + len, size - len, "\n");
}

static int write_all(int fd, const char *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

/* Makes the name that was just given or changed durable. */
static int parent_sync(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) :
			    strdup(".");
	int fd, rv = 0;

	if (!dir)
		return -ENOMEM;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		rv = -errno;
	if (fd >= 0)
		close(fd);
	free(dir);
	return rv;
}

int keyring_save(const char *path, const struct keyring *k, bool exclusive)
{
	char text[FILE_SIZE_MAX], *tmp = NULL;
	struct stat st;
	size_t len = 0;
	int fd, rv;

	for (uint32_t i = 0; i < k->count; i++)
		len += key_print(&k->keys[i], text + len, sizeof(text) - len);
	if (asprintf(&tmp, "%s.XXXXXX", path) < 0)
		return -ENOMEM;
	fd = mkostemp(tmp, O_CLOEXEC); /* mode 0600 */
	rv = fd < 0 ? -errno : write_all(fd, text, len);
	/* Who could read the one before reads this one. */
	if (rv == 0 && !exclusive && stat(path, &st) == 0 &&
	    fchown(fd, st.st_uid, st.st_gid) < 0)
		rv = -errno;
	explicit_bzero(text, sizeof(text));
	if (fd >= 0)
		close(fd);
	if (rv == 0 && exclusive && link(tmp, path) < 0)
		rv = -errno;
	else if (rv == 0 && !exclusive && rename(tmp, path) < 0)
		rv = -errno;
	if (fd >= 0 && (rv < 0 || exclusive))
		(void)unlink(tmp);
	free(tmp);
	return rv == 0 ? parent_sync(path) : rv;
}

static int key_make(struct key *k)
{
	uint8_t bytes[sizeof(k->id) + KEY_SECRET_SIZE];
	size_t got = 0;

	while (got < sizeof(bytes)) {
		ssize_t n = getrandom(bytes + got, sizeof(bytes) - got, 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			got += (size_t)n;
	}
	memcpy(&k->id, bytes, sizeof(k->id));
	k->id |= 1; /* not zero */
	memcpy(k->secret, bytes + sizeof(k->id), KEY_SECRET_SIZE);
	explicit_bzero(bytes, sizeof(bytes));
	return 0;
}

int keyring_new(struct keyring *k)
{
	memset(k, 0, sizeof(*k));
	k->count = 1;
	return key_make(&k->keys[0]);
}

int keyring_rotate(struct keyring *k)
{
	struct key one = { 0 };
	int rv = key_make(&one);

	if (rv < 0)
		return rv;
	k->keys[1] = k->keys[0];
	k->keys[0] = one;
	k->count = 2;
	explicit_bzero(&one, sizeof(one));
	return 0;
}

const struct key *keyring_find(const struct keyring *k, uint64_t id)
{
	for (uint32_t i = 0; i < k->count; i++)
		if (k->keys[i].id == id)
			return &k->keys[i];
	return NULL;
}

void keyring_fini(struct keyring *k)
{
	explicit_bzero(k, sizeof(*k));
}
