#!/bin/bash
# hailctl fsck sees what is there but wrong: data behind a file's end, and blocks
# at a daemon whose they are not.
. "$(dirname "$0")/lib.sh"
need_root
need python3
K=(-c "$C/cluster.conf")

cluster_up
for f in grown placed; do
	dd if=/dev/urandom of="$MNT/$f" bs=1M count=6 conv=fsync status=none
done
fsck_clean
cluster_down
cluster_up
"$CTL" "${K[@]}" metad backup "$T/backup" >/dev/null || fail "backup"
dd if=/dev/urandom of="$MNT/grown" bs=1M count=2 seek=6 conv=notrunc,fsync \
	status=none
for f in grown placed; do stat -c %i "$MNT/$f"; done >"$T/inodes"
# with METADATA: fsck over the stores as they are, into $T/out.
with() {
	local code=0
	cluster_down
	rm -rf "$C/metad1"
	"$CTL" "${K[@]}" metad restore "$1" "$C/metad1" >"$T/restore" 2>&1 ||
		{ cat "$T/restore" >&2; fail "restore"; }
	cluster_up --no-mount
	"$CTL" "${K[@]}" fsck --json --limit 0 >"$T/out" || code=$?
	[ $code = 1 ] || { cat "$T/out" >&2; fail "fsck exited with $code"; }
}
found() { # PYTHON: "of" has, by kind, the inodes' blocks; "i" the inodes
	python3 - "$T" "$1" <<-'PY' || { cat "$T/out" >&2; fail "findings"; }
		import json, sys
		d = json.load(open(sys.argv[1] + "/out"))
		i = [int(x) for x in open(sys.argv[1] + "/inodes")]
		of = {}
		for f in d["findings"]:
		    of.setdefault(f["kind"], set()).add((f["inode"], f["index"]))
		assert eval(sys.argv[2]), of
	PY
}

with "$T/backup"
found 'of["beyond the end"] == {(i[0], 6), (i[0], 7)}'
found '"wrong place" not in of'
# Nobody takes away what a file that is there has.
"$CTL" "${K[@]}" fsck --repair --json --limit 0 >"$T/out" && fail "repaired"
found 'of["beyond the end"] == {(i[0], 6), (i[0], 7)}'

# Metadata whose map has the slots of the first two daemons the other way round.
python3 - "$T/backup" "$T/swapped" <<'PY' || fail "the backup's map"
import struct, sys
from wire import crc32c
b = bytearray(open(sys.argv[1], "rb").read())
length, = struct.unpack_from("<I", b, 32)
assert len(b) == 40 + length, "more than a chunk"
at, places = 40, [] # of the map's bytes: it lies in several records
while at < len(b):
    klen, vlen = struct.unpack_from("<HH", b, at)
    at += 4 + klen + vlen
    if b[at - klen - vlen] == 2:
        places += range(at - vlen, at)
cmap = bytearray(b[p] for p in places)
first = cmap.index(struct.pack("<3H", 0, 1, 2) * 1365)
for slot in range(first, first + 2 * 4096, 2):
    if cmap[slot] < 2:
        cmap[slot] ^= 1
for p, v in zip(places, cmap):
    b[p] = v
header, = struct.unpack_from("<I", b, 28)
struct.pack_into("<I", b, 36, crc32c(b[40:], header))
open(sys.argv[2], "wb").write(b)
PY
with "$T/swapped"
found 'len([x for x in of["wrong place"] if x[0] == i[1]]) == 4'
found 'of["wrong place"] < {(n, b) for n in i for b in range(8)}'
grep -q '"block [0-9]* is on blockd 1, its slot [0-9]* belongs to blockd 2"' \
	"$T/out" || fail "the right daemon is not named"
grep '"block [0-9]* is on blockd 3, its' "$T/out" && fail "blockd 3 is right"
# With the right ones all is in its place again.
with "$T/backup"
found '"wrong place" not in of'
