#!/bin/bash
# A program is killed while metad does not answer its punch, or zero range: it
# is done when metad is back, and what was read before is not seen for ever.
. "$(dirname "$0")/lib.sh"
need_root
need fallocate
# The bytes of the range that are not zero; those around it as they were?
left() {
	cmp -n 5000 "$f" "$T/f" && cmp -i 155000 "$f" "$T/f" ||
		fail "$how: more is gone"
	tail -c +5001 "$f" | head -c 150000 | tr -d '\0' | wc -c
}
stored() { # the same, not from the kernel's cache
	dd if="$f" bs=256k iflag=direct status=none | tail -c +5001 |
		head -c 150000 | tr -d '\0' | wc -c
}
for mode in nowriteback writeback; do
	cluster_up -o $mode
	for how in --punch-hole --zero-range; do
		f=$MNT/f$how-$mode
		head -c 200000 /dev/urandom | tee "$T/f" >"$f"
		sync "$f"
		[ "$(left)" -gt 100000 ] || fail "at first"
		stop metad1
		fallocate $how --offset 5000 --length 150000 "$f" &
		kill_waiting $!
		go_on
		until [ "$(stored)" = 0 ]; do sleep 0.1; done
		is_zero() { [ "$(left)" = 0 ]; }
		within 5 is_zero || fail "$mode $how: is still seen"
	done
	cluster_down
done
