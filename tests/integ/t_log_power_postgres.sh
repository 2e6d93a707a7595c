#!/bin/bash
# A power cut of everything, log peers too, under PostgreSQL with pg_wal in a log
# directory: it starts, is whole, and has all transactions up to one, which is no
# further back than the destage interval.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/power.sh"
. "$(dirname "$0")/postgres.sh"
need python3
CUTS=${CUTS:-2}
power_begin
LOGS=1
D=$MNT/pg
mkdir "$D" "$T/run"
wal_dir "$MNT/wal"
chown postgres "$D" "$MNT/wal" "$T/run"
chmod 700 "$MNT/wal"
start() { pg_start "$D" "$*" -c max_wal_size=32MB -c wal_recycle=on; }
power_stop() { pg_stop QUIT || true; }
pg "$pgb/initdb" -D "$D" -A trust -k -X "$MNT/wal" --wal-segsize=4 \
	>"$T/initdb" 2>&1 || { cat "$T/initdb"; fail initdb; }
start
sql "create table t(i int primary key, x text)"
sql "create table sums(n int primary key, v int)"
sql "insert into sums values (1, 0), (2, 0)"
power_base
for i in $(seq 100000); do
	echo "begin; update sums set v = v + $i where n = 1;"
	echo "update sums set v = v - $i where n = 2;"
	echo "insert into t values($i, repeat(md5('$i'), 30)) returning i; commit;"
done | timeout -s KILL "${SECONDS_OF_LOAD:-5}" runuser -u postgres -- \
	"$pgb/psql" -h "$T/run" -XAtq -v ON_ERROR_STOP=1 postgres \
	2>"$T/load" | python3 "$TOP/tests/integ/power_rows.py" note \
	"$T/counter" "$T/rows" &
load=$!
while ! gone $load; do # data pages, too
	sql checkpoint
	sleep 0.3
done
wait $load || true
last=$(power_now)
logs_used
power_stop
power_end
kept=0
for i in $(seq 0 "$CUTS"); do
	power_choose "$i"
	power_cut "$at" "$seed"
	start "after a cut at $at seed $seed"
	read -r have count sum <<<"$(sql "select coalesce(max(i), 0), count(*),
		(select pg_catalog.sum(v) from sums) from t" | tr '|' ' ')"
	[ "$have" = "$count" ] && [ "$sum" = 0 ] ||
		fail "rows: $have, $count, $sum: cut at $at seed $seed"
	[ "$(sql "select v from sums where n = 1")" = $((have * (have + 1) / 2)) ] ||
		fail "half a transaction: cut at $at seed $seed"
	read -r acked missing <<<"$(python3 "$TOP/tests/integ/power_rows.py" \
		check "$T/rows" "$at" "$have")"
	echo "# cut at $at: $have of $acked transactions, $missing ms are missing"
	[ -n "$missing" ] && [ "$missing" -le 4000 ] ||
		fail "$missing ms are missing: cut at $at seed $seed"
	kept=$((kept + have))
	pg_stop INT || fail "stop after a cut at $at seed $seed"
	pg "$pgb/pg_checksums" -D "$D" --check >"$T/sums" 2>&1 ||
		{ cat "$T/sums"; fail "pages: cut at $at seed $seed"; }
	power_disk_down
done
[ $kept -gt 0 ] || fail "no cut left a transaction"
