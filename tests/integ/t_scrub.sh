#!/bin/bash
# A block daemon verifies its checksums by itself, and says when it last did and
# what it found, also after a restart; never where that was asked for. One that
# runs is joined by who asks for one. (long_scrub: when it is time after one.)
. "$(dirname "$0")/lib.sh"
cluster_up --blockds 1
conf=$C/cluster.conf
status() { # prints the named field of blockd 1
	"$CTL" -c "$conf" status --json | python3 -c '
import json, sys
d = [d for d in json.load(sys.stdin)["daemons"] if "blockd" in d["program"]]
print(d[0].get(sys.argv[1]))' "$1"
}
again() { # restarts blockd 1 with these options instead of the last ones
	cluster_down
	sed -i -E "/^blockd 1 /s/ scrub-[a-z]+=[^ ]*//g; /^blockd 1 /s/\$/ $*/" \
		"$conf"
	cluster_up
}
until_scrubbed() { # since the time that was $1
	until [ "$(status last_scrub)" != "$1" ]; do sleep 0.05; done
}
head -c 8M /dev/urandom >"$T/in"
cp "$T/in" "$MNT/f"
sync "$MNT/f"
[ "$(status last_scrub)" = never ] || fail "scrubbed at once"
[ "$(status bad_units)" = 0 ] || fail "bad units before a scrub"
again scrub-interval=1s
until_scrubbed never
[ "$(status bad_units)" = 0 ] || fail "bad units of a good store"
# Each second: the next one, too.
until_scrubbed "$(status last_scrub)"
again scrub-interval=0
last=$(status last_scrub)
sleep 2
[ "$(status last_scrub)" = "$last" ] || fail "scrubbed, told not to"
# What it looks after an hour, it does not do at once.
again scrub-interval=1h
[ "$(status last_scrub)" = "$last" ] || fail "a restart forgets the last one"
# A note that makes no sense is none.
for note in "since 1 last 2 read" "nonsense" ""; do
	cluster_down
	printf '%s' "$note" >"$C/blockd1/scrub"
	cluster_up
	[ "$(status last_scrub)" = never ] || fail "the note '$note' is believed"
done
cluster_down
"$BIN/hail-blockd" -c "$conf" -i 1 --check >"$T/out" ||
	{ cat "$T/out"; fail "the check minds the note"; }
# A byte that is wrong on the disk.
python3 - "$T/in" "$C"/blockd1/* <<'PY'
import os, sys
want = open(sys.argv[1], "rb").read()[5 << 20:][:64]
for name in sys.argv[2:]:
    if not os.path.isfile(name):
        continue
    data = open(name, "rb").read()
    at = data.find(want)
    if at >= 0 and "journal" not in name:
        with open(name, "r+b") as f:
            f.seek(at)
            f.write(bytes([data[at] ^ 1]))
        sys.exit(0)
sys.exit("the file's bytes are not in the store")
PY
cluster_up
# It looks a minute after its start; who cannot wait asks.
"$CTL" -c "$conf" blockd scrub 1 >"$T/out" 2>&1 && fail "nothing found"
grep -q " 1 bad" "$T/out" || { cat "$T/out"; fail "not one bad"; }
[ "$(status bad_units)" = 1 ] || fail "status tells $(status bad_units)"
ino=$(stat -c %i "$MNT/f")
grep -q "event=bad-checksum ino=$ino block=5 unit=0" "$C/run/blockd1.log" ||
	fail "the log does not name it"
again scrub-interval=0
[ "$(status bad_units)" = 1 ] || fail "what was found is forgotten"
# By itself, slowly; joined, it is one scrub.
again scrub-interval=1s scrub-rate=4m
until "$CTL" -c "$conf" stats --json | grep -q '"scrub_running": 1'; do
	sleep 0.05
done
"$CTL" -c "$conf" blockd scrub 1 >"$T/out" 2>&1 && fail "joined: none found"
grep -q " 1 bad" "$T/out" || { cat "$T/out"; fail "joined: not one bad"; }
rm "$MNT/f"
