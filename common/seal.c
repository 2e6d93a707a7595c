#include "common/seal.h"

#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/core_names.h>
#include <openssl/params.h>

/* Tags of one key. */
#define KEY_TAGS (UINT64_C(1) << SEAL_KEY_LOG2)

struct seal {
	EVP_CIPHER_CTX *ctx;
	enum seal_kind kind;
	bool keyed; /* the key is in @ctx, and which way it goes */
	bool broken;
	uint64_t number; /* of the next tag */
	struct seal_secret secret;
};

/* Only misuse ends here; going on would send what was not sealed. */
static void must(int ok)
{
	if (ok > 0)
		return;
	fprintf(stderr, "hailfs: OpenSSL refused to seal\n");
	abort();
}

int seal_new(enum seal_kind kind, const struct seal_secret *secret,
	     struct seal **ret)
{
	struct seal *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->ctx = EVP_CIPHER_CTX_new();
	if (!s->ctx) {
		free(s);
		return -ENOMEM;
	}
	s->kind = kind;
	s->secret = *secret;
	*ret = s;
	return 0;
}

void seal_free(struct seal *s)
{
	if (!s)
		return;
	EVP_CIPHER_CTX_free(s->ctx);
	explicit_bzero(s, sizeof(*s));
	free(s);
}

enum seal_kind seal_kind(const struct seal *s)
{
	return s->kind;
}

/* Both sides do so after the same tag; what was sealed before cannot be read
 * with what is known from now on. */
static void secret_next(struct seal_secret *secret)
{
	static char label[] = "hailfs frames, next key", digest[] = "SHA256";
	int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
	struct seal_secret next;
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest,
						 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret,
						  sizeof(*secret)),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, label,
						  sizeof(label) - 1),
		OSSL_PARAM_construct_end(),
	};
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);

	must(ctx != NULL);
	must(EVP_KDF_derive(ctx, (uint8_t *)&next, sizeof(next), params));
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	*secret = next;
	explicit_bzero(&next, sizeof(next));
}

/* Sets key and nonce of the next tag. @enc: 1: to seal, 0: to open. */
static void begin(struct seal *s, int enc)
{
	uint8_t nonce[SEAL_NONCE_SIZE];

	if (s->number > 0 && s->number % KEY_TAGS == 0) {
		secret_next(&s->secret);
		s->keyed = false;
	}
	memcpy(nonce, s->secret.nonce, sizeof(nonce));
	for (unsigned i = 0; i < 8; i++)
		nonce[SEAL_NONCE_SIZE - 1 - i] ^= (uint8_t)(s->number >> 8 * i);
	s->number++;
	if (!s->keyed)
		must(EVP_CipherInit_ex(s->ctx, EVP_aes_256_gcm(), NULL,
				       s->secret.key, nonce, enc));
	else
		must(EVP_CipherInit_ex(s->ctx, NULL, NULL, NULL, nonce, enc));
	s->keyed = true;
}

/* Through the cipher, piece by piece. @out as in seal_put(). */
static void run(struct seal *s, const struct iovec *iov, int iov_count,
		uint8_t *out)
{
	for (int i = 0; i < iov_count; i++) {
		int len = (int)iov[i].iov_len, got;

		assert(iov[i].iov_len <= INT32_MAX);
		if (len == 0)
			continue;
		must(EVP_CipherUpdate(s->ctx, out, &got, iov[i].iov_base, len));
		assert(got == len);
		if (out)
			out += len;
	}
}

void seal_begin(struct seal *s)
{
	begin(s, 1);
}

void seal_more(struct seal *s, const void *p, size_t len, uint8_t **out)
{
	/* EVP_CipherUpdate() does not write through it. */
	struct iovec iov = { (void *)(uintptr_t)p, len };

	assert((s->kind == SEAL_CRYPT) == (out != NULL));
	run(s, &iov, 1, out ? *out : NULL);
	if (out)
		*out += len;
}

void seal_end(struct seal *s, uint8_t *tag)
{
	uint8_t rest[16];
	int got;

	must(EVP_CipherFinal_ex(s->ctx, rest, &got));
	must(EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG_SIZE,
				 tag));
}

void seal_put(struct seal *s, const struct iovec *iov, int iov_count,
	      uint8_t *out, uint8_t *tag)
{
	assert((s->kind == SEAL_CRYPT) == (out != NULL));
	begin(s, 1);
	run(s, iov, iov_count, out);
	seal_end(s, tag);
}

void seal_piece(struct seal *s, uint8_t *p, size_t len)
{
	struct iovec iov = { p, len };

	seal_put(s, &iov, 1, s->kind == SEAL_CRYPT ? p : NULL, p + len);
}

int seal_get(struct seal *s, const struct iovec *iov, int iov_count,
	     const uint8_t *tag)
{
	uint8_t rest[16], want[SEAL_TAG_SIZE];
	int got;

	if (s->broken)
		return -EBADMSG;
	begin(s, 0);
	memcpy(want, tag, sizeof(want));
	if (s->kind == SEAL_MAC)
		run(s, iov, iov_count, NULL);
	else
		for (int i = 0; i < iov_count; i++)
			run(s, &iov[i], 1, iov[i].iov_base);
	must(EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_SET_TAG, SEAL_TAG_SIZE,
				 want));
	if (EVP_CipherFinal_ex(s->ctx, rest, &got) > 0)
		return 0;
	s->broken = true;
	return -EBADMSG;
}
