# For scripts that cut the power: sourced after lib.sh. The cluster's directory
# lies on a loop device over a disk that records every write and flush
# (tests/power/recfs.c); images of what a cut would have left are made from that,
# mounted and started.

need_root
need losetup mkfs.ext4
SIZE=3072
loops=()
mounts=()
# A script's own processes on the disk: redefined by those that have some.
power_stop() { :; }
test_cleanup() {
	power_stop
	[ ${#UPS[@]} -gt 0 ] && "$CTL" local down "$C" --yes >/dev/null 2>&1
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
# The clock: how many writes and flushes of the disk there were so far.
power_now() { od -An -tu8 "$T/counter" | tr -d ' '; }
# What was written so far, with nobody writing now, is there after every cut from
# $first on, which is now: logs, too, are in the blocks up to their ends, as sync
# alone does not ask for. The mount tells what it has with each keepalive, of
# which the next may be on its way already, but not the one after that.
power_base() {
	local told
	sync
	told=$(log_status "s['metad']['keepalives']" 2>/dev/null) || told=0
	within 30 power_destaged $((told + 2)) ||
		fail "not in the blocks: $(log_status "s")"
	first=$(power_now)
}
power_destaged() { # KEEPALIVES
	[ "$(log_status "(s['metad']['keepalives'] >= $1 and
		s['metad']['durable_sequence'] == s['metad']['sequence'] and
		all(f['state'] == 'active' and f['destaged'] == f['seq']
		for f in l['files']))" 2>"$T/status")" = True ]
}
# power_choose I: $at and $seed of the cut I of $CUTS between $first and $last. 0
# is at $first itself.
power_choose() {
	at=$((first + (last - first) * $1 / CUTS - RANDOM % 50))
	[ $at -ge "$first" ] || at=$first
	seed=$(($1 > 0 && $1 % 3 == 0 ? 0 : RANDOM + 1))
}
# A cluster on such a disk.
power_begin() {
	mkdir "$T/rec" "$T/disk"
	"$TST/power/recfs" "$T/log" "$T/counter" $SIZE "$T/rec" &
	rec=$!
	for _ in $(seq 100); do [ -f "$T/rec/disk" ] && break; sleep 0.05; done
	[ -f "$T/rec/disk" ] || fail "recfs does not mount"
	dev=$(loop_of "$T/rec/disk") || skip "no loop device"
	loops+=("$dev")
	# ext4 writes its superblock beside its journal: one that is torn is as
	# good as the old or the new one, but for its checksum.
	mkfs.ext4 -q -O ^metadata_csum \
		-E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$dev"
	mount -o barrier=1 "$dev" "$T/disk"
	mounts+=("$T/disk")
	C=$T/disk/c
	MNT=$C/mnt
	cluster_up
}
power_disk_down() {
	cluster_down
	umount "$T/disk"
	losetup -d "$dev"
	loops=()
	mounts=()
}
# The recording is over.
power_end() {
	power_disk_down
	umount "$T/rec"
	wait "$rec" || true
	rec=
}
# power_cut COUNT SEED: the cluster after a cut at that time (replay.c), until
# power_disk_down.
power_cut() {
	"$TST/power/replay" "$T/log" "$T/image" $SIZE "$1" "$2"
	dev=$(loop_of "$T/image")
	loops=("$dev")
	mount "$dev" "$T/disk" || fail "ext4 after a cut at $1 seed $2"
	mounts=("$T/disk")
	cluster_up
}
