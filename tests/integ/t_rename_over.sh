#!/bin/bash
# A file that was written, closed and renamed over another, without fsync, has
# its content under the new name after the mount was killed: the old one or the
# new one whole, never an empty or a short file. With the kernel's write-back
# cache the close is what hands its pages to the mount.
. "$(dirname "$0")/lib.sh"
need_root
head -c 300000 /dev/zero | tr '\0' o >"$T/old"
head -c 400000 /dev/zero | tr '\0' n >"$T/new"
for mode in writeback nowriteback; do
	cluster_up -o $mode
	cp "$T/old" "$MNT/f"
	sync -f "$MNT"
	# Quiet, and with other dirty files beside it.
	for busy in no yes; do
		[ $busy = no ] || cp "$T/old" "$MNT/other"
		cp "$T/new" "$MNT/tmp"
		mv "$MNT/tmp" "$MNT/f"
		crash mount
		cluster_up -o $mode
		cmp -s "$MNT/f" "$T/new" ||
			fail "$mode: $(stat -c %s "$MNT/f") bytes after mv"
		cp "$T/old" "$MNT/f"
		sync -f "$MNT"
	done
	fsck_clean
	cluster_down
done
