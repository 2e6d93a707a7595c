#!/bin/bash
# SQLite in WAL and in DELETE mode, several processes at once: no transaction is
# lost or seen by halves, also when the mount dies; the database stays whole.
. "$(dirname "$0")/lib.sh"
need_root
need sqlite3
cluster_up
[ -z "${LOGS:-}" ] || wal_dir "$MNT" --match "*-wal"
writers=()
for mode in wal delete; do
	db=$MNT/$mode.db
	sqlite3 "$db" "pragma journal_mode=$mode; pragma synchronous=full;
		create table t(w int, i int, primary key(w, i));" >/dev/null
	for w in 1 2 3; do
		(for i in $(seq 40); do
			echo ".timeout 30000"
			echo "begin immediate; insert into t values($w, $i);
				insert into t values($w, -$i); commit;"
		done | sqlite3 -bail "$db") &
		writers+=($!)
	done
	# Each transaction leaves the sum as it was.
	while kill -0 "${writers[@]}" 2>/dev/null; do
		sqlite3 -cmd ".timeout 30000" "$db" \
			'select total(i) = 0 from t' >>"$T/seen.$mode"
	done
	wait "${writers[@]}"
	writers=()
	[ $mode = delete ] || logs_used
	[ "$(sort -u "$T/seen.$mode")" = 1 ] || fail "$mode: half a transaction"
	[ "$(sqlite3 "$db" 'select count(*) from t')" = 240 ] ||
		fail "$mode: rows are missing"
	[ "$(sqlite3 "$db" 'pragma integrity_check')" = ok ] ||
		fail "$mode: integrity"
	# the client dies in the middle of a transaction
	(for i in $(seq 100000); do echo "insert into t values(9, $i);
		select $i;"; done | stdbuf -oL sqlite3 -bail "$db" \
		>"$T/rows.$mode" 2>&1) &
	within 30 test -s "$T/rows.$mode" || fail "$mode: nothing is committed"
	sleep 1
	crash mount
	wait || true
	cluster_up
	last=$(grep -E '^[0-9]+$' "$T/rows.$mode" | tail -n 1) ||
		fail "$mode: nothing was committed: $(cat "$T/rows.$mode")"
	have=$(sqlite3 "$db" 'select count(*) from t where w=9')
	[ "$have" -ge "$last" ] || fail "$mode: $last acked, $have there"
	[ "$(sqlite3 "$db" 'pragma integrity_check')" = ok ] ||
		fail "$mode: integrity after a crash"
done
fsck_clean
