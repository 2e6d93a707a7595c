/* The cluster file: accepted or explained, with a place inside the text. */
#include "common/conf.h"

#include "tests/lib/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct conf_error err;
	unsigned lines = 1;
	struct conf c;
	int status = conf_parse((const char *)data, size, &c, &err);

	if (status == 0) {
		fuzz_expect(c.cluster_id != 0 && c.metad_count > 0);
		fuzz_expect(c.blockd_count <= DAEMON_COUNT_MAX);
		for (uint32_t i = 0; i < c.blockd_count; i++)
			fuzz_expect(c.blockds[i].id && c.blockds[i].port &&
				    *c.blockds[i].addr);
		conf_fini(&c);
		return 0;
	}
	fuzz_expect(status == -EINVAL);
	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n';
	fuzz_expect(err.line >= 1 && err.line <= lines);
	fuzz_expect(err.column >= 1 && err.column <= size + 1);
	fuzz_expect(*err.text && strlen(err.text) < sizeof(err.text));
	return 0;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	static const char *const lines[] = {
		"cluster rack1", "replicas 1 # copies", "# nothing", "",
		"blockd %u 127.0.0.1:%u data=/srv/a capacity=1g",
		"blockd %u [::1]:%u data=\"/srv/a \\\"b\\\"\" domain=x",
		"logd %u host:%u k=v \tl=\"\"w",
	};
	uint32_t count = fuzz_below(rng, 8);
	size_t len;

	len = (size_t)snprintf((char *)buf, cap,
			       "id 0x%x\nmetad 1 127.0.0.1:7000\n",
			       1 + fuzz_below(rng, 1000));
	while (count-- > 0 && len < 1000) {
		const char *line = lines[fuzz_below(rng, array_count(lines))];

		for (; *line; line++) {
			if (line[0] != '%') {
				buf[len++] = (uint8_t)*line;
				continue;
			}
			len += (size_t)snprintf((char *)buf + len, cap - len,
						"%u", 1 + count);
			line++;
		}
		buf[len++] = '\n';
	}
	return len;
}
