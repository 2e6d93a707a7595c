#!/bin/bash
# Logs of mounts that share: a file that another mount wants is in its blocks
# first, byte for byte; and what a mount has in its logs when it dies is put
# into the blocks by one that lives, also when that one dies over it, or metad.
. "$(dirname "$0")/lib.sh"
need_root
need python3
B=$T/b
D=$T/d
mkdir "$B" "$D"
dies() { # NAME DIR
	mount_crash "$1"
	umount -l "$2"
}
load=
test_cleanup() {
	local m
	[ -z "$load" ] || kill $a $b 2>/dev/null
	for m in "$B" "$D"; do umount -l "$m" 2>/dev/null; done
}
# at DIR EXPR: what that mount tells of its logs, a moment ago
at() {
	"$CTL" -c "$C/cluster.conf" sessions --json | python3 -c '
import json, sys
for s in json.load(sys.stdin):
    if s["mountpoint"] == sys.argv[1]:
        l = s["status"]["logs"]
        print(eval(sys.argv[2]))' "$1" "$2"
}
says() { [ "$(at "$1" "$2")" = True ]; }
cluster_up -o shared
mount_at b "$B"
log_dirs() {
	local d
	for d in "$@"; do
		mkdir -p "$MNT/$d"
		"$CTL" log enable "$MNT/$d" >/dev/null || fail "enable $d"
	done
}
log_dirs w w/a/0 w/a/1 w/b/0 w/b/1

cat >"$T/look.py" <<'P'
# What is answered here is seen there at once, whatever it was.
import os, sys, time
here, there = sys.argv[1:3]
took = []
def same(name, want):
    t = time.monotonic()
    assert os.stat(f"{there}/{name}").st_size == len(want), name
    took.append(time.monotonic() - t)
    with open(f"{there}/{name}", "rb") as f:
        assert f.read() == want, name
for i in range(30):
    name = f"f{i}"
    fd = os.open(f"{here}/{name}", os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
    want = b""
    for j in range(20):
        want += b"%07d\n" % j
        os.write(fd, b"%07d\n" % j)
    if i % 5 == 1:
        os.truncate(f"{here}/{name}", 50)
        want = want[:50]
    elif i % 5 == 2:
        w = os.open(f"{here}/{name}", os.O_WRONLY)
        os.pwrite(w, b"x" * 9, 5)
        want = want[:5] + b"x" * 9 + want[14:]
        os.pwrite(w, b"end", 200000)
        want += bytes(200000 - len(want)) + b"end"
        os.close(w)
    elif i % 5 == 3:
        os.rename(f"{there}/{name}", f"{there}/n{i}")
        name = f"n{i}"
    elif i % 5 == 4:
        # Both append to it.
        w = os.open(f"{there}/{name}", os.O_WRONLY | os.O_APPEND)
        for j in range(10):
            os.write(w, b"there%02d\n" % j)
            os.write(fd, b"here %02d\n" % j)
            want += b"there%02d\nhere %02d\n" % (j, j)
        os.close(w)
    same(name, want)
    # Its last name goes there, and here it is still open.
    if i % 2:
        os.unlink(f"{there}/{name}")
        os.write(fd, b"more")
        assert os.pread(fd, len(want) + 9, 0) == want + b"more"
    os.close(fd)
took.sort()
print("# stat of a file that has a log elsewhere: %.1f ms, at most %.1f" %
      (took[len(took) // 2] * 1e3, took[-1] * 1e3))
P
python3 "$T/look.py" "$MNT/w" "$B/w" || fail "not seen"
within 5 says "$MNT" "l['opened'] >= 30" || fail "there were no logs"

# It is wanted while it is truncated, punched, written and closed, at any moment.
cat >"$T/race.py" <<'P'
import os, subprocess, sys, time
here, there = sys.argv[1:3]
longest = 0
for i in range(150):
    path = f"{here}/race{i}"
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    os.write(fd, b"x" * 5000)
    pid = os.fork()
    if pid == 0:
        time.sleep(i % 15 * 0.0004)
        seen = os.stat(f"{there}/race{i}").st_size
        os._exit(seen not in (5000, 100, 8000))
    began = time.monotonic()
    os.ftruncate(fd, 100)
    os.pwrite(fd, b"y", 7999)
    os.ftruncate(fd, 100)
    os.pwrite(fd, b"z", 7999)
    os.close(fd)
    assert os.waitpid(pid, 0)[1] == 0
    longest = max(longest, time.monotonic() - began)
    with open(f"{there}/race{i}", "rb") as f:
        assert f.read() == b"x" * 100 + bytes(7899) + b"z"
print(f"# longest {longest * 1e3:.0f} ms")
assert longest < 5
P
python3 "$T/race.py" "$MNT/w" "$B/w" || fail "race"

# Of a file that is left alone again there is a log again, and it is one from
# another side, too.
cat >"$T/turns.py" <<'P'
import os, sys, time
mounts = [os.open(f"{m}/turns", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
          for m in sys.argv[1:3]]
for turn in range(6):
    for j in range(200):
        os.write(mounts[turn % 2], b"%d %07d\n" % (turn, j))
        time.sleep(0.002)
want = b"".join(b"%d %07d\n" % (t, j) for t in range(6) for j in range(200))
for m in sys.argv[1:3]:
    with open(f"{m}/turns", "rb") as f:
        assert f.read() == want
P
opened=$(at "$B" "l['opened']")
python3 "$T/turns.py" "$MNT/w" "$B/w" || fail "turns"
within 5 says "$B" "l['opened'] >= $opened + 2" || fail "no log at the other"

# Nothing is lent when the files are closed.
left() { says "$MNT" "not l['files']" && says "$B" "not l['files']"; }
within 20 left || fail "logs without a file"

# load DIR ACKS SECONDS: its process in $load
load() {
	"$TST/integ/acked" write "$1" "$2" "$3" 2 2>/dev/null &
	load=$!
}
# b is mounted, and has logs under a load whose process is $b.
load_b() { # SECONDS
	[ -n "$(findmnt -n "$B")" ] || within 5 mount_at b "$B" || fail "no b"
	log_dirs w/b/0 w/b/1
	load "$B/w/b" "$T/b.acks" "$1"; b=$load
	within 10 says "$B" "len(l['files']) >= 2" || fail "no logs at b"
}
check() { # DIR ACKS WHEN
	"$TST/integ/acked" verify "$1" "$2" || fail "lost: $3"
}
# A mount dies with logs; another one goes on with its own meanwhile.
mount_at d "$D"
load "$MNT/w/a" "$T/a.acks" 60; a=$load
load_b 60
sleep 1
dies b "$B"
wait $b || true
check "$D/w/b" "$T/b.acks" "the mount died"
gone $a && fail "the other one's load ended, too"
recovered=$(($(at "$MNT" "l['recovered']") + $(at "$D" "l['recovered']")))
[ "$recovered" -gt 0 ] || fail "nothing was recovered"
kill $a
wait $a || true
check "$D/w/a" "$T/a.acks" "beside it"
rm -r "$D/w/a" "$D/w/b" "$T"/*.acks

# Who recovers dies: its peers do not answer so long that it is in the middle.
load_b 60
sleep 1
stop logd1 logd2
dies b "$B"
wait $b || true
heir() {
	for heir in "$MNT" "$D"; do
		says "$heir" "l['recovering']" && return 0
	done
	return 1
}
within 30 heir || fail "nobody recovers"
timeout 1 cat "$heir"/w/b/0/log >/dev/null && fail "it is read before"
crash metad1
metad_start
within 30 heir || fail "nobody goes on"
if [ "$heir" = "$D" ]; then dies d "$D"; else crash mount; umount -l "$MNT"; fi
go_on
other=$MNT
[ "$heir" = "$D" ] || other=$D
check "$other/w/b" "$T/b.acks" "who recovered died"

# An orderly end leaves nothing to recover.
cluster_up -o shared
[ -n "$(findmnt -n "$D")" ] || mount_at d "$D"
rm -r "$D/w/b" "$T"/*.acks
recovered=$(($(at "$MNT" "l['recovered']") + $(at "$D" "l['recovered']")))
load_b 2
wait $b
umount "$B"
check "$D/w/b" "$T/b.acks" "unmounted"
sleep 1.5 # what they tell
[ "$recovered" = $(($(at "$MNT" "l['recovered']") +
	$(at "$D" "l['recovered']"))) ] || fail "there was something to recover"
rm -r "$D/w/b" "$T"/*.acks

# Most peers of its log are lost: that file is, at each mount, and nothing else.
echo kept >"$D/w/kept"
load_b 60
sleep 1
halt "$(cat "$T/b.pid")"
crash logd1 logd2
dies b "$B"
wait $b || true
cluster_up -o shared
for m in "$MNT" "$D"; do
	cat "$m/w/b/0/log" >/dev/null 2>"$T/err" && fail "what is lost is read"
	grep -q "Input/output error" "$T/err" || { cat "$T/err"; fail "$m"; }
	grep -q kept "$m/w/kept" || fail "the rest"
done
loser() {
	for heir in "$MNT" "$D"; do
		says "$heir" "l['lost'] > 0" && return 0
	done
	return 1
}
within 5 loser || fail "nobody says so"
"$CTL" -c "$C/cluster.conf" log salvage >"$T/salvage" 2>&1 || true
grep -q "w/b/0/log" "$T/salvage" || { cat "$T/salvage"; fail "not offered"; }
# It begins anew.
: >"$heir/w/b/0/log" || fail "cannot be emptied"
echo anew >>"$heir/w/b/0/log"
grep -q anew "$D/w/b/0/log" || fail "not anew"
grep -q anew "$MNT/w/b/0/log" || fail "not anew"
fsck_clean
