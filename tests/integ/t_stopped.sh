#!/bin/bash
# A process is stopped (SIGSTOP) for longer than a heartbeat, then for longer
# than its lease, under load, and goes on: nobody sees an error, nothing
# acknowledged is lost, nothing is fenced without need. STOPS: "NAME:SECONDS".
. "$(dirname "$0")/lib.sh"
need_root
STOPS=${STOPS:-blockd1:2 metad1:3 mount:2 metad1:12}
seconds=3
for s in $STOPS; do seconds=$((seconds + ${s#*:} + 2)); done
cluster_up -o "${UP_OPTS:-nowriteback}"
declare -A PID
for n in metad1 blockd1 blockd2 blockd3 mount; do PID[$n]=$(pid_of $n); done
mkdir "$MNT/w" "$MNT/r" "$T/local"
"$TST/integ/acked" write "$MNT/w" "$T/acks" $seconds 4 &
writer=$!
# Compared with a local directory, operation by operation, all the while.
(while kill -0 $writer 2>/dev/null; do
	rm -rf "$T/local" "$MNT/r" && mkdir "$T/local" "$MNT/r" &&
		"$TST/integ/randops" "$T/local" "$MNT/r" 300 || exit 1
done) >"$T/randops" 2>&1 &
model=$!
sleep 1
for s in $STOPS; do
	name=${s%:*}
	stop "$name"
	sleep "${s#*:}"
	go_on
	sleep 1
	for n in "${!PID[@]}"; do
		kill -0 "${PID[$n]}" 2>/dev/null ||
			fail "$n died when $name was stopped"
	done
done
wait $writer || fail "a writer saw an error (status $?)"
wait $model || { tail -n 20 "$T/randops"; fail "differs from a local disk"; }
grep -h 'fence\|lost=yes' "$C"/run/*.log && fail "somebody was fenced"
acked_kept
