#!/bin/bash
# A mount alone answers changes of names before metad has heard of them. Killed
# metads lose none; a mount that is killed loses the last ones at most, in
# order, and none that was fsynced; and while metad is silent it goes on, up to
# a limit.
. "$(dirname "$0")/lib.sh"
need_root
need python3
round=0
names() { python3 "$TOP/tests/integ/early_names.py" "$@"; }
storm() { # [nosync]: in a directory of its own, in the background: $storm
	round=$((round + 1))
	mkdir "$MNT/w$round"
	names run "$MNT/w$round" "$T/log$round" "$@" 2>"$T/storm.err" &
	storm=$!
	within 20 test -s "$T/log$round" || fail "no storm"
	sleep "1.$((RANDOM % 9))"
}
calm() {
	: >"$T/log$round.stop"
	wait $storm || { cat "$T/storm.err" >&2; fail "the storm saw an error"; }
}
answered() { awk '{ print $1 }' "$T/log$round"; }

cluster_up
storm
for _ in 1 2; do
	crash metad1
	sleep 0.3
	cluster_up
	sleep 1
done
calm
names check "$MNT/w$round" "$T/log$round" all || fail "metad killed"

for what in mount 'mount metad1'; do
	storm
	crash $what
	wait $storm && fail "no error without a mount"
	umount -l "$MNT" 2>/dev/null || true
	cluster_up
	names check "$MNT/w$round" "$T/log$round" || fail "$what killed"
done

# Enough for a moment, and no more than is remembered.
storm nosync
stop metad1
before=$(answered)
sleep 2
during=$(answered)
sleep 1
[ "$(answered)" = "$during" ] || fail "no limit: $before, $during, $(answered)"
[ $((during - before)) -ge 100 ] || fail "it waits: $before, $during"
echo "# $((during - before)) while metad was silent"
go_on
sleep 0.5
calm
names check "$MNT/w$round" "$T/log$round" all || fail "metad stopped"
[ "$(answered)" -gt "$during" ] || fail "it does not go on"

cluster_down
cluster_up
names check "$MNT/w$round" "$T/log$round" all || fail "mounted again"
! grep -q "event=refused_late\|event=early_differs\|replay_differs" \
	"$C"/run/mount.log || fail "metad came to something else"
fsck_clean
