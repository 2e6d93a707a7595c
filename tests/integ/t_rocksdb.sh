#!/bin/bash
# RocksDB: db_bench fills and reads, ldb checks; a killed mount loses nothing
# that was synced.
. "$(dirname "$0")/lib.sh"
need_root
need db_bench ldb
cluster_up
db=$MNT/rocks
bench() { db_bench --db="$db" --value_size=200 --compression_type=none \
	"$@" </dev/null >"$T/bench" 2>&1 ||
	{ tail -n 20 "$T/bench"; fail "db_bench $*"; }; }
bench --benchmarks=fillrandom,compact,readrandom --num=100000
grep -q 'readrandom' "$T/bench" || fail "no reads"
ldb --db="$db" checkconsistency | grep -q OK || fail "checkconsistency"
rm -rf "$db"
(db_bench --db="$db" --benchmarks=fillseq --num=100000 --sync=1 \
	--stats_interval_seconds=1 </dev/null >"$T/sync" 2>&1 || true) &
sleep 3
crash mount
wait || true
cluster_up
ldb --db="$db" checkconsistency | grep -q OK || fail "after a crash"
[ "$(ldb --db="$db" scan --max_keys=10 --hex | wc -l)" = 10 ] ||
	fail "nothing to read after a crash"
fsck_clean
