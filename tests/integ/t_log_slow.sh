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
LOGS=1 logs_used
count() {
	grep -c 'event=peer_replaced.*error="Success"' "$C/run/mount.log" ||
		true
}
replaced() { [ "$(count)" -gt "$before" ]; }
acks() { stat -c %s "$T/acks"; }
more() { [ "$(acks)" -gt "$had" ]; }
hung=0
for id in 1 2 3; do
	before=$(count)
	had=$(acks)
	within 20 more || fail "no writes"
	halt "$(pid_of logd$id)"
	! within 10 replaced || hung=$((hung + 1))
	kill -CONT "$(pid_of logd$id)"
	had=$(acks)
	within 20 more || fail "no writes after logd$id woke up"
	kill -0 $writer || fail "the writer ended: $(cat "$T/acked.err")"
done
# A log has three of the four. Where the first of these is not one of its peers
# the second is, which the first replaces then, and the third.
[ $hung -gt 1 ] || fail "peers that hang are not replaced"
crash mount
wait $writer || true
cluster_up
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
fsck_clean
acked_kept
