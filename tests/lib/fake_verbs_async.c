/* What a device says by itself. */
#include "tests/lib/fake_verbs_priv.h"

const char *ibv_event_type_str(enum ibv_event_type event)
{
	return event == IBV_EVENT_DEVICE_FATAL ? "fatal" : "an event";
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	uint64_t one;
	int rv = -1;

	take();
	errno = EAGAIN;
	if (fake.async_head != fake.async_tail) {
		if (read(context->async_fd, &one, sizeof(one)) < 0)
			fault("async eventfd");
		*event = fake.asyncs[fake.async_head++ % ASYNCS];
		fake.n.async_events++;
		rv = 0;
	}
	give();
	return rv;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
	take();
	if (fake.n.async_events-- == 0)
		fault("an event acknowledged that is not out");
	give();
}

static void async_put(enum ibv_event_type type, struct ibv_qp *qp)
{
	struct ibv_async_event *e = &fake.asyncs[fake.async_tail++ % ASYNCS];
	uint64_t one = 1;

	memset(e, 0, sizeof(*e));
	e->event_type = type;
	e->element.qp = qp;
	if (write(fake.ctx.async_fd, &one, sizeof(one)) < 0)
		fault("async eventfd");
}

void fake_verbs_async(enum ibv_event_type type)
{
	bool of_qp = type == IBV_EVENT_QP_FATAL ||
		     type == IBV_EVENT_QP_REQ_ERR ||
		     type == IBV_EVENT_QP_ACCESS_ERR;

	take();
	for (int i = 0; i < IDS && of_qp; i++)
		if (fake.ids[i] && fake.ids[i]->connected)
			async_put(type, fake.ids[i]->id.qp);
	if (!of_qp)
		async_put(type, NULL);
	give();
}
