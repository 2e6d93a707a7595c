#!/bin/bash
# hail-metad --copy: when its own disk is lost, the copy on another one has all
# that was done up to moments before; while it is kept the disk of the copy may
# fill, end and come back, and nobody waits for it.
. "$(dirname "$0")/lib.sh"
need_root
need python3
conf=$C/cluster.conf
copy=$T/copy
cluster_up --blockds 2
cluster_down
sed -i "/^metad /s|\$| copy=$copy snapshot-bytes=4k|" "$conf"
cluster_up
state() { "$CTL" -c "$conf" status --json | python3 -c '
import json, sys
print([d for d in json.load(sys.stdin)["daemons"] if "metad" in d["program"]
      ][0].get("copy"))'; }
until_state() { until [ "$(state)" = "$1" ]; do sleep 0.05; done; }
list() { (cd "$MNT" && find . | sort && cat ./*/f* 2>/dev/null | md5sum); }
# The metadata go; what the copy has comes in their place.
restore() {
	rm -rf "$C/metad1"
	"$CTL" -c "$conf" metad restore "$1" "$C/metad1" >"$T/out" 2>&1 ||
		{ cat "$T/out"; fail "restore of $1"; }
	cluster_up
}
until_state ok
mkdir "$MNT/d"
for i in $(seq 200); do echo "$i" >"$MNT/d/f$i"; done
sync "$MNT"/d/f* "$MNT/d"

# Killed: what the copy had a moment later, which needs no orderly stop.
touch "$MNT/d/the-last-one"
sync "$MNT/d"
until grep -aq the-last-one "$copy"/log-*; do sleep 0.05; done
list >"$T/want"
crash metad1
umount -l "$MNT"
restore "$copy"
list | cmp - "$T/want" || fail "after a kill the copy has not all"
# The old generation stays until a new one is whole; then one is kept.
until_state ok
[ "$(find "$copy" -name 'base-*' | wc -l)" = 1 ] || fail "$(ls "$copy")"
fsck_clean

# An orderly stop leaves nothing out of what a copy follows.
cluster_down
cp -a "$C/metad1" "$T/older"
cluster_up
until_state ok
for i in $(seq 300 400); do echo "$i" >"$MNT/d/f$i"; done
rm "$MNT/d/f7"
list >"$T/want"
cluster_down
restore "$copy"
list | cmp - "$T/want" || fail "after a stop the copy has not all"
until_state ok
# A restore leaves the copy it came from alone until then.
cluster_down
cp -a "$copy" "$T/copy2"

# A torn end is left out, a base alone will do, and no copy is said.
truncate -s -3 "$T/copy2"/log-*
cp -a "$T/copy2" "$T/copy3"
restore "$T/copy2"
[ -e "$MNT/d/f300" ] || fail "torn"
cluster_down
rm "$T/copy3"/log-*
restore "$T/copy3"
[ -e "$MNT/d/f300" ] || fail "base alone"
cluster_down
mkdir "$T/empty"
rm -rf "$C/metad1"
"$CTL" -c "$conf" metad restore "$T/empty" "$C/metad1" >"$T/out" 2>&1 &&
	fail "restored from nothing"
grep -q "has no copy" "$T/out" || { cat "$T/out"; fail "nothing: not said"; }
restore "$T/copy3"

# A copy that cannot be kept: said, waited for by nobody, begun anew.
until_state ok
mkdir "$T/small"
mount -t tmpfs -o size=64k none "$T/small"
test_cleanup() { umount -l "$T/small" 2>/dev/null; }
cluster_down
sed -i "/^metad /s|copy=[^ ]*|copy=$T/small/c|" "$conf"
cluster_up
for i in $(seq 2000); do : >"$MNT/d/more-$i"; done
sync "$MNT/d"
until_state "No space left on device"
echo still >"$MNT/d/still"
sync "$MNT/d/still"
mount -o remount,size=64m "$T/small"
until_state ok
list >"$T/want"
cluster_down
restore "$T/small/c"
list | cmp - "$T/want" || fail "the copy begun anew has not all"

# Two on one directory.
cp -a "$C/metad1" "$T/twin"
"$BIN/hail-metad" -f -c "$conf" -i 1 --data "$T/twin" \
	--copy "$T/small/c" >"$T/out" 2>&1 && fail "two copies in one place"
grep -q "in use by another" "$T/out" || { cat "$T/out"; fail "not said"; }
fsck_clean
