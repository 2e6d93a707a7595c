#include "common/greet.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>

#define LABEL "EXPORTER-hailfs-frames"
#define CIPHER "TLS_AES_256_GCM_SHA384"

struct greet {
	SSL *ssl;
	BIO *in, *out; /* ssl's */
	struct keyring ring; /* who connects: of one */
	uint32_t guards; /* that would do */
	enum wire_guard guard; /* agreed; 0: not yet */
	uint64_t key; /* id of the one that was shown; 0: none is known */
	char identity[KEY_ID_DIGITS + 1];
	size_t fed;
	size_t taken; /* of @out, to be dropped */
	int error; /* latched */
	bool over;
};

/* The names of what protects frames, the strongest first. */
static const struct guard_name {
	enum wire_guard guard;
	const char *name;
} guard_names[] = {
	{ GUARD_CRYPT, "hail/1 crypt" },
	{ GUARD_MAC, "hail/1 mac" },
	{ GUARD_PLAIN, "hail/1 plain" },
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static SSL_CTX *contexts[2]; /* of who connects, of who is connected to */

static void identity_print(uint64_t id, char *out)
{
	snprintf(out, KEY_ID_DIGITS + 1, "%016llx", (unsigned long long)id);
}

/* The key as TLS wants it. NULL: no memory. */
static SSL_SESSION *session_of(SSL *ssl, const struct key *k)
{
	static const uint8_t cipher[] = { 0x13, 0x02 }; /* CIPHER */
	SSL_SESSION *s = SSL_SESSION_new();

	if (s && SSL_SESSION_set1_master_key(s, k->secret, KEY_SECRET_SIZE) &&
	    SSL_SESSION_set_cipher(s, SSL_CIPHER_find(ssl, cipher)) &&
	    SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
		return s;
	SSL_SESSION_free(s);
	return NULL;
}

static int psk_show(SSL *ssl, const EVP_MD *md, const unsigned char **id,
		    size_t *id_len, SSL_SESSION **session)
{
	struct greet *g = SSL_get_app_data(ssl);

	/* @md, if set: the hash there has to be; there is only one cipher. */
	(void)md;
	*session = session_of(ssl, &g->ring.keys[0]);
	*id = (const unsigned char *)g->identity;
	*id_len = KEY_ID_DIGITS;
	return *session != NULL;
}

static int psk_find(SSL *ssl, const unsigned char *id, size_t id_len,
		    SSL_SESSION **session)
{
	struct greet *g = SSL_get_app_data(ssl);
	char known[KEY_ID_DIGITS + 1];

	*session = NULL;
	if (id_len != KEY_ID_DIGITS)
		return 1;
	for (uint32_t i = 0; i < g->ring.count; i++) {
		identity_print(g->ring.keys[i].id, known);
		if (memcmp(known, id, KEY_ID_DIGITS) != 0)
			continue;
		g->key = g->ring.keys[i].id;
		*session = session_of(ssl, &g->ring.keys[i]);
		return *session != NULL;
	}
	return 1; /* none: without a certificate it ends there */
}

static bool name_is(const struct guard_name *n, const unsigned char *p,
		    size_t len)
{
	return strlen(n->name) == len && memcmp(n->name, p, len) == 0;
}

/* Does the list (a byte of length, then a name, again and again) have it? */
static bool list_has(const struct guard_name *n, const unsigned char *list,
		     size_t len)
{
	for (size_t i = 0; i < len; i += 1u + list[i])
		if (i + 1 + list[i] <= len && name_is(n, list + i + 1, list[i]))
			return true;
	return false;
}

static int guard_select(SSL *ssl, const unsigned char **out,
			unsigned char *out_len, const unsigned char *in,
			unsigned in_len, void *arg)
{
	struct greet *g = SSL_get_app_data(ssl);

	(void)arg;
	for (size_t i = 0; i < array_count(guard_names); i++) {
		const struct guard_name *n = &guard_names[i];

		if (!(g->guards & n->guard) || !list_has(n, in, in_len))
			continue;
		*out = (const unsigned char *)n->name;
		*out_len = (unsigned char)strlen(n->name);
		return SSL_TLSEXT_ERR_OK;
	}
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static SSL_CTX *context_new(const SSL_METHOD *method)
{
	SSL_CTX *c = SSL_CTX_new(method);

	if (!c)
		return NULL;
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_options(c, SSL_OP_NO_TICKET);
	SSL_CTX_clear_options(c, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
	if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) &&
	    SSL_CTX_set_ciphersuites(c, CIPHER) &&
	    SSL_CTX_set1_groups_list(c, "X25519") &&
	    SSL_CTX_set_num_tickets(c, 0))
		return c;
	SSL_CTX_free(c);
	return NULL;
}

static void contexts_make(void)
{
	contexts[0] = context_new(TLS_client_method());
	contexts[1] = context_new(TLS_server_method());
	if (contexts[0]) {
		/* Who shows a certificate has not shown the key. */
		SSL_CTX_set_verify(contexts[0], SSL_VERIFY_PEER, NULL);
		SSL_CTX_set_psk_use_session_callback(contexts[0], psk_show);
	}
	if (contexts[1]) {
		SSL_CTX_set_psk_find_session_callback(contexts[1], psk_find);
		SSL_CTX_set_alpn_select_cb(contexts[1], guard_select, NULL);
	}
}

/* Offers what would do. */
static bool guards_offer(struct greet *g)
{
	unsigned char list[64];
	unsigned len = 0;

	for (size_t i = 0; i < array_count(guard_names); i++) {
		size_t n = strlen(guard_names[i].name);

		if (!(g->guards & guard_names[i].guard))
			continue;
		assert(len + 1 + n <= sizeof(list));
		list[len++] = (unsigned char)n;
		memcpy(list + len, guard_names[i].name, n);
		len += (unsigned)n;
	}
	return SSL_set_alpn_protos(g->ssl, list, len) == 0;
}

static int greet_new(const struct keyring *ring, uint32_t guards, bool accept,
		     struct greet **ret)
{
	struct greet *g = calloc(1, sizeof(*g));

	pthread_once(&once, contexts_make);
	if (!g || !contexts[accept]) {
		free(g);
		return -ENOMEM;
	}
	g->ring = *ring;
	g->guards = guards;
	g->ssl = SSL_new(contexts[accept]);
	g->in = BIO_new(BIO_s_mem());
	g->out = BIO_new(BIO_s_mem());
	if (!g->ssl || !g->in || !g->out) {
		BIO_free(g->in);
		BIO_free(g->out);
		g->in = g->out = NULL;
		greet_free(g);
		return -ENOMEM;
	}
	BIO_set_mem_eof_return(g->in, -1);
	SSL_set_bio(g->ssl, g->in, g->out);
	SSL_set_app_data(g->ssl, g);
	if (accept)
		SSL_set_accept_state(g->ssl);
	else
		SSL_set_connect_state(g->ssl);
	*ret = g;
	return 0;
}

int greet_connect(const struct key *key, uint32_t guards, struct greet **ret)
{
	struct keyring ring = { .count = 1, .keys[0] = *key };
	int rv = greet_new(&ring, guards, false, ret);

	keyring_fini(&ring);
	if (rv < 0)
		return rv;
	(*ret)->key = key->id;
	identity_print(key->id, (*ret)->identity);
	if (guards_offer(*ret))
		return 0;
	greet_free(*ret);
	return -ENOMEM;
}

int greet_accept(const struct keyring *ring, uint32_t guards,
		 struct greet **ret)
{
	return greet_new(ring, guards, true, ret);
}

void greet_free(struct greet *g)
{
	if (!g)
		return;
	SSL_free(g->ssl);
	keyring_fini(&g->ring);
	free(g);
}

/* Why the handshake failed, from what OpenSSL says. */
static int failure(void)
{
	unsigned long e = ERR_peek_last_error();
	int reason = ERR_GET_REASON(e);

	if (reason == ERR_R_MALLOC_FAILURE)
		return -ENOMEM;
	switch (reason) {
	case SSL_AD_REASON_OFFSET + SSL_AD_NO_APPLICATION_PROTOCOL:
	case SSL_R_NO_APPLICATION_PROTOCOL:
		return -EPROTONOSUPPORT;
	/* What the other side says to a key it does not have, or has with
	 * another secret; what we find in that case. */
	case SSL_AD_REASON_OFFSET + SSL_AD_HANDSHAKE_FAILURE:
	case SSL_AD_REASON_OFFSET + SSL_AD_ILLEGAL_PARAMETER:
	case SSL_AD_REASON_OFFSET + SSL_AD_DECRYPT_ERROR:
	case SSL_R_BINDER_DOES_NOT_VERIFY:
	case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
	case SSL_R_NO_SHARED_CIPHER:
	case SSL_R_DIGEST_CHECK_FAILED:
		return -EKEYREJECTED;
	default:
		return -EBADMSG;
	}
}

/* TLS is content: are we? */
static int ended(struct greet *g)
{
	const unsigned char *name;
	unsigned len;

	if (!SSL_session_reused(g->ssl))
		return -EKEYREJECTED;
	SSL_get0_alpn_selected(g->ssl, &name, &len);
	for (size_t i = 0; i < array_count(guard_names); i++)
		if (name && name_is(&guard_names[i], name, len))
			g->guard = guard_names[i].guard;
	if (!(g->guard & g->guards))
		return -EPROTONOSUPPORT;
	g->over = true;
	return 1;
}

/* OpenSSL ends without a word where something else than TLS is spoken: one of
 * ours without a key, perhaps, who is to know why (RFC 8446, 6). */
static void alert_add(struct greet *g)
{
	static const uint8_t unexpected_message[] = { 21, 3, 3, 0, 2, 2, 10 };

	if (BIO_pending(g->out) == 0)
		(void)BIO_write(g->out, unexpected_message,
				sizeof(unexpected_message));
}

int greet_feed(struct greet *g, const void *bytes, size_t len, size_t *used)
{
	int rv, error;

	*used = 0;
	if (g->error)
		return g->error;
	assert(!g->over);
	ERR_clear_error();
	if (g->taken > 0)
		(void)BIO_reset(g->out);
	g->taken = 0;
	/* More may have come, if it ends in time: frames. */
	len = u64_min(len, GREET_IN_MAX - g->fed);
	if (len > 0 && BIO_write(g->in, bytes, (int)len) != (int)len) {
		g->error = -ENOMEM;
		return g->error;
	}
	g->fed += len;
	rv = SSL_do_handshake(g->ssl);
	*used = len - (size_t)BIO_pending(g->in);
	if (rv == 1) {
		rv = ended(g);
	} else {
		error = SSL_get_error(g->ssl, rv);
		rv = error == SSL_ERROR_WANT_READ ? 0 : failure();
		if (rv == 0 && g->fed == GREET_IN_MAX)
			rv = -EBADMSG;
	}
	ERR_clear_error();
	if (rv == -EBADMSG)
		alert_add(g);
	if (rv < 0)
		g->error = rv;
	return rv;
}

size_t greet_out(struct greet *g, const void **ret)
{
	BUF_MEM *mem;

	/* The last call's, which the caller has by now. */
	if (g->taken > 0)
		(void)BIO_reset(g->out);
	g->taken = 0;
	BIO_get_mem_ptr(g->out, &mem);
	g->taken = mem->length;
	*ret = mem->data;
	return g->taken;
}

int greet_seals(struct greet *g, struct seal **in, struct seal **out)
{
	struct seal_secret secrets[2]; /* of who connects; of the other */
	int us = SSL_is_server(g->ssl), rv;
	enum seal_kind kind = g->guard == GUARD_CRYPT ? SEAL_CRYPT : SEAL_MAC;

	assert(g->over);
	*in = *out = NULL;
	if (g->guard == GUARD_PLAIN)
		return 0;
	if (SSL_export_keying_material(g->ssl, (uint8_t *)secrets,
				       sizeof(secrets), LABEL, strlen(LABEL),
				       NULL, 0, 0) != 1)
		return -ENOMEM;
	rv = seal_new(kind, &secrets[us], out);
	if (rv == 0)
		rv = seal_new(kind, &secrets[!us], in);
	if (rv < 0) {
		seal_free(*out);
		*out = NULL;
	}
	explicit_bzero(secrets, sizeof(secrets));
	return rv;
}

enum wire_guard greet_guard(const struct greet *g)
{
	return g->guard;
}

uint64_t greet_key(const struct greet *g)
{
	return g->key;
}
