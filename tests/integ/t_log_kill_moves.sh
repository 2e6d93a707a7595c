#!/bin/bash
# kill -9 of a mount, alone or with metad, while it moves what its logs hold out of
# the log daemons: because they are drained, or told to end, or because a majority
# of them is killed. At random moments, with programs that write and with ones that
# only have their files open. What was acknowledged is there; only where a majority
# died with the mount may a file be an error, and then it is one as a whole.
. "$(dirname "$0")/lib.sh"
need_root
K=(-c "$C/cluster.conf")
UP_OPTS=flush_age=1h
export UP_OPTS
cluster_up --logds 3
test_cleanup() {
	[ -z "${writer:-}" ] || kill -9 "$writer" 2>/dev/null
	[ -z "${event:-}" ] || kill "$event" 2>/dev/null
}
# load N: writers in $dir, a log directory of each kind; N is 0: they wait soon.
load() {
	local i=0 when
	dir=$MNT/$((++round))
	acks=$T/acks.$round
	: >"$acks"
	mkdir "$dir"
	for when in close interval off; do
		mkdir "$dir/$i"
		"$CTL" log enable "$dir/$i" --destage $when >/dev/null ||
			fail enable
		i=$((i + 1))
	done
	"$TST/integ/acked" write "$dir" "$acks" 60 3 2>"$T/acked.err" &
	writer=$!
	within 10 has_acks || fail "nothing is acknowledged"
	LOGS=1 logs_used
	a_while 500
	[ "$1" != 0 ] || { halt $writer; a_while 500; }
}
has_acks() { [ "$(wc -l <"$acks")" -gt 9 ]; }
a_while() { sleep "0.$(printf %03d $((RANDOM % $1)))"; }
# The mount dies, with these; and so does who writes.
dies() {
	gone $writer && fail "the writers ended: $(cat "$T/acked.err")"
	crash mount "$@"
	# Without metad there is none who could be told.
	[ -z "$event" ] || wait "$event" || [ $# -gt 0 ] ||
		fail "drain: $(cat "$T/drain")"
	event=
	kill -9 $writer 2>/dev/null || true
	wait $writer 2>/dev/null || true
	writer=
}
kept() { # WHAT
	"$TST/integ/acked" verify "$dir" "$acks" 2>"$T/err" ||
		{ head "$T/err" >&2; tail -n 30 "$T/up.log" >&2
			fail "lost: $1"; }
	rm -r "$dir"
}
drains() {
	local i
	for i in $(seq 3 | shuf); do
		"$CTL" "${K[@]}" logd drain "$i" --deadline \
			$((RANDOM % 3000))ms >>"$T/drain" 2>&1 || return
		a_while 200
	done
}
is_drained() { # LOAD NAME...
	local i what="drained, writing: $*"
	load "$1"
	shift
	: >"$T/drain"
	drains &
	event=$!
	a_while 900
	dies "$@"
	cluster_up
	kept "$what"
	for i in 1 2 3; do
		"$CTL" "${K[@]}" logd drain $i --off >/dev/null || fail "--off"
	done
}
# Daemons that were told to end wait for the next mount, as for the first.
is_ended() { # LOAD NAME...
	local p pids=() what="told to end, writing: $*"
	load "$1"
	shift
	for i in 1 2 3; do pids+=("$(pid_of logd$i)"); done
	kill -TERM "${pids[@]}"
	a_while 900
	dies "$@"
	cluster_up
	kept "$what"
	for p in "${pids[@]}"; do within 30 gone "$p" || fail "does not end"; done
	grep -q "what=reclaimed" "$C"/run/logd?.log &&
		fail "$what: memory was taken by force"
	cluster_up
}
is_killed() { # LOAD NAME...
	local i what="killed, writing: $*" errors=0
	load "$1"
	shift
	for i in $(seq 3 | shuf | head -n 2); do
		crash "logd$i"
		[ $((RANDOM % 2)) = 0 ] || a_while 50
	done
	a_while 600
	dies "$@"
	cluster_up
	for i in $(cd "$dir" && find . -type f); do
		cat "$dir/$i" >/dev/null 2>"$T/err" && continue
		grep -q 'Input/output error' "$T/err" || fail "$what: $(cat "$T/err")"
		errors=$((errors + 1))
	done
	echo "# $what: $errors files are errors"
	[ $errors -gt 0 ] || { kept "$what"; return 0; }
	rm -r "$dir"
}
round=0
event=
for _ in $(seq "${ROUNDS:-1}"); do
	for which in is_drained is_ended is_killed; do
		$which 0
		$which 1
		$which 0 metad1
		$which 1 metad1
	done
done
fsck_clean
held() { [ "$("$CTL" "${K[@]}" --json status | python3 -c '
import json, sys
print(sum(d["lent_bytes"] for d in json.load(sys.stdin)["daemons"]
          if d["program"] == "hail-logd"))')" -gt 0 ]; }
nothing_held() { ! held; }
within 20 nothing_held || fail "memory of logs that are gone is lent"
