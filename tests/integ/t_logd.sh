#!/bin/bash
# hail-logd alone, against peers that are old, dead, wrong or greedy.
. "$(dirname "$0")/lib.sh"
run() { BIN=$BIN TEST_DIR=$T "$TST/integ/logd_$1"; }
for part in ops; do run $part; done
