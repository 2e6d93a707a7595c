#!/bin/bash
# A directory's block size: who may set it, what it is for, and files of the
# smallest and the largest blocks under random operations, holes and a crash.
. "$(dirname "$0")/lib.sh"
need_root
need python3 getfattr setfattr setpriv
A=user.hailfs.block_size

# bytes DIR: as hailctl tells.
bytes() { "$CTL" block-size "$1" --json | python3 -c \
	'import json, sys; print(json.load(sys.stdin)["block_bytes"])'; }
# refused TEXT COMMAND...
refused() {
	local text=$1 code=0
	shift
	"$@" >"$T/out" 2>&1 || code=$?
	[ $code = 1 ] || fail "$* exited with $code"
	grep -q -e "$text" "$T/out" || { cat "$T/out" >&2
		fail "$*: no '$text'"; }
}

cluster_up
mkdir "$MNT/d"
[ "$(bytes "$MNT/d")" = 1048576 ] || fail "the default"
[ -z "$(getfattr -d "$MNT/d")" ] || fail "the default is an attribute"
for wrong in 0 65535 32K 8M 1 "" x; do
	refused "power of two" "$CTL" block-size "$MNT/d" "$wrong"
	! setfattr -n $A -v "$wrong" "$MNT/d" 2>"$T/err" || fail "'$wrong' set"
	grep -q "Invalid argument" "$T/err" || fail "'$wrong': not EINVAL"
done
touch "$MNT/f"
refused "Not a directory" "$CTL" block-size "$MNT/f"
refused "no hailfs mount" "$CTL" block-size "$T" 64K
refused "Permission denied" setpriv --reuid 1000 --regid 1000 --clear-groups \
	"$CTL" block-size "$MNT/d" 64K
"$CTL" block-size "$MNT/d" 64K | grep -q "64.* KiB" || fail "what it says"
[ "$(getfattr --only-values -n $A "$MNT/d")" = 65536 ] || fail "getfattr"
mkdir "$MNT/d/sub"
[ "$(bytes "$MNT/d/sub")" = 65536 ] || fail "not inherited"
setfattr -n $A -v 4M "$MNT/d/sub"
"$CTL" why "$MNT/d/sub" | grep -q "blocks of 4096 KiB" || fail "why of a dir"
setfattr -x $A "$MNT/d/sub"
[ "$(bytes "$MNT/d/sub")" = 1048576 ] || fail "not back to the default"

for size in 64K 4M; do
	W=$MNT/w$size
	mkdir "$W" "$T/local"
	"$CTL" block-size "$W" $size >"$T/out" || fail "set $size"
	"$TST/integ/randops" "$T/local" "$W" "${OPS:-2500}" || fail "$size"
	rm -rf "$T/local" "${W:?}"/*
	dd if=/dev/urandom of="$T/data" bs=1M count=9 status=none
	python3 - "$W/sparse" <<-'PY' || fail "holes at $size"
	import os, sys
	f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
	at = [0, 65536 * 5 - 3, (4 << 20) - 4096, 9 << 20, (33 << 20) + 1]
	for p in at:
	    os.pwrite(f, b"x" * 5000, p)
	os.fsync(f)
	for p in at: # each is found from the hole before it
	    q = os.lseek(f, max(0, p - 100000), os.SEEK_DATA)
	    assert q <= p and p - q < 100000, (p, q)
	    assert os.lseek(f, q, os.SEEK_HOLE) >= p + 5000
	os.ftruncate(f, (9 << 20) + 100)
	os.ftruncate(f, 40 << 20)
	assert os.lseek(f, (9 << 20) + 4096, os.SEEK_HOLE) == (9 << 20) + 4096
	assert os.pread(f, 8192, (9 << 20)) == b"x" * 100 + bytes(8092)
	PY
	cp "$T/data" "$W/data"
	truncate -s 7654321 "$W/data" "$T/data"
	sync "$W/data" "$W/sparse" "$W"
	sha=$(sha256sum <"$W/sparse")
	dd if=/dev/urandom of="$W/unsynced" bs=300000 count=11 status=none
	crash mount blockd1 blockd2 blockd3 metad1
	cluster_up
	cmp "$T/data" "$W/data" || fail "data of $size after a crash"
	[ "$(sha256sum <"$W/sparse")" = "$sha" ] ||
		fail "a sparse file of $size after a crash"
	"$CTL" why "$W/data" --json --limit 0 | python3 -c "
import json, sys
d = json.load(sys.stdin)
n = {'64K': 65536, '4M': 4 << 20}['$size']
assert d['block_bytes'] == n and d['misplaced'] == 0, d
assert d['block_count'] == -(-7654321 // n), d
" || fail "why of a file of $size"
	[ "$(bytes "$W")" != 1048576 ] || fail "the attribute after a crash"
done
cluster_down
cluster_up
fsck_clean
