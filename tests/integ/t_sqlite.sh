#!/bin/bash
# SQLite in WAL and in DELETE mode, several processes at once; a reader and
# writers agree, the database stays whole.
. "$(dirname "$0")/lib.sh"
need_root
need sqlite3
cluster_up
for mode in wal delete; do
	db=$MNT/$mode.db
	sqlite3 "$db" "pragma journal_mode=$mode; pragma synchronous=full;
		create table t(w int, i int, primary key(w, i));" >/dev/null
	for w in 1 2 3; do
		(for i in $(seq 40); do
			echo ".timeout 30000"
			echo "insert into t values($w, $i);"
		done | sqlite3 -bail "$db") &
	done
	wait
	[ "$(sqlite3 "$db" 'select count(*) from t')" = 120 ] ||
		fail "$mode: rows are missing"
	[ "$(sqlite3 "$db" 'pragma integrity_check')" = ok ] ||
		fail "$mode: integrity"
	# the client dies in the middle of a transaction
	(for i in $(seq 100000); do echo "insert into t values(9, $i);
		select $i;"; done | sqlite3 -bail "$db" >"$T/rows.$mode" 2>&1) &
	sleep 1
	crash mount
	wait || true
	cluster_up
	last=$(grep -E '^[0-9]+$' "$T/rows.$mode" | tail -n 1)
	have=$(sqlite3 "$db" 'select count(*) from t where w=9')
	[ "$have" -ge "${last:-0}" ] || fail "$mode: $last acked, $have there"
	[ "$(sqlite3 "$db" 'pragma integrity_check')" = ok ] ||
		fail "$mode: integrity after a crash"
done
fsck_clean
