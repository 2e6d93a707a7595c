#include "tests/lib/sm_fixture.h"

#include "metad/sm_priv.h"

int sm_fixture_setup(void **state)
{
	struct sm_client *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -1;
	sm_client_init(c);
	*state = c;
	return 0;
}

int sm_fixture_teardown(void **state)
{
	struct sm_client *c = *state;
	bool ok = sm_verify(c->sm) && cow_check(c->sm->tree);

	if (!ok)
		fprintf(stderr, "the state is inconsistent\n");
	sm_client_fini(c);
	free(c);
	return ok ? 0 : -1;
}
