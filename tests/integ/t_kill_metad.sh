#!/bin/bash
# kill -9 of the metadata daemon under load: everything fsynced is there.
. "$(dirname "$0")/lib.sh"
need_root
UP_OPTS=${UP_OPTS:-nowriteback}
rounds=${ROUNDS:-3}
cluster_up
mkdir "$MNT/w"
"$TST/integ/acked" write "$MNT/w" "$T/acks" $((rounds * 3 + 2)) 4 &
writer=$!
for _ in $(seq "$rounds"); do
	sleep "1.$((RANDOM % 9))"
	crash metad1
	sleep 0.3
	cluster_up # starts what is not running
done
wait $writer || fail "a writer saw an error (status $?)"
acked_kept
