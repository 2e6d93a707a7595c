#!/bin/bash
# A member that has a snapshot is found by a leader that has none and does not
# know what the member has: it is sent the log from its first entry on.
. "$(dirname "$0")/lib.sh"
need_root
K=(-c "$C/cluster.conf")
cluster_up --metads 3
within 10 leads || fail "nobody leads"
l=$(leader)
f=$((l % 3 + 1))
g=$((6 - l - f))
crash "metad$f"
METAD_OPTS="--snapshot-bytes 4k" metad_start $f
mkdir "$MNT/d"
# More entries than are kept behind a snapshot.
fill() {
	for i in $(seq 200); do
		echo "$i" >"$MNT/d/$1$i"
		sync "$MNT/d/$1$i"
	done
}
fill a
has_snapshot() { grep -q "event=snapshot " "$C/run/metad$f.log"; }
within 20 has_snapshot || fail "no snapshot"
crash "metad$f"
# A leader that never heard of it.
"$CTL" "${K[@]}" metad transfer $g >/dev/null || fail "transfer"
follows() { [ "$(metad_json "$1" 'd["state"]')" = follower ]; }
within 10 follows $l || fail "$l does not follow"
missed() { [ "$(metad_json $g \
	"[o['up'] for o in d['others'] if o['id'] == $l]")" = '[True]' ]; }
within 10 missed || fail "$l is missed"
"$CTL" "${K[@]}" metad transfer $l >/dev/null || fail "transfer back"
fill b
METAD_OPTS="--snapshot-bytes 4k" metad_start $f
alike() {
	[ "$(metad_json $f 'd["pos"]')" = "$(metad_json $l 'd["pos"]')" ]
}
within 20 alike || fail "$("$CTL" "${K[@]}" status)"
# It has all that is needed to lead.
"$CTL" "${K[@]}" metad transfer $f >/dev/null || fail "it does not lead"
[ "$(ls "$MNT/d" | wc -l)" = 400 ] || fail "files are missing"
drop_caches
for n in a b; do
	for i in $(seq 200); do echo "$i" | cmp - "$MNT/d/$n$i"; done
done
fsck_clean
