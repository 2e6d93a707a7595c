#!/bin/bash
# RocksDB: db_bench fills and reads, ldb checks; after a kill of the mount all that
# was synced is there, and nothing else.
. "$(dirname "$0")/lib.sh"
need_root
need db_bench ldb python3
cluster_up
db=$MNT/rocks
wal_dir "$MNT/wal"
# db_bench begins by removing the directory, if it is empty.
: >"$MNT/wal/here"
bench() { db_bench --db="$db" --wal_dir="$MNT/wal" --value_size=200 --compression_type=none \
	"$@" </dev/null >"$T/bench" 2>&1 ||
	{ tail -n 20 "$T/bench"; fail "db_bench $*"; }; }
bench --benchmarks=fillrandom,compact,readrandom --num=100000
# As many as 100,000 draws hit: the same in each run, since it has a seed.
found=$(sed -n 's/^readrandom.*(\([0-9]*\) of 100000 found)$/\1/p' "$T/bench")
[ "${found:-0}" -gt 60000 ] || fail "readrandom found ${found:-nothing}"
ldb --db="$db" checkconsistency | grep -q OK || fail "checkconsistency"
rm -rf "$db" "$MNT"/wal/*.log
have=0
for round in $(seq "${ROUNDS:-1}"); do
	python3 "$TOP/tests/integ/rocks_rows.py" "$db" "$MNT/wal" \
		$((have + 1)) >"$T/acked" &
	client=$!
	loaded
	crash mount
	wait $client || true
	cluster_up
	ldb --db="$db" checkconsistency | grep -q OK || fail "after a crash"
	ldb --db="$db" scan >"$T/scan"
	sed 's/ : / /' "$T/scan" >"$T/rows"
	rows_kept "kill $round"
done
fsck_clean
