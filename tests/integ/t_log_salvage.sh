#!/bin/bash
# Logs that are lost: a majority of their peers has died with the mount, or does
# not come back. What the last peer has is listed and written to a new file,
# byte for byte, over what the blocks have; what it did not have is said to be
# missing; the log is as it was afterwards, and whole again when its peers are.
. "$(dirname "$0")/lib.sh"
need_root
# What is in the blocks is there because it was destaged, and nothing else is.
export UP_OPTS=flush_age=1h
cluster_up
mkdir "$MNT/l"
"$CTL" log enable "$MNT/l" --destage off >/dev/null || fail "enable"
K=(-c "$C/cluster.conf")
salvage() { # EXIT ARG...: output in $T/out
	local want=$1 code=0
	shift
	"$CTL" "${K[@]}" log salvage "$@" >"$T/out" 2>&1 || code=$?
	[ $code = "$want" ] || { cat "$T/out"; fail "log salvage $*: $code"; }
}
said() { grep -q -- "$1" "$T/out" || { cat "$T/out"; fail "not said: $1"; }; }
# of FILE KEY: what it says of the log of one file
of() {
	"$CTL" "${K[@]}" --json log salvage "$1" | python3 -c '
import json, sys
print(eval(sys.argv[1], {"o": json.load(sys.stdin)}))' "o$2"
}
# Writes the file and its copy, over blocks that hold a part of it, until it is
# killed: record i is acknowledged here when it is noted in the third.
cat >"$T/writer.py" <<'P'
import ctypes, os, random, sys, time
path, copy, acks, seed, count = sys.argv[1:4] + [int(sys.argv[4]), int(sys.argv[5])]
r = random.Random(seed)
libc = ctypes.CDLL(None, use_errno=True)
fds = [os.open(p, os.O_CREAT | os.O_RDWR, 0o644) for p in (path, copy)]
out = open(acks, "w")
def both(fn):
    for fd in fds:
        fn(fd)
def punch(fd, off, n):
    if libc.fallocate(fd, 3, ctypes.c_long(off), ctypes.c_long(n)):
        raise OSError(ctypes.get_errno(), "fallocate")
for i in range(count):
    size = os.fstat(fds[1]).st_size
    # Each changes the file, and the first, a write, begins the log: so each is
    # a record at least.
    k = r.randrange(20) if i and size > 30000 else 0
    data, off, n = r.randbytes(r.choice((1, 128, 4096, 30000))), r.randrange(size + 5000), r.randrange(1, 20000)
    if k < 17:
        both(lambda fd: os.pwrite(fd, data, off))
    elif k < 18:
        both(lambda fd: os.ftruncate(fd, max(size - n, 0)))
    elif k < 19:
        both(lambda fd: os.ftruncate(fd, size + n))
    else:
        both(lambda fd: punch(fd, off % size, n))
    print(i, file=out, flush=True)
print("done", file=out, flush=True)
while True:
    time.sleep(1)
P
writer=
test_cleanup() { [ -z "$writer" ] || kill -9 $writer 2>/dev/null; }
begin() { # NAME COUNT: a writer that has written all
	: >"$T/acks"
	python3 "$T/writer.py" "$MNT/l/$1" "$T/$1" "$T/acks" "$RANDOM" "$2" 9<&- &
	writer=$!
	within 60 grep -q done "$T/acks" || fail "the writer"
}
# settled COUNT: so many records are at all three, as the mount tells once a
# second.
settled() { log_status "any(f['seq'] >= $1 and f['peers'] and
	all(p['acknowledged'] == f['seq'] for p in f['peers'])
	for f in l['files'])" | grep -q True; }
is_eio() {
	if cat "$1" >/dev/null 2>"$T/err"; then fail "$1 is read"; fi
	grep -q "Input/output error" "$T/err" || fail "$(cat "$T/err")"
}
end() { # NAME...: they die with the mount
	crash mount "$@"
	kill -9 $writer 2>/dev/null
	wait $writer 2>/dev/null || true
}

echo "# nothing is lost"
salvage 0
said "every log has its mount"
echo kept >"$MNT/l/kept"
"$CTL" "${K[@]}" log salvage "$MNT/kept" >"$T/out" 2>&1 && fail "no such file"
said "No such file"
echo x >"$MNT/plain"
salvage 1 "$MNT/plain"
said "has no log"

echo "# a part is in the blocks; two of three peers die with the mount"
begin a 100
end # and it is recovered: now it is in the blocks
cluster_up
cmp "$MNT/l/a" "$T/a" || fail "recovery"
begin a 300
salvage 1 "$MNT/l/a"
said "is writing its log"
within 20 settled 300 || fail "the peers do not catch up"
cmp "$MNT/l/a" "$T/a" || fail "as it is written"
end logd1 logd2
cluster_up
is_eio "$MNT/l/a"
salvage 0
for word in "lost .*/l/a$" "1 lost" "2 lost" "3 has"; do said "$word"; done
[ "$(of "$MNT/l/a" '["last"]')" -gt 200 ] || fail "records"
[ "$(of "$MNT/l/a" '["state"]')" = lost ] || fail "state"
of /l/a '["logds"]' | grep -q "'id': 3, 'state': 'has'" || fail "by a path in the cluster"
have=$(of /l/a '["bytes"]')
salvage 0 "$MNT/l/a"
said "Missing is what was written behind record .* logd [12], logd [12] alone"
salvage 3 "$MNT/l/a" "$T/a.out"
said "NOT COMPLETE"
cmp "$T/a.out" "$T/a" || fail "what was salvaged"
salvage 1 "$MNT/l/a" "$T/a.out"
said "File exists"
salvage 3 --destaged "$MNT/l/a" "$T/a.blocks"
cmp -s "$T/a.blocks" "$T/a" && fail "the blocks alone"
salvage 3 "$MNT/l/a" "$MNT/a.out" # a file on the mount
cmp "$MNT/a.out" "$T/a" || fail "salvaged to the mount"

echo "# it takes nothing away, and can be done without a mount"
is_eio "$MNT/l/a"
[ "$(of /l/a '["bytes"]')" = "$have" ] || fail "it is less than before"
crash mount
umount -l "$MNT"
salvage 3 /l/a "$T/a.again"
cmp "$T/a.again" "$T/a" || fail "without a mount"
cluster_up
is_eio "$MNT/l/a"
if "$CTL" local down "$C" >"$T/out" 2>&1; then fail "down over a lost log"; fi
said "hailctl log salvage"
cluster_up
cp "$T/a.out" "$MNT/l/a" || fail "in its place"
salvage 1 "$MNT/l/a"
said "has no log\|is writing"
rm "$MNT/l/a"

echo "# the last peer was behind"
begin b 100
truncate -s 60000 "$T/b" "$MNT/l/b"
cp "$T/b" "$T/b.then"
within 20 settled 101 || fail "the peers do not catch up"
stop logd3
python3 - "$MNT/l/b" "$T/b" <<'P'
import os, sys
for p in sys.argv[1:]:
    f = os.open(p, os.O_WRONLY)
    for i in range(50):
        os.pwrite(f, b"later" * 100, i * 1000)
P
end logd1 logd2
go_on
cluster_up
is_eio "$MNT/l/b"
salvage 3 /l/b "$T/b.out"
said "NOT COMPLETE"
# Some were on their way to it before it was stopped; of the rest none is there.
python3 - "$T/b.out" "$T/b.then" <<'P' || fail "what the last peer had"
import sys
out, then = (open(p, "rb").read() for p in sys.argv[1:])
had = 0
while out != then:
    then = then[:had * 1000] + b"later" * 100 + then[had * 1000 + 500:]
    had += 1
    assert had < 50, "not what was written, or what no peer has"
print("# %d of 50" % had)
P
rm "$MNT/l/b"

echo "# no peer answers; then they do, and it is whole"
begin d 50
end
umount -l "$MNT"
stop logd1 logd2 logd3
silent() { # metad waits so long before it takes a mount for dead
	"$CTL" "${K[@]}" --timeout 1s log salvage >"$T/out" 2>/dev/null || true
	grep -q unsure "$T/out"
}
within 30 silent || { cat "$T/out"; fail "not listed"; }
salvage 3 --timeout 1s
salvage 1 --timeout 1s /l/d "$T/d.out"
said "no log daemon that answers"
[ ! -e "$T/d.out" ] || fail "a file was left"
go_on
salvage 0 /l/d "$T/d.out"
said "whole"
cmp "$T/d.out" "$T/d" || fail "salvaged while it is whole"
cluster_up
cmp "$MNT/l/d" "$T/d" || fail "recovered"
fsck_clean
