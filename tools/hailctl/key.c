/* hailctl key new, key rotate. */
#include "tools/hailctl/ctl.h"

#include <inttypes.h>
#include <limits.h>

#include "common/json_bytes.h"
#include "common/key.h"

static void told(const struct ctl *c, const struct keyring *k,
		 const char *path)
{
	char id[KEY_ID_DIGITS + 1];

	snprintf(id, sizeof(id), "%016" PRIx64, k->keys[0].id);
	if (c->o.json)
		out_json(json_pack("{s:o,s:s}", "path", json_bytes(path),
				   "id", id));
	else
		printf("%s: key %s\n", path, id);
}

int cmd_key_new(struct ctl *c, char **args)
{
	struct keyring k;
	int rv = keyring_new(&k);

	if (rv == 0)
		rv = keyring_save(args[0], &k, true);
	if (rv == -EEXIST)
		ctl_err("%s is there; it is replaced with 'hailctl key "
			"rotate'", args[0]);
	else if (rv < 0)
		ctl_err("%s: %s", args[0], strerror(-rv));
	else
		told(c, &k, args[0]);
	keyring_fini(&k);
	return rv < 0 ? CTL_FAILED : CTL_OK;
}

int cmd_key_rotate(struct ctl *c, char **args)
{
	char why[PATH_MAX + 200];
	struct keyring k;
	int rv = keyring_load(args[0], &k, why, sizeof(why));

	if (rv < 0) {
		ctl_err("%s", why);
		return CTL_FAILED;
	}
	rv = keyring_rotate(&k);
	if (rv == 0)
		rv = keyring_save(args[0], &k, false);
	if (rv < 0)
		ctl_err("%s: %s", args[0], strerror(-rv));
	else
		told(c, &k, args[0]);
	keyring_fini(&k);
	return rv < 0 ? CTL_FAILED : CTL_OK;
}
