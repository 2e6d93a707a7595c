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
test_cleanup() { pg_stop KILL; }
pg "$pgb/initdb" -D "$D/db" -A trust -k "${wal[@]}" >"$T/initdb" 2>&1 ||
	{ cat "$T/initdb"; fail initdb; }
pg_start "$D/db" "first"
pg_tables
have=0 history=0
check() { # WHEN
	pg_sums "$1"
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
	pg_load
	within 60 bench_began || fail "pgbench does nothing"
	loaded
}
load
pg_murder "$D/db"
wait $bench $client || true
pg_start "$D/db" "after a kill"
check "kill"
for round in $(seq "${ROUNDS:-1}"); do
	load
	crash mount
	pg_murder "$D/db"
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
