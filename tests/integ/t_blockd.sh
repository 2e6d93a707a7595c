#!/bin/bash
# hail-blockd alone, against peers that are old, dead, wrong or greedy.
. "$(dirname "$0")/lib.sh"
for part in ops life sessions peers nomem; do
	BIN=$BIN TEST_DIR=$T "$TST/integ/blockd_$part"
done
