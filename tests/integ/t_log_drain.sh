#!/bin/bash
# Log daemons are restarted one after the other while a program writes to a log:
# drained first, each gives back what it had, and takes none by force; the writes
# go on, and what was acknowledged is there after a kill of the mount. Then the
# same without a drain first: SIGTERM alone waits for the memory, too.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up --logds 4
mkdir "$MNT/w"
for i in 0 1; do
	mkdir "$MNT/w/$i"
	"$CTL" log enable "$MNT/w/$i" --destage off >/dev/null || fail "enable"
done
K=(-c "$C/cluster.conf" --json)
# of ID KEY: what a log daemon says of itself
of() {
	"$CTL" "${K[@]}" status | python3 -c '
import json, sys
for d in json.load(sys.stdin)["daemons"]:
    if d["program"] == "hail-logd" and d["id"] == int(sys.argv[1]):
        print(d[sys.argv[2]])' "$1" "$2"
}
has_logs() { [ "$(of "$1" logs)" -gt 0 ]; }
"$TST/integ/acked" write "$MNT/w" "$T/acks" 60 2 2>"$T/acked.err" &
writer=$!
busy() { # so many hold logs
	local n=0 id
	for id in 1 2 3 4; do ! has_logs $id || n=$((n + 1)); done
	[ $n -ge 3 ]
}
within 20 busy || fail "no logs"
restart() { # ID
	local pid
	pid=$(pid_of "logd$1")
	kill -TERM "$pid"
	within 30 gone "$pid" || fail "logd$1 does not end"
	grep -q "what=reclaimed" "$C/run/logd$1.log" &&
		fail "logd$1 took memory by force"
	cluster_up
	[ "$(of "$1" lent_bytes)" -ge 0 ] || fail "logd$1"
}
for id in 1 2; do
	"$CTL" "${K[@]}" logd drain $id --wait --deadline 60s >"$T/out" ||
		fail "drain $id"
	python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["state"] == "drained" and d["reclaimed"] == 0, d
assert d["lent_bytes"] == 0 and d["logs"] == 0, d' "$T/out" ||
		fail "drain $id: $(cat "$T/out")"
	kill -0 $writer || fail "the writer ended: $(cat "$T/acked.err")"
	restart $id
done
for id in 3 4; do restart $id; done
kill -0 $writer || fail "the writer ended: $(cat "$T/acked.err")"
within 20 busy || fail "no logs in the end"
crash mount
wait $writer || true
# What that mount wrote is in the log daemons alone: they are not stopped.
if "$CTL" local down "$C" >"$T/out" 2>&1; then fail "down over logs"; fi
grep -q "hailctl local up $C" "$T/out" || { cat "$T/out"; fail "no advice"; }
[ "$(of 1 logs)" -ge 0 ] || fail "logd1 was stopped"
# Nor does a drain take it: nobody is there who could move it.
for id in 1 2 3 4; do
	! has_logs $id || { code=0
		"$CTL" "${K[@]}" logd drain $id --deadline 200ms --wait \
			>"$T/out" 2>"$T/err" || code=$?
		[ $code = 3 ] || fail "drain $id of a dead mount's logs: $code"
		grep -q "were not moved" "$T/err" || { cat "$T/err"; fail "not told"; }
		has_logs $id || fail "logd$id has none any more"; }
done
for id in 1 2 3 4; do
	"$CTL" "${K[@]}" logd drain $id --off >/dev/null || fail "drain --off"
done
cluster_up
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
cluster_down
