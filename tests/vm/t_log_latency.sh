#!/bin/bash
# What one write to a log over verbs takes, by the client core without FUSE,
# beside what the adapter alone takes for as many bytes. To one peer it shall be
# twice that. To three it tells less: a write is answered by a majority, and here
# soft-RoCE computes the packets of the client and of all three peers on the same
# few emulated processors, where adapters work side by side.
VM_LIMIT=${VM_LIMIT:-240}
. "$(dirname "$0")/lib.sh"
. "$VM_DIR/logs.sh"
need python3
logs_up
for peers in 1 3; do
	mkdir "$MNT/w$peers"
	"$CTL" "${K[@]}" log enable "$MNT/w$peers" --peers $peers >/dev/null
done
mount=$(pid_of mount)
umount "$MNT"
within 20 gone "$mount" || fail "the mount does not end"
# latency PEERS: median, 99th percentile and mean.
latency() {
	"$TST/bench/log" "$C/cluster.conf" "w$1" 2000 128 verbs \
		>"$T/log" ||
		{ cat "$T/log"; fail "bench"; }
	grep -o '"transport":"[a-z]*"' "$T/log" >"$T/ways"
	[ "$(grep -c verbs "$T/ways")" = "$1" ] && ! grep -qv verbs "$T/ways" ||
		{ cat "$T/log"; fail "not over verbs to $1"; }
	head -n 1 "$T/log"
}
# In turn, and the best of three: on a busy machine the two ends keep each other
# waiting.
for _ in 1 2 3; do
	write_lat >>"$T/alone"
	for peers in 1 3; do latency $peers >>"$T/to$peers"; done
done
best() { sort -n "$1" | head -n 1; } # by its first column
read -r alone _ < <(best "$T/alone")
[ -n "$alone" ] || fail "no latency of the adapter"
for peers in 1 3; do
	want=
	[ $peers != 1 ] || want=' (want 2)'
	read -r median p99 mean < <(best "$T/to$peers")
	[ -n "${mean:-}" ] || { cat "$T/log"; fail "no figure"; }
	echo "# figure: a log write of 128 bytes over verbs to $peers: median" \
		"$median us, p99 $p99, mean $mean; ib_write_lat $alone:" \
		"$(python3 -c "print('%.1f' % ($median / $alone))") times$want"
done
