#!/bin/bash
# What the processes of a cluster take: memory under load stays within what is
# configured and 64 MiB, and an idle cluster takes less than 1 % of a core.
. "$(dirname "$0")/lib.sh"
need_root
memory_counts || skip "a sanitizer takes more"
ALL="metad1 blockd1 blockd2 blockd3 mount"
anon() { awk '/^RssAnon/ { print int($2 / 1024) }' "/proc/$(pid_of "$1")/status"; }
declare -A most
for n in $ALL; do most[$n]=0; done
look() {
	local n now
	for n in $ALL; do
		now=$(anon "$n")
		[ "$now" -le "${most[$n]}" ] || most[$n]=$now
	done
}
load() {
	local i
	for i in 1 2 3 4; do
		(mkdir "$MNT/d$i"
		dd if=/dev/zero of="$MNT/d$i/big" bs=1M count=150 status=none
		for j in $(seq 500); do echo $j >"$MNT/d$i/f$j"; done
		dd if=/dev/urandom of="$MNT/d$i/small" bs=4k count=5000 \
			oflag=direct status=none
		cat "$MNT/d$i"/* >/dev/null
		sync "$MNT/d$i/big") &
	done
	wait
	drop_caches
	cat "$MNT"/d*/big >/dev/null
}
cluster_up
load &
busy=$!
while kill -0 $busy 2>/dev/null; do look; sleep 0.1; done
wait $busy || fail "the load"
echo "# MiB at most:$(for n in $ALL; do echo " $n ${most[$n]}"; done)"
# wb_size, prefetch; cache and buffers: their defaults.
[ "${most[mount]}" -le $((64 + 64 + 32)) ] || fail "the mount: ${most[mount]}"
for n in blockd1 blockd2 blockd3; do
	[ "${most[$n]}" -le $((64 + 64 + 32)) ] || fail "$n: ${most[$n]}"
done
[ "${most[metad1]}" -le 64 ] || fail "metad: ${most[metad1]}"

cpu_us() { # of all
	local n sum=0 ns t
	for n in $ALL; do
		for t in /proc/"$(pid_of "$n")"/task/*; do
			read -r ns _ <"$t/schedstat" && sum=$((sum + ns / 1000))
		done
	done
	echo $sum
}
sleep 5 # what the load left to do
was=$(cpu_us)
sleep 10
used=$(($(cpu_us) - was))
echo "# idle: $used us of CPU in 10 s"
[ $used -lt 100000 ] || fail "an idle cluster took $used us of 10 s"
