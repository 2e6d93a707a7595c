#!/bin/bash
# git clone, fsck and gc; unpacking, building and running a C program.
. "$(dirname "$0")/lib.sh"
need_root
need git tar make gcc
cluster_up
git -c init.defaultBranch=main init -q "$T/origin"
cp -r "$TOP/common" "$TOP/blockd" "$TOP/tests/integ/posix" "$T/origin/"
git -C "$T/origin" add .
git -C "$T/origin" -c user.name=t -c user.email=t@t commit -qm all
git clone -q "file://$T/origin" "$MNT/clone"
drop_caches
git -C "$MNT/clone" fsck --strict >"$T/fsck" 2>&1 ||
	{ cat "$T/fsck"; fail "git fsck"; }
git -C "$MNT/clone" gc -q
drop_caches
git -C "$MNT/clone" fsck --strict >"$T/fsck" 2>&1 ||
	{ cat "$T/fsck"; fail "git fsck after gc"; }
git -C "$MNT/clone" status --porcelain >"$T/status" && [ ! -s "$T/status" ] ||
	fail "git status"
diff -r --exclude=.git "$T/origin" "$MNT/clone" || fail "the clone differs"
tar -C "$T/origin" -cf "$T/posix.tar" posix
mkdir "$MNT/src" "$MNT/run"
tar -C "$MNT/src" -xf "$T/posix.tar"
drop_caches
diff -r "$T/origin/posix" "$MNT/src/posix" || fail "what was unpacked differs"
cat >"$MNT/src/Makefile" <<'M'
OBJ := $(patsubst %.c,%.o,$(wildcard posix/*.c))
posix/posix: $(OBJ)
	gcc -o $@ $^ -pthread
%.o: %.c
	gcc -D_GNU_SOURCE -c -o $@ $<
M
make -s -j2 -C "$MNT/src" || fail "make"
"$MNT/src/posix/posix" "$MNT/run" links >/dev/null || fail "the program"
fsck_clean
