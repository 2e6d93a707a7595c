#!/bin/bash
# The metad that leads is killed while it takes one in whose disk was lost: the
# change is done or is not, and can be said again; all members come to be alike,
# and everything acknowledged is there.
. "$(dirname "$0")/lib.sh"
need_root
rounds=${ROUNDS:-20}
K=(-c "$C/cluster.conf")
ctl() { "$CTL" "${K[@]}" "$@" >"$T/out" 2>&1; }
cluster_up --metads 3
within 10 leads || fail "nobody leads"
mkdir "$MNT/w"
"$TST/integ/acked" write "$MNT/w" "$T/acks" $((rounds * 10)) 4 &
writer=$!
added() { ctl metad add "$1" || grep -q "one of the group already" "$T/out"; }
cut=0
for i in $(seq "$rounds"); do
	l=$(leader)
	[ "$l" != 0 ] || fail "round $i: nobody leads"
	f=$((l % 3 + 1))
	crash "metad$f"
	rm -r "$C/metad$f"
	mkdir "$C/metad$f"
	ctl metad remove $f || { cat "$T/out" >&2; fail "round $i: remove"; }
	metad_start $f
	"$CTL" "${K[@]}" metad add $f >"$T/add" 2>&1 &
	adds=$!
	sleep "0.$((RANDOM % 4))"
	crash "metad$l"
	wait $adds || cut=$((cut + 1))
	metad_start "$l"
	within 20 leads || fail "round $i: nobody leads"
	within 30 added $f || { cat "$T/out" >&2; fail "round $i: add"; }
done
echo "# $rounds rounds, $cut of them cut off"
[ $cut -gt 0 ] || fail "no change was cut off: the test was for nothing"
wait $writer || fail "a writer saw an error (status $?)"
within 20 alike || fail "they differ: $("$CTL" "${K[@]}" status)"
acked_kept
