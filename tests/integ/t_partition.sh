#!/bin/bash
# One-way partitions of a rack: metad, block daemons and the mount each in a
# network of its own, joined by a router that drops one direction of one pair
# for longer than the leases. A block daemon metad does not hear, or that does
# not hear metad, stops serving; what waits goes on when the network is whole,
# nobody sees an error, nothing acknowledged is lost.
# CUTS: FROM>TO:SECONDS, of m, b and c.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/rack.sh"
CUTS=${CUTS:-m>b:9 c>m:9}
test_cleanup() {
	[ -z "${writer:-}" ] || kill -9 "$writer" 2>/dev/null
	rack_down
}
wait_for() { # SECONDS COMMAND...
	for _ in $(seq $(($1 * 10))); do
		"${@:2}" >/dev/null 2>&1 && return
		sleep 0.1
	done
	fail "not within $1 s: ${*:2}"
}
# leases YES|NO: what all block daemons say of their lease
leases() {
	in_net b "$CTL" -c "$C/cluster.conf" status --json 2>/dev/null |
		python3 -c "import json, sys
d = json.load(sys.stdin)['daemons']
v = [x.get('lease') for x in d if x['program'] == 'hail-blockd']
sys.exit(v != [$1] * 2)"
}

# ---- the rack ----
rack_up m b c
rack_conf <<CONF
metad 1 ${NET[m]}.2:7000 data=$C/d/metad1
blockd 1 ${NET[b]}.2:7101 data=$C/d/blockd1
blockd 2 ${NET[b]}.2:7102 data=$C/d/blockd2
CONF
start m hail-metad metad1 --id 1
start b hail-blockd blockd1 --id 1
start b hail-blockd blockd2 --id 2
rack_mount c

# ---- cuts under load ----
mkdir "$MNT/w"
"$TST/integ/acked" write "$MNT/w" "$T/acks" 3600 4 2>"$T/errors" &
writer=$!
sleep 1.5
for s in $CUTS; do
	pair=${s%:*}
	from=${pair%>*}
	to=${pair#*>}
	cut $from $to
	sleep $((${s#*:} - 2))
	case $pair in
	"m>b"|"b>m")
		[ "${s#*:}" -lt 9 ] || wait_for 1 leases False ;;
	*)	leases True || fail "$pair: the leases have nothing to do with it"
	esac
	before=$(acked_count)
	sleep 1
	[ "$pair" = "m>c" ] || [ "${s#*:}" -lt 9 ] ||
		[ "$(acked_count)" -le $((before + 4)) ] ||
		fail "$pair: acknowledged without $pair"
	sleep 1
	heal
	healed=$(date +%s%3N)
	wait_for 15 leases True
	before=$(acked_count)
	wait_for 25 grows "$before"
	echo "# $s: went on after $(($(date +%s%3N) - healed)) ms"
done
kill $writer || fail "the writers have ended"
wait $writer || true
[ -s "$T/errors" ] && { cat "$T/errors"; fail "a writer saw an error"; }
grep -h 'fence\|lost=yes' "$C"/run/*.log && fail "somebody was fenced"
drop_caches
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
in_net c "$CTL" -c "$C/cluster.conf" fsck >"$T/fsck" 2>&1 ||
	{ cat "$T/fsck"; fail "fsck"; }
umount "$MNT"
