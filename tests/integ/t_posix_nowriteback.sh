#!/bin/bash
# The same facts without the kernel's write-back cache, and over TCP, which is
# what peers on other machines get.
. "$(dirname "$0")/lib.sh"
need_root
export HAILFS_TCP=1
cluster_up -o nowriteback
"$TST/integ/posix/posix" "$MNT" >"$T/hail.tap" 2>&1 ||
	{ grep -v '^ok' "$T/hail.tap"; fail "hailfs -o nowriteback"; }
fsck_clean
