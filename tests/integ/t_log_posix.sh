#!/bin/bash
# The facts of tests/integ/posix hold for log files; with the kernel's write-back
# cache those of hailfs-log(7)'s caveat do not.
. "$(dirname "$0")/lib.sh"
need_root
facts() { # OPTION [PATTERN]
	cluster_up -o "$1"
	LOGS=$1 "$TST/integ/posix/posix" "$MNT" ${2:+"$2"} >"$T/tap" 2>&1 ||
		{ grep -v '^ok' "$T/tap"; fail "$1"; }
	tail -n 1 "$T/tap"
	LOGS=1 logs_used
	fsck_clean
	cluster_down
}
facts writeback
facts nowriteback "times move"
