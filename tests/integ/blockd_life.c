/* Goal: the real hail-blockd keeps what was synced over kills, stops in good
 * order, and starts only where it may.
 * Method: the program as a child, a fake metad, clients played by hand and the
 * one of common/rpc.h; TAP.
 *
 * usage: blockd_life [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/blockd_run.h"

#include <semaphore.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/rpc.h"
#include "tests/lib/tap.h"

#define BLOCK (1u << 20)
#define SYNC BLK_WRITE_SYNC

static uint8_t pattern[BLOCK];

static void what_was_synced_survives_kill9(struct blockd_run *x)
{
	struct meta_register reg1, reg2;
	struct blk_raw r;
	uint64_t boot_id;

	run_start(x, NULL);
	fake_metad_registrations(x->metad, &reg1);
	run_client(x, &r, 1, 1);
	boot_id = r.boot_id;
	run_fill(pattern, BLOCK, 11);
	CHECK_EQ(raw_write(&r, 20, 0, 0, pattern, BLOCK, 0), 0);
	CHECK_EQ(raw_write(&r, 21, 0, 100, pattern, 777, 0), 0);
	CHECK_EQ(raw_sync(&r, 0), 0);
	CHECK_EQ(r.boot_id, boot_id);
	CHECK_EQ(raw_write(&r, 22, 0, 0, pattern, 128, SYNC), 0);
	child_kill9(&x->child);
	raw_close(&r);

	run_start(x, NULL);
	fake_metad_registrations(x->metad, &reg2);
	CHECK(reg2.boot_id != reg1.boot_id);
	CHECK(reg2.store_id_hi == reg1.store_id_hi);
	CHECK(reg2.store_id_lo == reg1.store_id_lo);
	CHECK(reg2.commit > reg1.commit);
	CHECK(reg2.session_max == 1 && reg2.ino_max == 22);
	run_client(x, &r, 1, 2);
	CHECK(r.boot_id != boot_id);
	run_check_holds(&r, 20, 0, 0, pattern, BLOCK);
	run_check_holds(&r, 21, 0, 100, pattern, 777);
	run_check_holds(&r, 22, 0, 0, pattern, 128);
	raw_close(&r);
}

static void an_orderly_stop_keeps_everything(struct blockd_run *x)
{
	static const char *const check[] = { "--check", "--data-sums", NULL };
	struct blk_raw r, a;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	run_fill(pattern, 70000, 12);
	CHECK_EQ(raw_write(&r, 20, 0, 0, pattern, 70000, 0), 0);
	CHECK_EQ(child_term(&x->child), 0);
	raw_close(&r);
	CHECK_EQ(run_to_end(x, check), 0);

	run_start(x, NULL);
	run_client(x, &r, 1, 2);
	run_check_holds(&r, 20, 0, 0, pattern, 70000);
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_STOP, NULL, 0, NULL, 0, NULL),
		 -EPERM);
	run_check_holds(&r, 20, 0, 0, pattern, 70000);
	run_as(x, &a, WIRE_ROLE_ADMIN);
	CHECK_EQ(raw_call(&a, WIRE_OP_ADMIN_STOP, NULL, 0, NULL, 0, NULL), 0);
	CHECK_EQ(child_wait(&x->child), 0);
	raw_close(&a);
	raw_close(&r);
}

static void a_scrub_reads_all_and_does_not_delay_a_stop(struct blockd_run *x)
{
	static const char *const slow[] = { "--scrub-rate", "1m", NULL };
	struct blk_raw r, a, b;
	struct blk_scrub_reply m;
	struct frame *f;
	uint64_t start;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	run_fill(pattern, BLOCK, 8);
	for (unsigned i = 0; i < 16; i++)
		CHECK_EQ(raw_write(&r, 5, i, 0, pattern, BLOCK, SYNC), 0);
	run_as(x, &a, WIRE_ROLE_ADMIN);
	CHECK_EQ(raw_call(&a, WIRE_OP_BLK_SCRUB, NULL, 0, NULL, 0, &f), 0);
	CHECK_EQ(blk_scrub_reply_parse(f->body, f->h.body_len, &m), 0);
	CHECK_EQ(m.units_read, 16 * 256);
	CHECK_EQ(m.units_bad, 0);
	frame_free(f);
	raw_close(&a);
	raw_close(&r);
	CHECK_EQ(child_term(&x->child), 0);

	run_start(x, slow);
	run_as(x, &a, WIRE_ROLE_ADMIN);
	run_as(x, &b, WIRE_ROLE_ADMIN);
	raw_send(&a, WIRE_OP_BLK_SCRUB, NULL, 0, NULL, 0);
	CHECK(!raw_recv(&a, 300) && errno == ETIMEDOUT);
	CHECK_EQ(raw_call(&b, WIRE_OP_BLK_SCRUB, NULL, 0, NULL, 0, NULL),
		 -EBUSY);
	raw_close(&a);
	start = now_ms();
	CHECK_EQ(child_term(&x->child), 0);
	CHECK(now_ms() - start < 5000);
	raw_close(&b);
}

static void two_daemons_do_not_share_a_store(struct blockd_run *x)
{
	struct blockd_run second;
	pid_t pid;

	run_start(x, NULL);
	second = *x;
	pid = x->child.pid;
	CHECK_EQ(run_to_end(&second, NULL), 3);
	CHECK(child_log_has(&x->child, "in use"));
	x->child.pid = pid;
}

static void a_missing_io_uring_is_said(struct blockd_run *x)
{
	run_forbid_io_uring(x, true);
	CHECK_EQ(run_to_end(x, NULL), 3);
	CHECK(child_log_has(&x->child, "kernel.io_uring_disabled"));
	run_forbid_io_uring(x, false);
	run_start(x, NULL); /* nothing was harmed */
}

static void another_clusters_store_is_refused(struct blockd_run *x)
{
	char path[128];
	FILE *f;

	run_start(x, NULL);
	CHECK_EQ(child_term(&x->child), 0);
	snprintf(path, sizeof(path), "%s/cluster.conf", x->child.dir);
	f = fopen(path, "w");
	if (!f)
		abort();
	fprintf(f,
		"cluster other\nid 0x9999\nreplicas 1\n"
		"metad 1 127.0.0.1:1\n"
		"blockd 1 127.0.0.1:%u data=%s/data\n",
		x->child.port, x->child.dir);
	fclose(f);
	CHECK_EQ(run_to_end(x, NULL), 3);
	CHECK(child_log_has(&x->child, "cluster"));
}

struct waiting {
	struct rpc_call call;
	sem_t done;
	int status;
	struct iovec iov;
	uint8_t body[256], sums[128];
};

static void on_answer(struct rpc_call *call, int status,
		      const struct rpc_frame *f)
{
	struct waiting *w = container_of(call, struct waiting, call);

	(void)f;
	w->status = status;
	sem_post(&w->done);
}

static void rpc_write(struct rpc_peer *p, struct waiting *w, uint64_t index,
		      uint32_t len)
{
	struct blk_write m = { .ino = 5, .index = index, .len = len,
			       .block_log2 = 20, .flags = SYNC,
			       .sums = { w->sums,
					 4 * crc32c_piece_count(0, len) } };
	struct wire_out o;

	crc32c_sums(0, pattern, len, w->sums);
	wire_out_init(&o, w->body, sizeof(w->body));
	blk_write_encode(&o, &m);
	w->iov = (struct iovec){ pattern, len };
	sem_init(&w->done, 0, 0);
	w->call = (struct rpc_call){ .opcode = WIRE_OP_BLK_WRITE,
		.flags = RPC_F_RETRY, .timeout_ms = 20000, .body = w->body,
		.body_len = (uint32_t)o.len, .iov = &w->iov, .iov_count = 1,
		.data_len = len, .cb = on_answer };
	rpc_send(p, &w->call);
}

static void the_rpc_client_goes_on_after_a_kill(struct blockd_run *x)
{
	struct rpc_identity id = { .role = WIRE_ROLE_CLIENT, .session = 1,
				   .cluster_id = RUN_CLUSTER_ID,
				   .name = "test" };
	static const struct rpc_peer_ops ops;
	static struct waiting w[64];
	struct rpc_net *net;
	struct rpc_peer *peer;
	struct blk_raw r;

	run_start(x, NULL);
	run_fill(pattern, BLOCK, 9);
	CHECK_EQ(rpc_net_new(&id, &net), 0);
	CHECK_EQ(rpc_peer_new(net, "127.0.0.1", x->child.port, &ops, NULL,
			      &peer),
		 0);
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < array_count(w); i++)
			rpc_write(peer, &w[i], i, 1 + i * 1000);
		if (round > 0) {
			child_kill9(&x->child);
			run_start(x, NULL);
		}
		for (unsigned i = 0; i < array_count(w); i++) {
			while (sem_wait(&w[i].done) < 0)
				;
			CHECK_EQ(w[i].status, 0);
			sem_destroy(&w[i].done);
		}
	}
	rpc_peer_close(peer);
	rpc_net_free(net);
	child_kill9(&x->child);
	run_start(x, NULL);
	run_client(x, &r, 1, UINT64_MAX);
	for (unsigned i = 0; i < array_count(w); i++)
		run_check_holds(&r, 5, i, 0, pattern, 1 + i * 1000);
	raw_close(&r);
}

/* Zeroing a large journal takes a while. */
static void a_cut_off_first_start_begins_anew(struct blockd_run *x)
{
	static const char *const large[] = { "--journal", "2g", NULL };
	static const char *const check[] = { "--check", NULL };
	char journal[128], super[128];
	struct blk_raw r;

	snprintf(journal, sizeof(journal), "%s/data/journal", x->child.dir);
	snprintf(super, sizeof(super), "%s/data/super", x->child.dir);
	child_spawn(&x->child, "hail-blockd", NULL, large);
	EVENTUALLY(access(journal, F_OK) == 0);
	child_kill9(&x->child);
	CHECK(access(super, F_OK) < 0);
	CHECK_EQ(run_to_end(x, check), 3);
	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	run_fill(pattern, BLOCK, 12);
	CHECK_EQ(raw_write(&r, 20, 0, 0, pattern, BLOCK, SYNC), 0);
	raw_close(&r);
	child_kill9(&x->child);
	/* It is a store from now on. */
	run_start(x, NULL);
	run_client(x, &r, 1, 2);
	run_check_holds(&r, 20, 0, 0, pattern, BLOCK);
	raw_close(&r);
}

int main(int argc, char **argv)
{
	static const struct blockd_test tests[] = {
		BLOCKD_TEST(what_was_synced_survives_kill9),
		BLOCKD_TEST(an_orderly_stop_keeps_everything),
		BLOCKD_TEST(a_cut_off_first_start_begins_anew),
		BLOCKD_TEST(a_scrub_reads_all_and_does_not_delay_a_stop),
		BLOCKD_TEST(two_daemons_do_not_share_a_store),
		BLOCKD_TEST(a_missing_io_uring_is_said),
		BLOCKD_TEST(another_clusters_store_is_refused),
		BLOCKD_TEST(the_rpc_client_goes_on_after_a_kill),
	};

	return blockd_tests_run(argc, argv, tests, array_count(tests));
}
