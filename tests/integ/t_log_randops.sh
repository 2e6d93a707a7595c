#!/bin/bash
# As t_randops.sh, with all files log files.
. "$(dirname "$0")/lib.sh"
need_root
export LOGS=1
for opts in nowriteback writeback; do
	cluster_up -o "$opts"
	mkdir "$T/local" "$MNT/r"
	wal_dir "$MNT/r"
	"$TST/integ/randops" "$T/local" "$MNT/r" "${OPS:-4000}" || fail "$opts"
	logs_used
	rm -rf "$T/local" "$MNT/r"
	fsck_clean
	cluster_down
done
