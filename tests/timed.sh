#!/bin/bash
# Runs a command for at most so many seconds; when they are over, says what
# each process that came from it is doing, then ends it.
#
# usage: tests/timed.sh SECONDS COMMAND [ARG...]
# Exit status: the command's, or 124 when it did not end.

# A process and its children. Daemons are not among them: the script's own end
# stops those.
tree() {
	local p
	echo "$1"
	for p in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
		tree "$p"
	done
}

tell() {
	local p t
	echo "# --- $1: $(tr '\0' ' ' </proc/"$1"/cmdline | cut -c 1-200)"
	for t in /proc/"$1"/task/*; do
		echo "# ${t##*/} $(cat "$t/comm"):" \
			"$(grep State "$t/status" | cut -f 2) $(cat "$t/wchan")"
		head -n 8 "$t/stack" | sed 's/^/#   /'
	done
	# Nothing is installed for it: where it is there, it says more.
	if command -v gdb >/dev/null && [[ $(readlink /proc/"$1"/exe) == */build/* ]]; then
		timeout -k 5 30 gdb -nx -batch -p "$1" \
			-ex 'thread apply all bt 16' |
			grep '^Thread\|^#' | cut -c 1-160 | sed 's/^/# /'
	fi
} 2>/dev/null

limit=$1
shift
# Marks what comes from here, whoever its parent is later.
export HAIL_TIMED=$$
"$@" &
pid=$!
late() {
	local p pids
	echo "# no end after $limit s"
	for p in $(grep -lsz "^HAIL_TIMED=$HAIL_TIMED$" /proc/[0-9]*/environ |
			tr -dc '0-9\n'); do
		[ ! -d "/proc/$p" ] || tell "$p"
	done
	echo "# ---"
	pids=$(tree "$pid")
	kill $pids 2>/dev/null
	for _ in $(seq 200); do
		kill -0 "$pid" 2>/dev/null || exit 124
		sleep 0.1
	done
	kill -9 $pids 2>/dev/null
	exit 124
}
(
	trap 'kill $(jobs -p); exit 0' TERM
	sleep "$limit" &
	wait $!
	trap '' TERM
	late
) &
watch=$!
# In the background a command would not hear Ctrl-C.
trap 'kill "$watch" "$pid" 2>/dev/null; wait "$pid"; exit 130' INT TERM HUP
wait "$pid"
code=$?
kill "$watch" 2>/dev/null
wait "$watch"
[ $? != 124 ] || code=124
exit $code
