#!/bin/bash
# Several processes write one log file at once, where others write, some of them
# past the kernel's lock (O_DIRECT): what is read then is the result of one order
# of whole writes, and the same after kill -9 of the mount, from the peers'
# memory, and after a restart of everything, from the blocks.
. "$(dirname "$0")/lib.sh"
need_root
need python3
K=(-c "$C/cluster.conf")
lent() { "$CTL" "${K[@]}" status --json | python3 -c '
import json, sys
print(sum(d["lent_bytes"] for d in json.load(sys.stdin)["daemons"]
          if "lent_bytes" in d))'; }
none_lent() { [ "$(lent)" = 0 ]; }
view() { # HOW
	python3 "$TOP/tests/integ/writers.py" check "$MNT/l/f" "$T/acks" ||
		fail "$when: as $1"
}
again() { # HOW: as it was before
	[ "$(view "$1")" = "$was" ] || fail "$when: as $1 it is something else"
}
seed=${SEED:-$RANDOM}
echo "# seed $seed"
# Regions that the longer writes do not fit into; and all of it is in the peers'
# memory alone, or now and then destaged while they write.
for age in 1h 50ms; do
	case $age in 1h) when=close ;; *) when=interval ;; esac
	export UP_OPTS=flush_age=$age
	cluster_up
	mkdir "$MNT/l"
	"$CTL" log enable "$MNT/l" --destage $when --region 64k >/dev/null ||
		fail "enable"
	: >"$T/acks"
	exec 9>>"$MNT/l/f" # its log lives
	for round in 1 2; do
		python3 "$TOP/tests/integ/writers.py" write "$MNT/l/f" \
			"$T/acks" "${WRITES:-150}" $((seed * 2 + round)) ||
			fail "write"
		was=$(view "written")
		[ $round = 1 ] || continue
		crash mount
		exec 9>&-
		cluster_up
		# As the mount tells each second.
		within 5 eval '[ "$(log_counter recovered)" = 1 ]' ||
			fail "nothing was recovered"
		again "recovered"
		exec 9>>"$MNT/l/f"
	done
	"$CTL" log disable "$MNT/l" >/dev/null || fail "disable"
	exec 9>&-
	within 20 none_lent || fail "memory: $(lent)"
	drop_caches
	again "destaged"
	cluster_down
	cluster_up
	again "in the blocks"
	fsck_clean
	cluster_down
	rm -rf "$C"
done
