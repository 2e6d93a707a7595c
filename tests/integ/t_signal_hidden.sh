#!/bin/bash
# A signal ends a mount that its mount point no longer shows: one that umount -l
# took away while files were open, or something else is mounted over. What was
# written to those files is kept, and what lies there instead is left alone.
. "$(dirname "$0")/lib.sh"
need_root
need python3
cluster_up --no-mount
conf=$C/cluster.conf
mkdir -p "$MNT"
test_cleanup() {
	while umount -l "$MNT" 2>/dev/null; do :; done
}
cat >"$T/writer" <<'PY'
import mmap, os, sys
d, how = sys.argv[1:3]
data = bytes(j * 7 % 251 + 1 for j in range(90000))
for i in range(3):
    f = os.open(f"{d}/f{i}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    if how == "mapped":
        os.ftruncate(f, len(data))
        m = mmap.mmap(f, len(data))
        m[:] = data
        os.close(f)
        globals()[f"m{i}"] = m
    else:
        os.write(f, data)
print("written", flush=True)
sys.stdin.read()
PY
up() {
	"$BIN/hailfs" -o "$1,log=$T/log,pidfile=$T/pid" "$conf" "$MNT" ||
		fail "mount -o $1"
	pid=$(cat "$T/pid")
}
ended() { ! readlink "/proc/$pid/exe" >/dev/null; }
mkfifo "$T/hold"
for case in "open detached" "open replaced" "open covered" "mapped detached" \
	"mapped covered"; do
	read -r how where <<<"$case"
	up writeback
	python3 "$T/writer" "$MNT" $how <"$T/hold" >"$T/said" &
	writer=$!
	exec 7>"$T/hold"
	said $writer "$T/said" written
	[ $where = covered ] || umount -l "$MNT"
	[ $where = detached ] || mount -t tmpfs other "$MNT"
	echo mine >"$MNT/mine"
	kill -TERM "$pid"
	within 30 ended || fail "$case: it does not end"
	grep -q lost= "$T/log" && { cat "$T/log"; fail "$case: says lost"; }
	[ "$(cat "$MNT/mine")" = mine ] || fail "$case: unmounted another's"
	rm "$MNT/mine"
	exec 7>&-
	wait $writer || true
	[ $where = detached ] || umount "$MNT"
	up rw
	python3 - "$MNT" <<-'PY' || fail "$case"
		import sys
		data = bytes(j * 7 % 251 + 1 for j in range(90000))
		for i in range(3):
		    got = open(f"{sys.argv[1]}/f{i}", "rb").read()
		    assert got == data, f"f{i}: {len(got)} bytes"
	PY
	rm "$MNT"/*
	umount "$MNT"
	within 30 ended || fail "$case: the next one does not end"
done
# Nobody has anything open: the mount goes by itself.
up writeback
echo quiet >"$MNT/f"
umount -l "$MNT"
within 30 ended || fail "without users it does not end"
fsck_clean
