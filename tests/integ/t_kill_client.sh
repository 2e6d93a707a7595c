#!/bin/bash
# kill -9 of the mount under load, then a new mount: everything fsynced is
# there, also sizes and units that only the dead mount knew.
. "$(dirname "$0")/lib.sh"
need_root
rounds=${ROUNDS:-3} m=0
cluster_up
mkdir "$MNT/w"
: >"$MNT/old"
for _ in $(seq "$rounds"); do
	"$TST/integ/acked" write "$MNT/w" "$T/acks" 20 4 2>/dev/null &
	writer=$!
	sleep "1.$((RANDOM % 9))"
	# Not created or written by this mount: its units are counted, too.
	fallocate -n -l "$((++m))M" "$MNT/old"
	crash mount
	wait $writer || true
	cluster_up
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
done
fsck_clean
[ "$(stat -c %b "$MNT/old")" = $((m * 2048)) ] || fail "not allocated"
