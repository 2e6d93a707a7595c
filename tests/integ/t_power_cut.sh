#!/bin/bash
# A power cut of the whole machine at any moment: the cluster's directory lies
# on a loop device over a disk that records every write and flush; images of
# what such a cut would have left are made, mounted and started, and everything
# that was acknowledged before the cut is there, also what was committed to
# databases, whole and in order.
. "$(dirname "$0")/lib.sh"
UP_OPTS=${UP_OPTS:-nowriteback}
. "$(dirname "$0")/power.sh"
need sqlite3
CUTS=${CUTS:-3}
ROUND=${SECONDS_OF_LOAD:-6}
# One row a transaction; each that was committed is noted with the disk's clock.
# Ends by being killed.
transactions() { # JOURNAL_MODE
	local i=0
	{
		# Full would let the journal come back, whose removal commits.
		echo "pragma journal_mode=$1; pragma synchronous=extra;"
		echo "create table t(i integer primary key, x);"
		while :; do
			i=$((i + 1))
			echo "insert into t values($i, hex(randomblob(400)));"
			echo ".system echo $i \$(od -An -tu8 $T/counter) >>$T/sql.$1"
		done
	} | timeout -s KILL "$ROUND" sqlite3 -bail "$MNT/$1.db" \
		>"$T/sql.log" 2>&1
}
# transactions_kept JOURNAL_MODE AT: all committed before the cut, none of
# which is missing in between.
transactions_kept() {
	local last
	last=$(awk -v at="$2" '$2 <= at { last = $1 } END { print last + 0 }' \
		"$T/sql.$1")
	[ "$last" = 0 ] || [ "$(sqlite3 "$MNT/$1.db" "
		pragma integrity_check;
		select count(*) = max(i) and max(i) >= $last from t")" = "ok
1" ] || fail "$1.db after a cut at $2: $last rows were committed: $(sqlite3 \
		"$MNT/$1.db" 'pragma integrity_check;
		select count(*), max(i) from t' 2>&1 | head -n 5)"
	kept=$((kept + last))
}
power_begin
mkdir "$MNT/w"
sync
first=$(power_now)
transactions wal &
wal=$!
transactions delete &
delete=$!
ACK_COUNTER=$T/counter "$TST/integ/acked" write "$MNT/w" "$T/acks" "$ROUND" 4 ||
	fail "the writer saw an error"
for pid in $wal $delete; do
	code=0
	wait "$pid" || code=$?
	[ $code = 137 ] || { cat "$T/sql.log"; fail "SQLite ended with $code"; }
done
# Writes too large to go through the journal, and nobody else's flushes.
quiet=$(power_now)
for _ in $(seq 10); do
	dd if=/dev/urandom of="$MNT/large" bs=1M count=3 conv=notrunc,fsync \
		oflag=append status=none
done
last=$(power_now)
power_end
kept=0
cut_at() { # COUNT SEED
	local at=$1 seed=$2
	power_cut "$at" "$seed"
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" "$at" ||
		fail "lost after a cut at $at seed $seed"
	transactions_kept wal "$at"
	transactions_kept delete "$at"
	fsck_clean
	"$CTL" -c "$C/cluster.conf" fsck --scrub >"$T/fsck" 2>&1 ||
		{ cat "$T/fsck"; fail "bad after a cut at $at seed $seed"; }
	power_disk_down
}
# A record of a journal is there, and the writes before it are not, which it may
# point to: only a flush between them forbids that.
"$TST/power/replay" "$T/log" "$quiet" "$last" >"$T/counts"
[ -s "$T/counts" ] || fail "no record with anything else under way"
sort -k 2rn "$T/counts" >"$T/largest"
for at in $(head -n "$CUTS" "$T/largest" | cut -d " " -f 1); do
	cut_at "$at" last
done
for i in $(seq "$CUTS"); do
	cut_at $((first + (last - first) * i / CUTS - RANDOM % 50)) \
		$((i % 3 == 0 ? 0 : RANDOM + 1))
done
[ $kept -gt 0 ] || fail "no transaction was committed before any cut"
echo "# $kept committed transactions looked for"
