/* The cluster file: tokens, statements, checks, in this order. */
#include "common/conf.h"

#include "common/gate.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdarg.h>

#define FILE_SIZE_LIMIT (1u << 20)
#define WORD_LEN_MAX 4096u
#define WORD_COUNT_MAX 64u

/* One word of a line; text is in the parser's buffer, unquoted. */
struct word {
	const char *text;
	unsigned column;
};

struct parser {
	const char *p, *end;
	unsigned line;
	const char *line_start;
	struct word words[WORD_COUNT_MAX];
	uint32_t word_count;
	char *buf; /* text of this line's words */
	size_t buf_len;
	struct conf *c;
	struct conf_error *err;
	bool have_id, have_replicas;
	struct conf_at wire; /* line 0: none */
};

printf_like(3, 4)
static int fail(struct parser *ps, unsigned column, const char *fmt, ...)
{
	va_list ap;

	ps->err->line = ps->line;
	ps->err->column = column;
	va_start(ap, fmt);
	vsnprintf(ps->err->text, sizeof(ps->err->text), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* ---- tokens ---- */

static unsigned column_of(const struct parser *ps, const char *at)
{
	return (unsigned)(at - ps->line_start) + 1;
}

/* Control bytes would make messages and paths lie; a tab is white space. */
static int check_byte(struct parser *ps)
{
	unsigned char c = (unsigned char)*ps->p;

	if (c >= 0x20 && c != 0x7f)
		return 0;
	return fail(ps, column_of(ps, ps->p),
		    "byte 0x%02x is not allowed in this file", c);
}

static int quoted(struct parser *ps)
{
	const char *open = ps->p++;

	while (ps->p < ps->end && *ps->p != '\n') {
		char c = *ps->p;

		if (c == '"') {
			ps->p++;
			return 0;
		}
		if (c == '\\') {
			if (ps->p + 1 == ps->end ||
			    (ps->p[1] != '"' && ps->p[1] != '\\'))
				return fail(ps, column_of(ps, ps->p),
					    "after a backslash only \" or "
					    "another backslash may come");
			c = *++ps->p;
		} else if (c != '\t' && check_byte(ps) < 0) {
			return -EINVAL;
		}
		ps->buf[ps->buf_len++] = c;
		ps->p++;
	}
	return fail(ps, column_of(ps, open), "this quote is never closed");
}

static bool word_ends(const struct parser *ps)
{
	return ps->p == ps->end || *ps->p == ' ' || *ps->p == '\t' ||
	       *ps->p == '\n';
}

/* A word may be quoted in whole or in part: data="/srv/disk 1". */
static int word(struct parser *ps)
{
	size_t start = ps->buf_len;
	struct word *w;

	if (ps->word_count == WORD_COUNT_MAX)
		return fail(ps, column_of(ps, ps->p),
			    "more than %u words in a line", WORD_COUNT_MAX);
	w = &ps->words[ps->word_count];
	w->column = column_of(ps, ps->p);
	w->text = ps->buf + start;
	while (!word_ends(ps)) {
		if (*ps->p == '"') {
			if (quoted(ps) < 0)
				return -EINVAL;
			continue;
		}
		if (check_byte(ps) < 0)
			return -EINVAL;
		ps->buf[ps->buf_len++] = *ps->p++;
	}
	if (ps->buf_len - start > WORD_LEN_MAX)
		return fail(ps, w->column, "a word of more than %u bytes",
			    WORD_LEN_MAX);
	ps->buf[ps->buf_len++] = '\0';
	ps->word_count++;
	return 0;
}

/* Reads the words of one line, and past its end. */
static int line(struct parser *ps)
{
	ps->line_start = ps->p;
	ps->word_count = 0;
	ps->buf_len = 0;
	while (ps->p < ps->end && *ps->p != '\n') {
		if (*ps->p == ' ' || *ps->p == '\t') {
			ps->p++;
		} else if (*ps->p == '#') {
			while (ps->p < ps->end && *ps->p != '\n')
				ps->p++;
		} else if (word(ps) < 0) {
			return -EINVAL;
		}
	}
	if (ps->p < ps->end)
		ps->p++;
	return 0;
}

/* ---- values ---- */

/* A decimal or, with @hex_too, 0x number without sign or space. */
static int number(const char *s, bool hex_too, uint64_t max, uint64_t *ret)
{
	char *end;
	bool hex = hex_too && s[0] == '0' && (s[1] == 'x' || s[1] == 'X');

	if (hex ? !isxdigit((unsigned char)s[2]) : !isdigit((unsigned char)*s))
		return -EINVAL;
	errno = 0;
	*ret = strtoull(s, &end, hex ? 16 : 10);
	return *end || errno || *ret > max ? -EINVAL : 0;
}

static bool name_ok(const char *s)
{
	size_t len = strlen(s);

	return len > 0 && len <= NAME_LEN_MAX &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			 "0123456789._-") == len;
}

static bool key_ok(const char *s, size_t len)
{
	if (len == 0 || len > 64)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!islower((unsigned char)s[i]) &&
		    !isdigit((unsigned char)s[i]) && s[i] != '-')
			return false;
	return s[0] != '-';
}

/* "127.0.0.1:7000", "[::1]:7000" or "host.example:7000". */
static int address(struct parser *ps, const struct word *w,
		   struct conf_daemon *d)
{
	const char *colon = strrchr(w->text, ':');
	const char *host = w->text;
	struct in6_addr any;
	uint64_t port;
	size_t len;

	if (!colon)
		return fail(ps, w->column, "\"%.60s\" has no port; write "
			    "ADDRESS:PORT", w->text);
	if (number(colon + 1, false, UINT16_MAX, &port) < 0 || port == 0)
		return fail(ps, w->column + (unsigned)(colon + 1 - w->text),
			    "port \"%.60s\" is not a number from 1 to 65535",
			    colon + 1);
	len = (size_t)(colon - host);
	if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
		host++;
		len -= 2;
	} else if (memchr(host, ':', len)) {
		return fail(ps, w->column,
			    "an IPv6 address is written [ADDRESS]:PORT");
	}
	if (len == 0 || len > CMAP_ADDR_LEN_MAX)
		return fail(ps, w->column, "an address has 1 to %u bytes",
			    CMAP_ADDR_LEN_MAX);
	memcpy(d->addr, host, len);
	d->addr[len] = '\0';
	d->port = (uint16_t)port;
	if (*w->text == '[' ? inet_pton(AF_INET6, d->addr, &any) != 1 :
			      !name_ok(d->addr))
		return fail(ps, w->column, "\"%.60s\" is not an address",
			    d->addr);
	return 0;
}

/* ---- statements ---- */

static int one_value(struct parser *ps, const char *what)
{
	if (ps->word_count == 2)
		return 0;
	if (ps->word_count < 2)
		return fail(ps, ps->words[0].column, "%s: needs %s",
			    ps->words[0].text, what);
	return fail(ps, ps->words[2].column, "\"%.60s\" is one word too many",
		    ps->words[2].text);
}

static int twice(struct parser *ps)
{
	return fail(ps, ps->words[0].column, "%s is given twice",
		    ps->words[0].text);
}

static int stmt_cluster(struct parser *ps)
{
	if (one_value(ps, "a name") < 0)
		return -EINVAL;
	if (ps->c->name)
		return twice(ps);
	if (!name_ok(ps->words[1].text))
		return fail(ps, ps->words[1].column,
			    "a cluster's name has letters, digits and ._-");
	ps->c->name = strdup(ps->words[1].text);
	return ps->c->name ? 0 : -ENOMEM;
}

static int stmt_id(struct parser *ps)
{
	uint64_t id;

	if (one_value(ps, "a number") < 0)
		return -EINVAL;
	if (ps->have_id)
		return twice(ps);
	if (number(ps->words[1].text, true, UINT64_MAX, &id) < 0 || id == 0)
		return fail(ps, ps->words[1].column, "\"%.60s\" is not a "
			    "cluster id: a number from 1 to 2^64-1, or 0x "
			    "and digits", ps->words[1].text);
	ps->c->cluster_id = id;
	ps->have_id = true;
	return 0;
}

static int stmt_replicas(struct parser *ps)
{
	uint64_t count;

	if (one_value(ps, "a number") < 0)
		return -EINVAL;
	if (ps->have_replicas)
		return twice(ps);
	/* A larger number would promise copies that nobody makes. */
	if (number(ps->words[1].text, false, UINT32_MAX, &count) < 0 ||
	    count != 1)
		return fail(ps, ps->words[1].column, "replicas \"%.60s\": "
			    "this version keeps one copy; write 1",
			    ps->words[1].text);
	ps->have_replicas = true;
	return 0;
}

static int stmt_key(struct parser *ps)
{
	if (one_value(ps, "a file") < 0)
		return -EINVAL;
	if (ps->c->key)
		return twice(ps);
	if (!*ps->words[1].text)
		return fail(ps, ps->words[1].column, "key: a file's name is "
			    "missing");
	ps->c->key = strdup(ps->words[1].text);
	return ps->c->key ? 0 : -ENOMEM;
}

static int stmt_wire(struct parser *ps)
{
	static const struct {
		const char *word;
		enum wire_guard guard;
	} words[] = {
		{ "tls", GUARD_CRYPT },
		{ "mac", GUARD_MAC },
		{ "plain", GUARD_PLAIN },
	};

	if (one_value(ps, "tls, mac or plain") < 0)
		return -EINVAL;
	if (ps->wire.line)
		return twice(ps);
	ps->wire = (struct conf_at){ ps->line, ps->words[0].column };
	for (size_t i = 0; i < array_count(words); i++)
		if (strcmp(ps->words[1].text, words[i].word) == 0) {
			ps->c->wire = words[i].guard;
			return 0;
		}
	return fail(ps, ps->words[1].column, "wire \"%.60s\": what protects "
		    "frames is tls, mac or plain", ps->words[1].text);
}

/* Room for one more option of @d. */
static int grow_options(struct conf_daemon *d)
{
	/* NOLINTNEXTLINE: a daemon's line has set it */
	size_t count = d->opt_count + 1;
	void *p = realloc(d->opt_keys, count * sizeof(*d->opt_keys));

	if (!p)
		return -ENOMEM;
	d->opt_keys = p;
	p = realloc(d->opt_values, count * sizeof(*d->opt_values));
	if (!p)
		return -ENOMEM;
	d->opt_values = p;
	p = realloc(d->opt_at, count * sizeof(*d->opt_at));
	if (!p)
		return -ENOMEM;
	d->opt_at = p;
	return 0;
}

/* Appends key and value (copied) to @d's options. */
static int add_option(struct conf_daemon *d, const char *key, size_t key_len,
		      const char *value, struct conf_at at)
{
	char **keys, **values;

	if (grow_options(d) < 0)
		return -ENOMEM;
	keys = d->opt_keys;
	values = d->opt_values;
	d->opt_at[d->opt_count] = at;
	keys[d->opt_count] = strndup(key, key_len);
	values[d->opt_count] = strdup(value);
	if (!keys[d->opt_count] || !values[d->opt_count]) {
		free(keys[d->opt_count]);
		free(values[d->opt_count]);
		return -ENOMEM;
	}
	d->opt_count++;
	return 0;
}

static bool has_key(const struct conf_daemon *d, const char *key, size_t len)
{
	if (len == 4 && memcmp(key, "data", 4) == 0)
		return d->data;
	if (len == 6 && memcmp(key, "domain", 6) == 0)
		return d->domain;
	for (uint32_t i = 0; i < d->opt_count; i++)
		if (strlen(d->opt_keys[i]) == len &&
		    memcmp(d->opt_keys[i], key, len) == 0)
			return true;
	return false;
}

static int daemon_key(struct parser *ps, const struct word *w,
		      struct conf_daemon *d)
{
	const char *eq = strchr(w->text, '=');
	size_t len = eq ? (size_t)(eq - w->text) : 0;
	char **to = NULL;

	if (!eq || !key_ok(w->text, len))
		return fail(ps, w->column, "\"%.60s\" is not KEY=VALUE with a "
			    "key of a-z, 0-9 and -", w->text);
	if (has_key(d, w->text, len))
		return fail(ps, w->column, "%.*s is given twice", (int)len,
			    w->text);
	if (!eq[1])
		return fail(ps, w->column, "%.*s has no value", (int)len,
			    w->text);
	if (len == 4 && memcmp(w->text, "data", 4) == 0)
		to = &d->data;
	else if (len == 6 && memcmp(w->text, "domain", 6) == 0)
		to = &d->domain;
	if (!to)
		return add_option(d, w->text, len, eq + 1,
				  (struct conf_at){ ps->line, w->column });
	if (to == &d->domain && !name_ok(eq + 1))
		return fail(ps, w->column,
			    "a domain's name has letters, digits and ._-");
	*to = strdup(eq + 1);
	return *to ? 0 : -ENOMEM;
}

static void daemon_fini(struct conf_daemon *d)
{
	for (uint32_t i = 0; i < d->opt_count; i++) {
		free(d->opt_keys[i]);
		free(d->opt_values[i]);
	}
	free(d->opt_keys);
	free(d->opt_values);
	free(d->opt_at);
	free(d->data);
	free(d->domain);
}

/* Two daemons can neither share a number within their kind nor, whatever
 * their kind, an address and port. */
static int check_unique(struct parser *ps, const struct conf_daemon *d,
			const struct conf_daemon *same_kind, uint32_t count)
{
	const struct conf *c = ps->c;
	const struct conf_daemon *lists[] = { c->metads, c->blockds, c->logds };
	uint32_t counts[] = { c->metad_count, c->blockd_count, c->logd_count };

	if (conf_find(same_kind, count, d->id))
		return fail(ps, ps->words[1].column, "%s %u is given twice",
			    ps->words[0].text, d->id);
	for (size_t k = 0; k < array_count(lists); k++)
		for (uint32_t i = 0; i < counts[k]; i++)
			if (lists[k][i].port == d->port &&
			    strcmp(lists[k][i].addr, d->addr) == 0)
				return fail(ps, ps->words[2].column,
					    "another daemon has this address "
					    "and port");
	return 0;
}

static int daemon_fill(struct parser *ps, struct conf_daemon *d,
		       const struct conf_daemon *list, uint32_t count)
{
	uint64_t id;

	if (ps->word_count < 3)
		return fail(ps, ps->words[0].column,
			    "write %s NUMBER ADDRESS:PORT [KEY=VALUE ...]",
			    ps->words[0].text);
	if (number(ps->words[1].text, false, UINT32_MAX, &id) < 0 || id == 0)
		return fail(ps, ps->words[1].column, "\"%.60s\" is not a "
			    "daemon's number (from 1)", ps->words[1].text);
	d->id = (uint32_t)id;
	if (address(ps, &ps->words[2], d) < 0 ||
	    check_unique(ps, d, list, count) < 0)
		return -EINVAL;
	for (uint32_t i = 3; i < ps->word_count; i++) {
		int err = daemon_key(ps, &ps->words[i], d);

		if (err < 0)
			return err;
	}
	return 0;
}

static int stmt_daemon(struct parser *ps, struct conf_daemon **list,
		       uint32_t *count)
{
	struct conf_daemon *grown;
	struct conf_daemon d;
	int err;

	if (*count == DAEMON_COUNT_MAX)
		return fail(ps, ps->words[0].column, "more than %u %s lines",
			    DAEMON_COUNT_MAX, ps->words[0].text);
	grown = realloc(*list, (*count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	*list = grown;
	memset(&d, 0, sizeof(d));
	err = daemon_fill(ps, &d, grown, *count);
	if (err < 0) {
		daemon_fini(&d);
		return err;
	}
	grown[(*count)++] = d;
	return 0;
}

static int statement(struct parser *ps)
{
	const char *verb = ps->words[0].text;
	struct conf *c = ps->c;

	if (strcmp(verb, "cluster") == 0)
		return stmt_cluster(ps);
	if (strcmp(verb, "id") == 0)
		return stmt_id(ps);
	if (strcmp(verb, "replicas") == 0)
		return stmt_replicas(ps);
	if (strcmp(verb, "key") == 0)
		return stmt_key(ps);
	if (strcmp(verb, "wire") == 0)
		return stmt_wire(ps);
	if (strcmp(verb, "metad") == 0)
		return stmt_daemon(ps, &c->metads, &c->metad_count);
	if (strcmp(verb, "blockd") == 0)
		return stmt_daemon(ps, &c->blockds, &c->blockd_count);
	if (strcmp(verb, "logd") == 0)
		return stmt_daemon(ps, &c->logds, &c->logd_count);
	return fail(ps, ps->words[0].column, "\"%.60s\" is unknown; a line "
		    "begins with cluster, id, replicas, key, wire, metad, "
		    "blockd or logd", verb);
}

/* ---- the whole ---- */

/* What the file must say somewhere; reported at its end. */
static int check_whole(struct parser *ps)
{
	const struct conf *c = ps->c;

	if (!ps->have_id)
		return fail(ps, 1, "the file has no id line (the cluster's "
			    "number)");
	if (c->metad_count == 0)
		return fail(ps, 1, "the file has no metad line");
	if (c->metad_count % 2 == 0 || c->metad_count > METAD_COUNT_MAX)
		return fail(ps, 1, "there are %u metad lines; 1, 3 or 5 make "
			    "a majority", c->metad_count);
	if (ps->wire.line && !c->key && c->wire != GUARD_PLAIN) {
		ps->line = ps->wire.line;
		return fail(ps, ps->wire.column, "frames are protected with "
			    "the cluster's key: a key line is missing");
	}
	if (!ps->wire.line && c->key)
		ps->c->wire = GUARD_CRYPT;
	return 0;
}

int conf_parse(const char *text, size_t len, struct conf *c,
	       struct conf_error *err)
{
	struct parser ps = {
		.p = text,
		.end = text + len,
		.line_start = text,
		.c = c,
		.err = err,
	};
	int status = 0;

	memset(c, 0, sizeof(*c));
	memset(err, 0, sizeof(*err));
	c->replicas = 1;
	c->wire = GUARD_PLAIN;
	/* A line's words, unquoted and ended, never outgrow the line by more
	 * than one byte. */
	ps.buf = malloc(len + WORD_COUNT_MAX + 1);
	if (!ps.buf)
		return -ENOMEM;
	while (ps.p < ps.end && status == 0) {
		ps.line++;
		status = line(&ps);
		if (status == 0 && ps.word_count > 0)
			status = statement(&ps);
	}
	if (ps.line == 0)
		ps.line = 1;
	if (status == 0)
		status = check_whole(&ps);
	free(ps.buf);
	if (status < 0)
		conf_fini(c);
	return status;
}

static int read_text(const char *path, char **ret, size_t *ret_len)
{
	FILE *f = fopen(path, "re");
	char *text;
	size_t len;
	int err = 0;

	if (!f)
		return -errno;
	text = malloc(FILE_SIZE_LIMIT + 1);
	if (!text) {
		err = -ENOMEM;
		goto out_close;
	}
	errno = 0;
	len = fread(text, 1, FILE_SIZE_LIMIT + 1, f);
	if (ferror(f)) /* EISDIR, for one */
		err = errno != 0 ? -errno : -EIO;
	else if (len > FILE_SIZE_LIMIT)
		err = -EFBIG;
	if (err < 0) {
		free(text);
		goto out_close;
	}
	*ret = text;
	*ret_len = len;
out_close:
	fclose(f);
	return err;
}

int conf_load(const char *path, struct conf *c)
{
	struct conf_error where;
	char *text = NULL;
	size_t len = 0;
	int err = read_text(path, &text, &len);

	if (err < 0) {
		fprintf(stderr, "%s: cannot read the cluster file: %s\n", path,
			strerror(-err));
		return err;
	}
	err = conf_parse(text, len, c, &where);
	free(text);
	if (err == -EINVAL)
		fprintf(stderr, "%s:%u:%u: %s\n", path, where.line,
			where.column, where.text);
	else if (err < 0)
		fprintf(stderr, "%s: %s\n", path, strerror(-err));
	if (err < 0)
		return err;
	err = gate_new(c, path, &c->gate);
	if (err < 0)
		conf_fini(c);
	return err;
}

void conf_fini(struct conf *c)
{
	for (uint32_t i = 0; i < c->metad_count; i++)
		daemon_fini(&c->metads[i]);
	for (uint32_t i = 0; i < c->blockd_count; i++)
		daemon_fini(&c->blockds[i]);
	for (uint32_t i = 0; i < c->logd_count; i++)
		daemon_fini(&c->logds[i]);
	free(c->metads);
	free(c->blockds);
	free(c->logds);
	free(c->name);
	free(c->key);
	gate_free(c->gate);
	memset(c, 0, sizeof(*c));
}

const struct conf_daemon *conf_find(const struct conf_daemon *list,
				    uint32_t count, uint32_t id)
{
	for (uint32_t i = 0; i < count; i++)
		if (list[i].id == id)
			return &list[i];
	return NULL;
}
