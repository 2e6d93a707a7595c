#!/bin/bash
# The metad that leads is stopped, as one of a machine that hangs, and goes on
# when another leads: it finds out, and follows. Two are stopped at once: nobody
# leads, and nothing is lost. Meanwhile files are written, and all that was
# acknowledged is there.
. "$(dirname "$0")/lib.sh"
need_root
rounds=${ROUNDS:-2}
cluster_up --metads 3
within 10 leads || fail "nobody leads"
mkdir "$MNT/w"
"$TST/integ/acked" write "$MNT/w" "$T/acks" $((rounds * 20)) 4 &
writer=$!
follows() { [ "$(metad_json "$1" 'd["state"]')" = follower ]; }
for _ in $(seq "$rounds"); do
	sleep "1.$((RANDOM % 9))"
	was=$(leader)
	stop "metad$was"
	within 15 leads_other "$was" || fail "nobody took over from $was"
	sleep "1.$((RANDOM % 9))"
	go_on
	within 10 follows "$was" || fail "$was does not follow"
	grep -q event=deposed "$C/run/metad$was.log" ||
		fail "$was was not deposed: the test was for nothing"
	# A majority.
	now=$(leader)
	other=$((6 - was - now))
	stop "metad$now" "metad$other"
	sleep "2.$((RANDOM % 9))"
	go_on
	within 15 leads || fail "nobody leads"
done
wait $writer || fail "a writer saw an error (status $?)"
acked_kept
