#!/bin/bash
# A program that is killed while its write waits for the write-back bound has
# written nothing: what the kernel then knows of the file stays true.
. "$(dirname "$0")/lib.sh"
need_root
stopped=()
test_cleanup() {
	for p in "${stopped[@]}"; do kill -CONT "$p" 2>/dev/null; done
}
size() { stat -c %s "$MNT/f"; }
cluster_up -o nowriteback,wb_size=1m
: >"$MNT/f"
for n in 1 2 3; do stopped+=("$(pid_of blockd$n)"); done
kill -STOP "${stopped[@]}"
dd if=/dev/urandom of="$MNT/f" bs=256k count=64 status=none conv=notrunc &
victim=$!
was=-1
until [ "$(size)" = $was ] && [ $was != 0 ]; do
	was=$(size)
	sleep 0.3
done
sleep 1
kill -KILL $victim
for _ in $(seq 50); do
	kill -0 $victim 2>/dev/null || break
	sleep 0.1
done
kill -0 $victim 2>/dev/null && fail "a killed process still waits"
was=$(size)
[ "$was" -lt 16777216 ] || fail "nothing waited"
kill -CONT "${stopped[@]}"
stopped=()
echo next >"$MNT/g"
sync "$MNT/g" "$MNT/f"
[ "$(size)" = "$was" ] || fail "from $was to $(size)"
drop_caches
[ "$(size)" = "$was" ] || fail "in truth not $was but $(size)"
fsck_clean
