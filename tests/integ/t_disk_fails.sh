#!/bin/bash
# A disk fails under load, under a block daemon and under hail-metad: flushes,
# then writes, after which ext4 is read-only. Who has it stops and says so,
# programs get an error in bounded time, and with a good disk again everything
# acknowledged is there.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
need_root
need losetup mkfs.ext4 e2fsck
K=(-c "$C/cluster.conf")
run=0
test_cleanup() {
	rm -f "$T/fault"
	[ ${#UPS[@]} = 0 ] || "$CTL" local up "$C" >/dev/null 2>&1
	"$CTL" local down "$C" >/dev/null 2>&1 && UPS=()
	disk_down
}
has() { # SECONDS PATTERN FILE: what comes within that time
	for _ in $(seq $(($1 * 20))); do
		grep -q "$2" "$3" && return
		sleep 0.05
	done
	cat "$3" >&2
	fail "no '$2' in $3"
}
ended() { # SECONDS PID: ends within that time
	for _ in $(seq $(($1 * 20))); do
		kill -0 "$2" 2>/dev/null || return 0
		sleep 0.05
	done
	fail "process $2 does not end"
}
load() { # starts writers that will see an error
	run=$((run + 1))
	mkdir -p "$MNT/w$run"
	"$TST/integ/acked" write "$MNT/w$run" "$T/acks$run" 600 4 \
		2>"$T/writers" &
	writer=$!
	sleep 1
}
load_failed() { # PATTERN: of errors they may see; within 10 s
	local code=0
	ended 10 $writer
	wait $writer || code=$?
	[ $code = 3 ] || fail "writers ended with $code"
	grep -vE "acked: thread [0-9]+: ($1)\$" "$T/writers" &&
		fail "not an error to be expected"
	return 0
}
verify() {
	for i in $(seq $run); do
		"$TST/integ/acked" verify "$MNT/w$i" "$T/acks$i" ||
			fail "lost in run $i"
	done
}

# ---- a block daemon ----
head -c 8M /dev/urandom >"$T/z"
mkdir -p "$C"
disk_up 700 "$C/blockd2"
cluster_up -o nowriteback
for kind in flush write; do
	load
	: >"$C/run/blockd2.log"
	disk_fault $kind
	has 5 'event=stopped reason=".*the store is read-only until the daemon is restarted"' \
		"$C/run/blockd2.log"
	load_failed 'Input/output error|Read-only file system'
	# What others have is served on; what this one has is still read.
	timeout 10 "$TST/integ/acked" verify "$MNT/w$run" "$T/acks$run" ||
		fail "reading from a stopped store"
	cp "$T/z" "$MNT/z" 2>/dev/null || true # its close may know
	for _ in 1 2 3; do # and it is not forgotten
		timeout 10 sync "$MNT/z" 2>"$T/err" &&
			fail "fsync without a disk"
	done
	code=0
	"$CTL" "${K[@]}" status >"$T/status" 2>"$T/err" || code=$?
	[ $code = 3 ] || fail "status exited with $code"
	grep -q 'blockd 2 .*is read-only: .*restarted' "$T/err" ||
		{ cat "$T/err"; fail "status does not tell"; }
	# Stopping it loses nothing; started on the bad disk, it says why not.
	pid=$(pid_of blockd2)
	kill "$pid"
	ended 20 "$pid"
	if [ $kind = write ]; then
		disk_read_only
		"$CTL" local up "$C" >"$T/out" 2>&1 &&
			fail "started on a broken disk"
		grep -q "hail-blockd: $C/blockd2.*Read-only file system" \
			"$T/out" || { cat "$T/out"; fail "start: not said"; }
	fi
	disk_mend
	cluster_up
	# What was written when it could not be kept is kept now.
	timeout 10 sync "$MNT/z" || fail "fsync with a good disk"
	drop_caches
	cmp "$T/z" "$MNT/z" || fail "what waited for the disk"
	rm "$MNT/z"
	verify
done
fsck_clean
cluster_down
cp -a "$C/blockd2" "$T/"
disk_down
cp -a "$T/blockd2" "$C/"
sync -f "$C"

# ---- metad: without its disk it ends, and mounts wait or give up ----
mv "$C/metad1" "$T/"
disk_up 300 "$C/metad1"
cp -a "$T/metad1" "$C/"
sync -f "$C/metad1"
rm -rf "$T/metad1" "$T/blockd2"
for kind in flush write; do
	cluster_up -o soft,timeo=2s,nowriteback
	load
	: >"$C/run/metad1.log"
	pid=$(pid_of metad1)
	disk_fault $kind
	ended 10 "$pid"
	has 1 "the metadata log in .*/metad1/raft cannot be written" \
		"$C/run/metad1.log"
	load_failed 'Connection timed out|Input/output error'
	if [ $kind = write ]; then
		disk_read_only
		"$CTL" local up "$C" >"$T/out" 2>&1 &&
			fail "started on a broken disk"
		grep -q 'hail-metad: .*metad1.*Read-only file system' \
			"$T/out" || { cat "$T/out"; fail "start: not said"; }
	fi
	disk_mend
	cluster_up
	verify
	umount "$MNT" # what no fsync was answered for may be lost: soft
done
cluster_up
verify
fsck_clean
