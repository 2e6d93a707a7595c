/* A log directory's options: what is taken is within its bounds and is written
 * such that it is taken alike; its pattern matches any name as fnmatch(3) does.
 *
 * Input: a byte, the length of a name; the name; the text.
 */
#include "common/log_opts.h"

#include <fnmatch.h>

#include "tests/lib/fuzz.h"

#define STARS_MAX 4 /* fnmatch(3) takes for ever with many */

static void check_match(const struct log_opts *o, const uint8_t *name,
			size_t len)
{
	bool match = log_opts_match(o, (struct wire_str){
					       name, (uint32_t)len });
	char text[NAME_LEN_MAX + 1];
	int stars = 0;

	for (const char *p = o->match; *p; p++)
		stars += *p == '*';
	if (stars > STARS_MAX || (len > 0 && memchr(name, 0, len)))
		return;
	if (len > 0)
		memcpy(text, name, len);
	text[len] = '\0';
	fuzz_expect(match == (fnmatch(o->match, text, 0) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct log_opts o, back;
	char buf[LOG_OPTS_TEXT_MAX];
	size_t name_len;
	int err;

	if (size == 0)
		return 0;
	name_len = u64_min(data[0], size - 1);
	err = log_opts_parse((struct wire_str){
				     data + 1 + name_len,
				     (uint32_t)(size - 1 - name_len) }, &o);
	fuzz_expect(err == 0 || err == -EINVAL);
	if (err != 0)
		return 0;
	fuzz_expect(o.peers % 2 == 1 && o.peers <= LOG_PEER_COUNT_MAX);
	fuzz_expect(o.region_log2 >= LOG_REGION_LOG2_MIN &&
		    o.region_log2 <= LOG_REGION_LOG2_MAX);
	fuzz_expect(strlen(o.match) > 0 && strlen(o.match) <= NAME_LEN_MAX);
	fuzz_expect(log_opts_pattern_ok(o.match, strlen(o.match)));
	name_len = log_opts_format(&o, buf);
	fuzz_expect(name_len < sizeof(buf));
	fuzz_expect(log_opts_parse((struct wire_str){
					   buf, (uint32_t)name_len },
				   &back) == 0);
	fuzz_expect(memcmp(&o, &back, sizeof(o)) == 0);
	check_match(&o, data + 1, u64_min(data[0], size - 1));
	return 0;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	static const char letters[] = "ab*?[]!^-\\z.";
	static const char *const words[] = { " peers=5", " region=1m",
		" destage=close", " fallback=refuse", " peers=2", "\t" };
	size_t name_len = fuzz_below(rng, 8), i;
	struct wire_out o;

	wire_out_init(&o, buf, cap);
	wire_put_u8(&o, (uint8_t)name_len);
	for (i = 0; i < name_len; i++)
		wire_put_u8(&o, (uint8_t)letters[fuzz_below(rng, 12)]);
	wire_put_raw(&o, "match=", 6);
	for (i = 1 + fuzz_below(rng, 9); i > 0; i--)
		wire_put_u8(&o, (uint8_t)letters[fuzz_below(rng, 12)]);
	for (i = fuzz_below(rng, 3); i > 0; i--) {
		const char *w = words[fuzz_below(rng, array_count(words))];

		wire_put_raw(&o, w, strlen(w));
	}
	return o.len;
}
