#!/bin/bash
# Redis with appendfsync always: every acknowledged key survives a kill of the
# server and of the mount.
. "$(dirname "$0")/lib.sh"
need_root
need redis-server redis-cli
cluster_up
mkdir "$MNT/redis"
wal_dir "$MNT/redis/appendonlydir"
S=$T/redis.sock
start() {
	redis-server --dir "$MNT/redis" --port 0 --unixsocket "$S" \
		--appendonly yes --appendfsync always --save "" \
		>"$T/redis.log" 2>&1 &
	redis=$!
	for _ in $(seq 100); do
		redis-cli -s "$S" ping 2>/dev/null | grep -q PONG && return
		sleep 0.1
	done
	tail "$T/redis.log"
	fail "redis does not start"
}
test_cleanup() { [ -n "${redis:-}" ] && kill -9 "$redis" 2>/dev/null; }
start
n=0
for victim in redis mount; do
	# One after the other, and a line for each that was answered.
	seq $((n + 1)) 1000000 | sed 's/.*/set k& v&/' >"$T/sets"
	redis-cli -s "$S" <"$T/sets" >>"$T/acked" 2>&1 &
	setter=$!
	sleep 2
	logs_used
	if [ $victim = mount ]; then crash mount; fi
	kill -9 "$redis" 2>/dev/null || true # it may have died of the mount
	kill $setter # it would go on with the next server
	wait $setter "$redis" 2>/dev/null || true
	cluster_up
	start
	n=$(grep -c '^OK$' "$T/acked")
	[ "$(redis-cli -s "$S" dbsize)" -ge "$n" ] ||
		fail "of $n keys after the death of $victim: $(redis-cli \
			-s "$S" dbsize)"
	for i in $(seq 1 $((n / 50 + 1)) "$n") "$n"; do
		[ "$(redis-cli -s "$S" get "k$i")" = "v$i" ] ||
			fail "key $i of $n after the death of $victim"
	done
done
redis-cli -s "$S" shutdown nosave >/dev/null 2>&1 || true
wait "$redis" || true
redis=
fsck_clean
