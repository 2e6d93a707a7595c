#!/bin/bash
# Three metads: the one that leads is killed under load, and a follower is;
# everything fsynced is there, and each comes back to where the others are.
. "$(dirname "$0")/lib.sh"
need_root
rounds=${ROUNDS:-3}
cluster_up --metads 3
mkdir "$MNT/w"
"$TST/integ/acked" write "$MNT/w" "$T/acks" $((rounds * 8 + 4)) 4 &
writer=$!
for _ in $(seq "$rounds"); do
	sleep "1.$((RANDOM % 9))"
	was=$(leader)
	[ "$was" != 0 ] || fail "nobody leads"
	crash "metad$was"
	within 10 leads_other "$was" || fail "nobody took over from $was"
	sleep "0.$((RANDOM % 9))"
	metad_start "$was"
	# One that follows is missed by nobody.
	now=$(leader)
	other=$((6 - was - now))
	sleep "1.$((RANDOM % 9))"
	crash "metad$other"
	[ "$(leader)" = "$now" ] || fail "$now does not lead any more"
	metad_start "$other"
done
wait $writer || fail "a writer saw an error (status $?)"

within 20 alike || fail "they differ: $("$CTL" -c "$C/cluster.conf" status)"
acked_kept
