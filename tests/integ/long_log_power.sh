#!/bin/bash
# Power cuts of everything under databases whose logs are in log directories:
# many more of them than t_log_power_*.sh.
cd "$(dirname "$0")" || exit 1
for _ in $(seq "${TIMES:-5}"); do
	for t in cut ring postgres mariadb; do
		CUTS=${CUTS:-12} SECONDS_OF_LOAD=12 bash "t_log_power_$t.sh" ||
			{ echo "# FAILED: $t"; exit 1; }
	done
done
