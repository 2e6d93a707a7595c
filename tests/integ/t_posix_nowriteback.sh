#!/bin/bash
# The same facts with the kernel's write-back cache.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up -o writeback
"$TST/integ/posix/posix" "$MNT" >"$T/hail.tap" 2>&1 ||
	{ grep -v '^ok' "$T/hail.tap"; fail "hailfs -o writeback"; }
fsck_clean
