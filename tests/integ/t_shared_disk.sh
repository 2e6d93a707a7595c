#!/bin/bash
# Metadata and blocks share a disk. It is filled through the mount, then by
# others: creating ends with ENOSPC, hail-metad goes on (through more log than
# was left free), deleting works and gives room back, nothing is lost.
. "$(dirname "$0")/lib.sh"
need_root
need losetup mkfs.ext4
test_cleanup() {
	"$CTL" local down "$C" >/dev/null 2>&1 && UPS=()
	umount -l "$C" 2>/dev/null
}
# Commands of half a KiB each: longer than the segments prepared beforehand.
churn() {
	python3 - "$MNT/d" <<-'PY'
		import os, sys
		d = os.open(sys.argv[1], os.O_RDONLY)
		a, b = 'a' * 250, 'b' * 250
		os.rename('one', a, src_dir_fd=d, dst_dir_fd=d)
		for i in range(30000):
		    os.rename(a, b, src_dir_fd=d, dst_dir_fd=d)
		    a, b = b, a
		os.rename(a, 'one', src_dir_fd=d, dst_dir_fd=d)
		os.fsync(d)
	PY
}
alive() { kill -0 "$metad" 2>/dev/null || fail "hail-metad stopped: $1"; }
# Until it is refused; never for ever.
creates_until_refused() {
	for i in $(seq 200); do
		mkdir "$MNT/d/$1$i" 2>"$T/err" || return 0
		sleep 0.05
	done
	fail "$1: nothing is refused on a full disk"
}
mkdir -p "$C"
truncate -s 3000M "$T/disk"
mkfs.ext4 -q "$T/disk"
mount -o loop "$T/disk" "$C" || skip "no loop device"
rmdir "$C/lost+found"
cluster_up -o nowriteback
metad=$(pid_of metad1)
mkdir "$MNT/d"
head -c 3M /dev/urandom >"$T/z"
cp "$T/z" "$MNT/d/one"
sync "$MNT/d/one"

dd if=/dev/zero of="$MNT/fill" bs=1M 2>"$T/dd" && fail "it is never full"
grep -q 'No space' "$T/dd" || fail "$(cat "$T/dd")"
churn || fail "renaming, filled through the mount"
alive "filled through the mount"

dd if=/dev/zero of="$C/filler" bs=1M 2>"$T/dd" && fail "the disk never ends"
creates_until_refused x
grep -q 'No space' "$T/err" || fail "$(cat "$T/err")"
grep -q event=disk_full "$C/run/metad1.log" || fail "it is not said"
churn &
churner=$!
for seconds in 0.05 0.2 0.4; do # in the middle of giving the reserve back
	sleep $seconds
	crash metad1
	cluster_up -o nowriteback
done
wait $churner || fail "renaming, filled by others"
metad=$(pid_of metad1)
rm "$MNT/fill" || fail "deleting"
cmp "$T/z" "$MNT/d/one" || fail "lost"

# A restart on the full disk; then there is room, and all is as before.
crash metad1
cluster_up -o nowriteback
metad=$(pid_of metad1)
rm "$C/filler"
# Both look at the disk now and then.
for _ in $(seq 100); do
	cp "$T/z" "$MNT/d/two" 2>/dev/null && break
	sleep 0.1
done
churn || fail "renaming afterwards"
drop_caches
cmp "$T/z" "$MNT/d/one" || fail "lost at last"
cmp "$T/z" "$MNT/d/two" || fail "room does not help"
alive "at last"
fsck_clean
cluster_down
umount "$C"
