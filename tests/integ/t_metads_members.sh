#!/bin/bash
# The group of metads changes under load: each is stopped and started again in
# turn, one is told to lead, a lost disk is replaced, a follower that was away
# gets a snapshot, and one metad becomes three. Everything acknowledged is there.
. "$(dirname "$0")/lib.sh"
need_root
K=(-c "$C/cluster.conf")
ctl() { "$CTL" "${K[@]}" "$@" >"$T/out" 2>&1; }
refused() {
	local says=$1
	shift
	ctl "$@" && fail "hailctl $* is not refused"
	grep -q "$says" "$T/out" || { cat "$T/out" >&2; fail "no '$says'"; }
}
stop_orderly() {
	local p
	p=$(pid_of "metad$1")
	kill -TERM "$p"
	within 15 gone "$p" || fail "metad $1 does not end"
}
state() { metad_json "$1" 'd["state"]'; }
follows() { [ "$(state "$1")" = follower ]; }

# ---- one becomes three ----
cluster_up
mkdir "$MNT/w"
echo first >"$MNT/a"
sync "$MNT/a"
refused "names no other metad" metad add 2
port=$(sed -n 's/^metad  1 127.0.0.1:\([0-9]*\) .*/\1/p' "$C/cluster.conf")
more=()
for id in 2 3; do
	p=$((port + 100 * id))
	while ss -Hltn | grep -q ":$p "; do p=$((p + 1)); done
	more+=("metad $id 127.0.0.1:$p data=$C/metad$id")
	mkdir "$C/metad$id"
done
printf '%s\n' "${more[@]}" >>"$C/cluster.conf"
# The mount would look for others only after it is made anew.
cluster_down
cluster_up
[ "$(leader)" = 1 ] || fail "the old one does not lead"
refused "is none of the group" metad remove 2
ctl metad add 2 || { cat "$T/out" >&2; fail "add 2"; }
ctl metad add 3 --json || { cat "$T/out" >&2; fail "add 3"; }
says_json() { python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
assert d == {"metad": int(sys.argv[2]), "now": sys.argv[3]}, d' "$T/out" "$@" ||
	fail "JSON"; }
says_json 3 "is one of the group"
refused "is one of the group already" metad add 3
refused "leads" metad remove 1
refused "leads already" metad transfer 1
refused "not in the cluster file" metad add 9
refused "no daemon id" metad transfer x
within 10 alike || fail "they differ"

# ---- in turn, under load; from then on with many snapshots ----
METAD_OPTS="--snapshot-bytes 16k"
"$TST/integ/acked" write "$MNT/w" "$T/acks" 50 4 &
writer=$!
for id in 1 2 3; do
	sleep 1
	stop_orderly "$id"
	grep -q stop-timeout "$C/run/metad$id.log" && fail "$id hung"
	within 5 leads || fail "nobody leads"
	metad_start "$id"
	within 10 follows "$id" || fail "$id does not follow"
done
to=$(($(leader) % 3 + 1))
ctl metad transfer $to --json || { cat "$T/out" >&2; fail "transfer"; }
says_json $to leads
[ "$(leader)" = $to ] || fail "$to does not lead"

# ---- a lost disk ----
lost=$((to % 3 + 1))
crash "metad$lost"
rm -r "$C/metad$lost"
mkdir "$C/metad$lost"
timeout 20 "$BIN/hail-metad" --cluster "$C/cluster.conf" --id $lost \
	--foreground >"$T/out" 2>&1 && fail "an empty directory takes part"
grep -q "is one of the group" "$T/out" || fail "not said"
missed() { [ "$(metad_json $to \
	"[o['up'] for o in d['others'] if o['id'] == $lost]")" = '[False]' ]; }
within 5 missed || fail "it is not missed"
refused "does not run" metad transfer $lost
ctl metad remove $lost --json || { cat "$T/out" >&2; fail "remove"; }
says_json $lost "is none of the group any more"
refused "does not run" metad add $lost
metad_start $lost
ctl metad add $lost || { cat "$T/out" >&2; fail "add"; }
grep -q event=snapshot-received "$C/run/metad$lost.log" ||
	fail "it got no snapshot: the test was for nothing"
# It counts: without another one it and the one that leads are a majority.
third=$((6 - to - lost))
crash "metad$third"
timeout 20 mkdir "$MNT/two" || fail "the new one does not count"
# That one was away for long, and gets a snapshot.
wait $writer || fail "a writer saw an error (status $?)"
metad_start $third
within 20 alike || fail "they differ: $("$CTL" "${K[@]}" status)"
[ "$(cat "$MNT/a")" = first ] || fail "lost"
acked_kept
