#!/bin/bash
# MariaDB (InnoDB): load, kill of the mount and the server, recovery, CHECK
# TABLE; acknowledged rows are there, and no other. With $LOGS the redo log is as
# small as it may be, and was written all around before each kill.
. "$(dirname "$0")/lib.sh"
need_root
need mariadbd mariadb mariadb-install-db
cluster_up
D=$MNT/maria
mkdir "$D" "$T/run"
wal_dir "$MNT/redo"
chown mysql "$D" "$T/run" "$MNT/redo"
redo=--innodb-log-group-home-dir=$MNT/redo
redo_mib=32
[ -z "${LOGS:-}" ] || redo_mib=4
mariadb-install-db --no-defaults --user=mysql --datadir="$D/db" "$redo" \
	--skip-test-db >"$T/install" 2>&1 || { tail "$T/install"; fail install; }
start() {
	mariadbd --no-defaults --user=mysql --datadir="$D/db" "$redo" \
		--skip-networking --socket="$T/run/s" --pid-file="$T/run/pid" \
		--innodb-log-file-size=${redo_mib}M >"$T/run/log" 2>&1 &
	maria=$!
	for _ in $(seq 300); do
		mariadb --no-defaults -S "$T/run/s" -e 'select 1' \
			>/dev/null 2>&1 && return
		kill -0 $maria 2>/dev/null || break
		sleep 0.1
	done
	tail -n 30 "$T/run/log"
	fail "mariadbd does not start"
}
sql() { mariadb --no-defaults -S "$T/run/s" -BN -e "$1" test0; }
test_cleanup() { [ -n "${maria:-}" ] && kill -9 "$maria" 2>/dev/null; }
# What it has written to its redo log ever.
lsn() { sql "show global status like 'Innodb_lsn_current'" | cut -f 2; }
wrapped() { [ $(($(lsn) - began)) -gt $((redo_mib << 20)) ]; }
# Writes 400 KB of redo with each statement, beside the rows: value n of it is n
# as md5, again and again.
churn() {
	seq 1000000 | sed "s/.*/replace into big values(1, &, repeat(md5(&), 12500));/" |
		mariadb --no-defaults -S "$T/run/s" test0 2>/dev/null
}
start
mariadb --no-defaults -S "$T/run/s" -e 'create database test0'
sql 'create table t(i int primary key, v varchar(200)) engine=innodb'
sql 'create table big(i int primary key, n int, v longtext) engine=innodb'
have=0
for round in $(seq "${ROUNDS:-1}"); do
	(load_rows "insert into t values(&, rpad('v&', 200, '.&'));\nselect &;" |
		mariadb --no-defaults -S "$T/run/s" -BN -n test0 \
			>"$T/acked" 2>/dev/null) &
	client=$!
	churner=
	if [ -n "${LOGS:-}" ]; then
		began=$(lsn)
		churn &
		churner=$!
	fi
	loaded
	if [ -n "$churner" ]; then
		within 30 wrapped || fail "no round in the redo log: $(lsn), $began"
		[ "$(stat -c %s "$MNT/redo/ib_logfile0")" = $((redo_mib << 20)) ] ||
			fail "a redo log of another size"
		echo "# $((($(lsn) - began) >> 20)) MiB of redo in $redo_mib MiB"
		! gone "$client" || fail "the load ended by itself"
	fi
	crash mount
	kill -9 $maria 2>/dev/null || true # it may have died of the mount
	wait $client $churner $maria 2>/dev/null || true
	cluster_up
	start
	sql "select concat(i, ' ', if(binary v = rpad(concat('v', i), 200,
		concat('.', i)), concat('v', i), v)) from t" >"$T/rows"
	rows_kept "kill $round"
	for t in t big; do
		sql "check table $t extended" | grep -q 'status.*OK' ||
			fail "check table $t"
	done
	[ -z "$churner" ] || [ "$(sql 'select count(*), sum(binary v = repeat(md5(n),
		12500)) from big')" = $'1\t1' ] || fail "not one of the values"
done
mariadb-admin --no-defaults -S "$T/run/s" shutdown
wait $maria || true
maria=
fsck_clean
