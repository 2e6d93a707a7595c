#!/bin/bash
# hailctl fsck sees what is missing and what is too much: metadata of yesterday
# over the blocks of today.
. "$(dirname "$0")/lib.sh"
need_root
need python3
K=(-c "$C/cluster.conf")

cluster_up
dd if=/dev/urandom of="$MNT/gone" bs=1M count=3 conv=fsync status=none
dd if=/dev/urandom of="$MNT/cut" bs=1M count=3 conv=fsync status=none
echo kept >"$MNT/kept"
sync "$MNT/kept"
cluster_down
cluster_up
fsck_clean
# Who is not asked has lost nothing.
grep -v '^blockd *2 ' "$C/cluster.conf" >"$T/less.conf"
"$CTL" -c "$T/less.conf" fsck >"$T/out" 2>&1 && fail "a daemon was left out"
grep -q "does not name blockd 2" "$T/out" && ! grep -q missing "$T/out" ||
	fail "a daemon was left out: $(cat "$T/out")"
"$CTL" "${K[@]}" metad backup "$T/backup" >/dev/null || fail "backup"
rm "$MNT/gone"
truncate -s 1M "$MNT/cut"
dd if=/dev/urandom of="$MNT/later" bs=1M count=4 conv=fsync status=none
for _ in $(seq 100); do # its blocks go behind its back
	"$CTL" "${K[@]}" stats --json | grep -q '"purged": [1-9]' && break
	sleep 0.1
done
cluster_down
mv "$C/metad1" "$T/metad1.old"
"$CTL" "${K[@]}" metad restore "$T/backup" "$C/metad1" >"$T/restore" 2>&1 ||
	{ cat "$T/restore" >&2; fail "restore"; }
cluster_up
code=0
"$CTL" "${K[@]}" fsck --json >"$T/out" || code=$?
[ $code = 1 ] || fail "fsck exited with $code"
python3 - "$T/out" "$(stat -c %i "$MNT/gone")" "$(stat -c %i "$MNT/cut")" \
	<<'PY' || { cat "$T/out" >&2; fail "findings"; }
import json, sys
d = json.load(open(sys.argv[1]))
missing = {f["inode"] for f in d["findings"] if f["kind"] == "missing"}
assert not d["clean"] and missing == {int(sys.argv[2]), int(sys.argv[3])}
extra = [f for f in d["findings"] if f["kind"] == "extra"]
assert len(extra) == 4 and len({f["inode"] for f in extra}) == 1, extra
assert d["repaired"] == 0
PY

# ---- repair: what is nobody's goes, counts become right, data stays ----
sum=$(cat "$MNT/gone" "$MNT/cut" "$MNT/kept" | sha256sum)
code=0
"$CTL" "${K[@]}" fsck --repair --json >"$T/out" || code=$?
[ $code = 1 ] || fail "fsck --repair with lost data exited with $code"
python3 - "$T/out" <<'PY' || { cat "$T/out" >&2; fail "what was repaired"; }
import json, sys
d = json.load(open(sys.argv[1]))
assert d["found"] == 6 and d["repaired"] == 4, d
PY
fsck_clean
drop_caches
[ "$(cat "$MNT/gone" "$MNT/cut" "$MNT/kept" | sha256sum)" = "$sum" ] ||
	fail "a repair changed data"
[ "$(stat -c %s "$MNT/cut")" = 3145728 ] || fail "a repair changed a size"
"$CTL" "${K[@]}" fsck --repair >"$T/out" || fail "nothing to repair"
[ "$(cat "$MNT/kept")" = kept ] || fail "a file that is there"
