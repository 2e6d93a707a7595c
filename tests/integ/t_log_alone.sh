#!/bin/bash
# A log that nobody writes to, and its peers go: all are drained, told to end, or
# a majority is killed. The mount puts it into the blocks then, so that nothing is
# lost when it dies, too; unless it is stopped: then they keep it. And when all
# peers die with the mount, what becomes of the file is as its log was made: in
# order or not, whatever its directory says now, and wherever it was moved to.
. "$(dirname "$0")/lib.sh"
need_root
conf=$C/cluster.conf
K=(-c "$conf")
UP_OPTS=flush_age=1h
export UP_OPTS
opened() { # True|False: in order
	[ "$(log_status "[f['ordered'] for f in l['files']]")" = "[$1]" ]
}
# lines FIRST LAST: into the open file
lines() { for i in $(seq "$1" "$2"); do echo "line $i" >&9; done; }
in_blocks() { [ "$(log_counter dropped)" -gt "$dropped" ]; }
goes_alone() { # WHAT
	dropped=$(log_counter dropped)
	exec 9>"$MNT/w/f"
	lines 1 20
	within 10 opened False || fail "$1: $(log_status l)"
	case $1 in
	drained)
		for i in 1 2 3; do
			"$CTL" "${K[@]}" logd drain $i --deadline 20s \
				>>"$T/out" 2>&1 || fail "drain $i"
		done
		;;
	ended)
		pids=()
		for i in 1 2 3; do pids+=("$(pid_of logd$i)"); done
		kill -TERM "${pids[@]}"
		;;
	killed) crash logd1 logd2 ;;
	esac
	within 10 in_blocks || fail "$1: $(log_status l)"
	grep -q "what=reclaimed" "$C"/run/logd?.log &&
		fail "$1: memory was taken by force"
	crash mount
	exec 9>&-
	case $1 in
	drained)
		for i in 1 2 3; do
			"$CTL" "${K[@]}" logd drain $i --off >/dev/null ||
				fail "drain --off"
		done
		;;
	ended)
		for i in "${pids[@]}"; do
			within 30 gone "$i" || fail "a logd does not end"
		done
		;;
	esac
	cluster_up
	seq -f 'line %g' 20 | cmp - "$MNT/w/f" || fail "$1: not all is there"
}
cluster_up --logds 4
# No spare at first.
"$CTL" "${K[@]}" logd drain 4 >"$T/out" 2>&1 || { cat "$T/out"; fail drain; }
mkdir "$MNT/w"
"$CTL" log enable "$MNT/w" --destage close >/dev/null || fail enable
goes_alone drained
goes_alone ended
goes_alone killed

# A mount that is stopped moves nothing, though it is connected: what it has stays
# where it is, and is found when it dies.
# (Who has the file open and ends waits for the mount: another process has it.)
{ lines 1 20 && exec sleep 600; } 9>"$MNT/w/s" &
holder=$!
within 10 opened False || fail "stopped: $(log_status l)"
halt "$(pid_of mount)"
for i in 1 2 3; do
	"$CTL" "${K[@]}" logd drain $i --deadline 1s >"$T/out" || fail "drain $i"
done
for i in 1 2 3; do
	code=0
	"$CTL" "${K[@]}" logd drain $i --deadline 1s --wait >"$T/out" 2>&1 ||
		code=$?
	[ $code = 3 ] || fail "stopped: drain $i: $code"
done
crash mount
kill $holder
wait $holder 2>/dev/null || true
for i in 1 2 3; do
	"$CTL" "${K[@]}" logd drain $i --off >/dev/null || fail "drain --off"
done
cluster_up
seq -f 'line %g' 20 | cmp - "$MNT/w/s" || fail "stopped: not all is there"

# Not in order: without the log the file is worth nothing.
is_lost() { # WHAT
	exec 8>"$MNT/page"
	echo "$1" >&8
	sync "$MNT/page"
	exec 8>&-
	crash mount logd1 logd2 logd3 logd4
	exec 9>&-
	cluster_up
	[ "$(cat "$MNT/page")" = "$1" ] || fail "$1: the page"
	[ "$(log_counter went_back)" = 0 ] || fail "$1: it went back"
	cat "$MNT/w/$2" >"$T/out" 2>&1 && fail "$1: it can be read"
	grep -q 'Input/output error' "$T/out" || fail "$1: $(cat "$T/out")"
	rm "$MNT/w/$2"
}
exec 9>"$MNT/w/g"
lines 1 20
within 10 opened False || fail "g: $(log_status l)"
"$CTL" log disable "$MNT/w" >/dev/null || fail disable
lines 21 22
is_lost "disabled meanwhile" g

# Its peers were in three domains, and are in two.
cluster_down
cat "$conf" >"$T/conf"
for d in 1a 2b 3c 4a; do
	sed -i "/^logd  *${d%?} /s/\$/ domain=${d#?}/" "$conf"
done
cluster_up
"$CTL" log enable "$MNT/w" >/dev/null || fail enable
exec 9>"$MNT/w/h"
lines 1 20
within 10 opened False || fail "h: $(log_status l)"
replaced() { [ "$(log_counter replaced)" -gt 0 ]; }
crash logd3
lines 21 22
within 10 replaced || fail "not replaced: $(log_status l)"
cluster_up
is_lost "replaced meanwhile" h
