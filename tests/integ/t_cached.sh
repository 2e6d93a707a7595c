#!/bin/bash
# What the kernel answers alone: stat and read of what is cached cost the mount
# no request, our own writes do not spoil that, and a write is one request and
# nothing else. What it must not answer alone: locks. With the kernel's
# write-back cache, which is the default of a local cluster, and without.
. "$(dirname "$0")/lib.sh"
need_root
need python3
port=$(python3 -c 'import socket
print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
cat >"$T/cached.py" <<'PY'
import fcntl, mmap, os, re, sys, urllib.request
port, mnt, local, writeback = sys.argv[1:3] + [sys.argv[3], sys.argv[4] == "wb"]

def counts():
    text = urllib.request.urlopen("http://127.0.0.1:%s/metrics" % port,
                                  timeout=10).read().decode()
    return {k: int(re.search(r"^hailfs_%s_seconds_count (\d+)$" % k, text,
                             re.M)[1]) for k in ("names", "read", "write")}

def during(f):
    """Requests of each kind while f() ran."""
    was = counts()
    f()
    now = counts()
    return {k: now[k] - was[k] for k in was}

def settles(what, f, want):
    """What was written before may still be told to metad meanwhile."""
    for _ in range(10):
        got = during(f)
        if all(got[k] == want[k] for k in want):
            return
    assert False, (what, got)

names = ["%s/f%d" % (mnt, i) for i in range(50)]
for n in names:
    with open(n, "wb") as f:
        f.write(b"x" * 65536)
        f.flush()
        os.fsync(f.fileno())
fds = [os.open(n, os.O_RDWR) for n in names]

def look():
    for n, fd in zip(names, fds):
        assert os.stat(n).st_size == 65536
        assert os.pread(fd, 65536, 0) == b"x" * 65536

settles("cached", lambda: [look() for _ in range(10)],
        {"names": 0, "read": 0, "write": 0})

def rewrite():
    for fd in fds:
        assert os.pwrite(fd, b"x" * 4096, 8192) == 4096
        assert os.pread(fd, 65536, 0) == b"x" * 65536

# No question about capabilities before each, none about times behind.
settles("writes", lambda: [rewrite() for _ in range(4)], {"read": 0} if
        writeback else {"names": 0, "read": 0, "write": 200})

big = os.open(mnt + "/big", os.O_RDWR | os.O_CREAT)
buf = mmap.mmap(-1, 8 << 20)
got = during(lambda: (os.pwrite(big, buf, 0), os.fsync(big)))
assert 8 <= got["write"] <= 9, ("1 MiB a request", got)

def append():
    fd = os.open(mnt + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(1000):
        os.write(fd, b"a")
    os.close(fd)

got = during(append)
assert got["write"] < 100 if writeback else got["write"] == 1000, ("appends",
                                                                   got)

def kernel_has_lock(path):
    with open(path, "w") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        flock = os.open(path, os.O_RDONLY)
        fcntl.flock(flock, fcntl.LOCK_SH)
        found = ":%d " % os.fstat(flock).st_ino in open("/proc/locks").read()
        os.close(flock)
        return found

assert kernel_has_lock(local), "/proc/locks tells nothing here"
assert not kernel_has_lock(mnt + "/locked"), "the kernel keeps the locks"

minor = os.minor(os.stat(mnt).st_dev)
path = "/sys/fs/fuse/connections/%d/max_background" % minor
if os.path.exists(path):
    assert int(open(path).read()) == 64, "max_background"
PY
for mode in wb nowb; do
	opts=metrics_port=$port
	[ $mode = wb ] && opts=writeback,$opts # as "local up" has it by itself
	[ $mode = wb ] || opts=nowriteback,$opts
	cluster_up -o "$opts"
	mkdir "$MNT/$mode"
	python3 "$T/cached.py" "$port" "$MNT/$mode" "$T/lock" $mode ||
		fail "$mode"
	umount "$MNT"
done
# What a local cluster has by itself.
cluster_up
within 10 sh -c "'$CTL' -c '$C/cluster.conf' sessions --json |
	grep -q '\"writeback\": true'" || fail "local up without writeback"
fsck_clean
