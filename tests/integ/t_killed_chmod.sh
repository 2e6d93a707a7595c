#!/bin/bash
# A program is killed while metad does not answer its chmod: the mode that is
# seen meanwhile is not seen for ever.
. "$(dirname "$0")/lib.sh"
need_root
stopped=
test_cleanup() { [ -z "$stopped" ] || kill -CONT "$stopped"; }
mode() { stat -c %a "$MNT/f"; }
cluster_up
echo x >"$MNT/f"
sync "$MNT/f"
[ "$(mode)" = 644 ] || fail "at first"
stopped=$(pid_of metad1)
kill -STOP "$stopped"
chmod 600 "$MNT/f" &
victim=$!
sleep 1.5 # who waits for less is not looked after
kill -KILL $victim
for _ in $(seq 30); do
	kill -0 $victim 2>/dev/null || break
	sleep 0.1
done
kill -0 $victim 2>/dev/null && fail "a killed process still waits"
timeout 2 stat "$MNT/f" >/dev/null || skip "metad was asked"
kill -CONT "$stopped"
stopped=
seen=
for _ in $(seq 50); do
	seen=$(mode)
	[ "$seen" = 600 ] && break
	sleep 0.1
done
drop_caches
[ "$(mode)" = 600 ] || fail "the mode was not set"
[ "$seen" = 600 ] || fail "seen: $seen"
