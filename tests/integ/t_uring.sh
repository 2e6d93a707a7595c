#!/bin/bash
# The facts of POSIX over FUSE's io_uring transport.
. "$(dirname "$0")/lib.sh"
need_root
P=/sys/module/fuse/parameters/enable_uring
[ -w $P ] || skip "this kernel has no FUSE over io_uring"
was=$(cat $P)
test_cleanup() { echo "$was" >$P; }
echo Y >$P
cluster_up -o io_uring=on
told() { # the mount tells metad with its keepalives
	for _ in $(seq 50); do
		"$CTL" -c "$C/cluster.conf" status --json >"$T/status"
		grep -q "$1" "$T/status" && return 0
		sleep 0.1
	done
	cat "$T/status"
	return 1
}
told 'on: asked for' || fail "status does not tell"
"$TST/integ/posix/posix" "$MNT" >"$T/tap" 2>&1 ||
	{ grep -v '^ok' "$T/tap"; fail "over io_uring"; }
fsck_clean
cluster_down
cluster_up -o io_uring=auto
told "\(on\|off\): measured .* classic [1-9].* io_uring [1-9]" || fail "auto did not measure"
