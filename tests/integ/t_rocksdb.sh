#!/bin/bash
# RocksDB: db_bench fills and reads, ldb checks; a killed mount loses nothing
# that was synced.
. "$(dirname "$0")/lib.sh"
need_root
need db_bench ldb
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
(db_bench --db="$db" --wal_dir="$MNT/wal" --benchmarks=fillseq --num=100000 --sync=1 \
	--stats_interval=2 </dev/null >"$T/sync" 2>&1 || true) &
acks() { [ "$(grep -c ' ops and ' "$T/sync")" -ge 500 ]; }
within 60 acks || fail "no load: $(tail -n 5 "$T/sync")"
logs_used
crash mount
wait || true
cluster_up
ldb --db="$db" checkconsistency | grep -q OK || fail "after a crash"
# Keys are numbers from 0; db_bench said how many it had written and synced, of
# which the last one may be the one that failed: it looks after it has counted.
acked=$(sed -n 's/.* thread 0: ([0-9]*,\([0-9]*\)) ops and .*/\1/p' "$T/sync" |
	tail -n 1)
[ $((acked -= 1)) -gt 0 ] || { cat "$T/sync"; fail "nothing was written"; }
ldb --db="$db" scan --hex >"$T/keys"
have=$(wc -l <"$T/keys")
[ "$have" -ge "$acked" ] || fail "$acked synced, $have there"
last=$(tail -n 1 "$T/keys" | cut -c 3-18)
[ $((16#$last + 1)) = "$have" ] || fail "$have keys up to 0x$last"
fsck_clean
