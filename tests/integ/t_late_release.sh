#!/bin/bash
# A handle is closed and another one of the same file locks: what the kernel
# tells later of the first does not take the lock away.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up -o io_uring=off,max_background=12
head -c 1M /dev/urandom >"$MNT/big"
sync "$MNT/big"
drop_caches
daemons=("$(pid_of blockd1)" "$(pid_of blockd2)" "$(pid_of blockd3)")
test_cleanup() { kill -CONT "${daemons[@]}" 2>/dev/null; }
timeout 30 "$TST/integ/late_release" "$MNT" big 12 "${daemons[@]}" ||
	fail "a lock was lost"
