#!/bin/bash
# A mount is killed within the flush that a signal, or umount, makes it do: at
# every so many of the messages and answers that it consists of. What was synced
# before is there, whole; of what was not, each byte is the old one or the new
# one, a name has its old file or its new one, and nobody's bytes are nowhere.
. "$(dirname "$0")/lib.sh"
need_root
need python3
[ "$FLAVOUR" != asan ] || skip "a sanitizer wants to be preloaded first"
rounds=${ROUNDS:-6}
cluster_up --no-mount
conf=$C/cluster.conf
mkdir -p "$MNT"
export KILL_AT=$T/kill_at
cat >"$T/files" <<'PY'
import mmap, os, sys

# No byte is zero, and none of one content is another's at its place.
def data(v, at, size):
    row = bytes((v * 83 + j * 7) % 251 + 1 for j in range(251))
    return (row * ((at + size) // 251 + 1))[at:at + size]
S, NEW, BIG = 20000, 150000, 3 << 19

def put(path, flags, at, what, sync=False):
    f = os.open(path, os.O_RDWR | flags)
    os.pwrite(f, what, at)
    if sync:
        os.fsync(f)
    return f

def write(d):
    held = [os.open(d, os.O_RDONLY)]
    old = [("s", S), ("r", S), ("u", S), ("t", S), ("m", S), ("b", BIG)]
    for name, size in [(f"s{i}", S) for i in range(6)] + old[1:]:
        held.append(put(f"{d}/{name}", os.O_CREAT, 0, data(0, 0, size),
                        True))
    os.fsync(held[0])
    for i in range(6):
        held.append(put(f"{d}/s{i}", 0, 5000, data(1, 5000, 7000)))
        held.append(put(f"{d}/s{i}", 0, S, data(1, S, NEW)))
        held.append(put(f"{d}/n{i}", os.O_CREAT, 0, data(1, 0, 9000)))
    held.append(put(f"{d}/b", 0, 1 << 19, data(1, 1 << 19, 1 << 21)))
    os.close(put(f"{d}/r.new", os.O_CREAT, 0, data(1, 0, S // 2)))
    os.rename(f"{d}/r.new", f"{d}/r")
    os.unlink(f"{d}/u")
    os.truncate(f"{d}/t", 4000)
    held.append(put(f"{d}/t", 0, 12000, data(1, 12000, 3000)))
    f = os.open(f"{d}/m", os.O_RDWR)
    m = mmap.mmap(f, S)
    m[3000:11000] = data(1, 3000, 8000)
    return held, m

def check(d):
    def is_mix(name, low, high, old, new, hole=()):
        got = open(f"{d}/{name}", "rb").read()
        assert low <= len(got) <= high, f"{name}: {len(got)} bytes"
        a, b, same = data(0, 0, high), data(1, 0, high), 0
        for i, c in enumerate(got):
            if i % 512 == 0 and (
                    i in old and i + 511 in old and
                    got[i:i + 512] == a[i:i + 512] or
                    i in new and i + 511 in new and
                    got[i:i + 512] == b[i:i + 512]):
                same = i + 512
            if i >= same and not (c == a[i] and i in old or
                                  c == b[i] and i in new or
                                  c == 0 and i in hole):
                sys.exit(f"{name}: {c} at {i} of {len(got)}: "
                         f"old {a[i]} new {b[i]}")
    for i in range(6):
        is_mix(f"s{i}", S, S + NEW, range(S), range(5000, S + NEW))
        if os.path.exists(f"{d}/n{i}"):
            is_mix(f"n{i}", 0, 9000, (), range(9000))
    is_mix("b", BIG, (1 << 19) + (1 << 21), range(BIG),
           range(1 << 19, (1 << 19) + (1 << 21)))
    is_mix("m", S, S, range(S), range(3000, 11000))
    if os.path.exists(f"{d}/u"):
        is_mix("u", S, S, range(S), ())
    is_mix("t", 4000, S, range(S), range(12000, 15000), range(4000, 15000))
    got = open(f"{d}/t", "rb").read()
    if got[12000:12001] == data(1, 12000, 1):
        assert not any(got[4000:12000]), "t: what it was cut from"
    got = open(f"{d}/r", "rb").read()
    assert got in (data(0, 0, S), data(1, 0, S // 2)), "r"

what, d = sys.argv[1:3]
if what == "check":
    check(d)
    sys.exit()
held, m = write(d)
if what == "close":
    m.close()
    for f in held:
        os.close(f)
print("written", flush=True)
sys.stdin.read()
PY
# counter [K]: sets it; prints it
counter() {
	python3 - "$KILL_AT" "$@" <<-'PY'
		import os, struct, sys
		f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
		if len(sys.argv) > 2:
		    os.pwrite(f, struct.pack("q", int(sys.argv[2])), 0)
		else:
		    print(struct.unpack("q", os.pread(f, 8, 0))[0])
	PY
}
up() {
	LD_PRELOAD=$1 "$BIN/hailfs" -o "$2,flush_age=1h,log=$T/log,pidfile=$T/pid" \
		"$conf" "$MNT" || { tail "$T/log"; fail "mount -o $2"; }
	pid=$(cat "$T/pid")
}
dead() { ! readlink "/proc/$pid/exe" >/dev/null; }
mkfifo "$T/hold"
# flush_at K: of the case $how with the options $opt
flush_at() {
	up "$TST/integ/preload/killat.so" "$opt"
	rm -rf "$MNT"/*
	sync -f "$MNT"
	python3 "$T/files" "$how" "$MNT" <"$T/hold" >"$T/said" &
	writer=$!
	exec 7>"$T/hold"
	said $writer "$T/said" written
	counter "$1"
	if [ $how = open ]; then
		kill -TERM "$pid"
		within 30 dead || fail "$how $opt $1: it does not end"
		exec 7>&-
		wait $writer || true
	else
		exec 7>&-
		wait $writer || fail "the writer failed"
		umount "$MNT" || true
		within 30 dead || fail "$how $opt $1: it does not end"
	fi
	left=$(counter)
	counter 0
	umount -l "$MNT" 2>/dev/null || true
	up "" rw
	python3 "$T/files" check "$MNT" || fail "$how $opt at call $1 of $all"
	fsck_clean
	umount "$MNT"
	within 30 dead || fail "it does not end"
}
counter 0
for case in "open io_uring=off,writeback" "open io_uring=on,writeback" \
	"open nowriteback" "close writeback"; do
	read -r how opt <<<"$case"
	all=
	flush_at 1000000
	all=$((1000000 - left))
	echo "# $case: $all calls"
	[ $all -gt 10 ] || fail "$case: $all calls"
	for round in $(seq 0 $((rounds - 1))); do
		flush_at $((1 + all * round / rounds))
		[ "$left" = 0 ] || echo "# $case: round $round was not killed"
	done
done
