#!/bin/bash
# PostgreSQL: initdb, pgbench, crash of the server, crash of the mount under
# load, recovery; committed transactions are there and the sums agree.
. "$(dirname "$0")/lib.sh"
need_root
pgb=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
[ -x "$pgb/initdb" ] || skip "no PostgreSQL"
cluster_up
D=$MNT/pg
mkdir "$D" "$T/run"
chown postgres "$D" "$T/run"
wal=()
if [ -n "${LOGS:-}" ]; then
	wal_dir "$MNT/wal"
	chown postgres "$MNT/wal"
	chmod 700 "$MNT/wal"
	wal=(-X "$MNT/wal")
fi
pg() { runuser -u postgres -- "$@"; }
start() { pg "$pgb/pg_ctl" -D "$D/db" -w -t 120 -l "$T/run/log" \
	-o "-k $T/run -c listen_addresses=''" start >/dev/null ||
	{ tail -n 30 "$T/run/log"; fail "start"; }; }
sql() { pg "$pgb/psql" -h "$T/run" -XAtq -c "$1" postgres; }
# Its processes work in the directory of the database.
deserted() { ! readlink /proc/[0-9]*/cwd 2>/dev/null | grep -qx "$D/db"; }
# kill -9, and wait until init has buried it: PostgreSQL will not start beside
# what looks like a living postmaster, nor beside its children, which notice by
# themselves.
murder() {
	kill -9 "$1" 2>/dev/null || true
	within 30 gone "$1" || fail "the server is still there"
	within 30 deserted || fail "a child of the server is still there"
}
test_cleanup() { [ -f "$D/db/postmaster.pid" ] &&
	kill -9 "$(head -n 1 "$D/db/postmaster.pid")" 2>/dev/null; }
pg "$pgb/initdb" -D "$D/db" -A trust -k "${wal[@]}" >"$T/initdb" 2>&1 ||
	{ cat "$T/initdb"; fail initdb; }
start
pg "$pgb/pgbench" -h "$T/run" -i -q -s 2 postgres >/dev/null 2>&1 ||
	fail "pgbench -i"
sql "create table acked(i int primary key)"
check() {
	sql "select pg_catalog.sum(abalance) from pgbench_accounts" >"$T/a"
	sql "select pg_catalog.sum(delta) from pgbench_history" >"$T/h"
	sql "select pg_catalog.sum(bbalance) from pgbench_branches" >"$T/b"
	cmp -s "$T/a" "$T/b" || fail "accounts $(cat "$T/a") and branches $(cat "$T/b") disagree"
	[ "$(sed 's/^$/0/' "$T/h")" = "$(cat "$T/a")" ] ||
		fail "history $(cat "$T/h") and accounts $(cat "$T/a") disagree"
	[ "$(cat "$T/a")" != 0 ] || fail "pgbench changed nothing"
	last=$(tail -n 1 "$T/acked")
	have=$(sql "select count(*) from acked")
	[ "$have" -ge "$last" ] || fail "$last acked, only $have there"
	# At most the one under way.
	[ "$have" -le $((last + 1)) ] || fail "$last acked, $have there"
}
load() {
	pg "$pgb/pgbench" -n -h "$T/run" -c 4 -T "$1" postgres >/dev/null 2>&1 &
	bench=$!
	base=$(sql "select count(*) from acked")
	(for i in $(seq $((base + 1)) 1000000); do
		echo "insert into acked values($i) returning i;"
	done | pg "$pgb/psql" -h "$T/run" -XAtq -v ON_ERROR_STOP=1 postgres \
		>>"$T/acked" 2>/dev/null || true) &
	acker=$!
}
load 5
sleep 3
logs_used
murder "$(head -n 1 "$D/db/postmaster.pid")"
wait $bench $acker || true
start
check
for _ in $(seq "${ROUNDS:-1}"); do
	load 20
	sleep 4
	postmaster=$(head -n 1 "$D/db/postmaster.pid")
	crash mount
	murder "$postmaster"
	wait $bench $acker || true
	cluster_up
	start
	check
done
pg "$pgb/pg_ctl" -D "$D/db" -m fast stop >/dev/null
drop_caches
pg "$pgb/pg_checksums" -D "$D/db" --check >"$T/sums" 2>&1 ||
	{ cat "$T/sums"; fail "pg_checksums"; }
fsck_clean
