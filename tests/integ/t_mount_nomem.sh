#!/bin/bash
# Whichever allocation of a mount fails, the call that needed it says so, and no
# other: the mount goes on, nothing is wrong, and what was synced is there when
# it is killed afterwards. With the kernel's write-back cache and without.
. "$(dirname "$0")/lib.sh"
need_root
case $FLAVOUR in asan|tsan) skip "a sanitizer wants to be preloaded first" ;; esac
cluster_up --no-mount
conf=$C/cluster.conf
mkdir -p "$MNT"
test_cleanup() {
	[ ! -s "$T/pid" ] || kill -9 "$(cat "$T/pid")" 2>/dev/null
	umount -l "$MNT" 2>/dev/null
}
# Over the classic device libfuse allocates for each request, and refuses one by
# itself where it cannot: also FLUSH and RELEASE, so that a closed handle's locks
# stay until the mount's end.
round() {
	local opt=$1 run=$2 pid
	shift 2
	head -c 8 /dev/zero >"$T/count"
	LD_PRELOAD=$TST/integ/preload/kthmalloc.so FAIL_AT=$T/count \
		"$BIN/hailfs" -o "$opt,log=$T/log,pidfile=$T/pid" "$conf" \
		"$MNT" || fail "mount -o $opt"
	pid=$(cat "$T/pid")
	mkdir "$MNT/$opt"
	"$TST/integ/nomem_calls" "$run" "$MNT/$opt" "$T/count" "$T/kept" "$@" ||
		{ tail "$T/log"; fail "-o $opt"; }
	kill -9 "$pid" || fail "it has ended"
	while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
	umount -l "$MNT"
	"$BIN/hailfs" -o "log=$T/log,pidfile=$T/pid" "$conf" "$MNT" ||
		fail "mount again"
	"$TST/integ/nomem_calls" verify "$T/kept" || fail "-o $opt"
	umount "$MNT"
	rm "$T/kept"
	fsck_clean
}
others="bytes holes maps names attributes nameless directory"
locks=locks
[ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" = Y ] ||
	locks=
# shellcheck disable=SC2086
round io_uring=on,writeback run-writeback $others $locks
# shellcheck disable=SC2086
round io_uring=off run $others
