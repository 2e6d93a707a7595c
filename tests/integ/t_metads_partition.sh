#!/bin/bash
# Three metads, each in a network of its own; mount and block daemons reach all.
# The one that leads is cut off from the other two, both ways and one way only:
# those go on without it, it serves nobody and says so, and follows when the
# network is whole. Nobody sees an error, and nothing acknowledged is lost.
# WAYS: both, out (what it sends is lost), in (what is sent to it).
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/rack.sh"
WAYS=${WAYS:-both out in}
test_cleanup() {
	[ -z "${writer:-}" ] || kill -9 "$writer" 2>/dev/null
	rack_down
}
rack_up m1 m2 m3 c
rack_conf <<EOC
metad 1 ${NET[m1]}.2:7000 data=$C/d/metad1
metad 2 ${NET[m2]}.2:7000 data=$C/d/metad2
metad 3 ${NET[m3]}.2:7000 data=$C/d/metad3
blockd 1 ${NET[c]}.2:7101 data=$C/d/blockd1
blockd 2 ${NET[c]}.2:7102 data=$C/d/blockd2
EOC
# hailctl is where the mount is.
printf '#!/bin/bash\nexec nsenter --net=/run/netns/%s "%s" "$@"\n' ${N}c \
	"$CTL" >"$T/hailctl"
chmod 755 "$T/hailctl"
CTL=$T/hailctl
# Each waits for the others.
for id in 1 2 3; do start m$id hail-metad metad$id --id $id & done
wait
for id in 1 2; do start c hail-blockd blockd$id --id $id; done
within 10 leads || fail "nobody leads"
rack_mount c

# ---- cuts under load ----
follows() { [ "$(metad_json "$1" 'd["state"]')" = follower ]; }
leads_none() { [ "$(metad_json "$1" 'd.get("leader")')" = 0 ]; }
has() { [ "$(metad_json "$1" 'd["pos"]')" -ge "$2" ]; }
deposed() { grep -c event=deposed "$C/run/metad$1.log" || true; }
deposed_since() { [ "$(deposed "$1")" -gt "$2" ]; }
mkdir "$MNT/w"
"$TST/integ/acked" write "$MNT/w" "$T/acks" 3600 4 2>"$T/errors" &
writer=$!
within 10 test -s "$T/acks" || fail "nothing is acknowledged"
for way in $WAYS; do
	within 10 leads || fail "$way: nobody leads"
	l=$(leader)
	before=$(deposed "$l")
	for o in 1 2 3; do
		[ $o != "$l" ] || continue
		[ $way = in ] || cut m$l m$o
		[ $way = out ] || cut m$o m$l
	done
	at=$(date +%s%3N)
	# The two go on ...
	within 20 leads_other "$l" || fail "$way: nobody took over from $l"
	now=$(leader)
	acked=$(acked_count)
	within 20 grows "$acked" || fail "$way: the two do not go on"
	echo "# $way: went on after $(($(date +%s%3N) - at)) ms"
	# ... and the one knows it.
	within 10 deposed_since "$l" "$before" || fail "$way: $l not deposed"
	within 10 leads_none "$l" || fail "$way: $l knows of a leader"
	# On its own machine nobody else is reached.
	in_net m$l "$BIN/hailctl" -c "$C/cluster.conf" --timeout 1s sessions \
		>"$T/out" 2>&1 && fail "$way: one of three serves"
	grep -q "no metad leads" "$T/out" ||
		{ cat "$T/out" >&2; fail "$way: not said"; }
	pos=$(metad_json "$now" 'd["pos"]')
	! has "$l" "$pos" || fail "$way: $l has it: the network is whole"
	heal
	within 20 follows "$l" || fail "$way: $l does not follow"
	within 20 has "$l" "$pos" || fail "$way: $l is behind"
done
kill $writer || fail "the writers have ended"
wait $writer || true
writer=
[ -s "$T/errors" ] && { cat "$T/errors"; fail "a writer saw an error"; }
within 20 alike || fail "they differ: $("$CTL" -c "$C/cluster.conf" status)"
drop_caches
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
fsck_clean
umount "$MNT"
