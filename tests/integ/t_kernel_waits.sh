#!/bin/bash
# The kernel's writing back has no process. It waits for stopped block daemons
# longer than a killed process would, with a full buffer in the mount: nobody
# sees an error; a killed writer still ends at once.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up -o writeback,wb_size=1m
head -c 16M /dev/urandom >"$T/data"
stop blockd1 blockd2 blockd3
# Its close waits for the kernel to hand over its pages.
cp "$T/data" "$MNT/a" 2>"$T/cp.err" &
copier=$!
dd if="$T/data" of="$MNT/b" bs=1M conv=fsync status=none 2>"$T/dd.err" &
writer=$!
sleep 4
kill -0 $writer || fail "fsync ended without a disk"
# A killed one need not wait: its own request has a process.
dd if="$T/data" of="$MNT/c" bs=1M oflag=direct status=none &
kill_waiting $!
go_on
wait $writer || fail "written: $(cat "$T/dd.err")"
wait $copier || fail "copied: $(cat "$T/cp.err")"
drop_caches
cmp "$T/data" "$MNT/a" || fail "a"
cmp "$T/data" "$MNT/b" || fail "b"
fsck_clean
