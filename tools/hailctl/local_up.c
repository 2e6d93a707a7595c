/* hailctl local up, local down, local status. */
#include "tools/hailctl/local.h"

#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json_bytes.h"

#define BLOCKDS_DEFAULT 3u
#define STOP_MS 60000
#define ARGS_MAX 16

/* ---- up ---- */

/* What will come, but is not there yet. */
static bool up_supported(const struct ctl_options *o)
{
	if (o->metads % 2 == 0 && o->metads > 0)
		ctl_err("--metads %llu: 1, 3 or 5 make a majority",
			(unsigned long long)o->metads);
	else if (o->replicas > 1)
		ctl_err("--replicas %llu: this release keeps one copy of each "
			"block; leave the option out or give 1",
			(unsigned long long)o->replicas);
	else
		return true;
	return false;
}

/* The cluster file has whole paths: that of a directory that was moved or
 * copied names the data at the old place, which may be another cluster's. */
static bool data_in_place(const struct local *l, const char *kind,
			  const struct conf_daemon *d)
{
	char own[PATH_MAX + 32];
	struct stat a, b;

	snprintf(own, sizeof(own), "%s/%s%u", l->dir, kind, d->id);
	if (!d->data || !local_holds_data(own) || stat(own, &a) < 0 ||
	    (stat(d->data, &b) == 0 && a.st_dev == b.st_dev &&
	     a.st_ino == b.st_ino))
		return true;
	ctl_err("%s is there, but %s says data=%s: if the directory was moved "
		"or copied, correct data= in that file; if not, take %s away",
		own, l->conf, d->data, own);
	return false;
}

static bool all_in_place(const struct local *l)
{
	const struct conf *conf = &l->c->conf;
	bool ok = true;

	for (uint32_t i = 0; i < conf->metad_count && ok; i++)
		ok = data_in_place(l, "metad", &conf->metads[i]);
	for (uint32_t i = 0; i < conf->blockd_count && ok; i++)
		ok = data_in_place(l, "blockd", &conf->blockds[i]);
	return ok;
}

static bool up_conf(struct local *l)
{
	uint64_t wanted = l->c->o.blockds, metads = l->c->o.metads;

	if (access(l->conf, F_OK) < 0 &&
	    !local_conf_write(l, wanted ? (uint32_t)wanted : BLOCKDS_DEFAULT))
		return false;
	if (!local_load(l))
		return false;
	if (wanted && wanted != l->c->conf.blockd_count) {
		ctl_err("--blockds %llu: the cluster in %s has %u block "
			"daemons; blocks cannot be moved yet, so one that is "
			"added would hold no data: leave the option out, or "
			"make a new cluster and copy",
			(unsigned long long)wanted, l->dir,
			l->c->conf.blockd_count);
		return false;
	}
	if (metads && metads != l->c->conf.metad_count) {
		ctl_err("--metads %llu: the cluster in %s has %u: leave the "
			"option out; see hailctl(8), 'metad add', for how to "
			"have more", (unsigned long long)metads, l->dir,
			l->c->conf.metad_count);
		return false;
	}
	return all_in_place(l);
}

static bool make_dir(const char *path)
{
	if (mkdir(path, 0755) == 0 || errno == EEXIST)
		return true;
	ctl_err("cannot make directory %s: %s", path, strerror(errno));
	return false;
}

static bool start_daemon(struct local *l, struct local_proc *p)
{
	char cluster[] = "--cluster", id[] = "--id", pidfile[] = "--pidfile";
	char log[] = "--log", program[16], number[16];
	char *argv[] = { program, cluster, l->conf, id, number, pidfile,
			 p->pidfile, log, p->log, NULL };

	if (p->d->data && !make_dir(p->d->data))
		return false;
	snprintf(program, sizeof(program), "%s", p->program);
	snprintf(number, sizeof(number), "%u", p->d->id);
	p->child = local_spawn(argv);
	p->wanted = true;
	return p->child > 0;
}

/* A comma ends a mount option. @to: of more than twice @s's bytes. */
static const char *escaped(const char *s, char *to)
{
	char *p = to;

	for (; *s; s++) {
		if (*s == ',' || *s == '\\')
			*p++ = '\\';
		*p++ = *s;
	}
	*p = '\0';
	return to;
}

/* One mount has the tree, so the kernel may gather writes; what the user says
 * comes later and wins. malloc'd; NULL after a message. */
static char *mount_options(const struct local *l, const struct local_proc *p)
{
	const char *more = l->c->o.mount_options;
	char pidfile[2 * sizeof(p->pidfile)], log[2 * sizeof(p->log)], *opts;

	if (asprintf(&opts, "writeback%s%s,pidfile=%s,log=%s", more ? "," : "",
		     more ? more : "", escaped(p->pidfile, pidfile),
		     escaped(p->log, log)) >= 0)
		return opts;
	ctl_err("out of memory");
	return NULL;
}

/* A mount that was taken away may still be flushing, for want of a daemon that
 * runs again by now. */
static void wait_flushed(struct local *l, struct local_proc *p)
{
	int fd = p->pid ? pidfd_open(p->pid, 0) : -1;

	if (fd < 0)
		return;
	while (!local_wait_end(fd, 5000))
		ctl_say(l->c, "mount: process %d of the last mount has not "
			"ended: it is still flushing, or programs or "
			"containers have it from before it was taken away; "
			"see %s", (int)p->pid, p->log);
	close(fd);
	p->pid = 0;
}

/* A dead mount is detached; what is there otherwise is not ours to touch. */
static bool start_mount(struct local *l, struct local_proc *p)
{
	enum mount_state state = local_mount_state(l->mnt, p->pid);
	char program[] = "hailfs", o[] = "-o";
	char *argv[] = { program, o, NULL, l->conf, l->mnt, NULL };
	int rv;

	if (state == MOUNT_LIVE) {
		if (l->c->o.mount_options)
			ctl_say(l->c, "%s is mounted already: '%s' changes "
				"nothing before it is unmounted", l->mnt,
				l->c->o.mount_options);
		return true;
	}
	if (state == MOUNT_OTHER) {
		ctl_err("%s: another file system is mounted there; unmount it "
			"first", l->mnt);
		return false;
	}
	if (state == MOUNT_DEAD) {
		rv = local_unmount(l->mnt, true);
		if (rv < 0) {
			ctl_err("%s: the mount is dead and cannot be removed: "
				"%s; try 'umount -l %s'", l->mnt,
				strerror(-rv), l->mnt);
			return false;
		}
		ctl_say(l->c, "removed the dead mount at %s", l->mnt);
	}
	if (state == MOUNT_NONE)
		wait_flushed(l, p);
	if (!make_dir(l->mnt))
		return false;
	argv[2] = mount_options(l, p);
	if (!argv[2])
		return false;
	p->child = local_spawn(argv);
	p->wanted = true;
	free(argv[2]);
	return p->child > 0;
}

static bool started(struct local *l, struct local_proc *p)
{
	if (!p->child)
		return true;
	if (!local_spawn_wait(p->child)) {
		ctl_err("%s did not start (%s); its log is %s", p->name,
			p->program, p->log);
		return false;
	}
	p->pid = local_pid(p);
	ctl_say(l->c, "%s: started, process %d", p->name, (int)p->pid);
	return true;
}

/* One that ran already: does it do anything? */
static bool answers(struct local *l, const struct local_proc *p)
{
	json_t *status = NULL;
	struct link link;
	int rv = link_open(l->c, local_kind(p), p->d, &link);

	if (rv == 0)
		rv = link_json(&link, WIRE_OP_ADMIN_STATUS, &status);
	link_close(&link);
	json_decref(status);
	if (rv == 0)
		return true;
	ctl_err("%s: process %d is there, but does not answer: %s; its log is "
		"%s; continue it if it is stopped ('kill -CONT %d'); if it "
		"hangs, 'kill -9 %d' and say 'hailctl local up %s' again",
		p->name, (int)p->pid, strerror(-rv), p->log, (int)p->pid,
		(int)p->pid, l->dir);
	return false;
}

/* Starts what does not run of one kind, together; waits for all. */
static bool start_role(struct local *l, struct local_proc *v, uint32_t count,
		       enum local_role role)
{
	bool ok = true;

	for (uint32_t i = 0; i < count; i++) {
		if (v[i].role != role)
			continue;
		if (role == LOCAL_MOUNT)
			ok = start_mount(l, &v[i]) && ok;
		else if (v[i].pid)
			ok = answers(l, &v[i]) && ok;
		else
			ok = start_daemon(l, &v[i]) && ok;
	}
	for (uint32_t i = 0; i < count; i++)
		if (v[i].role == role && v[i].child > 0)
			ok = started(l, &v[i]) && ok;
	return ok;
}

static void up_report(struct local *l, const struct local_proc *v,
		      uint32_t count)
{
	json_t *list = json_array();
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (!v[i].wanted)
			continue;
		json_array_append_new(list, json_string(v[i].name));
		n++;
	}
	if (l->c->o.json) {
		out_json(json_pack("{s:o,s:o,s:o,s:o}", "dir",
				   json_bytes(l->dir), "cluster",
				   json_bytes(l->conf), "mountpoint",
				   l->c->o.mount ? json_bytes(l->mnt) :
						   json_null(),
				   "started", list));
		return;
	}
	json_decref(list);
	printf("%s: %s", l->dir, n ? "up" : "was up already");
	if (l->c->o.mount)
		printf(", mounted at %s", l->mnt);
	putchar('\n');
}

int cmd_local_up(struct ctl *c, char **args)
{
	struct local_proc *v = NULL;
	struct local l;
	uint32_t count = 0;
	bool ok;

	if (!up_supported(&c->o))
		return CTL_USAGE;
	ok = local_open(c, args[0], true, &l) && up_conf(&l);
	if (ok) {
		v = local_procs(&l, &count);
		ok = v != NULL;
	}
	ok = ok && start_role(&l, v, count, LOCAL_METAD) &&
	     start_role(&l, v, count, LOCAL_BLOCKD) &&
	     start_role(&l, v, count, LOCAL_LOGD) &&
	     (!c->o.mount || start_role(&l, v, count, LOCAL_MOUNT));
	if (ok)
		up_report(&l, v, count);
	free(v);
	local_close(&l);
	return ok ? CTL_OK : CTL_FAILED;
}

/* ---- down ---- */

/* It goes on for as long as a daemon it needs is away, and who could start that
 * one waits for us. */
static void still_flushing(const struct local *l, const struct local_proc *v,
			   uint32_t count)
{
	const struct local_proc *p = &v[count - 1];

	ctl_say(l->c, "mount: process %d has not ended: it is still flushing, "
		"or programs or containers have it from before it was taken "
		"away; see %s", (int)p->pid, p->log);
	for (uint32_t i = 0; i < count - 1; i++)
		if (!local_pid(&v[i]))
			ctl_say(l->c, "  %s does not run: interrupt this, say "
				"'hailctl local up %s', then this again",
				v[i].name, l->dir);
}

/* Unmounts; the process ends once everything is flushed. */
static bool down_mount(struct local *l, const struct local_proc *v,
		       uint32_t count)
{
	const struct local_proc *p = &v[count - 1];
	enum mount_state state = local_mount_state(l->mnt, p->pid);
	int fd = -1, rv;

	if (state == MOUNT_OTHER) {
		ctl_err("%s: another file system is mounted there; unmount it "
			"first", l->mnt);
		return false;
	}
	if (p->pid)
		fd = pidfd_open(p->pid, 0);
	if (state == MOUNT_LIVE || state == MOUNT_DEAD) {
		rv = local_unmount(l->mnt, state == MOUNT_DEAD);
		if (rv < 0) {
			if (rv == -EBUSY)
				ctl_err("cannot unmount %s: %s; see who uses "
					"it with 'fuser -vm %s', end them and "
					"try again", l->mnt, strerror(-rv),
					l->mnt);
			else
				ctl_err("cannot unmount %s: %s", l->mnt,
					strerror(-rv));
			if (fd >= 0)
				close(fd);
			return false;
		}
	}
	if (fd < 0) {
		if (state != MOUNT_NONE)
			ctl_say(l->c, "mount: removed");
		return true;
	}
	while (!local_wait_end(fd, 5000))
		still_flushing(l, v, count);
	close(fd);
	ctl_say(l->c, "mount: unmounted");
	return true;
}

static bool down_role(struct local *l, struct local_proc *v, uint32_t count,
		      enum local_role role)
{
	int *fds = calloc(count, sizeof(*fds));
	bool ok = fds != NULL;

	for (uint32_t i = 0; fds && i < count; i++) {
		fds[i] = -1;
		if (v[i].role != role || !v[i].pid)
			continue;
		fds[i] = local_term(&v[i]);
		if (fds[i] < 0 && fds[i] != -ESRCH) {
			ctl_err("%s: cannot stop process %d: %s", v[i].name,
				(int)v[i].pid, strerror(-fds[i]));
			ok = false;
		}
	}
	for (uint32_t i = 0; fds && i < count; i++) {
		if (fds[i] < 0)
			continue;
		if (local_wait_end(fds[i], STOP_MS)) {
			ctl_say(l->c, "%s: stopped", v[i].name);
		} else {
			ctl_err("%s: process %d does not end; its log is %s",
				v[i].name, (int)v[i].pid, v[i].log);
			ok = false;
		}
		close(fds[i]);
	}
	free(fds);
	return ok;
}

/* What a mount that died wrote to log files may be in the memory of the log
 * daemons alone. */
static bool logs_saved(struct local *l, const struct local_proc *v,
		       uint32_t count)
{
	json_t *status = NULL;
	struct link link;
	uint64_t logs = 0;

	if (l->c->o.yes)
		return true;
	/* Of several the one that leads says it. */
	for (uint32_t i = 0; i < count && logs == 0; i++) {
		if (v[i].role != LOCAL_METAD || !v[i].pid)
			continue;
		if (link_open(l->c, DAEMON_METAD, v[i].d, &link) == 0 &&
		    link_json(&link, WIRE_OP_ADMIN_STATUS, &status) == 0)
			logs = json_u64(status, "logs");
		link_close(&link);
		json_decref(status);
		status = NULL;
	}
	if (logs == 0)
		return true;
	ctl_err("%llu log files of a mount that died are in the memory of the "
		"log daemons alone: say 'hailctl local up %s', which recovers "
		"them, and this again; 'hailctl log salvage' shows what it "
		"could not recover; or, if they shall be lost, this with "
		"--yes", (unsigned long long)logs, l->dir);
	return false;
}

int cmd_local_down(struct ctl *c, char **args)
{
	struct local_proc *v = NULL;
	struct local l;
	uint32_t count = 0;
	bool ok;

	ok = local_open(c, args[0], false, &l) && local_load(&l) &&
	     local_open(c, args[0], true, &l);
	if (ok) {
		v = local_procs(&l, &count);
		ok = v != NULL;
	}
	ok = ok && down_mount(&l, v, count) && logs_saved(&l, v, count) &&
	     down_role(&l, v, count, LOCAL_LOGD) &&
	     down_role(&l, v, count, LOCAL_BLOCKD) &&
	     down_role(&l, v, count, LOCAL_METAD);
	if (ok && c->o.json)
		out_json(json_pack("{s:o,s:b}", "dir", json_bytes(l.dir),
				   "stopped", 1));
	else if (ok)
		printf("%s: down\n", l.dir);
	free(v);
	local_close(&l);
	return ok ? CTL_OK : CTL_FAILED;
}
