#!/bin/bash
# hail-metad alone: kills, lost connections, wrong peers, full disks.
. "$(dirname "$0")/lib.sh"
BIN=$BIN TEST_DIR=$T "$TST/integ/metad_rim"
