#!/bin/bash
# What the processes of a cluster take: memory under load stays within what is
# configured and 64 MiB, and an idle cluster takes less than 1 % of a core, also
# with logs that are open and were just written.
. "$(dirname "$0")/lib.sh"
need_root
memory_counts || skip "a sanitizer takes more"
ALL="metad1 blockd1 blockd2 blockd3 logd1 logd2 logd3 mount"
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
		dd if=/dev/urandom of="$MNT/logs/$i" bs=8k count=2000 \
			oflag=dsync status=none
		sync "$MNT/d$i/big") &
	done
	wait
	drop_caches
	cat "$MNT"/d*/big >/dev/null
}
cluster_up
mkdir "$MNT/logs"
"$CTL" log enable "$MNT/logs" >/dev/null || fail "log enable"
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
for n in logd1 logd2 logd3; do # --log-memory is there from the start
	[ "${most[$n]}" -le $((64 + 64)) ] || fail "$n: ${most[$n]}"
done

cpu_us() { # NAME...: of these
	local n sum=0 ns t
	for n in "$@"; do
		for t in /proc/"$(pid_of "$n")"/task/*; do
			read -r ns _ <"$t/schedstat" && sum=$((sum + ns / 1000))
		done
	done
	echo $sum
}
exec 8>"$MNT/logs/8" 9>"$MNT/logs/9"
for i in $(seq 500); do echo "$i" >&8; echo "$i" >&9; done
sleep 5 # what the load left to do
declare -A was
for n in $ALL; do was[$n]=$(cpu_us "$n"); done
sleep 10
sum=0
for n in $ALL; do
	used=$(($(cpu_us "$n") - was[$n]))
	echo "# idle: $n $used us of CPU in 10 s"
	sum=$((sum + used))
done
LOGS=1 logs_used
[ "$(log_status "sum(f['state'] == 'active' for f in l['files'])")" = 2 ] ||
	fail "no logs were open"
[ $sum -lt 100000 ] || fail "an idle cluster took $sum us of 10 s"
