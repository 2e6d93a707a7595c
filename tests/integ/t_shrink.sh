#!/bin/bash
# A block daemon's disk that was full once is there for others after what was
# on it was deleted; a killed daemon comes back without the segment, and takes
# as much again.
. "$(dirname "$0")/lib.sh"
need_root
need python3
cluster_up --blockds 1 --no-mount
cluster_down
sed -i 's/^\(blockd .*\)$/\1 capacity=700m/' "$C/cluster.conf"
rm -rf "$C"/blockd1/* "$C"/metad1/*
cluster_up

used_mib() { du -sm "$C/blockd1" | cut -f1; }
total() { "$CTL" -c "$C/cluster.conf" df --json |
	python3 -c "import json, sys; print(json.load(sys.stdin)['bytes_total'])"; }
# Prints what the daemon finds; it must not run.
check() { "$BIN/hail-blockd" -c "$C/cluster.conf" -i 1 --check --data-sums \
	>"$T/check" 2>&1 || { cat "$T/check" >&2; fail "--check"; }; }

echo stays >"$MNT/small"
# Into its place in the first segment: wherever it lay later, it would stay.
cluster_down
cluster_up
dd if=/dev/zero of="$MNT/big" bs=1M count=600 conv=fsync 2>"$T/dd" ||
	{ cat "$T/dd"; fail "writing"; }
full=$(used_mib)
total_full=$(total)
[ "$full" -ge 700 ] || fail "the store has only $full MiB"
rm "$MNT/big"
# The purge, the checkpoint after it, and the worker.
for _ in $(seq 300); do
	now=$(used_mib)
	[ "$now" -le $((full - 180)) ] && break
	sleep 0.1
done
[ "$now" -le $((full - 180)) ] || fail "$now of $full MiB are still taken"
[ ! -e "$C/blockd1/seg-000002" ] || fail "the last segment is still there"
[ "$(total)" = "$total_full" ] || fail "df: $(total) instead of $total_full"
crash blockd1
check
cluster_up
[ "$(cat "$MNT/small")" = stays ] || fail "lost"
dd if=/dev/zero of="$MNT/big" bs=1M count=600 conv=fsync 2>"$T/dd" ||
	{ cat "$T/dd"; fail "writing again"; }
[ -e "$C/blockd1/seg-000002" ] || fail "the segment was not made again"
drop_caches
cmp -n $((600 << 20)) "$MNT/big" /dev/zero || fail "wrong data"
crash blockd1
check
cluster_up
fsck_clean
