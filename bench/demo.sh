#!/bin/bash
# make demo: a cluster on this machine, PostgreSQL on it, a block daemon killed
# in the middle, log directories beside ext4, a report, everything taken away
# again.
#
# usage: bench/demo.sh [--quick]
#
# Works in a directory of its own under $DEMO_DIR (/var/tmp).
set -eu
pgbench=15 every=3 kill=5 append=3 # seconds
case ${1:-} in
"") ;;
--quick) pgbench=3 every=1 kill=1 append=0.5 ;;
*) echo "usage: bench/demo.sh [--quick]" >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || {
	echo "bench/demo.sh: needs root: it mounts" >&2
	exit 1
}
TOP=$(cd "$(dirname "$0")/.." && pwd)
CTL=$TOP/build/bin/hailctl
W=$(mktemp -d "${DEMO_DIR:-/var/tmp}/hailfs-demo.XXXXXX")
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

step "A cluster: one metadata daemon, three block
   daemons, three log daemons, one mount"
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

step "pgbench, 8 clients, $pgbench s; block daemon 2 is killed after $kill s"
pg "$PGB/pgbench" -h "$W/run" -c 8 -j 2 -T $pgbench -P $every \
	postgres >"$W/bench" 2>&1 &
bench=$!
sleep $kill
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

step "Synced appends of 128 bytes: in a log directory, beside it, on ext4"
mkdir "$W/c/mnt/wal" "$W/c/mnt/plain" "$W/ext4"
"$CTL" log enable "$W/c/mnt/wal"
for d in "$W/c/mnt/wal" "$W/c/mnt/plain" "$W/ext4"; do
	printf '%-10s' "$(basename "$d")"
	python3 - "$d" $append <<'P'
import os, sys, time
f = os.open(sys.argv[1] + "/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
n, t = 0, time.monotonic()
while time.monotonic() - t < float(sys.argv[2]):
    os.write(f, b"x" * 128)
    os.fdatasync(f)
    n += 1
print("%7.0f a second" % (n / (time.monotonic() - t)))
P
done

step "SQLite, a transaction a row: its WAL in a log directory, and on ext4"
mkdir "$W/c/mnt/app"
"$CTL" log enable "$W/c/mnt/app" --match '*-wal'
for d in "$W/c/mnt/app" "$W/ext4"; do
	printf '%-10s' "$(basename "$d")"
	python3 - "$d" $append <<'P'
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1] + "/db", isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("pragma synchronous=full")
db.execute("create table t(a integer primary key, b text)")
n, t = 0, time.monotonic()
while time.monotonic() - t < float(sys.argv[2]):
    db.execute("insert into t(b) values(?)", ("x" * 100,))
    n += 1
print("%7.0f a second" % (n / (time.monotonic() - t)))
P
done

step "Where a table lies, and what the cluster says of itself"
f=$(pg "$PGB/psql" -h "$W/run" -XAtq -c \
	"select pg_relation_filepath('pgbench_accounts')" postgres)
stop_pg
"$CTL" -c "$W/c/cluster.conf" why "$W/c/mnt/pg/db/$f" | head -n 12
"$CTL" -c "$W/c/cluster.conf" df
"$CTL" -c "$W/c/cluster.conf" fsck

step "The mount is killed with rows in its log, and mounted again"
python3 - "$W/c/mnt/app" "$(cat "$W/c/run/mount.pid")" <<'P'
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1] + "/db", isolation_level=None)
db.execute("pragma synchronous=full")
for i in range(1000):
    db.execute("insert into t(b) values('last')")
os.kill(int(sys.argv[2]), signal.SIGKILL)
os._exit(0)
P
"$CTL" local up "$W/c" >/dev/null
n=$(sqlite3 "$W/c/mnt/app/db" "select count(*) from t where b = 'last'")
echo "of 1000 rows $n are there"
[ "$n" = 1000 ]

step "Tear-down"
"$CTL" local down "$W/c"
echo "The demonstration ended as it should."
