#!/bin/bash
# Of three metads the one that leads is killed, again and again for $SECS
# seconds, each about a second after it came to lead; those that were killed come
# back at once. Programs go on, everything acknowledged is there, the members
# come to be alike.
. "$(dirname "$0")/lib.sh"
need_root
secs=${SECS:-60}
cluster_up --metads 3
mkdir "$MNT/w"
"$TST/integ/acked" write "$MNT/w" "$T/acks" "$secs" 4 &
writer=$!
end=$((SECONDS + secs - 10)) kills=0
while [ $SECONDS -lt $end ]; do
	sleep "$((RANDOM % 2)).$((RANDOM % 9))"
	was=$(leader)
	[ "$was" != 0 ] || fail "nobody leads"
	crash "metad$was"
	kills=$((kills + 1))
	# At times it is back before there is another one.
	[ $((RANDOM % 3)) = 0 ] || within 10 leads_other "$was" ||
		fail "nobody took over from $was"
	metad_start "$was"
	within 10 leads || fail "nobody leads after $was"
done
wait $writer || fail "a writer saw an error (status $?)"
echo "# $kills kills"
[ $kills -ge $((secs / 12)) ] || fail "only $kills kills"

within 20 alike || fail "they differ: $("$CTL" -c "$C/cluster.conf" status)"
acked_kept
