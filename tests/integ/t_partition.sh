#!/bin/bash
# One-way partitions of a rack: metad, block daemons and the mount each in a
# network of its own, joined by a router that drops one direction of one pair
# for longer than the leases. A block daemon metad does not hear, or that does
# not hear metad, stops serving; what waits goes on when the network is whole,
# nobody sees an error, nothing acknowledged is lost.
# CUTS: FROM>TO:SECONDS, of m, b and c.
. "$(dirname "$0")/lib.sh"
need_root
need ip nsenter
CUTS=${CUTS:-m>b:9 c>m:9}
N=hf$$
declare -A NET=([m]=10.77.1 [b]=10.77.2 [c]=10.77.3)
test_cleanup() {
	heal 2>/dev/null
	[ -z "${writer:-}" ] || kill -9 "$writer" 2>/dev/null
	umount -l "$MNT" 2>/dev/null
	for f in "$C"/*.pid; do
		[ -f "$f" ] && kill -9 "$(cat "$f")" 2>/dev/null
	done
	for n in r m b c; do ip netns del $N$n 2>/dev/null; done
}
in_net() { nsenter --net=/run/netns/$N"$1" "${@:2}"; }
cut() { # FROM TO
	in_net r ip rule add pref 10 from "${NET[$1]}.2" to "${NET[$2]}.2" \
		blackhole
}
heal() {
	while in_net r ip rule del pref 10 2>/dev/null; do :; done
}
wait_for() { # SECONDS COMMAND...
	for _ in $(seq $(($1 * 10))); do
		"${@:2}" >/dev/null 2>&1 && return
		sleep 0.1
	done
	fail "not within $1 s: ${*:2}"
}
acked_count() { wc -l <"$T/acks"; }
grows() { [ "$(acked_count)" -gt $(($1 + 20)) ]; }
# leases YES|NO: what all block daemons say of their lease
leases() {
	in_net b "$CTL" -c "$C/cluster.conf" status --json 2>/dev/null |
		python3 -c "import json, sys
d = json.load(sys.stdin)['daemons']
v = [x.get('lease') for x in d if x['program'] == 'hail-blockd']
sys.exit(v != [$1] * 2)"
}

# ---- the rack ----
need python3
ip netns add ${N}r || skip "no network namespaces"
in_net r ip link set lo up
in_net r sysctl -qw net.ipv4.ip_forward=1
for n in m b c; do
	ip netns add $N$n
	ip link add v$n netns $N$n type veth peer name v$n netns ${N}r ||
		skip "no veth"
	in_net $n ip link set lo up
	in_net $n ip addr add "${NET[$n]}.2/24" dev v$n
	in_net $n ip link set v$n up
	in_net r ip addr add "${NET[$n]}.1/24" dev v$n
	in_net r ip link set v$n up
	in_net $n ip route add default via "${NET[$n]}.1"
done
mkdir -p "$C/d" "$C/run" "$MNT"
"$CTL" key new "$C/cluster.key" >/dev/null || fail "key"
cat >"$C/cluster.conf" <<EOF
cluster rack
id 0x$(od -An -tx4 -N4 /dev/urandom | tr -d ' ')1
replicas 1
key cluster.key
metad 1 ${NET[m]}.2:7000 data=$C/d/metad1
blockd 1 ${NET[b]}.2:7101 data=$C/d/blockd1
blockd 2 ${NET[b]}.2:7102 data=$C/d/blockd2
EOF
start() { # NET PROGRAM NAME ARGUMENTS...
	in_net "$1" "$BIN/$2" --cluster "$C/cluster.conf" \
		--log "$C/run/$3.log" --pidfile "$C/$3.pid" "${@:4}" \
		>"$T/out" 2>&1 7>&- || { cat "$T/out"; fail "$3"; }
}
start m hail-metad metad1 --id 1
start b hail-blockd blockd1 --id 1
start b hail-blockd blockd2 --id 2
in_net c "$BIN/hailfs" -o "log=$C/run/mount.log,pidfile=$C/mount.pid" \
	"$C/cluster.conf" "$MNT" || fail "mount"

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
