#!/bin/bash
# A program is killed while its copy_file_range waits for the block daemons:
# nothing more is copied, since the kernel keeps what it has of the target.
. "$(dirname "$0")/lib.sh"
need_root
need python3
cluster_up
head -c 8M /dev/urandom >"$MNT/from"
head -c 8M /dev/zero >"$MNT/to"
sync "$MNT/from" "$MNT/to"
drop_caches
seen=$(sha256sum <"$MNT/to")
stop blockd1 blockd2 blockd3
python3 -c '
import os, sys
a, b = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_RDWR)
os.copy_file_range(a, b, 8 << 20)' "$MNT/from" "$MNT/to" &
kill_waiting $!
go_on
# Behind the reads that the copy waits for.
cat "$MNT/from" >/dev/null
[ "$(sha256sum <"$MNT/to")" = "$seen" ] || fail "copied, and seen"
drop_caches
[ "$(sha256sum <"$MNT/to")" = "$seen" ] || fail "copied, and not seen before"
fsck_clean
