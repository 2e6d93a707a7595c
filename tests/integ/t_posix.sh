#!/bin/bash
# The facts of tests/integ/posix hold on a mount, as they do on ext4.
. "$(dirname "$0")/lib.sh"
need_root
mkdir "$T/local"
"$TST/integ/posix/posix" "$T/local" >"$T/ext4.tap" 2>&1 ||
	{ grep -v '^ok' "$T/ext4.tap"; fail "the local file system"; }
cluster_up
"$TST/integ/posix/posix" "$MNT" >"$T/hail.tap" 2>&1 ||
	{ grep -v '^ok' "$T/hail.tap"; fail "hailfs"; }
tail -n 1 "$T/hail.tap"
fsck_clean
