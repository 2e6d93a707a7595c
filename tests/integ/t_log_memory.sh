#!/bin/bash
# Log peers with hardly any memory: a log is destaged to make room and goes on,
# also under a file that is far larger than all of it; where every region is in
# use a new log's file is an ordinary one, or is refused with ENOSPC when that
# was asked for, and has its log when there is memory again. Nothing is lost.
. "$(dirname "$0")/lib.sh"
need_root
# Four regions at each of three peers.
cluster_up --log-memory 1m -o flush_age=1h
for how in blocks refuse; do
	mkdir "$MNT/$how"
	"$CTL" log enable "$MNT/$how" --destage off --fallback $how >/dev/null ||
		fail "enable"
done
mkdir "$MNT/plain"
K=(-c "$C/cluster.conf")
lent() { "$CTL" "${K[@]}" status --json | python3 -c '
import json, sys
print(max(d["lent_bytes"] for d in json.load(sys.stdin)["daemons"]
          if "lent_bytes" in d))'; }
none_lent() { [ "$(lent)" = 0 ]; }
# What the daemons have, and what metad knows of it: they tell each second.
free_is() { "$CTL" "${K[@]}" status --json | python3 -c '
import json, sys
def told(o):
    if isinstance(o, dict):
        for d in o.get("logds", []):
            if isinstance(d, dict) and "bytes_free" in d: yield d["bytes_free"]
        o = list(o.values())
    for v in o if isinstance(o, list) else []:
        yield from told(v)
s = json.load(sys.stdin)
have = [d["free_bytes"] for d in s["daemons"] if "lent_bytes" in d]
known = list(told(s))
sys.exit(not (len(known) == len(have) == 3 and
              all(x '"$1"' for x in have + known)))'; }
write() { # FILE COUNT [BYTES]: prints the milliseconds it took
	python3 - "$1" "$2" "$T/$(basename "$1")" "${3:-65536}" <<'P'
import os, sys, time
f = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
c = os.open(sys.argv[3], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
d = os.urandom(int(sys.argv[4]))
took = 0
for i in range(int(sys.argv[2])):
    at = time.monotonic()
    os.write(f, d)
    os.fdatasync(f)
    took += time.monotonic() - at
    os.write(c, d)
print(int(took * 1000))
P
}
kept() { # FILE...: after the death of the mount
	crash mount
	cluster_up
	for f in "$@"; do
		cmp "$f" "$T/$(basename "$f")" || fail "lost: $f"
		rm "$f" "$T/$(basename "$f")"
	done
	within 20 none_lent || fail "memory: $(lent)"
	within 10 free_is "== 1 << 20" || fail "metad does not know"
}

echo "# a log larger than the memory of its peers"
exec 9>>"$MNT/blocks/a"
write "$MNT/blocks/a" 192 >"$T/ms" || fail "a write fails"
[ "$(lent)" -gt 0 ] || fail "it has no log"
[ "$(log_counter fallbacks)" = 0 ] || fail "it has fallen back"
echo "# $(cat "$T/ms") ms for 12 MiB"
exec 9>&-
kept "$MNT/blocks/a"

echo "# all regions in use: files without a log"
fds=()
for i in 1 2 3 4; do
	head -c 10000 /dev/urandom >"$T/b$i"
	exec {fd}>>"$MNT/blocks/b$i"
	cat "$T/b$i" >&"$fd"
	fds+=("$fd")
done
shut() { for fd in "$@"; do exec {fd}>&-; done; }
within 10 free_is "< 262144" || fail "there is memory"
write "$MNT/blocks/f" 16 >/dev/null || fail "blocks: a write fails"
write "$MNT/refuse/d" 16 >/dev/null 2>"$T/err" && fail "refuse: a write"
grep -q "No space left" "$T/err" || fail "refuse: $(cat "$T/err")"
[ ! -s "$MNT/refuse/d" ] || fail "refuse: it was written"
rm "$MNT/refuse/d" "$T/d"
shut "${fds[@]:0:2}" # they have no writer any more, and give way
within 10 eval 'write "$MNT/refuse/e" 16 >/dev/null 2>"$T/err"' ||
	fail "refuse: there is memory: $(cat "$T/err")"
shut "${fds[@]:2}"
kept "$MNT/blocks/b1" "$MNT/blocks/b2" "$MNT/blocks/b3" "$MNT/blocks/b4" \
	"$MNT/blocks/f" "$MNT/refuse/e"

echo "# one log has all regions: what it does not need is waited for"
exec 9>>"$MNT/blocks/g"
write "$MNT/blocks/g" 170 5000 >/dev/null || fail "g"
within 10 free_is "< 262144" || fail "there is memory"
write "$MNT/refuse/h" 100 5000 >/dev/null 2>"$T/err" ||
	fail "refuse: destaging did not help: $(cat "$T/err")"
exec 9>&-
kept "$MNT/blocks/g" "$MNT/refuse/h"

echo "# only one region for a log that needs more"
fds=()
for i in 1 2 3; do
	exec {fd}>>"$MNT/blocks/i$i"
	echo "$i" | tee "$T/i$i" >&"$fd"
	fds+=("$fd")
done
before=$(log_counter destages)
write "$MNT/blocks/j" 16 >"$T/ms" || fail "a write fails"
echo "# $(cat "$T/ms") ms for 1 MiB"
[ "$(cat "$T/ms")" -lt 2000 ] || fail "$(cat "$T/ms") ms"
sleep 1.1
[ "$(log_counter destages)" -lt $((before + 100)) ] ||
	fail "it asks again and again: $(log_counter destages) destagings"
shut "${fds[@]}"
kept "$MNT/blocks/j" "$MNT/blocks/i1" "$MNT/blocks/i2" "$MNT/blocks/i3"

echo "# a huge file that matches, copied"
head -c "${HUGE:-300}M" /dev/urandom >"$T/huge"
copy() { # DIR: prints MiB/s
	local start
	start=$(date +%s%N)
	cp "$T/huge" "$MNT/$1/huge"
	sync "$MNT/$1/huge"
	echo $((${HUGE:-300} * 1000000000 / ($(date +%s%N) - start)))
}
plain=$(copy plain)
rm "$MNT/plain/huge"
(while :; do lent; sleep 0.3; done >"$T/lent") &
looker=$!
test_cleanup() { kill "$looker" 2>/dev/null; }
logged=$(copy blocks)
kill $looker
[ "$(sort -n "$T/lent" | tail -n 1)" -le $((1 << 20)) ] || fail "memory"
echo "# figure: a copy of ${HUGE:-300} MiB into a log directory: $logged MiB/s, elsewhere $plain"
[ $((logged * 20)) -ge "$plain" ] || fail "$logged MiB/s, elsewhere $plain"
kept "$MNT/blocks/huge"
fsck_clean
