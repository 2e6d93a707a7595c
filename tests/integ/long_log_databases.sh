#!/bin/bash
# The databases with their logs in log directories, and the mount killed twenty
# times under each; and under logs of which each byte is known.
cd "$(dirname "$0")" || exit 1
for db in postgres mariadb redis sqlite rocksdb; do
	for _ in $(seq "${TIMES:-20}"); do
		ROUNDS=1 bash "t_log_$db.sh" || { echo "# FAILED: $db"; exit 1; }
	done
done
ROUNDS=${TIMES:-20} bash t_log_kill_ring.sh ||
	{ echo "# FAILED: rings"; exit 1; }
