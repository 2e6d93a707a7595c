/* The floor: a FUSE file system that does nothing. One level of files, whose
 * data is thrown away and reads as zeros. What it costs is what FUSE costs.
 *
 * usage: nullfs [-o io_uring,...] MOUNTPOINT   (foreground; ends on unmount)
 *
 * libfuse takes the classic device without telling where it cannot have
 * io_uring: who asked for that one gets EIO from fsync then.
 */
#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX 65536

struct file {
	char name[256];
	off_t size;
};

static struct file *files[FILE_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char zeros[1 << 20];
static bool wants_uring;

static void file_stat(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_nlink = 1;
	if (ino == FUSE_ROOT_ID) {
		st->st_mode = S_IFDIR | 0755;
		return;
	}
	st->st_mode = S_IFREG | 0644;
	st->st_size = files[ino - 2] ? files[ino - 2]->size : 0;
}

static fuse_ino_t find(const char *name)
{
	for (size_t i = 0; i < FILE_MAX && files[i]; i++)
		if (strcmp(files[i]->name, name) == 0)
			return i + 2;
	return 0;
}

static void entry(fuse_ino_t ino, struct fuse_entry_param *e)
{
	memset(e, 0, sizeof(*e));
	e->ino = ino;
	e->attr_timeout = e->entry_timeout = 3600;
	file_stat(ino, &e->attr);
}

static void n_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	(void)parent;
	pthread_mutex_lock(&lock);
	fuse_ino_t ino = find(name);
	if (ino)
		entry(ino, &e);
	pthread_mutex_unlock(&lock);
	if (ino)
		fuse_reply_entry(req, &e);
	else
		fuse_reply_err(req, ENOENT);
}

static void n_getattr(fuse_req_t req, fuse_ino_t ino,
		      struct fuse_file_info *fi)
{
	struct stat st;
	(void)fi;
	file_stat(ino, &st);
	fuse_reply_attr(req, &st, 3600);
}

static void n_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st,
		      int to_set, struct fuse_file_info *fi)
{
	(void)fi;
	if (to_set & FUSE_SET_ATTR_SIZE && ino != FUSE_ROOT_ID)
		files[ino - 2]->size = st->st_size;
	struct stat out;
	file_stat(ino, &out);
	fuse_reply_attr(req, &out, 3600);
}

static void n_create(fuse_req_t req, fuse_ino_t parent, const char *name,
		     mode_t mode, struct fuse_file_info *fi)
{
	struct fuse_entry_param e;
	fuse_ino_t ino;
	(void)parent;
	(void)mode;
	pthread_mutex_lock(&lock);
	ino = find(name);
	for (size_t i = 0; !ino && i < FILE_MAX; i++) {
		if (files[i])
			continue;
		files[i] = calloc(1, sizeof(*files[i]));
		if (!files[i])
			break;
		snprintf(files[i]->name, sizeof(files[i]->name), "%s", name);
		ino = i + 2;
	}
	if (ino)
		entry(ino, &e);
	pthread_mutex_unlock(&lock);
	fi->keep_cache = 1;
	if (ino)
		fuse_reply_create(req, &e, fi);
	else
		fuse_reply_err(req, ENOSPC);
}

static void n_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

static void n_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	off_t end = files[ino - 2]->size;
	(void)fi;
	if (off >= end)
		size = 0;
	else if ((off_t)size > end - off)
		size = (size_t)(end - off);
	if (size > sizeof(zeros))
		size = sizeof(zeros);
	fuse_reply_buf(req, zeros, size);
}

static void n_write(fuse_req_t req, fuse_ino_t ino, const char *buf,
		    size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)buf;
	(void)fi;
	if (off + (off_t)size > files[ino - 2]->size)
		files[ino - 2]->size = off + (off_t)size;
	fuse_reply_write(req, size);
}

static void n_ok(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	fuse_reply_err(req, 0);
}

static void n_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		    struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	fuse_reply_err(req, fuse_req_is_uring(req) == wants_uring ? 0 : EIO);
}

static void n_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	fuse_unset_feature_flag(conn, FUSE_CAP_AUTO_INVAL_DATA);
	fuse_set_feature_flag(conn, FUSE_CAP_EXPLICIT_INVAL_DATA);
	fuse_set_feature_flag(conn, FUSE_CAP_HANDLE_KILLPRIV_V2);
}

static const struct fuse_lowlevel_ops ops = {
	.init = n_init,
	.lookup = n_lookup,
	.getattr = n_getattr,
	.setattr = n_setattr,
	.create = n_create,
	.open = n_open,
	.read = n_read,
	.write = n_write,
	.flush = n_ok,
	.release = n_ok,
	.fsync = n_fsync,
};

int main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(argc - 1, argv);
	if (argc < 2) {
		fprintf(stderr, "usage: nullfs [-o OPTIONS] MOUNTPOINT\n");
		return 2;
	}
	for (int i = 1; i < argc - 1; i++)
		wants_uring |= strstr(argv[i], "io_uring") != NULL;
	struct fuse_session *se =
		fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!se || fuse_set_signal_handlers(se) ||
	    fuse_session_mount(se, argv[argc - 1]))
		return 1;
	struct fuse_loop_config *lc = fuse_loop_cfg_create();
	fuse_loop_cfg_set_clone_fd(lc, 1);
	fuse_loop_cfg_set_max_threads(lc, 4);
	fuse_session_loop_mt(se, lc);
	fuse_loop_cfg_destroy(lc);
	fuse_session_unmount(se);
	fuse_session_destroy(se);
	fuse_opt_free_args(&args);
	return 0;
}
