#include "tests/lib/golden.h"

size_t golden_read(const char *path, const char *name, uint8_t *buf, size_t cap)
{
	size_t n = strlen(name), len = 0, room = 0;
	FILE *f = fopen(path, "re");
	char *line = NULL;

	while (f && len == 0 && getline(&line, &room, f) > 0) {
		unsigned v;

		if (strncmp(line, name, n) != 0 || line[n] != ' ')
			continue;
		for (const char *p = line + n + 1;
		     len < cap && sscanf(p, "%2x", &v) == 1; p += 2)
			buf[len++] = (uint8_t)v;
	}
	free(line);
	if (f)
		(void)fclose(f);
	return len;
}

void golden_put(FILE *f, const char *name, const uint8_t *p, size_t len)
{
	(void)fprintf(f, "%s ", name);
	for (size_t i = 0; i < len; i++)
		(void)fprintf(f, "%02x", p[i]);
	(void)fprintf(f, "\n");
}
