#!/bin/bash
# A log peer that hangs is replaced while writes go on, and what it answers when
# it wakes up is nobody's any more.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up --logds 4
mkdir "$MNT/w"
for i in 0 1; do
	mkdir "$MNT/w/$i"
	"$CTL" log enable "$MNT/w/$i" --destage off >/dev/null || fail "enable"
done
"$TST/integ/acked" write "$MNT/w" "$T/acks" 60 2 2>"$T/acked.err" &
writer=$!
count() { grep -c 'event=peer_replaced' "$C/run/mount.log" || true; }
replaced() { [ "$(count)" -gt "$before" ]; }
acks() { stat -c %s "$T/acks"; }
more() { [ "$(acks)" -gt "$had" ]; }
for id in 1 2 3; do
	before=$(count)
	had=$(acks)
	within 20 more || fail "no writes"
	halt "$(pid_of logd$id)"
	within 10 replaced || true # it may not be a peer
	kill -CONT "$(pid_of logd$id)"
	had=$(acks)
	within 20 more || fail "no writes after logd$id woke up"
	kill -0 $writer || fail "the writer ended: $(cat "$T/acked.err")"
done
crash mount
wait $writer || true
cluster_up
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
fsck_clean
acked_kept
