#!/bin/bash
# io_uring is forbidden: hail-blockd says what to do and harms nothing; a mount
# uses the classic device, and tells when io_uring was asked for.
. "$(dirname "$0")/lib.sh"
need_root
P=/sys/module/fuse/parameters/enable_uring
[ -w $P ] && was=$(cat $P)
test_cleanup() {
	[ -z "${was:-}" ] || echo "$was" >$P
	# A start that failed in part left the others running.
	"$CTL" local down "$C" >/dev/null 2>&1
}
forbid() { "$TST/integ/forbid" "$@"; }
K=(-c "$C/cluster.conf")

# ---- daemons ----
cluster_up
echo before >"$MNT/f"
cluster_down
for how in EPERM ENOSYS; do
	forbid $how "$CTL" local up "$C" >"$T/out" 2>&1 &&
		fail "a cluster without io_uring"
	for say in 'io_uring is forbidden here' kernel.io_uring_disabled \
		seccomp 'blockd1 did not start'; do
		grep -q "$say" "$T/out" || { cat "$T/out"; fail "no '$say'"; }
	done
done
cluster_up
[ "$(cat "$MNT/f")" = before ] || fail "something was harmed"
umount "$MNT"

# ---- the mount ----
told() { # waits for the status the mount sends with its keepalives
	for _ in $(seq 50); do
		"$CTL" "${K[@]}" status --json >"$T/status"
		grep -q "\"io_uring\": \"$1" "$T/status" && return 0
		sleep 0.1
	done
	cat "$T/status" >&2
	fail "status does not tell '$1'"
}
[ -z "${was:-}" ] || echo Y >$P
for how in EPERM ENOSYS; do
	for want in on auto; do
		forbid $how "$CTL" local up "$C" -o io_uring=$want \
			>"$T/out" 2>&1 || { cat "$T/out"; fail "no mount"; }
		case $want in
		on) grep -q 'io_uring=on is ignored; off: ' "$T/out" ||
			{ cat "$T/out"; fail "on: not said"; } ;;
		auto) grep -qi uring "$T/out" &&
			{ cat "$T/out"; fail "auto: said"; } ;;
		esac
		if [ -n "${was:-}" ]; then
			told "off: io_uring is forbidden here"
		else
			told "off: the kernel parameter"
		fi
		[ "$(cat "$MNT/f")" = before ] || fail "$how $want: reading"
		echo "$how $want" >"$MNT/g"
		sync "$MNT/g"
		umount "$MNT"
	done
done
cluster_up
[ "$(cat "$MNT/g")" = "ENOSYS auto" ] || fail "after all"
fsck_clean
