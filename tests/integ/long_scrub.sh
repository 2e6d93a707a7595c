#!/bin/bash
# A block daemon that was not running when its time for a scrub came does it a
# minute after its start, another one whose last scrub is not so long ago does
# not: the interval goes on across restarts.
. "$(dirname "$0")/lib.sh"
need python3
conf=$C/cluster.conf
cluster_up --blockds 2
status() { # FIELD ID
	"$CTL" -c "$conf" status --json | python3 -c '
import json, sys
d = [d for d in json.load(sys.stdin)["daemons"] if "blockd" in d["program"]]
print(d[int(sys.argv[2]) - 1].get(sys.argv[1]))' "$1" "$2"
}
was() { # ID SECONDS: its last scrub, so long ago
	local t=$(($(date +%s) - $2))
	sed -i -E "s/^since [0-9]+ last [0-9]+/since $t last $t/" \
		"$C/blockd$1/scrub"
}
head -c 8M /dev/urandom >"$MNT/f"
sync "$MNT/f"
cluster_down
sed -i '/^blockd /s/$/ scrub-interval=1h/' "$conf"
was 1 7200
was 2 1800
cluster_up
one=$(status last_scrub 1)
two=$(status last_scrub 2)
[ "$one" != never ] && [ "$two" != never ] || fail "the notes were not read"
scrubbed() { [ "$(status last_scrub 1)" != "$one" ]; }
within 90 scrubbed || fail "not made up for"
sleep 5 # they look at the same time
[ "$(status last_scrub 2)" = "$two" ] || fail "half an hour is no hour"
fsck_clean
