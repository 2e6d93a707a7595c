# Sourced by scripts that run several make targets and close with one count.
#
#	step NAME COMMAND ...	runs it; its last "N passed, N failed" line
#				counts, or, without one, its exit status
#	finish			prints the closing line; fails if a test did

steps_log=$(mktemp) || exit 1
trap 'rm -f "$steps_log"' EXIT
steps_passed=0 steps_failed=0 steps_bad=

step() {
	steps_name=$1
	shift
	echo "== $steps_name"
	{ "$@" 2>&1; echo "steps-status $?"; } | tee "$steps_log" |
		grep -v '^steps-status '
	steps_status=$(sed -n 's/^steps-status //p' "$steps_log" | tail -n 1)
	steps_counts=$(sed -n \
		's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' \
		"$steps_log" | tail -n 1)
	if [ -z "$steps_counts" ]; then
		steps_counts="1 0"
		[ "$steps_status" = 0 ] || steps_counts="0 1"
	elif [ "$steps_status" != 0 ] && [ "${steps_counts#* }" = 0 ]; then
		steps_counts="${steps_counts% *} 1"
	fi
	steps_passed=$((steps_passed + ${steps_counts% *}))
	steps_failed=$((steps_failed + ${steps_counts#* }))
	[ "${steps_counts#* }" = 0 ] || steps_bad="$steps_bad $steps_name"
}

finish() {
	[ -z "$steps_bad" ] || echo "failed in:$steps_bad"
	echo "$steps_passed passed, $steps_failed failed"
	[ $steps_failed = 0 ]
}
