#!/bin/bash
# Redis with appendfsync always: every acknowledged key survives a kill of the
# server and of the mount, and no other.
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
have=0
victims=(redis)
for _ in $(seq "${ROUNDS:-1}"); do victims+=(mount); done
for victim in "${victims[@]}"; do
	load_rows 'set & v&' | stdbuf -oL redis-cli -s "$S" >"$T/acked" \
		2>/dev/null &
	client=$!
	loaded
	if [ "$victim" = mount ]; then crash mount; fi
	kill -9 "$redis" 2>/dev/null || true # it may have died of the mount
	wait "$redis" 2>/dev/null || true
	kill $client || true # it would go on with the next server
	wait $client 2>/dev/null || true
	grep -vx OK "$T/acked" && fail "it said more than OK"
	cluster_up
	start
	redis-cli -s "$S" eval "local rows = redis.call('keys', '*')
		for n, i in ipairs(rows) do
			rows[n] = i .. ' ' .. redis.call('get', i)
		end
		return rows" 0 >"$T/rows"
	rows_kept "death of $victim"
done
redis-cli -s "$S" shutdown nosave >/dev/null 2>&1 || true
wait "$redis" || true
redis=
fsck_clean
