#!/bin/bash
# SQLite in WAL and in DELETE mode, several processes at once: no transaction is
# lost or seen by halves, also when the mount dies, nor is there any other; the
# database stays whole.
. "$(dirname "$0")/lib.sh"
need_root
need sqlite3
cluster_up
[ -z "${LOGS:-}" ] || wal_dir "$MNT" --match "*-wal"
modes="wal delete"
[ -z "${LOGS:-}" ] || modes=wal # the other one has no log of that name
writers=()
for mode in $modes; do
	db=$MNT/$mode.db
	sqlite3 "$db" "pragma journal_mode=$mode; pragma synchronous=full;
		create table t(w int, i int, primary key(w, i));
		create table acked(i integer primary key, v text);" >/dev/null
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
	[ "$(sort -u "$T/seen.$mode")" = 1 ] || fail "$mode: half a transaction"
	[ "$(sqlite3 "$db" 'select count(*) from t')" = 240 ] ||
		fail "$mode: rows are missing"
	[ "$(sqlite3 "$db" 'pragma integrity_check')" = ok ] ||
		fail "$mode: integrity"
	have=0
	for round in $(seq "${ROUNDS:-1}"); do
		(load_rows "insert into acked values(&, 'v&');\nselect &;" |
			stdbuf -oL sqlite3 -bail "$db" >"$T/acked" \
				2>/dev/null) &
		client=$!
		loaded
		crash mount
		wait $client || true
		cluster_up
		sqlite3 -separator ' ' "$db" 'select * from acked' >"$T/rows"
		rows_kept "$mode, kill $round"
		[ "$(sqlite3 "$db" 'select count(*), total(i) = 0 from t')" = \
			"240|1" ] || fail "$mode: other rows after a crash"
		[ "$(sqlite3 "$db" 'pragma integrity_check')" = ok ] ||
			fail "$mode: integrity after a crash"
	done
done
fsck_clean
