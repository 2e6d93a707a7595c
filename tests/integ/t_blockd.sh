#!/bin/bash
# hail-blockd alone, against peers that are old, dead, wrong or greedy.
. "$(dirname "$0")/lib.sh"
run() { BIN=$BIN TEST_DIR=$T "$TST/integ/blockd_$1"; }
# These wait more than they work: for leases and silences of some seconds.
for part in sessions peers; do
	run $part >"$T/$part.out" 2>&1 &
	pids[$!]=$part
done
for part in ops life nomem; do run $part; done
code=0
for pid in "${!pids[@]}"; do
	wait "$pid" || code=1
	cat "$T/${pids[pid]}.out"
done
exit $code
