/* hailctl metad backup, metad restore, blockd scrub. */
#include "tools/hailctl/local.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json_bytes.h"

#define RESTORE_STOP_MS 60000

/* One piece. @handle, @off: in and out. Returns 0 or -errno. */
static int backup_piece(struct link *metad, struct admin_backup *ask,
			uint64_t *total, FILE *out)
{
	struct admin_backup_reply m;
	struct rpc_frame *f;
	struct wire_out o;
	uint8_t body[32];
	int rv;

	wire_out_init(&o, body, sizeof(body));
	admin_backup_encode(&o, ask);
	/* The first one waits for the snapshot to be taken. */
	rv = link_call(metad, WIRE_OP_ADMIN_BACKUP, body, o.len, 0, &f);
	if (rv < 0)
		return rv;
	rv = admin_backup_reply_parse(f->body, f->h.body_len, &m);
	if (rv == 0 && (m.piece.len == 0 ? ask->off < m.total :
			m.piece.len > m.total - ask->off))
		rv = -EBADMSG;
	if (rv == 0 && fwrite(m.piece.p, 1, m.piece.len, out) != m.piece.len)
		rv = errno ? -errno : -EIO;
	if (rv == 0) {
		ask->handle = m.handle;
		ask->off += m.piece.len;
		*total = m.total;
	}
	rpc_frame_free(f);
	return rv;
}

static int backup_to(struct link *metad, FILE *out, uint64_t *total)
{
	struct admin_backup ask = { .handle = 0, .off = 0 };
	char done[32], all[32];
	int rv;

	do {
		rv = backup_piece(metad, &ask, total, out);
		if (rv < 0)
			return rv;
		progress(metad->c, "%s of %s",
			 out_size(ask.off, done, sizeof(done)),
			 out_size(*total, all, sizeof(all)));
	} while (ask.off < *total);
	if (fflush(out) != 0 || fsync(fileno(out)) < 0)
		return -errno;
	return 0;
}

/* A backup takes its name when it is whole: what has that name is replaced,
 * which no device, pipe or link to one (/dev/stdout) must be. */
static bool may_replace(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0 || S_ISREG(st.st_mode))
		return true;
	ctl_err("%s is there and no regular file; give the name of a new file, "
		"or of a backup to be replaced", path);
	return false;
}

/* Is @fd still the file of that name? */
static bool is_named(int fd, const char *path)
{
	struct stat ours, named;

	return fstat(fd, &ours) == 0 && stat(path, &named) == 0 &&
	       ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

/* What a backup is written to, locked until it is closed: two that write one
 * file would make a whole of neither. NULL after a message. */
static FILE *part_open(const char *path)
{
	FILE *f;
	int fd;

	for (;;) {
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
		if (fd < 0)
			break;
		/* Network file systems need not have locks. */
		if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
			close(fd);
			ctl_err("%s: another backup is being written there; "
				"wait for it, or give another name", path);
			return NULL;
		}
		if (is_named(fd, path))
			break;
		close(fd); /* that one has just got its name */
	}
	f = fd >= 0 && ftruncate(fd, 0) == 0 ? fdopen(fd, "w") : NULL;
	if (!f) {
		ctl_err("%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	return f;
}

/* A file with the name asked for is always a whole backup. */
static int backup_file(struct ctl *c, struct link *metad, const char *path)
{
	char tmp[PATH_MAX + 16], size[32];
	uint64_t total = 0;
	FILE *f;
	int rv;

	if (!may_replace(path))
		return CTL_FAILED;
	snprintf(tmp, sizeof(tmp), "%s.part", path);
	f = part_open(tmp);
	if (!f)
		return CTL_FAILED;
	rv = backup_to(metad, f, &total);
	progress_clear();
	if (rv == 0 && rename(tmp, path) < 0)
		rv = -errno;
	if (rv < 0)
		(void)unlink(tmp);
	(void)fclose(f); /* all of it is synced; gives up the lock */
	if (rv == 0)
		rv = local_sync_parent(path);
	if (rv < 0) {
		ctl_err("backup of %s to %s: %s", link_name(metad), path,
			strerror(-rv));
		return CTL_FAILED;
	}
	if (c->o.json)
		out_json(json_pack("{s:o,s:I}", "file", json_bytes(path),
				   "bytes", (json_int_t)total));
	else
		printf("%s: %s, complete\n", path,
		       out_size(total, size, sizeof(size)));
	return CTL_OK;
}

int cmd_metad_backup(struct ctl *c, char **args)
{
	struct link *metad;
	struct links ls;
	int code = CTL_FAILED;

	if (links_open(c, &ls) < 0)
		return CTL_FAILED;
	metad = links_metad(&ls);
	if (metad)
		code = backup_file(c, metad, args[0]);
	links_close(&ls);
	return code;
}

/* hail-metad serves once it has restored; that it is durable then, and the
 * next start goes on from there, is all that is wanted here. */
static bool restore_stop(struct local_proc *p)
{
	int fd;
	bool ended;

	p->pid = local_pid(p);
	if (!p->pid)
		return false;
	fd = local_term(p);
	if (fd < 0)
		return fd == -ESRCH;
	ended = local_wait_end(fd, RESTORE_STOP_MS);
	close(fd);
	return ended;
}

int cmd_metad_restore(struct ctl *c, char **args)
{
	char program[] = "hail-metad", cluster[] = "--cluster", id[] = "--id";
	char data[] = "--data", restore[] = "--restore", number[16];
	char pidfile[] = "--pidfile";
	struct local_proc p = { .program = program };
	char dir[PATH_MAX];
	char *argv[] = { program, cluster, c->conf_path, id, number, data,
			 args[1], restore, args[0], pidfile, p.pidfile, NULL };
	pid_t pid;
	bool ok;

	if (c->conf.metad_count == 0) {
		ctl_err("the cluster file names no metad");
		return CTL_FAILED;
	}
	if (access(args[0], R_OK) < 0) {
		ctl_err("backup %s: %s", args[0], strerror(errno));
		return CTL_FAILED;
	}
	if (mkdir(args[1], 0755) < 0 && errno != EEXIST) {
		ctl_err("cannot make directory %s: %s", args[1],
			strerror(errno));
		return CTL_FAILED;
	}
	if (!realpath(args[1], dir)) {
		ctl_err("%s: %s", args[1], strerror(errno));
		return CTL_FAILED;
	}
	snprintf(number, sizeof(number), "%u", c->conf.metads[0].id);
	/* Beside the directory, which has to be empty. */
	snprintf(p.pidfile, sizeof(p.pidfile), "%s.restore.pid", dir);
	pid = local_spawn(argv);
	ok = pid > 0 && local_spawn_wait(pid);
	if (!ok || !restore_stop(&p)) {
		ctl_err("%s was not restored to %s%s", args[0], args[1],
			ok ? ": hail-metad did not end; see the system log" :
			     "");
		return CTL_FAILED;
	}
	if (c->o.json)
		out_json(json_pack("{s:o,s:o}", "file", json_bytes(args[0]),
				   "data", json_bytes(args[1])));
	else
		printf("%s: restored from %s; now start hail-metad with "
		       "--data %s\n", args[1], args[0], args[1]);
	return CTL_OK;
}

static int scrub(struct ctl *c, const struct conf_daemon *d)
{
	struct blk_scrub_reply m = { .units_bad = 0 };
	struct link l;
	int rv = link_open(c, DAEMON_BLOCKD, d, &l);

	if (rv < 0) {
		link_complain(&l);
		return CTL_FAILED;
	}
	ctl_say(c, "%s: verifying all checksums", link_name(&l));
	rv = link_scrub(&l, &m);
	link_close(&l);
	if (rv < 0) {
		ctl_err("%s: scrub: %s", link_name(&l), strerror(-rv));
		return CTL_FAILED;
	}
	if (c->o.json)
		out_json(json_pack("{s:I,s:I,s:I}", "id", (json_int_t)d->id,
				   "units_read", (json_int_t)m.units_read,
				   "units_bad", (json_int_t)m.units_bad));
	else
		printf("blockd %u: %" PRIu64 " units of 4 KiB read, %" PRIu64
		       " bad\n", d->id, m.units_read, m.units_bad);
	return m.units_bad ? CTL_FAILED : CTL_OK;
}

int cmd_blockd_scrub(struct ctl *c, char **args)
{
	const struct conf_daemon *d;
	unsigned long id;
	char *end;

	id = strtoul(args[0], &end, 10);
	if (*end || id == 0 || id > UINT32_MAX) {
		ctl_err("'%s' is no daemon id (a number above 0)", args[0]);
		return CTL_USAGE;
	}
	d = conf_find(c->conf.blockds, c->conf.blockd_count, (uint32_t)id);
	if (!d) {
		ctl_err("%s names no blockd %lu", c->conf_path, id);
		return CTL_FAILED;
	}
	return scrub(c, d);
}
