#!/bin/bash
# Three million appends of one byte: with and without the kernel's write-back,
# by dd, and synchronous ones. Each must end in minutes and nothing be lost.
. "$(dirname "$0")/lib.sh"
need_root
COUNT=${COUNT:-3000000}
A=$TST/integ/appends
for o in writeback nowriteback; do
	cluster_up -o $o
	echo "# $o"
	timeout 1800 "$A" "$MNT/$o" "$COUNT" || fail "$o: appends"
	timeout 300 "$A" "$MNT/$o.sync" 20000 sync || fail "$o: O_SYNC"
	timeout 1800 dd if=/dev/zero of="$MNT/$o.dd" bs=1 count="$COUNT" \
		2>"$T/dd" || fail "$o: dd"
	sed -n '3s/^/# dd: /p' "$T/dd"
	[ "$(stat -c %s "$MNT/$o.dd")" = "$COUNT" ] || fail "$o: size of dd"
	cluster_down
done
cluster_up
fsck_clean
