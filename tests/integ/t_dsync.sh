#!/bin/bash
# What a write through an O_DSYNC or O_SYNC handle wrote is durable when it
# returns, direct or not: kill -9 of every process at once leaves it.
. "$(dirname "$0")/lib.sh"
need_root
UP_OPTS=flush_age=1h # nothing leaves the mount but when it is asked for
cluster_up
ways="direct,dsync direct,sync dsync sync"
head -c 200000 /dev/urandom >"$T/in"
for way in $ways; do
	dd if="$T/in" of="$MNT/$way" bs=4k count=40 conv=notrunc oflag="$way" \
		2>"$T/dd" ||
		{ cat "$T/dd" >&2; fail "dd $way"; }
	crash mount metad1 blockd1 blockd2 blockd3
	cluster_up
	cmp -n $((40 * 4096)) "$T/in" "$MNT/$way" >&2 || fail "$way: lost"
done
fsck_clean
