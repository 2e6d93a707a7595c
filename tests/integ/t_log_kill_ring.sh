#!/bin/bash
# kill -9 under logs that are overwritten in a circle, while their journal is
# made, written, and what it has is put in place, again and again: of the mount
# with any others but a majority of log peers, of daemons the mount goes on with,
# of mounts that recover what another has left;
# and a mount that was stopped in the middle wakes when another has its logs.
# Everything acknowledged is there, to the byte, and nothing but the one write
# that was under way.
. "$(dirname "$0")/lib.sh"
need_root
need python3
ring=$TOP/tests/integ/ring.py
cluster_up --logds 3
mkdir "$MNT/wal"
LOGS=1
wal_dir "$MNT/wal"
acks=$T/acks
: >"$acks"
test_cleanup() {
	[ -z "${writer:-}" ] || kill -9 "$writer" 2>/dev/null
	[ -z "${mounter:-}" ] || kill -9 "$mounter" 2>/dev/null
	umount -l "$T/m2" 2>/dev/null
}
load() { # DIR
	python3 "$ring" run "$1" "$acks" 60 2>"$T/writer" &
	writer=$!
	logs_used
	sleep "0.$((RANDOM % 9 + 1))"
}
# All the writer was told of is there.
holds() { # DIR WHAT: $have is the last write that is there
	local acked rest
	read -r have acked rest <<<"$(python3 "$ring" check "$1" "$acks")"
	[ -n "$rest" ] || fail "not a state that it was in: $2"
	echo "# $2: $have, acknowledged $acked"
	[ "$have" -ge "$acked" ] && [ "$have" -le $((acked + 1)) ] ||
		fail "it has $have, acknowledged is $acked: $2"
}
# It ended with its mount.
check() { # DIR WHAT
	wait "$writer" || true
	writer=
	holds "$@"
}
dies_with() { # NAME...
	load "$MNT"
	crash mount "$@"
	cluster_up
	check "$MNT" "mount $*"
}
# These do not end the load.
goes_on_without() { # NAME...
	load "$MNT"
	crash "$@"
	sleep "0.$((RANDOM % 9))"
	cluster_up
	sleep "0.$((RANDOM % 9))"
	gone "$writer" && { cat "$T/writer"; fail "it ended: $*"; }
	crash mount
	cluster_up
	check "$MNT" "$* first, then mount"
}
mount2() {
	"$BIN/hailfs" -o "log=$T/m2.log,pidfile=$T/m2.pid" "$C/cluster.conf" \
		"$T/m2" 2>"$T/err" && return
	grep -q 'another mount is alive' "$T/err" ||
		{ cat "$T/err"; fail "not refused, not mounted"; }
	return 1
}
# Mounts die while they recover, or before, or behind it, as is told. Metad counts
# those that had begun.
dies_recovering() {
	local ms had before=0 inside=0
	load "$MNT"
	crash mount
	wait "$writer" || true
	writer=
	for _ in 1 2 3 4 5 6; do
		had=$(grep -c event=opened "$C/run/metad1.log")
		rm -f "$T/m2.log"
		"$BIN/hailfs" -f -o "log=$T/m2.log" "$C/cluster.conf" "$MNT" \
			2>"$T/err" &
		mounter=$!
		ms=$((RANDOM % 80))
		sleep "0.$(printf %03d $ms)"
		kill -9 "$mounter" 2>/dev/null ||
			{ cat "$T/err"; fail "no mount, after $ms ms"; }
		wait "$mounter" 2>/dev/null || true
		mounter=
		grep -qs event=recovered "$T/err" "$T/m2.log" && break
		if [ "$(grep -c event=opened "$C/run/metad1.log")" = "$had" ]
		then
			before=$((before + 1))
		else
			inside=$((inside + 1))
		fi
	done
	cluster_up
	holds "$MNT" "mounts that died before and in a recovery: $before, $inside"
}
stops_and_wakes() {
	local late had
	mkdir -p "$T/m2"
	load "$MNT"
	stop mount
	sleep 0.2
	late=$writer
	cp "$acks" "$T/acks.2"
	within 40 mount2 || fail "no takeover"
	acks=$T/acks.2
	holds "$T/m2" "taken over"
	had=$have
	load "$T/m2"
	gone "$writer" && { cat "$T/writer"; fail "no load"; }
	go_on
	wait "$late" && fail "a writer of the one that woke ended well"
	# It may tell its writer of the last one, but of none that is not there.
	[ "$(tail -n 1 "$T/acks" | cut -d ' ' -f 1)" -le "$had" ] ||
		fail "the one that woke has acknowledged more"
	within 20 grep -q event=fenced "$C/run/mount.log" ||
		fail "the one that woke is not fenced"
	sleep 1
	umount -l "$MNT"
	gone "$writer" && { cat "$T/writer"; fail "it ended"; }
	kill -9 "$(cat "$T/m2.pid")"
	wait "$writer" || true
	writer=
	umount -l "$T/m2"
	within 20 mount2 || fail "no mount again"
	holds "$T/m2" "with one beside it that woke"
	umount "$T/m2"
	within 10 gone "$(cat "$T/m2.pid")" || fail "it does not end"
	cluster_up
	mv "$T/acks.2" "$T/acks"
	acks=$T/acks
	: >"$C/run/mount.log"
}
for _ in $(seq "${ROUNDS:-1}"); do
	dies_with
	dies_with blockd1
	dies_with logd2
	dies_with metad1
	dies_with metad1 blockd1 logd1
	goes_on_without metad1
	goes_on_without blockd1
	goes_on_without metad1 blockd1
	dies_recovering
	stops_and_wakes
done
fsck_clean
