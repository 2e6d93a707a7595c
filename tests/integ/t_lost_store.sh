#!/bin/bash
# The disk of a block daemon dies. A new store in its place is not taken for
# the old one; once the loss is accepted all goes on, and fsck names the damage.
. "$(dirname "$0")/lib.sh"
need_root
need python3
K=(-c "$C/cluster.conf")
# pending cuts|purge: how many metad has to do
pending() { "$CTL" "${K[@]}" status | grep -o "$1_pending=[0-9]*" |
	cut -d= -f2; }

cluster_up
for f in hit cut gone; do
	dd if=/dev/urandom of="$MNT/$f" bs=1M count=6 conv=fsync status=none
done
echo kept >"$MNT/kept" # one block; not on the daemon that dies
sync "$MNT/kept"
on=$("$CTL" why "$MNT/kept" --json | python3 -c \
	'import json, sys; print(json.load(sys.stdin)["blocks"][0]["blockd"])')
dead=$((on % 3 + 1))

# ---- dead, and another store in its place ----
code=0
"$CTL" "${K[@]}" blockd give-up $dead >"$T/out" 2>&1 || code=$?
[ $code = 2 ] || fail "give-up without --yes exited with $code"
code=0
"$CTL" "${K[@]}" blockd give-up $dead --yes >"$T/out" 2>&1 || code=$?
{ [ $code = 1 ] && grep -q "nothing is lost" "$T/out"; } ||
	fail "give-up of a store that serves: $code"
crash blockd$dead
mv "$C/blockd$dead" "$T/old-store"
cluster_up # makes an empty one
drop_caches
for _ in $(seq 100); do
	grep -q "blockd give-up" "$C/run/blockd$dead.log" && break
	sleep 0.1
done
grep -q "blockd give-up" "$C/run/blockd$dead.log" || fail "no next step named"
code=0
"$CTL" "${K[@]}" status >"$T/out" 2>"$T/err" || code=$?
{ [ $code = 3 ] && grep -q "blockd $dead .*is refused" "$T/err"; } ||
	{ cat "$T/out" "$T/err" >&2; fail "status of a refused store: $code"; }
code=0
timeout 20 cat "$MNT/hit" >/dev/null 2>"$T/err" || code=$?
{ [ $code = 1 ] && grep -q "Input/output error" "$T/err"; } ||
	fail "a lost block was not EIO: $code $(cat "$T/err")"
[ "$(cat "$MNT/kept")" = kept ] || fail "what is not lost cannot be read"
rm "$MNT/gone"
python3 - "$MNT/cut" <<'PY' &
import os, sys
f = os.open(sys.argv[1], os.O_RDWR)
os.ftruncate(f, 100)
os.fsync(f)
PY
cutter=$!
for i in $(seq 150); do
	[ "$(pending cuts)" = 0 ] || [ "$(pending purge)" = 0 ] || break
	[ "$i" != 150 ] || fail "no truncation or deletion waits"
	sleep 0.1
done
sleep 1
[ "$(pending cuts)" = 1 ] || fail "a truncation did not wait for the store"
[ "$(pending purge)" = 1 ] || fail "a deletion did not wait for the store"
kill -0 $cutter || fail "the fsync after a truncation did not wait"

# ---- the loss is accepted ----
for i in $(seq 150); do # its right to serve has to run out
	"$CTL" "${K[@]}" blockd give-up $dead --yes --json >"$T/out" 2>&1 &&
		break
	[ "$i" != 150 ] || { cat "$T/out" >&2; fail "give-up"; }
	sleep 0.1
done
python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
assert d == {"blockd": int(sys.argv[2]), "given_up": True}, d' "$T/out" $dead ||
	fail "give-up --json"
wait $cutter || fail "the truncation failed"
for i in $(seq 150); do
	[ "$(pending purge)" != 0 ] || break
	[ "$i" != 150 ] || fail "the deletion goes on waiting"
	sleep 0.1
done
drop_caches
timeout 20 cat "$MNT/hit" | wc -c | grep -qx 6291456 || fail "not readable"
[ "$(stat -c %s "$MNT/cut")" = 100 ] || fail "size of the truncated file"
code=0
"$CTL" "${K[@]}" fsck --json >"$T/out" || code=$?
[ $code = 1 ] || fail "fsck exited with $code"
python3 - "$T/out" "$(stat -c %i "$MNT/hit")" <<'PY' ||
import json, sys
d = json.load(open(sys.argv[1]))
assert {f["inode"] for f in d["findings"]} == {int(sys.argv[2])}, d
assert all(f["kind"] == "missing" for f in d["findings"]), d
PY
	{ cat "$T/out" >&2; fail "findings"; }
dd if=/dev/urandom of="$T/new" bs=1M count=6 status=none
cp "$T/new" "$MNT/new"
sync "$MNT/new"
rm "$MNT/hit"

# ---- the old store is found again ----
crash blockd$dead
mv "$C/blockd$dead" "$T/new-store"
mv "$T/old-store" "$C/blockd$dead"
cluster_up
code=0
drop_caches
timeout 20 cat "$MNT/new" >/dev/null 2>"$T/err" || code=$?
[ $code != 0 ] || fail "the store that was given up serves again"
crash blockd$dead
rm -rf "${C:?}/blockd$dead"
mv "$T/new-store" "$C/blockd$dead"
cluster_up
for i in $(seq 100); do
	cmp "$T/new" "$MNT/new" 2>/dev/null && break
	[ "$i" != 100 ] || fail "what was written afterwards"
	sleep 0.1
done
cluster_down
cluster_up
fsck_clean
