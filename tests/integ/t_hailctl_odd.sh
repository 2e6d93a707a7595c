#!/bin/bash
# hailctl where names are odd: commas, quotes, backslashes, blanks and bytes that
# are no UTF-8 in the cluster's directory and in files, symbolic links and
# trailing slashes on the way; and what it says of what cannot be done now.
. "$(dirname "$0")/lib.sh"
need_root
need python3 strace
C=$T/$'od,d "na\\me" \xfc'
MNT=$C/mnt
K=(-c "$C/cluster.conf")
json() { python3 -c "
import json, sys
d = json.load(open('$T/out'))
assert ($1), d" || fail "JSON: $1"; }
run() { "$CTL" "$@" >"$T/out" 2>"$T/err" || { cat "$T/out" "$T/err" >&2
	fail "hailctl $*"; }; }

# ---- odd names ----
run local up "$C" --blockds 2 --json
UPS=("$C")
json "d['mountpoint'].endswith('od,d \"na\\\\me\" \\ufffd/mnt')"
run local status "$C" --json
json "all(p['state'] not in ('stopped', 'dead') for p in d['processes'])"
for _ in $(seq 50); do # the mount tells with its keepalives
	run "${K[@]}" status --json
	grep -q '"io_uring"' "$T/out" && break
	sleep 0.1
done
json "[s['mountpoint'] for s in d['sessions']][0].endswith('\\ufffd/mnt')"
json "d['sessions'][0]['status']['io_uring']"
name=$MNT/$'gr\xfc\xdf'
echo hello >"$name"
sync "$name"
run why "$name" --json
json "d['path'] == '/gr\\ufffd\\ufffd' and d['block_count'] == 1"
mkdir "$MNT/d"
run block-size "$MNT/d" 64K --json
json "d['block_bytes'] == 65536"
run "${K[@]}" metad backup "$C/backup" --json
json "d['file'].endswith('backup') and d['bytes'] > 0"
# Its name is durable, too. (A leak checker cannot be traced.)
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 strace -f -y -e trace=fsync,rename -o "$T/trace" "$CTL" "${K[@]}" metad \
	backup "$T/backup" >"$T/out" || fail "backup under strace"
sed -n '/rename(/,$p' "$T/trace" | grep -q "fsync([0-9]*<$T>) *= 0" ||
	{ cat "$T/trace"; fail "the backup's directory is not synced"; }

# ---- links and slashes ----
ln -s "$MNT" "$T/link"
ln -s d "$MNT/inside"
for p in "$T/link/" "$T/link"; do
	run why "$p" --json
	json "d['type'] == 'directory' and d['path'] == '/'"
done
run why "$T/link/d" --json
json "d['path'] == '/d'"
run why "$T/link/inside" --json
json "d['path'] == '/inside' and d['type'] == 'symbolic link'"
run block-size "$T/link/d" --json
json "d['block_bytes'] == 65536"
(cd "$T" && run why "link/d" --json)

# ---- directories that are something else's ----
mkdir -p "$T/used/mnt" "$T/used/run"
echo precious >"$T/used/mnt/file"
echo precious >"$T/used/data"
"$CTL" local up "$T/used" >"$T/out" 2>"$T/err" && fail "up among other things"
grep -q "holds 'data' and no cluster: give a new directory" "$T/err" ||
	fail "among other things: $(cat "$T/err")"
[ "$(ls "$T/used" "$T/used/run")" = "$T/used:
data
mnt
run

$T/used/run:" ] || fail "a refused local up left something"

"$CTL" local up "$T/a"$'\n'b >"$T/out" 2>"$T/err" && fail "control characters"
grep -q "control characters" "$T/err" || fail "said: $(cat "$T/err")"
[ -z "$(ls "$T/a"$'\n'b)" ] || fail "control characters: something is left"

# ---- what cannot be done now ----
run local up "$C" -o noatime
grep -q "is mounted already: 'noatime' changes nothing" "$T/err" ||
	fail "options without effect: $(cat "$T/err")"
mount -t tmpfs none "$MNT"
"$CTL" local down "$C" >"$T/out" 2>"$T/err" && fail "down below a mount"
grep -q "another file system is mounted there" "$T/err" ||
	fail "a mount over the mount: $(cat "$T/err")"
umount "$MNT"
# A flush that waits for a daemon: who it is, and what starts it.
crash blockd1
head -c 8M /dev/urandom >"$MNT/big"
"$CTL" local down "$C" >"$T/out" 2>"$T/err" &
down=$!
for _ in $(seq 300); do
	grep -q "blockd1 does not run: interrupt this" "$T/err" && break
	sleep 0.1
done
grep -q "blockd1 does not run: interrupt this.*local up" "$T/err" ||
	fail "waiting for a dead daemon: $(cat "$T/err")"
kill $down
wait $down || true
run local up "$C"
[ "$(stat -c %s "$MNT/big")" = 8388608 ] || fail "the flush was cut off"
run local down "$C"
UPS=()
run "${K[@]}" metad restore "$C/backup" "$T/restored/"
[ -z "$(ls "$T/restored/"*.pid "$T"/*.pid 2>/dev/null)" ] ||
	fail "restore leaves its pid file"
rm -rf "$C/metad1"
(cd "$T" && run "${K[@]}" metad restore "$C/backup" "$C/metad1/")
run local up "$C"
UPS=("$C")
[ "$(cat "$name")" = hello ] || fail "after a restore"

# ---- a daemon that says HELLO, and nothing more ----
# Nobody can come between who has a key.
run local down "$C"
LC_ALL=C sed -i '/^key /d; /^wire /d' "$C/cluster.conf"
run local up "$C"
port=$(LC_ALL=C sed -n 's/^blockd 1 127\.0\.0\.1:\([0-9]*\) .*/\1/p' \
	"$C/cluster.conf")
python3 - "$port" >"$T/mute" <<'PY' &
import socket, sys
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
held = []
while True:
    c, _ = s.accept()
    d = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    d.sendall(c.recv(65536))
    c.sendall(d.recv(65536))
    held += [c, d]
PY
mute=$!
test_cleanup() { kill $mute; }
within 10 test -s "$T/mute" || fail "no mute daemon"
LC_ALL=C sed "s/^\(blockd 1 127\.0\.0\.1\):$port /\1:$(cat "$T/mute") /" \
	"$C/cluster.conf" >"$T/mute.conf"
for what in status stats df "top --count 1 --interval 100ms"; do
	code=0
	# shellcheck disable=SC2086
	"$CTL" -c "$T/mute.conf" --timeout 1s $what >"$T/out" 2>&1 || code=$?
	{ [ $code = 3 ] && grep -q "blockd 1 .*timed out" "$T/out"; } ||
		{ cat "$T/out"; fail "$what of a mute daemon: $code"; }
done

# ---- a daemon that counts more blocks than it lists, or fewer, or lists what
# cannot be ----
python3 - "$port" "$T/lie" >"$T/liar" <<'PY' &
import socket, struct, sys, threading
from wire import crc32c
def forward(a, b, change):
    while len(h := bytearray(a.recv(64, socket.MSG_WAITALL))) == 64:
        op, = struct.unpack_from("<H", h, 6)
        body_len, data_len = struct.unpack_from("<II", h, 48)
        rest = bytearray(a.recv(body_len + data_len, socket.MSG_WAITALL)
                         if body_len + data_len else b"")
        if change and op in (69, 73): # BLK_MAP, BLK_LIST
            with open(sys.argv[2]) as f:
                lie = f.read().strip()
            if op == 69:
                rest[16:20] = b"\xff" * 4 # count
            elif lie == "count":
                rest[9] -= 1
            for at in range(17, body_len if op == 73 else 0, 33): # entries
                if lie == "cut":
                    rest[at + 24:at + 32] = struct.pack("<Q", 1 << 62)
                elif lie == "size":
                    rest[at + 32] = 13
            struct.pack_into("<I", h, 56, crc32c(rest[:body_len]))
            struct.pack_into("<I", h, 60, crc32c(h[:60]))
        b.sendall(h + rest)
    b.close()
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    d = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    for args in ((c, d, False), (d, c, True)):
        threading.Thread(target=forward, args=args, daemon=True).start()
PY
liar=$!
: >"$T/lie"
test_cleanup() { kill $mute $liar; }
within 10 test -s "$T/liar" || fail "no lying daemon"
LC_ALL=C sed "s/^\(blockd 1 127\.0\.0\.1\):$port /\1:$(cat "$T/liar") /" \
	"$C/cluster.conf" >"$T/liar.conf"
code=0
timeout 20 "$CTL" -c "$T/liar.conf" why "$name" >"$T/out" 2>&1 || code=$?
{ [ $code = 3 ] && grep -q "blockd 1 .*list of blocks: Bad message" "$T/out"; } ||
	{ cat "$T/out"; fail "why of a lying daemon: $code"; }
dd if=/dev/zero of="$MNT/wide" bs=1M count=4 conv=fsync status=none # on both
while read -r lie text; do
	echo "$lie" >"$T/lie"
	code=0
	timeout 20 "$CTL" -c "$T/liar.conf" fsck >"$T/out" 2>&1 || code=$?
	{ [ $code = 1 ] && grep -q "$text" "$T/out"; } ||
		{ cat "$T/out"; fail "fsck of a lying daemon, $lie: $code"; }
done <<'L'
count blockd 1 .*Bad message
cut ^wrong: .* on blockd 1 has cut number 4611686018427387904, metadata only
size ^wrong: .* on blockd 1 is of 8192 bytes, the file's blocks are of
L
