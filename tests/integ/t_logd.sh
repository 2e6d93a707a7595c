#!/bin/bash
# hail-logd alone, against peers that are old, dead, wrong or greedy.
. "$(dirname "$0")/lib.sh"
run() { BIN=$BIN TEST_DIR=$T "$TST/integ/logd_$1"; }
# These wait more than they work: for leases, deadlines and silences.
for part in life peers; do
	run $part >"$T/$part.out" 2>&1 &
	pids[$!]=$part
done
code=0
run ops || code=1
for pid in "${!pids[@]}"; do
	wait "$pid" || code=1
	cat "$T/${pids[pid]}.out"
done
exit $code
