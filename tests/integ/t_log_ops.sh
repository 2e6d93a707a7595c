#!/bin/bash
# A log file behaves as any other, and what a call that returned has done to it
# is there after kill -9 of the mount, without any fsync: random writes,
# truncations, holes, renames in and out of the log directory, copies; from
# several handles; the memory of the peers comes back.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up
mkdir "$MNT/l" "$MNT/o" "$T/local"
"$CTL" log enable "$MNT/l" --match '*.log' >/dev/null || fail "enable"
free() { "$CTL" -c "$C/cluster.conf" status --json |
	python3 -c 'import json,sys
print([d["free_bytes"] for d in json.load(sys.stdin)["daemons"]
       if "lent_bytes" in d])'; }
start=$(free)
cat >"$T/ops.py" <<'P'
import ctypes, mmap, os, random, shutil, sys
log, other, local, seed, count = sys.argv[1:4] + [int(sys.argv[4]), int(sys.argv[5])]
r = random.Random(seed)
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(fd, mode, off, n):
    if libc.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(n)):
        raise OSError(ctypes.get_errno(), "fallocate")
name = "a.log"
here, there = os.path.join(log, name), os.path.join(local, name)
for p in (here, there):
    os.close(os.open(p, os.O_CREAT | os.O_RDWR, 0o644))
fds = [[os.open(here, os.O_RDWR), os.open(here, os.O_RDWR | os.O_APPEND)],
       [os.open(there, os.O_RDWR), os.open(there, os.O_RDWR | os.O_APPEND)]]
def both(fn):
    return [fn(side) for side in (0, 1)]
for i in range(count):
    k = r.randrange(100)
    size = os.fstat(fds[1][0]).st_size
    data = r.randbytes(r.choice((1, 100, 128, 512, 4096, 5000, 70000)))
    if k < 40:
        both(lambda s: os.write(fds[s][1], data))
    elif k < 70:
        off = r.randrange(size + 5000)
        both(lambda s: os.pwrite(fds[s][0], data, off))
    elif k < 78:
        n = r.randrange(size + 3000)
        both(lambda s: os.ftruncate(fds[s][0], n))
    elif k < 84:
        off, n = r.randrange(size + 1), r.randrange(1, 20000)
        both(lambda s: fallocate(fds[s][0], 3, off, n)) # punch, keep size
    elif k < 87:
        off, n = r.randrange(size + 1), r.randrange(1, 20000)
        both(lambda s: fallocate(fds[s][0], r.choice((0, 1)) * 0, off, n))
    elif k < 90:
        n = r.randrange(1, 10000)
        both(lambda s: os.truncate((here, there)[s], n))
    elif k < 93:
        # zeros at the end stay
        both(lambda s: os.write(fds[s][1], bytes(r.randrange(1, 2) * 3000)))
    elif k < 95:
        # out of the log directory and back, under other names
        away = os.path.join(other, "x")
        os.rename(here, away)
        assert open(away, "rb").read() == open(there, "rb").read(), "moved out"
        os.rename(away, here)
    elif k < 97:
        a, b = (os.pread(fds[s][0], 30000, max(size - 20000, 0)) for s in (0, 1))
        assert a == b, "read"
    elif k < 98 and size:
        with open(here, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
            assert m[:] == open(there, "rb").read(), "mapped"
    elif k < 99:
        shutil.copyfile(here, os.path.join(log, "copy.log"))
        assert open(os.path.join(log, "copy.log"), "rb").read() == open(there, "rb").read(), "copied"
    else:
        # unlinked while open
        both(lambda s: os.unlink((here, there)[s]))
        both(lambda s: os.pwrite(fds[s][0], data, 0))
        assert os.pread(fds[0][0], 100, 0) == os.pread(fds[1][0], 100, 0), "orphan"
        for s in (0, 1):
            for j in (0, 1):
                os.close(fds[s][j])
            p = (here, there)[s]
            fds[s] = [os.open(p, os.O_CREAT | os.O_RDWR, 0o644), os.open(p, os.O_RDWR | os.O_APPEND)]
    assert os.fstat(fds[0][0]).st_size == os.fstat(fds[1][0]).st_size, ("size", i, k)
P
seed=${SEED:-$RANDOM}
for round in 1 2 3 4; do
	echo "# seed $((seed + round))"
	python3 "$T/ops.py" "$MNT/l" "$MNT/o" "$T/local" $((seed + round)) 400 ||
		fail "seed $((seed + round))"
	case $round in
	1) crash mount ;;
	2) crash mount logd2 ;;
	3) sleep 1.5; crash mount metad1 ;; # some of it is in the blocks
	4) cluster_down ;;
	esac
	cluster_up
	cmp "$MNT/l/a.log" "$T/local/a.log" || fail "lost, seed $((seed + round))"
	rm "$MNT/l/a.log" "$T/local/a.log"
done
echo "# a handle from before it was a log file"
python3 - "$MNT" <<'P' || fail "two handles"
import os, sys
top = sys.argv[1]
a = os.open(top + "/o/x", os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(a, b"old" * 2000, 0)
assert os.pread(a, 6000, 0) == b"old" * 2000 # the kernel has it
os.rename(top + "/o/x", top + "/l/x.log")
b = os.open(top + "/l/x.log", os.O_RDWR)
assert os.pread(b, 6, 0) == b"oldold"
os.pwrite(b, b"new" * 2000, 0)
assert os.pread(a, 6, 0) == b"newnew"
os.pwrite(a, b"AAA", 0)
assert os.pread(b, 6, 0) == b"AAAnew"
os.pwrite(b, b"BBB", 3)
os.pwrite(a, b"CCC", 6000)
os.fsync(a)
P
crash mount
cluster_up
[ "$(head -c 9 "$MNT/l/x.log")$(tail -c 6 "$MNT/l/x.log")" = AAABBBnewnewCCC ] ||
	fail "lost: written through a handle from before"
rm "$MNT/l/x.log"
echo other >"$MNT/l/other.txt"
before=$(log_counter opened)
echo other >>"$MNT/l/other.txt"
echo a log >>"$MNT/l/b.log"
[ "$(log_counter opened)" = $((before + 1)) ] ||
	within 3 eval '[ "$(log_counter opened)" = $((before + 1)) ]' ||
	fail "which files have a log"
files=${FILES:-1000}
for i in $(seq "$files"); do
	echo "$i" >"$MNT/l/$i.log"
	rm "$MNT/l/$i.log"
done
within 3 eval '[ "$(log_counter opened)" = $((before + 1 + files)) ]' ||
	fail "these had no logs: $files, $before, $(log_counter opened)"
rm "$MNT/l/"*
within 20 eval '[ "$(free)" = "$start" ]' || fail "memory: $start, $(free)"
fsck_clean
