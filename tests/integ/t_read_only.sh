#!/bin/bash
# Data directories on a read-only file system: each daemon says which directory
# and why, harms nothing, a store can still be checked; with a writable one
# everything is there.
. "$(dirname "$0")/lib.sh"
need_root
K=(-c "$C/cluster.conf")
test_cleanup() {
	for d in "$C"/blockd* "$C"/metad*; do umount -l "$d" 2>/dev/null; done
	# A start that failed in part left the others running.
	"$CTL" local down "$C" >/dev/null 2>&1
}
ro() { mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"; }
cluster_up
mkdir "$MNT/w"
"$TST/integ/acked" write "$MNT/w" "$T/acks" 1 2 || fail "writer"
cluster_down
for d in blockd2 metad1; do
	ro "$C/$d"
	"$CTL" local up "$C" >"$T/out" 2>&1 && fail "up without $d"
	grep -q "^hail-[a-z]*: .*$C/$d.*: Read-only file system" "$T/out" &&
		grep -q "hailctl: $d did not start" "$T/out" ||
		{ cat "$T/out"; fail "$d: not said"; }
	if [ $d = blockd2 ]; then
		"$BIN/hail-blockd" "${K[@]}" --id 2 --check --data-sums \
			>"$T/out" 2>&1 || { cat "$T/out"; fail "check"; }
	fi
	umount "$C/$d"
	cluster_up
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
	fsck_clean
	cluster_down
done
# Nothing there yet, and no room to make it: a directory of its own line.
mkdir "$T/ro"
mount -t tmpfs -o ro,size=1m none "$T/ro"
for p in metad blockd; do
	"$BIN/hail-$p" "${K[@]}" --id 1 --data "$T/ro/new" -f >"$T/out" 2>&1 &&
		fail "hail-$p made a directory"
	grep -q "hail-$p: cannot make $T/ro/new: Read-only file system" \
		"$T/out" || { cat "$T/out"; fail "hail-$p: not said"; }
done
umount "$T/ro"
