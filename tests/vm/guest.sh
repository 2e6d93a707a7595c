#!/bin/bash
# First process of the guest once the host's root is there (see init): sets up
# file systems, limits and RDMA devices, runs the command, tells its exit
# status and powers off.
#
# usage: guest.sh SECONDS DIRECTORY COMMAND [ARG...]   (as run.sh says it)
top=$(cd "$(dirname "$0")/../.." && pwd)
limit=$1
cd "$2" || echo "guest.sh: no $2"
shift 2
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 VM_GUEST=1 VM_DISK=/vm
export TEST_DIR=$VM_DISK

file_systems() {
	ln -sfn /proc/self/fd /dev/fd
	ln -sfn fd/0 /dev/stdin
	ln -sfn fd/1 /dev/stdout
	ln -sfn fd/2 /dev/stderr
	mkdir -p /dev/pts /dev/shm $VM_DISK
	mount -t devpts -o ptmxmode=666 none /dev/pts
	mount -t tmpfs none /dev/shm
	mount -t tmpfs -o mode=755 none /run
	mkdir -p /run/lock
	mount /dev/vda $VM_DISK
	modprobe fuse
}

limits() {
	ulimit -l unlimited
	ulimit -n 65536
	echo guest >/proc/sys/kernel/hostname
	grep -qs guest /etc/hosts || echo 127.0.1.1 guest >>/etc/hosts
	echo 1 >/proc/sys/kernel/panic_on_oops
}

# Peer N: the address 10.9.0.N on the Ethernet device dN and the RDMA device
# rxeN. The macvlans are on one dummy, as machines on one switch; that all are
# of this one machine must be allowed.
devices() {
	local m n peer conf=/proc/sys/net/ipv4/conf
	for m in rdma_rxe rdma_ucm ib_uverbs crc32_generic; do
		modprobe $m
	done
	ip link set lo up
	ip link add switch mtu 9000 type dummy
	ip link set switch up
	echo 0 >$conf/all/rp_filter
	for n in $(seq "$VM_PEERS"); do
		ip link add "d$n" link switch address "$(mac "$n")" \
			type macvlan mode bridge
		echo 0 >"$conf/d$n/rp_filter"
		echo 1 >"$conf/d$n/accept_local"
		echo 1 >"$conf/d$n/arp_ignore"
		echo 2 >"$conf/d$n/arp_announce"
		ip addr add "10.9.0.$n/24" dev "d$n"
		ip link set "d$n" up
		rdma link add "rxe$n" type rxe netdev "d$n"
		# Their first resolution would take two seconds.
		for peer in $(seq "$VM_PEERS"); do
			[ "$peer" = "$n" ] || echo "neigh add 10.9.0.$peer" \
				"lladdr $(mac "$peer") dev d$n"
		done | ip -batch -
	done
}
mac() { printf '02:00:0a:09:00:%02x' "$1"; }

# port NAME: the device file of a port of run.sh's.
port() { echo "/dev/$(grep -lx "$1" /sys/class/virtio-ports/*/name |
	cut -d / -f 5)"; }

file_systems
limits
devices
echo up >"$(port status)"
mkfifo /run/out
cat /run/out >"$(port out)" &
cat=$!
exec 3>/run/out
"$top/tests/timed.sh" "$limit" "$@" </dev/null >&3 2>&1 3>&-
code=$?
exec 3>&-
# A process that was left behind may hold it open.
for _ in $(seq 20); do
	kill -0 $cat 2>/dev/null || break
	sleep 0.1
done
echo $code >"$(port status)"
# Nothing has to be written anywhere, and a sync may wait for ever.
echo o >/proc/sysrq-trigger
sleep 60
