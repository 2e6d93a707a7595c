#!/bin/bash
# hail-blockd alone, against peers that are old, dead, wrong or greedy.
. "$(dirname "$0")/lib.sh"
BIN=$BIN "$TST/integ/blockd_rim"
