#!/bin/bash
# A file is read, and mapped, while it is written through a log that is destaged,
# trimmed and given back again and again: what is seen is all that was answered,
# and whole records, at every moment.
. "$(dirname "$0")/lib.sh"
need_root
need python3
export UP_OPTS=flush_age=50ms
cluster_up
cat >"$T/readers.py" <<'P'
import ctypes, mmap, os, sys, time
path, rounds, per_round = sys.argv[1], int(sys.argv[2]), 3000
shared = mmap.mmap(-1, 16)
answered, ended = (ctypes.c_uint64.from_buffer(shared, i) for i in (0, 8))
def record(i): return b"%015d\n" % i
def write():
    for r in range(rounds):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        for i in range(r * per_round + 1, (r + 1) * per_round + 1):
            assert os.write(fd, record(i)) == 16
            answered.value = i
        os.close(fd)
        time.sleep(0.7) # longer than a log outlives that
def read_all(fd):
    parts = []
    while parts[-1:] != [b""]:
        parts.append(os.read(fd, 1 << 20))
    return b"".join(parts)
def map_all(fd):
    size = os.fstat(fd).st_size
    return mmap.mmap(fd, size, prot=mmap.PROT_READ)[:] if size else b""
def look(how):
    want = b"".join(map(record, range(1, rounds * per_round + 1)))
    seen = looks = 0
    while not ended.value:
        least = max(answered.value, seen)
        fd = os.open(path, os.O_RDONLY)
        data = how(fd)
        os.close(fd)
        seen, rest = divmod(len(data), 16)
        assert not rest and seen >= least, (len(data), least)
        assert data == want[:len(data)], (len(data), next(
            i for i in range(len(data)) if data[i] != want[i]))
        looks += 1
        time.sleep(0.001)
    print(f"# {how.__name__}: {looks} times, {seen} records")
    assert looks > 20
def child(fn, *args):
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            fn(*args)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            code = 1
        sys.stdout.flush()
        os._exit(code)
    return pid
os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
readers = [child(look, how) for how in (read_all, map_all)]
code = os.waitpid(child(write), 0)[1]
ended.value = 1
for pid in readers:
    code |= os.waitpid(pid, 0)[1]
sys.exit(code != 0)
P
pids=
for when in interval close; do
	mkdir "$MNT/$when"
	"$CTL" log enable "$MNT/$when" --destage $when --region 64k \
		>/dev/null || fail "enable"
	python3 "$T/readers.py" "$MNT/$when/f" 6 >"$T/out.$when" 2>&1 &
	pids+=" $!"
done
for pid in $pids; do
	wait "$pid" || { cat "$T"/out.*; fail "read while it is written"; }
done
cat "$T"/out.*
# The logs really went.
within 5 eval '[ "$(log_counter dropped)" -gt 3 ]' ||
	fail "logs that ended: $(log_counter dropped)"
fsck_clean
