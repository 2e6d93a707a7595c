#!/bin/bash
# make demo: a cluster on this machine, PostgreSQL on it, a block daemon killed
# in the middle, a report, everything taken away again.
set -eu
[ "$(id -u)" = 0 ] || {
	echo "bench/demo.sh: needs root: it mounts" >&2
	exit 1
}
TOP=$(cd "$(dirname "$0")/.." && pwd)
CTL=$TOP/build/bin/hailctl
W=$(mktemp -d /var/tmp/hailfs-demo.XXXXXX)
chmod 755 "$W"
PGB=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
pg() { runuser -u postgres -- "$@"; }
stop_pg() { pg "$PGB/pg_ctl" -D "$W/c/mnt/pg/db" -m fast -w stop \
	>/dev/null 2>&1 || true; }
cleanup() {
	code=$?
	trap - EXIT
	[ -d "$W/c/mnt/pg/db" ] && stop_pg
	"$CTL" local down "$W/c" >/dev/null 2>&1 || true
	rm -rf --one-file-system "$W"
	exit $code
}
trap cleanup EXIT
trap 'exit 130' INT TERM
step() { printf '\n== %s\n' "$*"; }

step "A cluster: one metadata daemon, three block daemons, one mount"
"$CTL" local up "$W/c"
"$CTL" local status "$W/c"

step "PostgreSQL on it (initdb, pgbench -i, scale 5)"
mkdir "$W/c/mnt/pg" "$W/run"
chown postgres "$W/c/mnt/pg" "$W/run"
cd /
pg "$PGB/initdb" -D "$W/c/mnt/pg/db" -A trust --no-instructions >/dev/null
pg "$PGB/pg_ctl" -D "$W/c/mnt/pg/db" -w -l "$W/run/log" \
	-o "-k $W/run -c listen_addresses=''" start >/dev/null
pg "$PGB/pgbench" -h "$W/run" -i -q -s 5 postgres 2>&1 | tail -n 1

step "pgbench, 8 clients, 15 s; block daemon 2 is killed after 5 s"
pg "$PGB/pgbench" -h "$W/run" -c 8 -j 2 -T 15 -P 3 postgres >"$W/bench" 2>&1 &
bench=$!
sleep 5
kill -9 "$(cat "$W/c/run/blockd2.pid")"
sleep 1
"$CTL" local up "$W/c" >/dev/null
wait $bench || { cat "$W/bench"; exit 1; }
grep -E '^progress|^tps|^latency average|failed' "$W/bench"

step "What a committed transaction says is there"
a=$(pg "$PGB/psql" -h "$W/run" -XAtq -c \
	"select sum(abalance) from pgbench_accounts" postgres)
h=$(pg "$PGB/psql" -h "$W/run" -XAtq -c \
	"select sum(delta) from pgbench_history" postgres)
echo "sum of accounts $a, sum of history $h"
[ "$a" = "$h" ]

step "Where a table lies, and what the cluster says of itself"
f=$(pg "$PGB/psql" -h "$W/run" -XAtq -c \
	"select pg_relation_filepath('pgbench_accounts')" postgres)
stop_pg
"$CTL" -c "$W/c/cluster.conf" why "$W/c/mnt/pg/db/$f" | head -n 12
"$CTL" -c "$W/c/cluster.conf" df
"$CTL" -c "$W/c/cluster.conf" fsck

step "Tear-down"
"$CTL" local down "$W/c"
echo "The demonstration ended as it should."
