#!/bin/bash
# The databases with their logs in log directories, and the mount killed twenty
# times under each; under logs of which each byte is known, and while they move.
cd "$(dirname "$0")" || exit 1
export ROUNDS=${TIMES:-20}
for t in postgres mariadb redis sqlite rocksdb kill_ring kill_moves; do
	bash "t_log_$t.sh" || { echo "# FAILED: $t"; exit 1; }
done
