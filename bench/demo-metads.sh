#!/bin/bash
# Three metadata daemons, two mounts, PostgreSQL on one of them; the metadata
# daemon that leads is killed in the middle of pgbench, and comes back. What the
# database was told had committed is there, and is seen from the other mount.
#
# usage: bench/demo-metads.sh [--quick]
#
# Works in a directory of its own under $DEMO_DIR (/var/tmp).
set -eu
seconds=20 every=2 kill=6
case ${1:-} in
"") ;;
--quick) seconds=8 every=2 kill=2 ;;
*) echo "usage: bench/demo-metads.sh [--quick]" >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || {
	echo "bench/demo-metads.sh: needs root: it mounts" >&2
	exit 1
}
BIN=$(cd "$(dirname "$0")/.." && pwd)/build/bin
W=$(mktemp -d "${DEMO_DIR:-/var/tmp}/hailfs-demo.XXXXXX")
chmod 755 "$W"
A=$W/c/mnt B=$W/b K=(-c "$W/c/cluster.conf") served=
PGB=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
pg() { runuser -u postgres -- "$@"; }
sql() { pg "$PGB/psql" -h "$W/run" -XAtq -c "$1" postgres; }
pg_up() { # DIR
	served=$1
	pg "$PGB/pg_ctl" -D "$1" -w -l "$W/run/log" \
		-o "-k $W/run -c listen_addresses=''" start >/dev/null
}
pg_down() {
	[ -z "$served" ] || pg "$PGB/pg_ctl" -D "$served" -m fast -w stop \
		>/dev/null 2>&1 || true
	served=
}
cleanup() {
	code=$?
	trap - EXIT
	pg_down
	umount "$B" 2>/dev/null || true
	"$BIN/hailctl" local down "$W/c" >/dev/null 2>&1 || true
	rm -rf --one-file-system "$W"
	exit $code
}
trap cleanup EXIT
trap 'exit 130' INT TERM
step() { printf '\n== %s\n' "$*"; }
leader() {
	"$BIN/hailctl" "${K[@]}" status --json 2>/dev/null | python3 -c '
import json, sys
print(*[d["id"] for d in json.load(sys.stdin)["daemons"]
        if d["program"] == "hail-metad" and d.get("leader") == d["id"] and
        "epoch" in d] or [0])'
}

step "A cluster with three metadata daemons, and two mounts"
"$BIN/hailctl" local up "$W/c" --metads 3 -o shared >/dev/null
mkdir "$B"
"$BIN/hailfs" -o "shared,log=$W/b.log" "$W/c/cluster.conf" "$B"
"$BIN/hailctl" "${K[@]}" status | grep -E '^ *metad'

step "PostgreSQL on the first (initdb, pgbench -i, scale 2)"
mkdir "$A/pg" "$W/run"
chown postgres "$A/pg" "$W/run"
cd /
pg "$PGB/initdb" -D "$A/pg/db" -A trust --no-instructions >/dev/null
pg_up "$A/pg/db"
pg "$PGB/pgbench" -h "$W/run" -i -q -s 2 postgres 2>&1 | tail -n 1
sql "create table told(i int primary key)"

step "pgbench, 4 clients, $seconds s, and rows of which each commit is written
   down; the metadata daemon that leads is killed after $kill s"
pg "$PGB/pgbench" -n -h "$W/run" -c 4 -T $seconds -P $every \
	postgres >"$W/bench" 2>&1 &
bench=$!
# When time is up the last line may be half a number: it counts for nothing.
(seq 1 1000000 | sed 's/.*/insert into told values(&) returning i;/' |
	timeout $seconds runuser -u postgres -- "$PGB/psql" -h "$W/run" \
		-XAtq -v ON_ERROR_STOP=1 postgres >"$W/told" 2>/dev/null) &
rows=$!
sleep $kill
was=$(leader)
kill -9 "$(cat "$W/c/run/metad$was.pid")"
t=$(date +%s%N)
until now=$(leader) && [ "$now" != 0 ] && [ "$now" != "$was" ]; do
	sleep 0.1
done
echo "metad $was led and was killed; metad $now leads after" \
	"$((($(date +%s%N) - t) / 1000000)) ms"
sleep 1
"$BIN/hailctl" local up "$W/c" >/dev/null
wait $bench || { cat "$W/bench"; exit 1; }
wait $rows || true
grep -E '^progress|^tps|^latency average|failed' "$W/bench"

step "What a committed transaction says is there"
n=$(wc -l <"$W/told") # each has one more than the one before
[ "$n" -gt 0 ]
agree() {
	a=$(sql "select sum(abalance) from pgbench_accounts")
	h=$(sql "select sum(delta) from pgbench_history")
	echo "sum of accounts $a, sum of history $h"
	[ "$a" = "$h" ]
	sql "select i from told order by i" | head -n "$n" >"$W/there"
	head -n "$n" "$W/told" | cmp - "$W/there"
	echo "of $n rows all are there"
}
agree

step "The other mount: the same, and the database runs there"
pg_down
cmp "$A/pg/db/PG_VERSION" "$B/pg/db/PG_VERSION"
pg_up "$B/pg/db"
agree
pg "$PGB/pgbench" -n -h "$W/run" -c 4 -T 2 postgres 2>&1 | grep -E '^tps'
pg_down
"$BIN/hailctl" "${K[@]}" status | grep -E '^ *metad'
umount "$B"
"$BIN/hailctl" "${K[@]}" fsck
"$BIN/hailctl" local down "$W/c" >/dev/null
echo
echo "The demonstration ended as it should."
