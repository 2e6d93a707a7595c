#include "common/json_bytes.h"

#include "common/base.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define CHAR_BYTES_MAX 4u

/* Bytes of the character at @s, of which @left are there; 0: it is none. */
static size_t char_len(const char *s, size_t left)
{
	for (size_t n = 1; n <= CHAR_BYTES_MAX && n <= left; n++) {
		json_t *j = json_stringn(s, n);

		json_decref(j);
		if (j)
			return n;
	}
	return 0;
}

json_t *json_bytes(const char *s)
{
	size_t left = strlen(s), len = 0;
	json_t *j = json_string(s);
	char *text;

	if (j)
		return j;
	text = malloc(left * strlen(REPLACEMENT) + 1);
	if (!text)
		return NULL;
	while (left > 0) {
		size_t n = char_len(s, left);

		memcpy(text + len, n ? s : REPLACEMENT,
		       n ? n : strlen(REPLACEMENT));
		len += n ? n : strlen(REPLACEMENT);
		s += n ? n : 1;
		left -= n ? n : 1;
	}
	j = json_stringn(text, len);
	free(text);
	return j;
}
