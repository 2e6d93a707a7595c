#!/bin/bash
# A mount is stopped for longer than metad waits, and another takes its place:
# the first, when it goes on, says once that it is fenced, gives EIO and never
# what it knew before, and nothing it had in hand changes a byte.
. "$(dirname "$0")/lib.sh"
need_root
K=(-c "$C/cluster.conf")
M2=$T/m2
mkdir "$M2"
first=
test_cleanup() {
	[ -z "$first" ] || kill -CONT "$first" 2>/dev/null
	umount -l "$M2" 2>/dev/null
	umount -l "$MNT" 2>/dev/null
}
for opts in nowriteback writeback; do
	# Nothing is sent before it is asked for: it is all in hand.
	cluster_up -o "$opts,flush_age=1h"
	first=$(pid_of mount)
	head -c 4096 /dev/urandom >"$MNT/a"
	cp "$MNT/a" "$MNT/b"
	sync "$MNT/a" "$MNT/b"
	mkfifo "$T/in"
	"$TST/integ/cached_read" "$MNT/a" <"$T/in" >"$T/reader" &
	reader=$!
	exec 7>"$T/in"
	for _ in $(seq 100); do
		grep -q ready "$T/reader" && break
		sleep 0.05
	done
	head -c 4096 /dev/zero | tee "$MNT/lost" 1<>"$MNT/b" >/dev/null
	halt "$first"
	start=$(date +%s)
	until "$BIN/hailfs" -o "log=$T/m2.log,pidfile=$T/m2.pid" \
		"$C/cluster.conf" "$M2" 2>"$T/err" 7>&-; do
		grep -q 'another mount is alive' "$T/err" ||
			{ cat "$T/err"; fail "not refused, not mounted"; }
		[ $(($(date +%s) - start)) -lt 40 ] || fail "no takeover"
		sleep 0.5
	done
	took=$(($(date +%s) - start))
	[ $took -ge 9 ] || fail "taken over after $took s"
	cmp -s "$M2/a" "$M2/b" || fail "a or b is not as synced"
	head -c 4096 /dev/urandom >"$M2/a"
	sync "$M2/a"
	cp "$M2/a" "$T/a2"
	cp "$M2/b" "$T/b2"
	kill -CONT "$first"
	for _ in $(seq 100); do
		grep -q event=fenced "$C/run/mount.log" && break
		sleep 0.1
	done
	sleep 0.5
	[ "$(grep -c event=fenced "$C/run/mount.log")" = 1 ] ||
		{ cat "$C/run/mount.log"; fail "fenced: not said once"; }
	# A program that had the file open, and the kernel its content.
	echo again >&7
	for _ in $(seq 100); do
		[ "$(wc -l <"$T/reader")" = 2 ] && break
		sleep 0.05
	done
	[ "$(tail -n 1 "$T/reader")" = "Input/output error" ] ||
		fail "an open file gave: $(tail -n 1 "$T/reader")"
	exec 7>&-
	wait $reader
	for op in "cat $MNT/a" "stat $MNT/a" "ls $MNT" "touch $MNT/new" \
		"rm $MNT/b" "sync $MNT/lost"; do
		timeout 10 $op >/dev/null 2>"$T/err" && fail "went: $op"
		grep -q 'Input/output error' "$T/err" ||
			{ cat "$T/err"; fail "not EIO: $op"; }
	done
	# It does not ask metad again and again.
	[ "$(grep -c event=refused "$C/run/metad1.log")" -le 4 ] ||
		fail "it knocks and knocks"
	umount "$MNT" || fail "cannot be unmounted"
	for _ in $(seq 100); do
		kill -0 "$first" 2>/dev/null || break
		sleep 0.1
	done
	kill -0 "$first" 2>/dev/null && fail "the fenced one does not end"
	first=
	cmp "$T/a2" "$M2/a" && cmp "$T/b2" "$M2/b" || fail "changed by it"
	umount "$M2"
	rm "$T/in"
	cluster_up -o nowriteback
	cmp "$T/a2" "$MNT/a" && cmp "$T/b2" "$MNT/b" || fail "changed since"
	fsck_clean
	rm "$MNT/a" "$MNT/b"
	cluster_down
	: >"$C/run/mount.log"
	: >"$C/run/metad1.log"
done
