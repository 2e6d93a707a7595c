#!/bin/bash
# kill -9 of every process at once, as a crash of the whole machine but for its
# page cache: everything fsynced is there.
. "$(dirname "$0")/lib.sh"
need_root
rounds=${ROUNDS:-3}
cluster_up
mkdir "$MNT/w"
for _ in $(seq "$rounds"); do
	"$TST/integ/acked" write "$MNT/w" "$T/acks" 20 4 2>/dev/null &
	writer=$!
	sleep "1.$((RANDOM % 9))"
	crash mount metad1 blockd1 blockd2 blockd3
	wait $writer || true
	cluster_up
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
done
fsck_clean
