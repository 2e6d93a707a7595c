#!/bin/bash
# Two mounts of one file system at once (-o shared): each sees what the other does,
# at once; what one holds goes over to the other, also when it is killed.
. "$(dirname "$0")/lib.sh"
need_root
B=$T/b
mkdir "$B"
mount_b() { # [mount point] [options]
	mount_at b "${1:-$B}" "${2:-shared}"
}
b_pid() { cat "$T/b.pid"; }
test_cleanup() { umount -l "$B" 2>/dev/null; }
# ended PID: a mount's process is gone.
ended() { within 30 gone "$1" || fail "it did not end"; }
b_down() {
	local p
	p=$(b_pid)
	umount "$B"
	ended "$p"
}
both() { timeout 120 python3 "$TOP/tests/integ/two_mounts.py" "$MNT" "$B" "$@"; }

# Who does not share has it alone, and who shares is not let in beside him.
cluster_up
mount_b 2>"$T/err" && fail "let in beside a mount that is alone"
grep -q "shared" "$T/err" || fail "$(cat "$T/err")"
cluster_down
cluster_up -o shared
mount_b "$B" nowriteback 2>"$T/err" && fail "one that does not share is let in"
grep -q "shared" "$T/err" || fail "$(cat "$T/err")"
"$BIN/hailfs" -o shared,writeback "$C/cluster.conf" "$B" 2>"$T/err" &&
	fail "shared and writeback"
grep -q "exclude" "$T/err" || fail "$(cat "$T/err")"
mount_b

both || fail "of two mounts"
"$CTL" -c "$C/cluster.conf" sessions >"$T/sessions"
[ "$(grep -c shared=true "$T/sessions")" = 2 ] ||
	{ cat "$T/sessions" >&2; fail "sessions does not say who shares"; }
# What nobody has open any more is freed.
nothing_left() {
	[ "$(inodes)" = 1 ]
}
inodes() {
	"$CTL" -c "$C/cluster.conf" fsck | sed -n 's/^\([0-9]*\) inodes.*/\1/p'
}
within 15 nothing_left || fail "$(inodes) inodes are left"

# A mount is killed with what it has written and not synced, and with leases: its
# files are free when it is fenced, with all that was synced, and the other one
# goes on all the while.
echo before >"$B/mine"
exec 7>>"$B/held"
echo synced >&7
sync "$B/held"
echo "not synced" >&7
echo other >"$MNT/other"
p=$(b_pid)
kill -9 "$p"
exec 7>&-
echo more >>"$MNT/other"
start=$SECONDS
grep -qx synced "$MNT/held" || fail "what was synced is lost"
[ $((SECONDS - start)) -le 25 ] || fail "it took $((SECONDS - start)) s"
echo after >>"$MNT/held"
[ "$(tail -n 1 "$MNT/held")" = after ] || fail "it cannot be written"
grep -qx before "$MNT/mine" || [ ! -s "$MNT/mine" ] || fail "garbage"
umount -l "$B"
mount_b
[ "$(tail -n 1 "$B/held")" = after ] || fail "not seen after a new mount"

# One that is stopped while it has a lease is fenced when another wants it, and
# is told so when it wakes: nothing of what it had under way is done. (What has its
# files open is no child of this shell's: that would wait for it when it ends.)
echo one >"$B/stale"
python3 -c '
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
os.write(fd, b"two\n")
print("ready", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(.05)
try:
    os.write(fd, b"four\n")
except OSError as e:
    print("refused", e.errno, flush=True)
' "$B/stale" "$T/go" >"$T/said" &
w=$!
said $w "$T/said" ready
p=$(b_pid)
halt "$p"
start=$SECONDS
echo three >>"$MNT/stale"
[ $((SECONDS - start)) -le 25 ] || fail "it took $((SECONDS - start)) s"
kill -CONT "$p"
within 10 grep -q "event=fenced" "$T/b.log" || fail "it was not told"
touch "$T/go"
wait $w || fail "who wrote to it"
grep -q "refused 5" "$T/said" || fail "a fenced mount takes a write"
[ "$(tail -n 1 "$MNT/stale")" = three ] || fail "a fenced mount wrote"
umount -l "$B"
ended "$p"
mount_b

# metad restarts while both work.
(for i in $(seq 400); do echo "a $i" >>"$MNT/line" || exit 1; done) &
wa=$!
(for i in $(seq 400); do echo "b $i" >>"$B/line" || exit 1; done) &
wb=$!
for _ in 1 2 3; do
	sleep 0.7
	crash metad1
	cluster_up -o shared
done
wait $wa || fail "a write failed over a restart of metad"
wait $wb || fail "a write failed over a restart of metad"
for w in a b; do
	grep "^$w " "$MNT/line" | cut -d ' ' -f 2 >"$T/got"
	seq 400 | cmp - "$T/got" || fail "lines of $w"
done
cmp "$MNT/line" "$B/line" || fail "they see different lines"

# A block daemon dies with what one of them has not synced.
dd if=/dev/urandom of="$T/data" bs=1M count=8 status=none
cp "$T/data" "$MNT/big"
crash blockd2
cluster_up -o shared
cmp "$T/data" "$B/big" || fail "what was not synced, and the daemon died"

b_down
cluster_down
cluster_up -o shared
cmp "$T/data" "$MNT/big" || fail "after all were stopped"
fsck_clean
