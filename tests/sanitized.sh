#!/bin/sh
# Integration tests with the programs of a sanitizer's flavour. A report of any
# process fails it, whatever the test itself said: daemons go on after one, and
# their exit status is nobody's.
#
# usage: tests/sanitized.sh asan|tsan [PATTERN...]
set -u

cd "$(dirname "$0")/.." || exit 1
flavour=$1
shift
[ $# -gt 0 ] || set -- t_posix t_randops t_kill_client t_kill_blockd \
	t_kill_metad t_sqlite t_mount t_uring t_metrics t_sync_mounts \
	t_late_release t_killed t_hailctl_odd t_wrong_metad t_signal \
	t_log_ops t_log_kill t_log_kill_ring t_log_kill_moves t_log_alone t_logd \
	t_shared
make -s "-j$(nproc)" FLAVOUR="$flavour" all integ-programs || exit 1
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
export FLAVOUR="$flavour" TEST_TIMEOUT="${TEST_TIMEOUT:-1200}"
export ASAN_OPTIONS="log_path=$reports/asan" \
	UBSAN_OPTIONS="log_path=$reports/ubsan:print_stacktrace=1" \
	TSAN_OPTIONS="log_path=$reports/tsan"
tests/integ/run.sh "$@"
code=$?
for report in "$reports"/*; do
	[ -e "$report" ] || continue
	head -n 40 "$report"
	code=1
done
exit $code
