#!/bin/bash
# A program is killed while its copy_file_range waits for the block daemons:
# nothing more is copied, since the kernel keeps what it has of the target.
. "$(dirname "$0")/lib.sh"
need_root
need python3
stopped=()
test_cleanup() {
	for p in "${stopped[@]}"; do kill -CONT "$p" 2>/dev/null; done
}
cluster_up
head -c 8M /dev/urandom >"$MNT/from"
head -c 8M /dev/zero >"$MNT/to"
sync "$MNT/from" "$MNT/to"
drop_caches
seen=$(sha256sum <"$MNT/to")
for n in 1 2 3; do stopped+=("$(pid_of blockd$n)"); done
kill -STOP "${stopped[@]}"
python3 -c '
import os, sys
a, b = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_RDWR)
os.copy_file_range(a, b, 8 << 20)' "$MNT/from" "$MNT/to" &
victim=$!
sleep 1.5 # who waits for less is not looked after
kill -KILL $victim
for _ in $(seq 30); do
	kill -0 $victim 2>/dev/null || break
	sleep 0.1
done
kill -0 $victim 2>/dev/null && fail "a killed process still waits"
kill -CONT "${stopped[@]}"
stopped=()
# Behind the reads that the copy waits for.
cat "$MNT/from" >/dev/null
[ "$(sha256sum <"$MNT/to")" = "$seen" ] || fail "copied, and seen"
drop_caches
[ "$(sha256sum <"$MNT/to")" = "$seen" ] || fail "copied, and not seen before"
fsck_clean
