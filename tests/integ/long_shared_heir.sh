#!/bin/bash
# Who recovers a dead mount's logs dies in the middle of it, at any moment, with
# others or alone, or metad does: what was acknowledged is there each time. ROUNDS
# times.
. "$(dirname "$0")/lib.sh"
need_root
threads=12
declare -A dir=([b]=$T/b [d]=$T/d [e]=$T/e)
mkdir "$T/b" "$T/d" "$T/e"
load=
test_cleanup() {
	local m
	[ -z "$load" ] || kill "$load" 2>/dev/null
	for m in b d e; do umount -l "${dir[$m]}" 2>/dev/null; done
}
cluster_up
umount "$MNT"
up() { # NAME
	[ -n "$(findmnt -n "${dir[$1]}")" ] || mount_at "$1" "${dir[$1]}" ||
		fail "mount $1"
}
closed() { grep -c event=closed "$C/run/metad1.log"; }
recovered() { cat "$T"/[bde].log | grep -c event=recovered || true; }
nap_ms() { sleep "$(printf '0.%03d' "$1")"; }
middle=0
for round in $(seq "${ROUNDS:-40}"); do
	for m in b d e; do up "$m"; done
	w=${dir[b]}/w
	mkdir "$w"
	for i in $(seq 0 $((threads - 1))); do
		mkdir "$w/$i"
		"$CTL" log enable "$w/$i" >/dev/null || fail "enable"
	done
	"$TST/integ/acked" write "$w" "$T/acks" 60 $threads 2>/dev/null &
	load=$!
	sleep "1.$((RANDOM % 10))"
	before=$(closed)
	over_before=$(recovered)
	mount_crash b
	wait $load || true
	load=
	umount -l "${dir[b]}"
	# Its place is taken, so that it is not waited for.
	up b &
	taken=$!
	until [ "$(closed)" -gt "$before" ]; do
		nap_ms 2
		! gone $taken || break
	done
	nap_ms $((RANDOM % (round % 2 ? 80 : 500)))
	whom=$((RANDOM % 5))
	case $whom in
	0) set -- d ;;
	1) set -- e ;;
	2) set -- d e ;;
	3) set -- d metad ;;
	4) set -- metad ;;
	esac
	for m in "$@"; do
		if [ "$m" = metad ]; then
			crash metad1
		else
			kill -9 "$(cat "$T/$m.pid")"
		fi
	done
	over=$(recovered)
	[[ $* != *metad* ]] || metad_start
	for m in "$@"; do
		[ "$m" = metad ] || umount -l "${dir[$m]}"
	done
	wait $taken || fail "round $round: b is not mounted again"
	"$TST/integ/acked" verify "${dir[b]}/w" "$T/acks" >"$T/verify" 2>&1 ||
		{ cat "$T/verify"; fail "round $round: lost, $* killed"; }
	[ "$over" != "$over_before" ] || middle=$((middle + 1))
	echo "# $round: $* killed, $middle times before it was done"
	for m in d e; do up "$m"; done
	"$TST/integ/acked" verify "${dir[d]}/w" "$T/acks" >/dev/null 2>&1 ||
		fail "round $round: at another mount"
	rm -r "${dir[e]}/w" "$T/acks"
done
[ $middle -gt $((round / 8)) ] || fail "all killed too late"
[ $middle -lt "$round" ] || fail "all killed before it was done"
for m in b d e; do umount "${dir[$m]}"; done
cluster_up
fsck_clean
