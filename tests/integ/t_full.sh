#!/bin/bash
# A full store: ENOSPC to the writer or its fsync, nothing acknowledged lost,
# deleting works and gives the space back.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up --no-mount
cluster_down
sed -i 's/^\(blockd .*\)$/\1 capacity=512m/' "$C/cluster.conf"
rm -rf "$C"/blockd*/* "$C"/metad1/*
cluster_up
mkdir "$MNT/w"
"$TST/integ/acked" write "$MNT/w" "$T/acks" 2 2 || fail "writer"
dd if=/dev/urandom of="$MNT/big" bs=1M count=12000 2>"$T/dd" &&
	fail "more than the disks hold was written"
# by a write, not only by the close at the end: the kernel's cache takes all
grep -q 'error writing.*No space left' "$T/dd" ||
	{ cat "$T/dd"; fail "not ENOSPC"; }
dd if=/dev/urandom of="$MNT/big" bs=1M count=1 oflag=append \
	conv=notrunc,fsync 2>"$T/dd" && fail "there was space"
grep -q 'No space left' "$T/dd" || { cat "$T/dd"; fail "fsync: not ENOSPC"; }
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
[ "$(df --output=pcent "$MNT" | tail -n 1 | tr -dc 0-9)" -ge 90 ] ||
	fail "df does not tell"
rm "$MNT/big"
for _ in $(seq 100); do
	used=$(df --output=pcent "$MNT" | tail -n 1 | tr -dc 0-9)
	[ "$used" -lt 50 ] && break
	sleep 0.1
done
[ "$used" -lt 50 ] || fail "the space did not come back ($used %)"
"$TST/integ/acked" write "$MNT/w" "$T/acks" 2 2 || fail "writer afterwards"
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost afterwards"
fsck_clean
