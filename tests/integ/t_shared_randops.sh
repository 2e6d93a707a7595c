#!/bin/bash
# ext4, and one hailfs tree on several mounts, run the same random operations, each
# on any of the mounts, and agree in all that a program can see; also where the files
# have logs until another mount wants them.
. "$(dirname "$0")/lib.sh"
need_root
test_cleanup() { umount -l "$T"/m? 2>/dev/null; }
cluster_up -o shared
others=
for i in 1 2 3; do
	mkdir "$T/m$i"
	mount_at m$i "$T/m$i"
done
for n in 1 3 1log; do # so many others
	mkdir "$T/local" "$MNT/r"
	[ "${n#?}" = log ] && { "$CTL" log enable "$MNT/r" >/dev/null ||
		fail "enable"; }
	n=${n%log}
	others=
	for i in $(seq $n); do others+=:$T/m$i/r; done
	OTHERS=$others "$TST/integ/randops" "$T/local" "$MNT/r" \
		"${OPS:-3000}" || fail "with $n other mounts"
	rm -rf "$T/local" "$MNT/r"
done
opened() {
	"$CTL" -c "$C/cluster.conf" sessions --json | python3 -c '
import json, sys
n = sum(s["status"]["logs"]["opened"] for s in json.load(sys.stdin))
print(f"# {n} logs")
sys.exit(n < 20)'
}
within 5 opened || fail "logs were not used"
for i in 1 2 3; do
	p=$(cat "$T/m$i.pid")
	umount "$T/m$i"
	within 30 gone "$p" || fail "m$i does not end"
done
fsck_clean
