#!/bin/bash
# Locks of programs on two mounts of one file system (-o shared): as on one
# machine; and when metad, a mount, or who waits is killed.
. "$(dirname "$0")/lib.sh"
need_root
B=$T/b
mkdir "$B"
test_cleanup() { umount -l "$B" 2>/dev/null; }
locks() {
	timeout 240 python3 "$TOP/tests/integ/two_locks.py" "$MNT" "$B" "$@"
}
# Takes a lock on $1, waiting for it; says so, and keeps it until $2 is there.
# (No child of this shell: that would wait for it when it ends.)
hold='import fcntl, os, sys, time
f = open(sys.argv[1], "r+b")
fcntl.lockf(f, fcntl.LOCK_EX)
print("has", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(.02)'
try='import fcntl, sys
fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)'
taken() { # FILE: somebody has it
	if python3 -c "$try" "$1" 2>"$T/err"; then return 1; fi
	grep -q BlockingIOError "$T/err" || { cat "$T/err"; fail "lock of $1"; }
}

cluster_up -o shared
mount_at b "$B"
locks || fail "locks of two mounts"

# Over restarts of metad, of which each knows who has what, and all go on who
# waited.
for _ in 1 2 3 4 5; do
	sleep 0.4
	crash metad1
	"$CTL" local up "$C" >>"$T/up.log" 2>&1 || fail "metad"
done &
restarts=$!
locks torture || fail "while metad restarts"
wait $restarts || fail "restarts"
touch "$MNT/f" "$MNT/g"
python3 -c "$hold" "$B/f" "$T/go" >"$T/holder" &
h=$!
said $h "$T/holder" has
python3 -c "$hold" "$MNT/f" "$T/go" >"$T/waiter" &
w=$!
sleep 0.5
crash metad1
"$CTL" local up "$C" >>"$T/up.log" 2>&1 || fail "metad"
taken "$MNT/f" || fail "a restart of metad lost a lock"
[ ! -s "$T/waiter" ] || fail "two have it"
touch "$T/go"
wait $h || fail "the holder"
wait $w || fail "the waiter"
rm "$T/go"
! taken "$B/f" || fail "it is not free"

# A mount is killed with a lock: who waits gets it when that one is fenced.
python3 -c "$hold" "$B/g" "$T/go" >"$T/holder2" 2>/dev/null &
h=$!
said $h "$T/holder2" has
kill -9 "$(cat "$T/b.pid")"
start=$SECONDS
taken "$MNT/g" || fail "not fenced, and its lock is gone"
python3 -c "$hold" "$MNT/g" "$MNT/g" | grep -qx has || fail "the waiter"
[ $((SECONDS - start)) -le 25 ] || fail "it took $((SECONDS - start)) s"
touch "$T/go"
wait $h 2>/dev/null || true
rm "$T/go"
umount -l "$B"
mount_at b "$B"

# One is stopped, and a lock of its taken over: it has lost it, knows that when
# it wakes, and what it does then takes nobody's.
python3 -c "$hold" "$B/g" "$T/go" >"$T/holder3" 2>/dev/null &
h=$!
said $h "$T/holder3" has
p=$(cat "$T/b.pid")
halt "$p"
python3 -c "$hold" "$MNT/g" "$T/end" >"$T/waiter3" &
w=$!
within 25 grep -q has "$T/waiter3" || fail "who waits for one that is stopped"
kill -CONT "$p"
within 10 grep -q "event=fenced" "$T/b.log" || fail "it was not told"
touch "$T/go"
wait $h 2>/dev/null || true
taken "$MNT/g" || fail "a fenced mount dropped another one's lock"
touch "$T/end"
wait $w || fail "the waiter"
umount -l "$B"
within 30 gone "$p" || fail "it did not end"
mount_at b "$B"

# What an administrator sees of it, and how he ends a mount.
ctl() { "$CTL" -c "$C/cluster.conf" "$@"; }
session() { # MOUNTPOINT
	ctl sessions | awk -v m="$1" '$3 == m { print $1 }'
}
python3 -c "$hold" "$B/g" "$T/go4" >"$T/holder4" 2>/dev/null &
h=$!
said $h "$T/holder4" has
python3 -c "$hold" "$MNT/g" "$T/go4" >"$T/waiter4" &
w=$!
waits() { ctl locks >"$T/locks" && grep -q '^waits ' "$T/locks"; }
within 10 waits || fail "who waits is not shown"
ino=$(stat -c %i "$MNT/g")
b=$(session "$B")
a=$(session "$MNT")
grep -Eq "^held +posix +write +0 +- +$b +[0-9]+ +$ino +/g\$" "$T/locks" &&
	grep -Eq "^waits +posix +write +0 +- +$a +$w +$ino +/g\$" "$T/locks" ||
	{ cat "$T/locks"; fail "locks"; }
ctl locks --json --limit 1 | python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["lock_count"] == len(d["locks"]) == d["waiting_count"] == 1, d
assert d["locks"][0]["path"] == d["waiting"][0]["path"] == "/g", d
assert d["locks"][0]["end"] is None, d' || fail "locks --json"
exec 8<>"$B/f"
echo written >&8
ctl leases >"$T/leases"
grep -Eq "^$b +[0-9]+ +/f\$" "$T/leases" ||
	{ cat "$T/leases"; fail "leases"; }
sync "$B/f"
ctl evict "$b" 2>"$T/err" && fail "a mount is ended without --yes"
grep -q -e --yes "$T/err" || { cat "$T/err"; fail "evict does not ask"; }
ctl evict 4711 --yes 2>"$T/err" && fail "nobody is ended"
grep -q "no session 4711" "$T/err" || { cat "$T/err"; fail "evict nobody"; }
ctl evict "$b" --yes --timeout 20s | grep -q "is ended" || fail "evict"
said $w "$T/waiter4" has
[ -z "$(session "$B")" ] || fail "it is still there"
echo more >&8 2>"$T/err" && fail "one that was ended takes a write"
grep -q "Input/output error" "$T/err" || { cat "$T/err"; fail "which error"; }
exec 8>&- || true
grep -qx written "$MNT/f" || fail "what was synced is lost"
touch "$T/go4"
wait $w || fail "the waiter"
wait $h 2>/dev/null || true
umount -l "$B"
mount_at b "$B"

# One is ended by a signal while somebody waits there: he is told, and nothing
# else happens.
python3 -c "$hold" "$MNT/g" "$T/go5" >"$T/holder5" &
h=$!
said $h "$T/holder5" has
python3 -c "$hold" "$B/g" "$T/go5" >"$T/waiter5" 2>"$T/err" &
w=$!
within 10 waits || fail "he does not wait"
p=$(cat "$T/b.pid")
kill "$p"
within 30 gone "$p" || fail "it did not end"
wait $w && fail "the waiter has it"
[ ! -s "$T/waiter5" ] || fail "the waiter was told that he has it"
touch "$T/go5"
wait $h || fail "the holder"
! taken "$MNT/g" || fail "it is not free"
rm "$MNT/f" "$MNT/g"
fsck_clean
