/* What daemons read first of their disks: blockd's superblock and the state
 * and keys of its index, metad's file that says whose the directory is and the
 * mark beside its log.
 *
 * Input: a byte (bits 0-1: which; bit 2: its checksum is made right first),
 * then its bytes.
 */
#include "blockd/index_priv.h"
#include "blockd/store_priv.h"
#include "metad/datadir.h"
#include "metad/mark.h"

#include "common/crc32c.h"
#include "tests/lib/fuzz.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUPER_SUM 68u /* offset of its checksum */
#define MARK_SLOT_LEN 20u /* magic, batch, checksum */
#define CLUSTER 0x5566u

static void put32(uint8_t *p, uint32_t v)
{
	struct wire_out o;

	wire_out_init(&o, p, 4);
	wire_put_u32(&o, v);
}

/* ---- a superblock, on a disk that holds nothing else ---- */

static uint8_t page[UNIT_SIZE];

static int page_open(struct dev *d, const char *name, bool create)
{
	(void)d;
	fuzz_expect(!create);
	/* What marks a store whose making was cut off is not there. */
	return strcmp(name, "super") == 0 ? 1 : -ENOENT;
}

static void page_close(struct dev *d, int file)
{
	(void)d;
	(void)file;
}

static int page_read(struct dev *d, int file, uint64_t off, void *buf,
		     size_t len)
{
	(void)d;
	(void)file;
	fuzz_expect(off == 0 && len == sizeof(page));
	memcpy(buf, page, len);
	return 0;
}

static void check_super(const uint8_t *p, size_t len, bool resum)
{
	static const struct dev_vtable vt = { .open = page_open,
					      .close = page_close,
					      .read_now = page_read };
	struct dev d = { .vt = &vt };
	struct store_options o = { .dir = "d",
				   .daemon_id = 3,
				   .cluster_id = CLUSTER };
	struct super sp;
	char why[300] = "";
	int err;

	memset(page, 0, sizeof(page));
	memcpy(page, p, u64_min(len, sizeof(page)));
	if (resum)
		put32(page + SUPER_SUM, crc32c(0, page, SUPER_SUM));
	err = super_read(&d, &o, &sp, why, sizeof(why));
	fuzz_expect((err == 0) == !*why);
	if (err != 0) {
		fuzz_expect(err == -EBADMSG || err == -EPROTONOSUPPORT ||
			    err == -EXDEV || err == -ENOMEM);
		return;
	}
	fuzz_expect(sp.daemon_id == 3 && sp.cluster_id == CLUSTER);
	fuzz_expect(sp.journal_bytes >= 1u << 20 &&
		    sp.journal_bytes % UNIT_SIZE == 0);
}

/* ---- the index ---- */

static void check_index(uint8_t *p, size_t len, bool resum)
{
	uint8_t again[INDEX_STATE_MAX];
	MDB_val v = { len, p };
	struct index_state st;
	struct image_key key;
	uint64_t cut;
	int err;

	if (resum && len >= 4)
		put32(p + len - 4, crc32c(0, p, len - 4));
	err = index_state_decode(&v, &st);
	fuzz_expect(err == 0 || err == -EBADMSG || err == -EPROTONOSUPPORT);
	if (err == 0) {
		fuzz_expect(index_state_encode(again, &st) == len);
		fuzz_expect(memcmp(again, p, len) == 0);
	}
	if (index_key_get(&v, &key) == 0) {
		index_key_put(again, &key);
		fuzz_expect(memcmp(again, p, len) == 0);
	}
	if (index_cut_get(&v, 7, &cut) == 0) {
		/* The number alone is of older builds. */
		index_cut_put(again, 7, cut);
		fuzz_expect(len == INDEX_CUT_SIZE || len == sizeof(cut));
		fuzz_expect(memcmp(again, p, len) == 0);
	}
}

/* ---- metad's directory ---- */

static char dir[64], id_path[96], mark_path[96], raft_path[96];

static void dir_remove(void)
{
	char lock[96];

	(void)snprintf(lock, sizeof(lock), "%s/lock", dir);
	(void)unlink(lock);
	(void)unlink(id_path);
	(void)unlink(mark_path);
	(void)rmdir(raft_path);
	(void)rmdir(dir);
}

static void dir_make(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/fuzz_disk.XXXXXX");
	fuzz_expect(mkdtemp(dir) != NULL);
	(void)snprintf(id_path, sizeof(id_path), "%s/metad.id", dir);
	(void)snprintf(mark_path, sizeof(mark_path), "%s/mark", dir);
	(void)snprintf(raft_path, sizeof(raft_path), "%s/raft", dir);
	fuzz_expect(atexit(dir_remove) == 0);
}

static void file_make(const char *path, const uint8_t *p, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	fuzz_expect(fd >= 0 && write(fd, p, len) == (ssize_t)len);
	fuzz_expect(close(fd) == 0);
}

static void check_id(const uint8_t *p, size_t len)
{
	struct datadir d;
	char why[300] = "";
	int err;

	if (!*dir)
		dir_make();
	file_make(id_path, p, len);
	(void)unlink(mark_path); /* a new state has only its own files */
	(void)rmdir(raft_path);
	err = datadir_open(&d, dir, CLUSTER, 1, why, sizeof(why));
	fuzz_expect((err == 0) == !*why);
	if (err == 0) {
		/* A first start that was cut off begins anew. */
		fuzz_expect(d.state <= DATADIR_RAISE && d.state != DATADIR_NEW);
		datadir_close(&d);
		return;
	}
	fuzz_expect(err == -EBADMSG || err == -EPROTONOSUPPORT ||
		    err == -EXDEV || err == -ENOMEM);
}

/* The mark is believed where its sum is right, and goes on from there. */
static void check_mark(const uint8_t *p, size_t len)
{
	struct mark *m;
	uint64_t was;

	if (!*dir)
		dir_make();
	file_make(mark_path, p, len);
	(void)mkdir(raft_path, 0700);
	fuzz_expect(mark_open(dir, raft_path, &m) == 0);
	was = mark_get(m);
	fuzz_expect(len >= MARK_SLOT_LEN || was == 0);
	mark_set(m, 77);
	fuzz_expect(mark_get(m) >= 77);
	mark_set(m, 78);
	fuzz_expect(mark_get(m) == 78);
	mark_good(m);
	mark_close(m);
}

/* ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *p;
	bool resum;

	if (size == 0)
		return 0;
	p = malloc(size);
	if (!p)
		return 0;
	resum = (data[0] & 4) != 0;
	size--;
	memcpy(p, data + 1, size);
	if ((data[0] & 3) == 0)
		check_super(p, size, resum);
	else if ((data[0] & 3) == 1)
		check_id(p, size);
	else if ((data[0] & 3) == 2)
		check_mark(p, size);
	else
		check_index(p, size, resum);
	free(p);
	return 0;
}

static size_t super_seed(struct fuzz_rng *rng, uint8_t *p, size_t cap)
{
	struct wire_out o;

	wire_out_init(&o, p, cap);
	wire_put_raw(&o, "HASSUPER", 8);
	wire_put_u32(&o, 1 + fuzz_below(rng, 10) / 9);
	wire_put_u32(&o, 3 + fuzz_below(rng, 10) / 9);
	for (uint32_t i = 0; i < 3; i++)
		wire_put_u64(&o, fuzz_u64(rng));
	wire_put_u64(&o, CLUSTER + fuzz_below(rng, 10) / 9);
	wire_put_u64(&o, fuzz_below(rng, 3) ? (uint64_t)64 << 20 :
					      fuzz_odd_u64(rng));
	wire_put_u64(&o, 0);
	wire_put_u32(&o, 0);
	wire_put_u32(&o, crc32c(0, p, SUPER_SUM));
	return o.len;
}

static size_t index_seed(struct fuzz_rng *rng, uint8_t *p)
{
	struct image_key key = { fuzz_odd_u64(rng), fuzz_odd_u64(rng) };
	struct index_state st = { .tail_off = fuzz_odd_u64(rng),
				  .version = fuzz_odd_u64(rng) };

	if (fuzz_below(rng, 4) == 0) {
		index_key_put(p, &key);
		return INDEX_KEY_SIZE;
	}
	if (fuzz_below(rng, 3) == 0) {
		index_cut_put(p, 7, fuzz_odd_u64(rng));
		return INDEX_CUT_SIZE;
	}
	return index_state_encode(p, &st);
}

/* Two slots; the numbers as the machine has them. */
static size_t mark_seed(struct fuzz_rng *rng, uint8_t *p)
{
	size_t len = 0;

	for (uint32_t i = 0; i < 2; i++) {
		uint64_t v[2] = { UINT64_C(0x6b72616d6c696168),
				  fuzz_odd_u64(rng) };
		uint32_t sum[2] = { crc32c(0, v, sizeof(v)), 0 };

		memcpy(p + len, v, sizeof(v));
		memcpy(p + len + sizeof(v), sum, sizeof(sum));
		len += sizeof(v) + sizeof(sum);
	}
	return len;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	static const char *const states[] = { "new", "ok", "restoring", "raise",
					      "odd" };

	buf[0] = (uint8_t)fuzz_below(rng, 8);
	if ((buf[0] & 3) == 0)
		return 1 + super_seed(rng, buf + 1, cap - 1);
	if ((buf[0] & 3) == 2)
		return 1 + mark_seed(rng, buf + 1);
	if ((buf[0] & 3) == 3)
		return 1 + index_seed(rng, buf + 1);
	return 1 + (size_t)snprintf((char *)buf + 1, cap - 1,
				    "hailfs-metad %u\ncluster 0x%016x\nid %u\n"
				    "state %s\n",
				    1 + fuzz_below(rng, 10) / 9,
				    CLUSTER + fuzz_below(rng, 10) / 9,
				    1 + fuzz_below(rng, 10) / 9,
				    states[fuzz_below(rng, 5)]);
}
