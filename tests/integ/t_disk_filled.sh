#!/bin/bash
# Others fill the file system under a block daemon: it goes on within what it
# has taken, its index too, over restarts; deleting works, and writing again
# in the space that gives back.
. "$(dirname "$0")/lib.sh"
need_root
need losetup mkfs.ext4
test_cleanup() {
	"$CTL" local down "$C" >/dev/null 2>&1 && UPS=()
	umount -l "$C/blockd2" 2>/dev/null
}
files() { # PREFIX COUNT: small files, which the index has to name
	python3 - "$MNT/$1" "$2" <<-'PY'
		import os, sys
		for i in range(int(sys.argv[2])):
		    f = os.open(sys.argv[1] + str(i), os.O_CREAT | os.O_WRONLY)
		    os.write(f, b'x' * 3000)
		    if i % 500 == 0:
		        os.fsync(f)
		    os.close(f)
	PY
}
goes_on() {
	! grep event=stopped "$C/run/blockd2.log" || fail "the store stopped"
}
mkdir -p "$C/blockd2"
truncate -s 1000M "$T/disk"
mkfs.ext4 -q "$T/disk"
mount -o loop "$T/disk" "$C/blockd2" || skip "no loop device"
rmdir "$C/blockd2/lost+found"
cluster_up -o nowriteback
head -c 9M /dev/urandom >"$T/z"
cp "$T/z" "$MNT/z"
sync "$MNT/z"
dd if=/dev/zero of="$C/blockd2/filler" bs=1M 2>"$T/dd" &&
	fail "the disk is larger than it is"
files a. 6000
cluster_down # all goes to segments and index
cluster_up -o nowriteback
goes_on
rm "$MNT"/a.*
files b. 500
goes_on
drop_caches
cmp "$T/z" "$MNT/z" || fail "lost"
fsck_clean
cluster_down
umount "$C/blockd2"

# A disk too small for a store: it is said what takes the room, and nothing
# that passes for a store is left.
rm "$T/disk"
truncate -s 100M "$T/disk"
mkfs.ext4 -q "$T/disk"
mount -o loop "$T/disk" "$C/blockd2"
"$BIN/hail-blockd" -f -c "$C/cluster.conf" -i 2 >"$T/out" 2>&1 &&
	fail "a store where there is no room for one"
grep -q "No space left on device; its journal alone takes 128 MiB" "$T/out" ||
	{ cat "$T/out"; fail "no room: not said"; }
"$BIN/hail-blockd" -f -c "$C/cluster.conf" -i 2 --journal 16m --format \
	>"$T/out" 2>&1 || { cat "$T/out"; fail "no smaller one after it"; }
umount "$C/blockd2"
