#!/bin/bash
# MariaDB (InnoDB): load, kill of the mount and the server, recovery, CHECK
# TABLE; acknowledged rows are there, and no other.
. "$(dirname "$0")/lib.sh"
need_root
need mariadbd mariadb mariadb-install-db
cluster_up
D=$MNT/maria
mkdir "$D" "$T/run"
wal_dir "$MNT/redo"
chown mysql "$D" "$T/run" "$MNT/redo"
redo=--innodb-log-group-home-dir=$MNT/redo
mariadb-install-db --no-defaults --user=mysql --datadir="$D/db" "$redo" \
	--skip-test-db >"$T/install" 2>&1 || { tail "$T/install"; fail install; }
start() {
	mariadbd --no-defaults --user=mysql --datadir="$D/db" "$redo" \
		--skip-networking --socket="$T/run/s" --pid-file="$T/run/pid" \
		--innodb-log-file-size=32M >"$T/run/log" 2>&1 &
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
start
mariadb --no-defaults -S "$T/run/s" -e 'create database test0'
sql 'create table t(i int primary key, v varchar(200)) engine=innodb'
have=0
for round in $(seq "${ROUNDS:-1}"); do
	(load_rows "insert into t values(&, rpad('v&', 200, '.&'));\nselect &;" |
		mariadb --no-defaults -S "$T/run/s" -BN -n test0 \
			>"$T/acked" 2>/dev/null) &
	client=$!
	loaded
	crash mount
	kill -9 $maria 2>/dev/null || true # it may have died of the mount
	wait $client $maria 2>/dev/null || true
	cluster_up
	start
	sql "select concat(i, ' ', if(binary v = rpad(concat('v', i), 200,
		concat('.', i)), concat('v', i), v)) from t" >"$T/rows"
	rows_kept "kill $round"
	sql 'check table t extended' | grep -q 'status.*OK' || fail "check table"
done
mariadb-admin --no-defaults -S "$T/run/s" shutdown
wait $maria || true
maria=
fsck_clean
