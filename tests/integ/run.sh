#!/bin/bash
# Runs integration scripts, one TAP line each; the last line counts.
#
# usage: tests/integ/run.sh [-l] [-d DIR] [PATTERN...]
#	-l	the long ones too, of which each may take an hour
#	-d	those of another folder of tests/
cd "$(dirname "$0")" || exit 1
long=0
while getopts ld: o; do
	case $o in
	l) long=1 ;;
	d) cd "../$OPTARG" || exit 1 ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
passed=0 failed=0 skipped=0 number=0
scripts=(t_*.sh)
[ $long = 1 ] && scripts+=(long_*.sh)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for s in "${scripts[@]}"; do
	[ -f "$s" ] || continue
	if [ $# -gt 0 ]; then
		hit=0
		for p in "$@"; do [[ $s == *$p* ]] && hit=1; done
		[ $hit = 1 ] || continue
	fi
	number=$((number + 1))
	start=$(date +%s)
	limit=600
	[[ $s == long_* ]] && limit=3600
	../timed.sh "${TEST_TIMEOUT:-$limit}" bash "$s" >"$log" 2>&1
	code=$?
	took=$(($(date +%s) - start))
	case $code in
	0) passed=$((passed + 1)); echo "ok $number - $s (${took}s)"
		grep '^# figure: ' "$log" ;;
	77) skipped=$((skipped + 1)); echo "ok $number - $s # SKIP"
		grep '# skipped' "$log" ;;
	*) failed=$((failed + 1)); echo "not ok $number - $s (exit $code)"
		lines=60
		[ $code != 124 ] || lines=400 # what its processes were doing
		# The reason may be far from the end: the daemons' logs follow.
		[ "$(wc -l <"$log")" -le $lines ] ||
			grep -a -B 20 -A 2 '^# FAILED: ' "$log" | sed 's/^/# /'
		tail -n $lines "$log" | sed 's/^/# /' ;;
	esac
done
echo "1..$number"
[ $skipped = 0 ] || echo "# $skipped skipped"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
