# Processes that write one file at once, in ranges that overlap, and what it may
# hold then.
#   writers.py write FILE ACKS COUNT SEED   COUNT writes by each of five
#   writers.py check FILE ACKS              prints a sum of the content
# Each write is of 1 to 48 sectors, which say whose they are, somewhere in the 64
# that all are at. What is there has to be what the writes make in some order, one
# that keeps each whole and puts none that began after another had returned before
# it. (ACKS is emptied by who starts the file anew: later runs go on.)
import hashlib, mmap, os, random, struct, sys, time
SLOT, SLOTS = 64, 64
SECTORS = SLOT * SLOTS
# The kernel lets those with O_DIRECT write at once, but not past the file's end.
WAYS = [os.O_SYNC, 0, os.O_DIRECT, os.O_DIRECT, os.O_DIRECT]
BEGIN = SECTORS * 512 * 7 // 8
def run(path, acks, count, seed, way, step):
    r = random.Random(seed * 10 + way)
    f = os.open(path, os.O_RDWR | os.O_CREAT | WAYS[way], 0o600)
    out = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    buf = mmap.mmap(-1, 48 * 512)
    told = []
    for i in range(count):
        n = r.choice((1, 1, 2, 8, 8, 20, 48))
        now, = struct.unpack("<Q", step[:8]) # nearly: others count, too
        step[:8] = struct.pack("<Q", now + 1)
        at = now // 8 % SLOTS * SLOT + r.randrange(SLOT - n + 1)
        who = seed * 1000000 + way * 100000 + i
        for s in range(n):
            buf[s * 512:s * 512 + 512] = struct.pack("<QII", who, at + s, n) * 32
        began = time.monotonic_ns()
        assert os.pwritev(f, [memoryview(buf)[:n * 512]], at * 512) == n * 512
        ended = time.monotonic_ns()
        if WAYS[way] == 0 and i % 4 == 0:
            os.fdatasync(f)
        told.append(f"{who} {at} {n} {began} {ended}\n")
    os.write(out, "".join(told).encode())
    os._exit(0)
def write(path, acks, count, seed):
    f = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if os.fstat(f).st_size < BEGIN:
        os.ftruncate(f, BEGIN)
    os.close(f)
    pids, step = [], mmap.mmap(-1, 8)
    for way in range(len(WAYS)):
        pid = os.fork()
        if pid == 0:
            run(path, acks, count, seed, way, step)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0, "a writer failed"
def check(path, acks):
    f = os.open(path, os.O_RDONLY)
    have = b""
    while piece := os.read(f, 1 << 20):
        have += piece
    buf = mmap.mmap(-1, SECTORS * 512)
    f = os.open(path, os.O_RDONLY | os.O_DIRECT)
    assert os.preadv(f, [buf], 0) == len(have), "O_DIRECT reads another length"
    assert buf[:len(have)] == have, "O_DIRECT reads something else"
    writes = {}
    for line in open(acks):
        who, at, n, began, ended = map(int, line.split())
        writes[who] = (at, n, began, ended)
    over = [[] for _ in range(SECTORS)] # who wrote it
    for who, (at, n, _, _) in writes.items():
        for s in range(at, at + n):
            over[s].append(who)
    end = 512 * (1 + max(s for s in range(SECTORS) if over[s]))
    assert len(have) == max(BEGIN, end), f"{len(have)} bytes"
    below = {} # who: those that are seen to be before it
    for s in range(len(have) // 512):
        sector = have[s * 512:s * 512 + 512]
        if not over[s]:
            assert sector == bytes(512), f"sector {s} is nobody's"
            continue
        who, at, n = struct.unpack("<QII", sector[:16])
        assert sector == sector[:16] * 32, f"sector {s} is not whole"
        assert who in over[s] and at == s and n == writes[who][1], \
            f"sector {s}: {who} {at}"
        for other in over[s]:
            if other != who:
                assert writes[other][2] < writes[who][3], \
                    f"sector {s}: {other} began when {who} had returned"
                below.setdefault(who, set()).add(other)
    # No circle: those that nobody visible is over are taken away in turn.
    seen = dict(below)
    while seen:
        gone = [w for w in seen if not any(o in seen for o in seen[w])]
        assert gone, f"not in any order: {sorted(seen)[:8]}"
        for w in gone:
            del seen[w]
    # Did they really meet?
    assert len({w // 100000 for w in below}) > 2, "one writer after the other"
    print(hashlib.sha256(have).hexdigest())
if sys.argv[1] == "write":
    write(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
else:
    check(sys.argv[2], sys.argv[3])
