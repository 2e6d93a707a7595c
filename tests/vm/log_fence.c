/* Goal: who is shut out of a log can write nothing there over RDMA any more,
 * whatever he knows: the key, another connection of his, an old token.
 * Method: the real hail-logd, which knows only that it is asked to fence; the
 * zombie is played by hand and goes on writing. TAP.
 *
 * usage: log_fence ADDRESS	(of an RDMA device)
 */
#include "tests/lib/logd_run.h"

#include <arpa/inet.h>
#include <poll.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "tests/lib/tap.h"

#define WAIT_MS 20000
#define LEN 200u

static const char *address;

/* A writer's end of a connection. */
struct zombie {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t buf[LEN];
};

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	printf("# %s: %s\n", what, strerror(errno));
	exit(1);
}

static bool event_is(struct zombie *z, enum rdma_cm_event_type type)
{
	struct pollfd p = { .fd = z->channel->fd, .events = POLLIN };
	struct rdma_cm_event *e;
	bool is;

	need(poll(&p, 1, WAIT_MS) == 1, "no event");
	need(rdma_get_cm_event(z->channel, &e) == 0, "event");
	is = e->event == type;
	if (!is)
		printf("# %s, status %d\n", rdma_event_str(e->event),
		       e->status);
	rdma_ack_cm_event(e);
	return is;
}

/* Returns whether the daemon takes it. */
static bool zombie_connect(struct zombie *z, uint16_t port, uint64_t token)
{
	const struct log_rdma_hello h = {
		.magic = LOG_RDMA_MAGIC,
		.version = WIRE_VERSION,
		.cluster_id = LRUN_CLUSTER_ID,
		.token = token,
	};
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	uint8_t hello[LOG_RDMA_HELLO_SIZE], timeout = 14; /* 67 ms a try */
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = sizeof(hello),
		.retry_count = 6,
		.rnr_retry_count = 7,
	};
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(port) };
	struct wire_out o;

	memset(z, 0, sizeof(*z));
	memset(z->buf, 0xee, sizeof(z->buf));
	need(inet_pton(AF_INET, address, &to.sin_addr) == 1, "address");
	wire_out_init(&o, hello, sizeof(hello));
	log_rdma_hello_encode(&o, &h);
	z->channel = rdma_create_event_channel();
	need(z->channel && rdma_create_id(z->channel, &z->id, NULL,
					  RDMA_PS_TCP) == 0, "id");
	need(rdma_resolve_addr(z->id, NULL, (void *)&to, WAIT_MS) == 0 &&
	     event_is(z, RDMA_CM_EVENT_ADDR_RESOLVED), "resolve");
	need(rdma_set_option(z->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			     &timeout, sizeof(timeout)) == 0, "timeout");
	need(rdma_resolve_route(z->id, WAIT_MS) == 0 &&
	     event_is(z, RDMA_CM_EVENT_ROUTE_RESOLVED), "route");
	z->pd = ibv_alloc_pd(z->id->verbs);
	z->cq = ibv_create_cq(z->id->verbs, 8, NULL, NULL, 0);
	need(z->pd && z->cq, "pd, cq");
	z->mr = ibv_reg_mr(z->pd, z->buf, sizeof(z->buf),
			   IBV_ACCESS_LOCAL_WRITE);
	attr.send_cq = attr.recv_cq = z->cq;
	need(z->mr && rdma_create_qp(z->id, z->pd, &attr) == 0, "qp");
	need(rdma_connect(z->id, &param) == 0, "connect");
	return event_is(z, RDMA_CM_EVENT_ESTABLISHED);
}

static void zombie_end(struct zombie *z)
{
	rdma_destroy_qp(z->id);
	rdma_destroy_id(z->id);
	ibv_dereg_mr(z->mr);
	ibv_destroy_cq(z->cq);
	ibv_dealloc_pd(z->pd);
	rdma_destroy_event_channel(z->channel);
}

/* Writes @len bytes of its buffer; how that ends. */
static enum ibv_wc_status zombie_write(struct zombie *z, uint64_t addr,
				       uint32_t rkey, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)z->buf, len, z->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { addr, rkey },
	}, *bad;
	uint64_t until = now_ms() + WAIT_MS;
	struct ibv_wc wc;
	int count;

	need(ibv_post_send(z->id->qp, &wr, &bad) == 0, "post");
	while ((count = ibv_poll_cq(z->cq, 1, &wc)) == 0)
		need(now_ms() < until, "it does not end");
	need(count == 1, "poll");
	return wc.status;
}

static int alloc_verbs(struct blk_raw *r, const struct log_stream *g,
		       struct log_alloc_reply *ret)
{
	struct log_reply lr;
	struct frame *f = NULL;
	struct wire_in in;
	int rv = RAW_CALL(r, WIRE_OP_LOG_ALLOC, log_alloc, &f,
			  { .ino = g->ino, .epoch = g->epoch,
			    .data_epoch = g->epoch, .index = g->index,
			    .log2 = g->log2, .flags = LOG_ALLOC_VERBS });

	if (rv < 0)
		return rv;
	wire_in_init(&in, f->body, f->h.body_len);
	log_reply_decode(&in, &lr);
	log_alloc_reply_decode(&in, ret);
	frame_free(f);
	return wire_in_end(&in);
}

static int token_of(struct blk_raw *r, const struct log_stream *g,
		    uint64_t *ret)
{
	struct log_connect_reply m;
	struct log_reply lr;
	struct frame *f = NULL;
	struct wire_in in;
	int rv = RAW_CALL(r, WIRE_OP_LOG_CONNECT, log_connect, &f,
			  { .ino = g->ino, .epoch = g->epoch });

	if (rv < 0)
		return rv;
	wire_in_init(&in, f->body, f->h.body_len);
	log_reply_decode(&in, &lr);
	log_connect_reply_decode(&in, &m);
	frame_free(f);
	*ret = m.token;
	return wire_in_end(&in);
}

/* The first @len bytes of region 0's records. */
static void check_there(struct blk_raw *r, const struct log_stream *g,
			uint64_t epoch, const void *want, uint32_t len)
{
	struct log_read m = { g->ino, epoch, g->epoch, 0, LOG_DATA_OFF, len };
	uint8_t got[LEN];

	CHECK_EQ(lrun_read(r, &m, got), 0);
	CHECK(memcmp(got, want, len) == 0);
}

static void a_fenced_writer_reaches_nothing(struct logd_run *x)
{
	static const uint8_t zeros[LEN];
	const char *const args[] = { "--rdma", address, NULL };
	struct log_alloc_reply a, b;
	struct log_stream g, other;
	struct zombie z, y, w;
	struct blk_raw one, two;
	uint64_t token, again;
	uint32_t at;

	lrun_start(x, args);
	lrun_client(x, &one, 1, 1);
	lrun_client(x, &two, 2, 1);
	log_stream_init(&g, 9, 5, 16);
	log_stream_init(&other, 10, 6, 16);
	CHECK_EQ(alloc_verbs(&one, &g, &a), 0);
	CHECK_EQ(alloc_verbs(&one, &other, &b), 0);
	CHECK_EQ(token_of(&one, &g, &token), 0);
	CHECK(zombie_connect(&z, x->child.port, token));
	CHECK_EQ(token_of(&one, &other, &token), 0);
	CHECK(zombie_connect(&y, x->child.port, token));

	/* As long as it is its writer. */
	log_stream_append(&g, 100);
	memcpy(z.buf, g.mirror + LOG_DATA_OFF, g.end - LOG_DATA_OFF);
	CHECK_EQ(zombie_write(&z, a.addr + LOG_DATA_OFF, a.rkey,
			      g.end - LOG_DATA_OFF), IBV_WC_SUCCESS);
	log_stream_slot(&g, z.buf);
	CHECK_EQ(zombie_write(&z, a.addr, a.rkey, LOG_SLOT_SIZE),
		 IBV_WC_SUCCESS);
	memset(z.buf, 0xee, sizeof(z.buf));
	/* A key is good for its own log's connection. */
	CHECK_EQ(zombie_write(&y, a.addr + 8192, a.rkey, LEN),
		 IBV_WC_REM_ACCESS_ERR);
	at = g.end - LOG_DATA_OFF;
	CHECK_EQ(token_of(&one, &other, &token), 0);
	zombie_end(&y);
	CHECK(zombie_connect(&y, x->child.port, token));
	CHECK_EQ(zombie_write(&y, b.addr + 8192, b.rkey, LEN), IBV_WC_SUCCESS);

	/* Another takes the log over; its writer has heard of nothing. */
	CHECK_EQ(lrun_fence(&two, 9, 7, 5, NULL, NULL, &again), 0);
	CHECK_EQ(again, 1);
	CHECK(zombie_write(&z, a.addr + LOG_DATA_OFF + at, a.rkey, LEN - at) !=
	      IBV_WC_SUCCESS);
	check_there(&two, &g, 7, g.mirror + LOG_DATA_OFF, at);
	/* With the old key over a connection that is good for something. */
	CHECK_EQ(zombie_write(&y, a.addr + LOG_DATA_OFF + at, a.rkey,
			      LEN - at), IBV_WC_REM_ACCESS_ERR);
	CHECK(token_of(&one, &g, &token) < 0); /* its connection is gone */
	CHECK(!zombie_connect(&w, x->child.port, token));
	memcpy(z.buf, g.mirror + LOG_DATA_OFF, at);
	memcpy(z.buf + at, zeros, LEN - at);
	check_there(&two, &g, 7, z.buf, LEN);
	zombie_end(&z);
	zombie_end(&y);
	zombie_end(&w);
	log_stream_fini(&g);
	log_stream_fini(&other);
	raw_close(&one);
	raw_close(&two);
}

int main(int argc, char **argv)
{
	static const struct logd_test tests[] = {
		LOGD_TEST(a_fenced_writer_reaches_nothing),
	};

	need(argc == 2, "usage: log_fence ADDRESS");
	address = argv[1];
	return logd_tests_run(1, argv, tests, array_count(tests));
}
