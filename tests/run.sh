#!/bin/sh
# Runs test programs: one line each, then "N passed, N failed"; fails if any
# test failed.
#
#	tests/run.sh [-v] PROGRAM ...
#
# A program that prints TAP (cmocka does, asked to) counts by its tests,
# another one as one test. Exit status 77 means: a need is missing, skipped.
# TEST_TIMEOUT: seconds a program may take (default 300).
# TEST_JOBS: programs at a time (default: one a core, at most 4).
set -u

cd "$(dirname "$0")/.." || exit 1
export CMOCKA_MESSAGE_OUTPUT=TAP
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

# What failed and the lines around it, then how it ended.
tell_failure() {
	grep -B 5 -A 8 '^not ok ' "$1" | grep -v '^ok ' | head -n 60 |
		sed 's/^/# /'
	echo "# ... last lines:"
	lines=15
	! grep -q '^# no end after' "$1" || lines=200
	tail -n $lines "$1" | cut -c 1-300 | sed 's/^/# /'
}

# Runs one program, prints its line, adds "passed failed" to $RUN_DIR/counts.
run_one() {
	program=$1
	out=$RUN_DIR/$$.out
	began=$(date +%s)
	tests/timed.sh "${TEST_TIMEOUT:-300}" "$program" > "$out" 2>&1
	status=$?
	took=$(($(date +%s) - began))

	# cmocka writes "not ok N # SKIP", others "ok N # SKIP".
	skipped=$(grep -c '^\(not \)\?ok .*# SKIP' "$out")
	good=$(grep '^ok ' "$out" | grep -vc '# SKIP')
	bad=$(grep '^not ok ' "$out" | grep -vc '# SKIP')
	note="$good tests"
	[ "$skipped" = 0 ] || note="$note, $skipped skipped"
	if [ $status = 77 ]; then
		good=0 bad=0
		note="# SKIP $(tail -n 1 "$out")"
	elif [ "$good" = 0 ] && [ "$bad" = 0 ]; then
		good=$((status == 0))
		note=
	fi
	# A crash, a leak or a time-out is a failure whatever was printed.
	if [ $status != 0 ] && [ $status != 77 ] && [ "$bad" = 0 ]; then
		bad=1
		note="exit status $status"
		[ $status != 124 ] || note="no end after ${took} s"
	fi
	verdict=ok
	[ "$bad" = 0 ] || verdict="not ok"
	# In one piece, since others print, too.
	{
		echo "$verdict - $(basename "$program")" \
			"(${note:+$note, }$took s)"
		if [ -n "$RUN_VERBOSE" ]; then
			sed 's/^/# /' "$out"
		elif [ "$bad" != 0 ]; then
			tell_failure "$out"
		fi
	} > "$out.told"
	cat "$out.told"
	echo "$good $bad" >> "$RUN_DIR/counts"
}

if [ -n "${RUN_DIR:-}" ]; then
	run_one "$1"
	exit 0
fi

RUN_VERBOSE=
if [ "${1:-}" = -v ]; then
	RUN_VERBOSE=1
	shift
fi
RUN_DIR=$(mktemp -d) || exit 1
trap 'rm -rf "$RUN_DIR"' EXIT
trap 'exit 1' HUP INT TERM
export RUN_DIR RUN_VERBOSE

jobs=$(nproc)
[ "$jobs" -le 4 ] || jobs=4
: > "$RUN_DIR/counts"
[ $# = 0 ] || printf '%s\0' "$@" |
	xargs -0 -n 1 -P "${TEST_JOBS:-$jobs}" tests/run.sh
awk -v programs=$# '
{ passed += $1; failed += $2 }
END {
	failed += programs - NR # one that did not even report
	printf "%d passed, %d failed\n", passed, failed
	exit failed > 0
}' "$RUN_DIR/counts"
