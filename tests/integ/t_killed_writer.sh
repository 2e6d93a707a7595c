#!/bin/bash
# A program that is killed while its write waits for the write-back bound has
# written nothing: what the kernel then knows of the file stays true.
. "$(dirname "$0")/lib.sh"
need_root
size() { stat -c %s "$MNT/f"; }
cluster_up -o nowriteback,wb_size=1m
: >"$MNT/f"
stop blockd1 blockd2 blockd3
dd if=/dev/urandom of="$MNT/f" bs=256k count=64 status=none conv=notrunc &
victim=$!
was=-1
until [ "$(size)" = $was ] && [ $was != 0 ]; do
	was=$(size)
	sleep 0.3
done
kill_waiting $victim
was=$(size)
[ "$was" -lt 16777216 ] || fail "nothing waited"
go_on
echo next >"$MNT/g"
sync "$MNT/g" "$MNT/f"
[ "$(size)" = "$was" ] || fail "from $was to $(size)"
drop_caches
[ "$(size)" = "$was" ] || fail "in truth not $was but $(size)"
fsck_clean
