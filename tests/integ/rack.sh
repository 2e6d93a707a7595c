# A rack, for tests of partitions: processes in networks of their own, joined by
# a router that drops one direction of a pair. Sourced after lib.sh.
#
# A network is called by a short name (m, b, c); its address is ${NET[NAME]}.2.
# The cluster file is $C/cluster.conf, pid files and logs are in $C/run.
need_root
need ip nsenter python3
N=hf$$
declare -A NET=()
# test_cleanup() has to call this.
rack_down() {
	heal 2>/dev/null
	umount -l "$MNT" 2>/dev/null
	for f in "$C"/run/*.pid; do
		[ -f "$f" ] && kill -9 "$(cat "$f")" 2>/dev/null
	done
	for n in r "${!NET[@]}"; do ip netns del $N$n 2>/dev/null; done
}
in_net() { nsenter --net=/run/netns/$N"$1" "${@:2}"; }
# What FROM sends to TO is lost.
cut() {
	in_net r ip rule add pref 10 from "${NET[$1]}.2" to "${NET[$2]}.2" \
		blackhole
}
heal() {
	while in_net r ip rule del pref 10 2>/dev/null; do :; done
}
# rack_up NAME...: these networks, the directories, and a key.
rack_up() {
	local i=0 n
	ip netns add ${N}r || skip "no network namespaces"
	in_net r ip link set lo up
	in_net r sysctl -qw net.ipv4.ip_forward=1
	for n in "$@"; do
		i=$((i + 1))
		NET[$n]=10.77.$i
		ip netns add $N$n
		ip link add v$n netns $N$n type veth peer name v$n \
			netns ${N}r || skip "no veth"
		in_net $n ip link set lo up
		in_net $n ip addr add "${NET[$n]}.2/24" dev v$n
		in_net $n ip link set v$n up
		in_net r ip addr add "${NET[$n]}.1/24" dev v$n
		in_net r ip link set v$n up
		in_net $n ip route add default via "${NET[$n]}.1"
	done
	mkdir -p "$C/d" "$C/run" "$MNT"
	"$CTL" key new "$C/cluster.key" >/dev/null || fail "key"
}
# Lines of the cluster file on standard input, after those that all have.
rack_conf() {
	cat - >"$C/conf.rest"
	{
		echo "cluster rack"
		echo "id 0x$(od -An -tx4 -N4 /dev/urandom | tr -d ' ')1"
		echo "replicas 1"
		echo "key cluster.key"
		cat "$C/conf.rest"
	} >"$C/cluster.conf"
}
start() { # NET PROGRAM NAME ARGUMENTS...
	in_net "$1" "$BIN/$2" --cluster "$C/cluster.conf" \
		--log "$C/run/$3.log" --pidfile "$C/run/$3.pid" "${@:4}" \
		>"$T/$3.out" 2>&1 7>&- || { cat "$T/$3.out"; fail "$3"; }
}
rack_mount() { # NET
	in_net "$1" "$BIN/hailfs" \
		-o "log=$C/run/mount.log,pidfile=$C/run/mount.pid" \
		"$C/cluster.conf" "$MNT" || fail "mount"
}
acked_count() { wc -l <"$T/acks"; }
grows() { [ "$(acked_count)" -gt $(($1 + 20)) ]; }
