#!/bin/bash
# PostgreSQL: initdb, pgbench, crash of the server, crash of the mount under
# load, recovery; committed transactions are there, no others, and the sums agree.
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
sql "create table acked(i int primary key, v text)"
have=0 history=0
check() { # WHEN
	sql "select pg_catalog.sum(abalance) from pgbench_accounts" >"$T/a"
	sql "select pg_catalog.sum(delta) from pgbench_history" >"$T/h"
	sql "select pg_catalog.sum(bbalance) from pgbench_branches" >"$T/b"
	cmp -s "$T/a" "$T/b" || fail "accounts $(cat "$T/a") and branches $(cat "$T/b") disagree"
	[ "$(sed 's/^$/0/' "$T/h")" = "$(cat "$T/a")" ] ||
		fail "history $(cat "$T/h") and accounts $(cat "$T/a") disagree"
	[ "$(cat "$T/a")" != 0 ] || fail "pgbench changed nothing"
	sql "select i || ' ' || v from acked" >"$T/rows"
	rows_kept "$1"
	# Each of pgbench's clients, too, had at most one under way.
	history=$((history + $(sed -n \
		's/^number of transactions actually processed: //p' "$T/bench")))
	now=$(sql "select pg_catalog.count(*) from pgbench_history")
	[ "$now" -ge $history ] && [ "$now" -le $((history + 4)) ] ||
		fail "$1: pgbench was told of $history transactions, $now there"
	history=$now
}
bench_began() {
	[ "$(sql "select pg_catalog.count(*) from pgbench_history")" -gt $history ]
}
load() {
	pg "$pgb/pgbench" -n -h "$T/run" -c 4 -T 60 postgres >"$T/bench" 2>&1 &
	bench=$!
	(load_rows "insert into acked values(&, 'v&') returning i;" |
		pg "$pgb/psql" -h "$T/run" -XAtq -v ON_ERROR_STOP=1 postgres \
			>"$T/acked" 2>/dev/null || true) &
	client=$!
	within 60 bench_began || fail "pgbench does nothing"
	loaded
}
load
murder
wait $bench $client || true
pg_start "$D/db" "after a kill"
check "kill"
for round in $(seq "${ROUNDS:-1}"); do
	load
	crash mount
	murder
	wait $bench $client || true
	cluster_up
	pg_start "$D/db" "after a kill of the mount"
	check "kill $round of the mount"
done
pg_stop INT || fail "stop"
drop_caches
pg "$pgb/pg_checksums" -D "$D/db" --check >"$T/sums" 2>&1 ||
	{ cat "$T/sums"; fail "pg_checksums"; }
fsck_clean
