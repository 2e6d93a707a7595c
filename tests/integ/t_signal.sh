#!/bin/bash
# A signal ends a mount as unmounting does: what was written to files that are
# still open, mapped, or have lost their name is there afterwards, not synced
# by anybody, with the kernel's write-back cache and without.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up --no-mount
conf=$C/cluster.conf
mkdir -p "$MNT"
cat >"$T/writer" <<'PY'
import mmap, os, sys, time
d, n = sys.argv[1], int(sys.argv[2])
data = lambda i: bytes((i * 7 + j) % 251 for j in range(9000))
held = []
for i in range(n):
    f = os.open(f"{d}/f{i}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(f, data(i))
    held.append(f)
f = os.open(f"{d}/mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 50000)
m = mmap.mmap(f, 50000)
m[:] = b"m" * 50000
os.close(f)
f = os.open(f"{d}/gone", os.O_RDWR | os.O_CREAT)
os.unlink(f"{d}/gone")
os.write(f, b"x" * 5000)
print("written", flush=True)
sys.stdin.read()
PY
cat >"$T/check" <<'PY'
import sys
d, n = sys.argv[1], int(sys.argv[2])
data = lambda i: bytes((i * 7 + j) % 251 for j in range(9000))
for i in range(n):
    got = open(f"{d}/f{i}", "rb").read()
    if got != data(i):
        sys.exit(f"f{i}: {len(got)} bytes, not as written")
if open(f"{d}/mapped", "rb").read() != b"m" * 50000:
    sys.exit("mapped: not as written")
PY
up() {
	"$BIN/hailfs" -o "$1,log=$T/log,pidfile=$T/pid" "$conf" "$MNT" ||
		fail "mount -o $1"
	pid=$(cat "$T/pid")
}
ended() {
	# Not kill -0: who reaps orphans here may take seconds.
	while readlink "/proc/$pid/exe" >/dev/null; do sleep 0.02; done
	[ "$(findmnt -n "$MNT")" = "" ] || fail "$1: still mounted"
	[ "$("$CTL" -c "$conf" sessions --json)" = "[]" ] ||
		fail "$1: its session was not closed"
	grep -q lost= "$T/log" && { cat "$T/log"; fail "$1: says lost"; }
	return 0
}
mkfifo "$T/hold"
for case in "TERM writeback 200" "INT writeback 3" "HUP writeback 1" \
	"TERM rw 20" "TERM io_uring=off,writeback 20"; do
	read -r sig opt n <<<"$case"
	up "$opt"
	python3 "$T/writer" "$MNT" "$n" <"$T/hold" >"$T/said" &
	writer=$!
	exec 7>"$T/hold"
	said $writer "$T/said" written
	kill -$sig "$pid"
	ended "$case"
	exec 7>&-
	wait $writer
	up rw
	python3 "$T/check" "$MNT" "$n" || fail "$case"
	rm "$MNT"/*
	umount "$MNT"
	ended "$case"
done
# It leaves no dead child about while it serves.
up writeback
echo quiet >"$MNT/f"
sync "$MNT/f"
childless() { [ -z "$(ps -o pid= --ppid "$pid")" ]; }
within 10 childless || fail "children: $(ps --ppid "$pid")"
umount "$MNT"
ended children
# Nobody has a file open, and the first signal is not the only one.
up writeback
echo quiet >"$MNT/f"
kill -TERM "$pid"
kill -INT "$pid" || true # so soon?
kill -TERM "$pid" || true
ended idle
up writeback
[ "$(cat "$MNT/f")" = quiet ] || fail "idle"
umount "$MNT"
ended end
fsck_clean
