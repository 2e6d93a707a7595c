#!/bin/bash
# What tests over RDMA stand on is there in the guest: devices that reach each
# other, the latency of soft-RoCE, a device that goes away, and a cluster with
# its mount.
. "$(dirname "$0")/lib.sh"

# ---- devices ----
for n in $(seq "$VM_PEERS"); do
	ibv_devinfo -d "rxe$n" >"$T/info" || fail "no device rxe$n"
	grep -q PORT_ACTIVE "$T/info" || { cat "$T/info"; fail "rxe$n"; }
done
[ "$(ulimit -l)" = unlimited ] || fail "locked memory: $(ulimit -l)"

listens() { rdma resource show cm_id | grep -q "LISTEN.*src-addr $1:"; }
# ping FROM TO: over librdmacm, from one peer's address to another's.
ping() {
	local server code=0
	rping -s -a "10.9.0.$2" -C 3 >"$T/rping" 2>&1 &
	server=$!
	until listens "10.9.0.$2"; do
		! gone $server || { cp "$T/rping" "$T/ping"; return 1; }
		sleep 0.05
	done
	timeout -k 1 20 rping -c -I "10.9.0.$1" -a "10.9.0.$2" -C 3 -v \
		>"$T/ping" 2>&1 || code=$?
	kill $server 2>/dev/null || true
	wait $server || true
	[ $code = 0 ] && [ "$(grep -c '^ping data' "$T/ping")" = 3 ]
}
pings() { ping "$1" "$2" || { cat "$T/ping"; fail "$1 does not reach $2"; }; }
pings 1 1
pings 1 2
pings "$VM_PEERS" 1

# ---- latency ----
read -r typical mean < <(write_lat)
[ -n "${mean:-}" ] || fail "no latency"
echo "# figure: ib_write_lat of 128 bytes: typical $typical us, mean $mean us"

# ---- a peer that goes away ----
rdma link delete "rxe$VM_PEERS"
ibv_devinfo -d "rxe$VM_PEERS" >"$T/info" 2>&1 && fail "it is still there"
ping 1 "$VM_PEERS" && fail "reached a peer without a device"
grep -q bind_addr "$T/ping" || { cat "$T/ping"; fail "no other reason"; }
pings 1 2
rdma link add "rxe$VM_PEERS" type rxe netdev "d$VM_PEERS"
pings 1 "$VM_PEERS"

# ---- a cluster ----
cluster_up
findmnt -n "$MNT" | grep -q fuse.hailfs || fail "not mounted"
head -c 3000000 /dev/urandom >"$T/in"
dd if="$T/in" of="$MNT/f" bs=64K conv=fsync 2>"$T/err" ||
	{ cat "$T/err"; fail "writing"; }
drop_caches
cmp "$T/in" "$MNT/f" || fail "other bytes came back"
cluster_down
findmnt -n "$MNT" >/dev/null && fail "still mounted"
cluster_up
cmp "$T/in" "$MNT/f" || fail "other bytes came back after a restart"
fsck_clean
cluster_down
