#!/bin/bash
# A power cut of the whole machine at any moment: the cluster's directory lies
# on a loop device over a disk that records every write and flush; images of
# what such a cut would have left are made, mounted and started, and everything
# that was acknowledged before the cut is there.
. "$(dirname "$0")/lib.sh"
need_root
UP_OPTS=${UP_OPTS:-nowriteback}
need losetup mkfs.ext4
SIZE=3072
CUTS=${CUTS:-5}
loops=()
mounts=()
test_cleanup() {
	[ ${#UPS[@]} -gt 0 ] && "$CTL" local down "$C" >/dev/null 2>&1
	UPS=()
	for m in "${mounts[@]}"; do umount -l "$m" 2>/dev/null; done
	for l in "${loops[@]}"; do losetup -d "$l" 2>/dev/null; done
	umount -l "$T/rec" 2>/dev/null
	[ -n "${rec:-}" ] && kill "$rec" 2>/dev/null
}
loop_of() { # FILE: prints the loop device
	losetup --show -f --direct-io=on "$1" 2>/dev/null ||
		losetup --show -f "$1"
}
mkdir "$T/rec" "$T/disk"
"$TST/power/recfs" "$T/log" "$T/counter" $SIZE "$T/rec" &
rec=$!
for _ in $(seq 100); do [ -f "$T/rec/disk" ] && break; sleep 0.05; done
[ -f "$T/rec/disk" ] || fail "recfs does not mount"
dev=$(loop_of "$T/rec/disk") || skip "no loop device"
loops+=("$dev")
mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$dev"
mount -o barrier=1 "$dev" "$T/disk"
mounts+=("$T/disk")
C=$T/disk/c
MNT=$C/mnt
cluster_up
mkdir "$MNT/w"
sync
first=$(od -An -tu8 "$T/counter" | tr -d ' ')
ACK_COUNTER=$T/counter "$TST/integ/acked" write "$MNT/w" "$T/acks" \
	"${SECONDS_OF_LOAD:-6}" 4 || fail "the writer saw an error"
last=$(od -An -tu8 "$T/counter" | tr -d ' ')
cluster_down
umount "$T/disk"
losetup -d "$dev"
loops=()
mounts=()
umount "$T/rec"
wait "$rec" || true
rec=
for i in $(seq "$CUTS"); do
	at=$((first + (last - first) * i / CUTS - RANDOM % 50))
	seed=$((i % 3 == 0 ? 0 : RANDOM + 1))
	"$TST/power/replay" "$T/log" "$T/image" $SIZE $at $seed
	dev=$(loop_of "$T/image")
	loops=("$dev")
	mount "$dev" "$T/disk" || fail "ext4 after a cut at $at seed $seed"
	mounts=("$T/disk")
	cluster_up
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" "$at" ||
		fail "lost after a cut at $at seed $seed"
	fsck_clean
	cluster_down
	umount "$T/disk"
	losetup -d "$dev"
	loops=()
	mounts=()
done
