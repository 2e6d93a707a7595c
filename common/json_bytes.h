/* Names and paths are bytes; JSON wants UTF-8. */
#ifndef COMMON_JSON_BYTES_H
#define COMMON_JSON_BYTES_H

#include <jansson.h>

/* @s as a JSON string; each byte that is not part of UTF-8 becomes U+FFFD.
 * NULL: out of memory. */
json_t *json_bytes(const char *s);

#endif
