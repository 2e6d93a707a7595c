#!/bin/bash
# PostgreSQL: initdb, pgbench, crash of the server, crash of the mount under
# load, recovery; committed transactions are there and the sums agree.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/postgres.sh"
need_root
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
# Its processes work in the directory of the database.
deserted() { ! readlink /proc/[0-9]*/cwd 2>/dev/null | grep -qx "$D/db"; }
# kill -9, and wait until its children are gone, too, which notice by themselves:
# PostgreSQL will not start beside them.
murder() {
	pg_stop KILL || true
	within 30 deserted || fail "a child of the server is still there"
}
test_cleanup() { pg_stop KILL; }
pg "$pgb/initdb" -D "$D/db" -A trust -k "${wal[@]}" >"$T/initdb" 2>&1 ||
	{ cat "$T/initdb"; fail initdb; }
pg_start "$D/db" "first"
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
murder
wait $bench $acker || true
pg_start "$D/db" "after a kill"
check
for _ in $(seq "${ROUNDS:-1}"); do
	load 20
	sleep 4
	crash mount
	murder
	wait $bench $acker || true
	cluster_up
	pg_start "$D/db" "after a kill of the mount"
	check
done
pg_stop INT || fail "stop"
drop_caches
pg "$pgb/pg_checksums" -D "$D/db" --check >"$T/sums" 2>&1 ||
	{ cat "$T/sums"; fail "pg_checksums"; }
fsck_clean
