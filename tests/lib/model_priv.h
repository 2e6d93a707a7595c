/* Private to tests/lib/model_*.c. */
#ifndef TESTS_LIB_MODEL_PRIV_H
#define TESTS_LIB_MODEL_PRIV_H

#include "tests/lib/model_fs.h"

#define MODEL_PAGE_SIZE 4096u

struct model_page { /* content that is not all holes */
	uint64_t index;
	struct model_page *next;
	uint8_t bytes[MODEL_PAGE_SIZE];
};

struct model_xattr {
	struct model_xattr *next;
	char *name;
	void *value;
	size_t len;
};

struct model_entry {
	struct model_entry *next;
	char *name;
	struct model_inode *in;
};

struct model_inode {
	struct model_inode *next;
	uint64_t ino;
	uint32_t mode, uid, gid, rdev;
	uint64_t size;
	int64_t atime, mtime, ctime, btime;
	uint32_t held;
	bool linkable; /* O_TMPFILE without a name so far */
	char *target;
	struct model_entry *entries;
	struct model_xattr *xattrs;
	struct model_page *pages;
};

struct model_fs {
	struct model_inode *inodes;
	struct model_inode *root;
	uint64_t next_ino;
};

void *model_alloc(size_t size);
char *model_strdup(const char *s);
struct model_inode *model_find(const struct model_fs *m, uint64_t ino);
void model_inode_free(struct model_inode *in); /* no entries left */

#endif
