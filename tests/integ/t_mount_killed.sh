#!/bin/bash
# A mount that is killed while it starts is gone: nobody waits for its answers.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up --no-mount
mkdir -p "$MNT"
for round in $(seq 12); do
	"$BIN/hailfs" -f "$C/cluster.conf" "$MNT" 2>"$T/log" &
	pid=$!
	until grep -q "$MNT" /proc/self/mounts; do
		kill -0 $pid || { cat "$T/log"; fail "it does not start"; }
	done
	kill -9 $pid
	wait $pid 2>/dev/null || true
	for _ in $(seq 40); do
		left=$(pgrep -f "hailfs -f $C/cluster.conf") || break
		sleep 0.05
	done
	[ -z "$left" ] || { kill -9 $left; fail "round $round: $left is left"; }
	umount -l "$MNT"
done
