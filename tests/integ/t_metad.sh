#!/bin/bash
# hail-metad alone: kills, lost connections, wrong peers, full disks.
. "$(dirname "$0")/lib.sh"
for part in life stream sessions cuts stores backup data speed; do
	BIN=$BIN TEST_DIR=$T "$TST/integ/metad_$part"
done
