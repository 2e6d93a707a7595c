#!/bin/bash
# hail-metad alone: kills, lost connections, wrong peers, full disks.
. "$(dirname "$0")/lib.sh"
run() { BIN=$BIN TEST_DIR=$T "$TST/integ/metad_$1"; }
# These wait more than they work: for leases and silences of some seconds.
for part in sessions cuts stores logs share heir stale; do
	run $part >"$T/$part.out" 2>&1 &
	pids[$!]=$part
done
for part in life stream backup data; do run $part; done
code=0
for pid in "${!pids[@]}"; do
	wait "$pid" || code=1
	cat "$T/${pids[pid]}.out"
done
run speed # alone: it measures
exit $code
