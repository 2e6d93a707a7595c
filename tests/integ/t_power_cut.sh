#!/bin/bash
# A power cut of the whole machine at any moment: the cluster's directory lies
# on a loop device over a disk that records every write and flush; images of
# what such a cut would have left are made, mounted and started, and everything
# that was acknowledged before the cut is there, also what was committed to
# databases, whole and in order.
. "$(dirname "$0")/lib.sh"
need_root
UP_OPTS=${UP_OPTS:-nowriteback}
need losetup mkfs.ext4 sqlite3
SIZE=3072
CUTS=${CUTS:-3}
loops=()
mounts=()
test_cleanup() {
	[ ${#UPS[@]} -gt 0 ] && "$CTL" local down "$C" >/dev/null 2>&1
	UPS=()
	for m in "${mounts[@]}"; do umount -l "$m" 2>/dev/null; done
	for l in "${loops[@]}"; do losetup -d "$l" 2>/dev/null; done
	umount -l "$T/rec" 2>/dev/null
	[ -n "${rec:-}" ] && kill "$rec" 2>/dev/null
}
loop_of() { # FILE: prints the loop device
	losetup --show -f --direct-io=on "$1" 2>/dev/null ||
		losetup --show -f "$1"
}
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
mkdir "$T/rec" "$T/disk"
"$TST/power/recfs" "$T/log" "$T/counter" $SIZE "$T/rec" &
rec=$!
for _ in $(seq 100); do [ -f "$T/rec/disk" ] && break; sleep 0.05; done
[ -f "$T/rec/disk" ] || fail "recfs does not mount"
dev=$(loop_of "$T/rec/disk") || skip "no loop device"
loops+=("$dev")
mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$dev"
mount -o barrier=1 "$dev" "$T/disk"
mounts+=("$T/disk")
C=$T/disk/c
MNT=$C/mnt
cluster_up
mkdir "$MNT/w"
sync
first=$(od -An -tu8 "$T/counter" | tr -d ' ')
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
quiet=$(od -An -tu8 "$T/counter" | tr -d ' ')
for _ in $(seq 10); do
	dd if=/dev/urandom of="$MNT/large" bs=1M count=3 conv=notrunc,fsync \
		oflag=append status=none
done
last=$(od -An -tu8 "$T/counter" | tr -d ' ')
cluster_down
umount "$T/disk"
losetup -d "$dev"
loops=()
mounts=()
umount "$T/rec"
wait "$rec" || true
rec=
kept=0
cut_at() { # COUNT SEED
	local at=$1 seed=$2
	"$TST/power/replay" "$T/log" "$T/image" $SIZE "$at" "$seed"
	dev=$(loop_of "$T/image")
	loops=("$dev")
	mount "$dev" "$T/disk" || fail "ext4 after a cut at $at seed $seed"
	mounts=("$T/disk")
	cluster_up
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" "$at" ||
		fail "lost after a cut at $at seed $seed"
	transactions_kept wal "$at"
	transactions_kept delete "$at"
	fsck_clean
	"$CTL" -c "$C/cluster.conf" fsck --scrub >"$T/fsck" 2>&1 ||
		{ cat "$T/fsck"; fail "bad after a cut at $at seed $seed"; }
	cluster_down
	umount "$T/disk"
	losetup -d "$dev"
	loops=()
	mounts=()
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
