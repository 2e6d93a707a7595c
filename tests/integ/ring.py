# Two logs that are overwritten in a circle, as databases do, and what they must
# be at any moment.
#   ring.py run TOP ACKS SECONDS [COUNTER]   appends to ACKS: write, value of the
#                                            counter, milliseconds
#   ring.py check TOP ACKS [CUT]             prints the last write that is there,
#                                            the last one acknowledged (while the
#                                            counter was at most CUT), and for how
#                                            many ms those not there were written
# Write n is of 512 to 8192 bytes, in sectors that say n, where the one before it
# ended in its ring; two rings take turns. Now and then a page of an ordinary file
# says n, with fsync. What is there has to be, to the byte, what all writes up to
# one of them make; run goes on behind it.
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
def content(top):
    have = [b"", b""]
    last = 0
    for i, p in enumerate(names(top)):
        if os.path.exists(p):
            have[i] = open(p, "rb").read()
        for o in range(0, len(have[i]), 512):
            last = max(last, struct.unpack("<Q", have[i][o:o + 8])[0])
    return have, last
def run(top, acks, seconds, counter):
    _, last = content(top)
    fds = [os.open(p, os.O_RDWR | os.O_CREAT, 0o600) for p in names(top)]
    page = os.open(top + "/page", os.O_RDWR | os.O_CREAT, 0o600)
    clock = os.open(counter, os.O_RDONLY) if counter else -1
    end = time.time() + seconds
    now = 0
    with open(acks, "a", buffering=1) as out: # it may be killed
        for n, ring, at, count, look in writes(1):
            if n <= last:
                continue
            os.pwrite(fds[ring], sector(n) * count, at)
            os.fdatasync(fds[ring])
            if counter:
                now = struct.unpack("<Q", os.pread(clock, 8, 0))[0]
            print(n, now, int(time.monotonic() * 1000), file=out)
            if look:
                os.pwrite(page, sector(n), 0)
                os.fsync(page)
            if time.time() > end:
                break
def check(top, acks, cut):
    have, last = content(top)
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
    acked = [(n, ms) for n, c, ms in acked if cut is None or c <= cut]
    total = acked[-1][0] if acked else 0
    missing = 0
    if total > last:
        missing = acked[-1][1] - max([ms for n, ms in acked if n <= last] or
                                     [acked[0][1]])
    print(last, total, missing)
if sys.argv[1] == "run":
    run(sys.argv[2], sys.argv[3], float(sys.argv[4]),
        sys.argv[5] if len(sys.argv) > 5 else None)
else:
    check(sys.argv[2], sys.argv[3],
          int(sys.argv[4]) if len(sys.argv) > 4 else None)
