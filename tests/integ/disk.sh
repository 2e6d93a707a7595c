# A disk that can be made to fail, for the integration tests: ext4 on a loop
# device over tests/power/recfs. Sourced after lib.sh; needs root.
#
#	disk_up MIB DIR		makes it, mounts it at DIR
#	disk_fault write|flush	it fails from now on
#	disk_read_only		it fails, and ext4 has gone read-only
#	disk_mend		it works again; mounted anew, as after a repair
DISK_REC=
DISK_DEV=
DISK_DIR=
disk_up() {
	mkdir -p "$T/rec" "$2"
	DISK_FAULT=$T/fault "$TST/power/recfs" /dev/null "$T/counter" "$1" \
		"$T/rec" &
	DISK_REC=$!
	for _ in $(seq 100); do [ -f "$T/rec/disk" ] && break; sleep 0.05; done
	[ -f "$T/rec/disk" ] || fail "recfs does not mount"
	DISK_DEV=$(losetup --show -f "$T/rec/disk") || skip "no loop device"
	mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 \
		"$DISK_DEV"
	mount -o errors=remount-ro "$DISK_DEV" "$2"
	DISK_DIR=$2
}
disk_fault() { echo "$1" >"$T/fault"; }
disk_read_only() {
	disk_fault write
	for _ in $(seq 100); do
		(touch "$DISK_DIR/lost+found/x" && sync -f "$DISK_DIR") \
			2>/dev/null || true
		findmnt -no OPTIONS "$DISK_DIR" | grep -q '^ro\|emergency_ro' &&
			return
		sleep 0.1
	done
	fail "ext4 does not notice"
}
disk_mend() {
	rm -f "$T/fault"
	umount "$DISK_DIR" || fail "somebody uses the disk"
	e2fsck -p "$DISK_DEV" >"$T/e2fsck" 2>&1 || [ $? = 1 ] ||
		{ cat "$T/e2fsck"; fail "e2fsck"; }
	mount -o errors=remount-ro "$DISK_DEV" "$DISK_DIR"
}
disk_down() { # harmless when there is none
	rm -f "$T/fault"
	[ -z "$DISK_DIR" ] || umount -l "$DISK_DIR" 2>/dev/null || true
	[ -z "$DISK_DEV" ] || losetup -d "$DISK_DEV" 2>/dev/null || true
	umount -l "$T/rec" 2>/dev/null || true
	# It ends with its last use, or now.
	[ -z "$DISK_REC" ] || { kill "$DISK_REC"; wait "$DISK_REC"; } \
		2>/dev/null || true
	DISK_DIR='' DISK_DEV='' DISK_REC=''
}
