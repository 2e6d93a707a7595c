#!/bin/bash
# The databases with their logs in log directories, and the mount killed twenty
# times under each; and under logs of which each byte is known.
cd "$(dirname "$0")" || exit 1
export ROUNDS=${TIMES:-20}
for t in postgres mariadb redis sqlite rocksdb kill_ring; do
	bash "t_log_$t.sh" || { echo "# FAILED: $t"; exit 1; }
done
