#!/bin/bash
# A power cut of everything, log peers too, under MariaDB with its redo log in a
# log directory, overwritten in a circle: it starts, is whole, and has all
# transactions up to one, which is no further back than the destage interval.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/power.sh"
need python3 mariadbd mariadb mariadb-install-db mariadb-admin
CUTS=${CUTS:-2}
power_begin
LOGS=1
D=$MNT/maria
mkdir "$D" "$T/run"
wal_dir "$MNT/redo"
chown mysql "$D" "$T/run" "$MNT/redo"
redo=--innodb-log-group-home-dir=$MNT/redo
mariadb-install-db --no-defaults --user=mysql --datadir="$D/db" "$redo" \
	--innodb-log-file-size=4M --skip-test-db >"$T/install" 2>&1 ||
	{ tail "$T/install"; fail install; }
maria=
start() { # WHEN
	# Pages are written at once: their records have to be there before.
	mariadbd --no-defaults --user=mysql --datadir="$D/db" "$redo" \
		--skip-networking --socket="$T/run/s" --pid-file="$T/run/pid" \
		--innodb-log-file-size=4M --innodb-max-dirty-pages-pct=0 \
		--innodb-io-capacity=2000 >"$T/run/log" 2>&1 &
	maria=$!
	for _ in $(seq 600); do
		mariadb --no-defaults -S "$T/run/s" -e 'select 1' \
			>/dev/null 2>&1 && return
		kill -0 $maria 2>/dev/null || break
		sleep 0.05
	done
	tail -n 30 "$T/run/log"
	fail "mariadbd does not start $1"
}
sql() { mariadb --no-defaults -S "$T/run/s" -BN -e "$1" test0; }
power_stop() {
	[ -n "$maria" ] || return 0
	kill -9 "$maria" 2>/dev/null
	wait "$maria" 2>/dev/null
	maria=
}
start
mariadb --no-defaults -S "$T/run/s" -e 'create database test0'
sql 'create table t(i int primary key, v varchar(1000)) engine=innodb'
sql 'create table sums(n int primary key, v bigint) engine=innodb'
sql 'insert into sums values (1, 0), (2, 0)'
power_base
for i in $(seq 100000); do
	echo "begin; update sums set v = v + $i where n = 1;"
	echo "update sums set v = v - $i where n = 2;"
	echo "insert into t values($i, repeat(md5($i), 30)); commit; select $i;"
done | timeout -s KILL "${SECONDS_OF_LOAD:-5}" mariadb --no-defaults \
	-S "$T/run/s" -BN -n test0 2>"$T/load" | python3 \
	"$TOP/tests/integ/power_rows.py" note "$T/counter" "$T/rows" || true
last=$(power_now)
logs_used
power_stop || true
power_end
kept=0
for i in $(seq 0 "$CUTS"); do
	power_choose "$i"
	power_cut "$at" "$seed"
	start "after a cut at $at seed $seed"
	read -r have count sum half <<<"$(sql "select coalesce(max(i), 0),
		count(*), (select sum(v) from sums),
		(select v from sums where n = 1) from t")"
	[ "$have" = "$count" ] && [ "$sum" = 0 ] &&
		[ "$half" = $((have * (have + 1) / 2)) ] ||
		fail "rows: $have, $count, $sum, $half: cut at $at seed $seed"
	sql 'check table t extended' | grep -q 'status.*OK' ||
		fail "check table: cut at $at seed $seed"
	read -r acked missing <<<"$(python3 "$TOP/tests/integ/power_rows.py" \
		check "$T/rows" "$at" "$have")"
	echo "# cut at $at: $have of $acked transactions, $missing ms are missing"
	[ -n "$missing" ] && [ "$missing" -le 4000 ] ||
		fail "$missing ms are missing: cut at $at seed $seed"
	kept=$((kept + have))
	power_stop || true
	power_disk_down
done
[ $kept -gt 0 ] || fail "no cut left a transaction"
