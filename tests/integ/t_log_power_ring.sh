#!/bin/bash
# A power cut of everything, log peers too, under logs that are overwritten in a
# circle, as databases do: what is left of them is what they were after one write,
# of all logs the same one, to the byte, not half of a destaging. No write that was
# acknowledged longer ago than the destage interval is missing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/power.sh"
need python3
CUTS=${CUTS:-4}
power_begin
mkdir "$MNT/wal"
LOGS=1
wal_dir "$MNT/wal"
# Write n is of 512 to 8192 bytes, in sectors that say n, where the one before it
# ended in its ring; two rings take turns. Now and then a page of an ordinary file
# says n, with fsync.
cat >"$T/ring.py" <<'END'
import os, random, struct, sys, time
SIZE = 1 << 20
def writes(seed):
    r = random.Random(seed)
    at = [0, 0]
    n = 0
    while True:
        n += 1
        ring = r.randrange(2)
        count = min(r.randrange(1, 17), (SIZE - at[ring]) // 512)
        yield n, ring, at[ring], count, r.randrange(60) == 0
        at[ring] = (at[ring] + count * 512) % SIZE
def sector(n):
    return struct.pack("<Q", n) * 64
def names(top):
    return [top + "/wal/ring0", top + "/wal/ring1"]
def run(top, acks, counter, seconds):
    fds = [os.open(p, os.O_RDWR | os.O_CREAT) for p in names(top)]
    page = os.open(top + "/page", os.O_RDWR | os.O_CREAT)
    clock = os.open(counter, os.O_RDONLY)
    end = time.time() + seconds
    with open(acks, "w") as out:
        for n, ring, at, count, look in writes(1):
            os.pwrite(fds[ring], sector(n) * count, at)
            os.fdatasync(fds[ring])
            now = struct.unpack("<Q", os.pread(clock, 8, 0))[0]
            print(n, now, int(time.monotonic() * 1000), file=out)
            if look:
                os.pwrite(page, sector(n), 0)
                os.fsync(page)
            if time.time() > end:
                break
def check(top, acks, cut):
    have = [bytearray(), bytearray()]
    for i, p in enumerate(names(top)):
        if os.path.exists(p):
            have[i] = open(p, "rb").read()
    last = 0
    for h in have:
        for o in range(0, len(h), 512):
            last = max(last, struct.unpack("<Q", h[o:o + 8])[0])
    want = [bytearray(), bytearray()]
    for n, ring, at, count, look in writes(1):
        if n > last:
            break
        w = want[ring]
        if len(w) < at + count * 512:
            w.extend(bytes(at + count * 512 - len(w)))
        w[at:at + count * 512] = sector(n) * count
    for i in range(2):
        if want[i] == have[i]:
            continue
        for o in range(0, max(len(want[i]), len(have[i])), 512):
            if want[i][o:o + 512] != have[i][o:o + 512]:
                sys.exit("ring %d of %d bytes, of %d: sector %d has %r, not %r; last %d" % (
                    i, len(have[i]), len(want[i]), o // 512,
                    have[i][o:o + 8], want[i][o:o + 8], last))
    page = 0
    if os.path.exists(top + "/page"):
        p = open(top + "/page", "rb").read(8)
        page = struct.unpack("<Q", p)[0] if len(p) == 8 else 0
    if page > last:
        sys.exit("the page has %d, the rings %d" % (page, last))
    acked = [tuple(map(int, l.split())) for l in open(acks)]
    acked = [(n, ms) for n, c, ms in acked if c <= cut]
    total = acked[-1][0] if acked else 0
    missing = acked[-1][1] - acked[max(last, 1) - 1][1] if total > last else 0
    print(last, total, missing)
if sys.argv[1] == "run":
    run(sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]))
else:
    check(sys.argv[2], sys.argv[3], int(sys.argv[4]))
END
sync
first=$(power_now)
python3 "$T/ring.py" run "$MNT" "$T/acks" "$T/counter" "${SECONDS_OF_LOAD:-4}"
last=$(power_now)
logs_used
power_end
kept=0
for i in $(seq "$CUTS"); do
	at=$((first + (last - first) * i / CUTS - RANDOM % 50))
	seed=$((i % 3 == 0 ? 0 : RANDOM + 1))
	power_cut "$at" "$seed"
	read -r have acked missing <<<"$(python3 "$T/ring.py" check "$MNT" "$T/acks" \
		"$at")"
	[ -n "$missing" ] || fail "not a state that it was in: cut at $at seed $seed"
	echo "# cut at $at: $have of $acked writes, $missing ms are missing"
	[ "$missing" -le 4000 ] || fail "$missing ms are missing: cut at $at seed $seed"
	kept=$((kept + have))
	power_disk_down
done
[ $kept -gt 0 ] || fail "no cut left a write"
