#!/bin/bash
# Log directories: kill -9 of the mount under load, of log peers, and of both
# at once; what was acknowledged is there. Of the end of each log nothing but log
# peers had it; the rest may be in the blocks by then, as logs are destaged under
# this load. t_log_options.sh has files of which nothing is in the blocks.
. "$(dirname "$0")/lib.sh"
need_root
rounds=${ROUNDS:-2}
cluster_up
mkdir "$MNT/w"
for i in 0 1 2 3; do
	mkdir "$MNT/w/$i"
	"$CTL" log enable "$MNT/w/$i" >/dev/null || fail "enable"
done
round() {
	"$TST/integ/acked" write "$MNT/w" "$T/acks" 20 4 2>/dev/null &
	writer=$!
	LOGS=1 logs_used
	sleep "1.$((RANDOM % 9))"
	crash "$@"
	wait $writer || true
	cluster_up
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost: $*"
}
for _ in $(seq "$rounds"); do
	round mount
	round mount logd1
	round mount metad1
done
fsck_clean
acked_kept
