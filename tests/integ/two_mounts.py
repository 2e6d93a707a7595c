"""Two mounts of one file system, A and B: what each sees of the other.

usage: two_mounts.py A B [TEST...]
"""
import errno
import os
import random
import sys
import threading
import time

A, B = sys.argv[1:3]


def both(name):
    return os.path.join(A, name), os.path.join(B, name)


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def workers(jobs):
    """Each of @jobs, a function and its arguments, in a process of its own."""
    pids = []
    for fn, *args in jobs:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                fn(*args)
                status = 0
            except BaseException as e:  # the parent fails
                print("%s: %r" % (fn.__name__, e), file=sys.stderr)
            finally:
                os._exit(status)
        pids.append(pid)
    failed = sum(os.waitpid(p, 0)[1] != 0 for p in pids)
    assert not failed, "%d of %d failed" % (failed, len(jobs))


def refused(err, fn, *args):
    try:
        fn(*args)
    except OSError as e:
        assert e.errno == err, e
    else:
        raise AssertionError("%s%r was not refused" % (fn.__name__, args))


def test_names():
    """Each change of names is seen at once, also what was not there before."""
    for i in range(30):
        a, b = both("n%d" % i)
        assert not os.path.exists(a) and not os.path.exists(b)
        put(a, b"1")
        assert os.path.exists(b)
        assert ("n%d" % i) in os.listdir(B)
        os.rename(b, b + "x")
        assert not os.path.exists(a) and os.path.exists(a + "x")
        os.link(a + "x", a)
        assert os.stat(b).st_nlink == 2
        os.chmod(b, 0o640)
        assert os.stat(a).st_mode & 0o777 == 0o640
        os.unlink(a)
        os.unlink(b + "x")
        assert not [n for n in os.listdir(A) if n.startswith("n%d" % i)]
    a, b = both("d")
    os.mkdir(a)
    os.mkdir(os.path.join(b, "e"))
    refused(errno.ENOTEMPTY, os.rmdir, a)
    os.rmdir(os.path.join(a, "e"))
    os.rmdir(b)
    assert not os.path.exists(a)
    os.symlink("somewhere", a)
    assert os.readlink(b) == "somewhere"
    os.unlink(b)


def test_content():
    """What one has written the other reads, with the right size, also while
    both have it open; and what was cut off stays so."""
    a, b = both("f")
    fa = os.open(a, os.O_RDWR | os.O_CREAT, 0o644)
    fb = os.open(b, os.O_RDWR)
    rng = random.Random(1)
    model = bytearray()
    for i in range(300):
        w, r = (fa, fb) if rng.random() < .5 else (fb, fa)
        what = rng.random()
        off = rng.randrange(3 << 20)
        if what < .6:
            data = bytes([rng.randrange(256)]) * rng.randrange(1, 9000)
            os.pwrite(w, data, off)
            if len(model) < off + len(data):
                model.extend(bytes(off + len(data) - len(model)))
            model[off:off + len(data)] = data
        elif what < .75:
            os.ftruncate(w, off)
            del model[off:]
            model.extend(bytes(off - len(model)))
        elif what < .85:
            os.posix_fallocate(w, off, 5000)
            model.extend(bytes(max(0, off + 5000 - len(model))))
        elif what < .9:
            os.fsync(w)
        assert os.fstat(r).st_size == len(model), i
        off = rng.randrange(3 << 20)
        assert os.pread(r, 20000, off) == model[off:off + 20000], i
    assert get(a) == model and get(b) == model
    os.close(fa)
    os.close(fb)
    refused(errno.ENOENT, os.stat, a + "x")
    t = 1234567890
    os.utime(b, (t, t))
    assert os.stat(a).st_mtime == t
    put(a, b"new")
    assert get(b) == b"new" and os.stat(b).st_size == 3
    os.unlink(b)


def appended(path, tag, count):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    for i in range(count):
        line = b"%s %06d\n" % (tag, i)
        assert os.write(fd, line) == len(line)
    os.close(fd)


def test_append():
    """Appends of several writers at both: each is there once, in its writer's
    order."""
    a, b = both("app")
    put(a, b"")
    tags = b"abcd"
    workers([(appended, (a, b)[i % 2], tags[i:i + 1], 300) for i in range(4)])
    got = get(a)
    assert got == get(b)
    lines = got.split(b"\n")
    assert lines.pop() == b"" and len(lines) == 4 * 300, len(lines)
    for i in range(4):
        mine = [int(n[2:]) for n in lines if n[:1] == tags[i:i + 1]]
        assert mine == list(range(300))
    os.unlink(a)


def test_follow():
    """A file that grows at one is followed from the other (tail -f)."""
    a, b = both("log")
    fd = os.open(a, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with open(b, "rb") as f:
        for i in range(50):
            os.write(fd, b"%d\n" % i)
            start = time.monotonic()
            while not (line := f.readline()):
                assert time.monotonic() - start < 1, "not seen in a second"
                time.sleep(.01)
            assert line == b"%d\n" % i
    os.close(fd)
    os.unlink(a)


def test_unlinked():
    """A file that the other removes, or replaces, stays as it is for those who
    have it open, with what was written before and is written after."""
    for how in ("unlink", "rename", "rename here", "closed"):
        a, b = both("u")
        other = both("other")
        data = os.urandom(300000)
        f = open(a, "wb")
        f.write(data)
        if how == "closed":
            f.close()
        else:
            f.flush()
        g = open(b, "r+b", buffering=0)
        put(other[0], b"other")
        if how == "rename here":
            os.rename(*[other[1], b])
        elif how == "rename":
            os.rename(other[0], a)
        else:
            os.unlink(a)
        f.close()
        time.sleep(.3)
        assert g.read() == data, how
        g.write(b"more")
        assert os.fstat(g.fileno()).st_nlink == 0
        g.seek(0)
        assert g.read() == data + b"more", how
        os.fsync(g.fileno())
        g.close()
        if how.startswith("rename"):
            assert get(a) == get(b) == b"other"
        for n in (a, other[0]):
            if os.path.exists(n):
                os.unlink(n)


def fight(path, stop_after, own):
    fd = os.open(path, os.O_RDWR)
    end = time.monotonic() + stop_after
    longest = count = 0
    while time.monotonic() < end:
        t = time.monotonic()
        os.pwrite(fd, b"%08d" % count, own)
        longest = max(longest, time.monotonic() - t)
        count += 1
    print("# %s: %d writes, the longest took %.0f ms" %
          (path, count, longest * 1000))
    assert longest < 2, longest
    assert os.pread(fd, 8, own) == b"%08d" % (count - 1)
    os.close(fd)


def test_fair():
    """Two that write the same file all the time: neither starves."""
    a, b = both("fair")
    put(a, bytes(16))
    workers([(fight, a, 3, 0), (fight, b, 3, 8)])
    os.unlink(a)


def crossed(mine, theirs, count):
    """Writes @mine, reads @theirs, at the same time as its like."""
    for i in range(count):
        with open(mine, "r+b", buffering=0) as f, \
                open(theirs, "r+b", buffering=0) as g:
            f.write(b"%06d" % i)
            g.seek(100)
            g.write(b"%06d" % i)
            f.seek(0)
            assert f.read(6) == b"%06d" % i


def test_crossed():
    """Each needs two files, in the other order: nobody waits for ever."""
    xa, xb = both("x")
    ya, yb = both("y")
    put(xa, b"")
    put(ya, b"")
    start = time.monotonic()
    workers([(crossed, xa, ya, 100), (crossed, yb, xb, 100)])
    assert time.monotonic() - start < 60
    for n in xa, ya:
        got = get(n)
        assert got[:6] == got[100:] == b"%06d" % 99, got
        os.unlink(n)


def storm(d, own, seed, seconds):
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    longest = count = 0
    while time.monotonic() < end:
        n = os.path.join(d, "s%d" % rng.randrange(20))
        m = os.path.join(d, "s%d" % rng.randrange(20))
        what = rng.randrange(4)
        t = time.monotonic()
        try:
            if what == 0:
                put(n, own)
            elif what == 1:
                os.unlink(n)
            elif what == 2:
                os.rename(n, m)
            else:
                get(n)
        except FileNotFoundError:
            pass
        longest = max(longest, time.monotonic() - t)
        count += 1
    print("# %s: %d, the longest took %.0f ms" % (d, count, longest * 1000))
    assert longest < 1 + .5 * (os.environ.get("FLAVOUR", "release") !=
                               "release"), longest


def test_storm():
    """Both make, rename, remove and read names of one directory: nothing takes
    a second, and both see the same at the end."""
    a, b = both("storm")
    os.mkdir(a)
    workers([(storm, d, o, i, 5) for i, (d, o) in
             enumerate([(a, b"a" * 100), (b, b"b" * 5000), (a, b"c"),
                        (b, b"d" * 70000)])])
    names = sorted(os.listdir(a))
    assert names == sorted(os.listdir(b))
    for n in names:
        got = get(os.path.join(a, n))
        assert got == get(os.path.join(b, n))
        assert len(set(got)) <= 1 and len(got) in (0, 100, 5000, 1, 70000), n
        os.unlink(os.path.join(b, n))
    os.rmdir(a)


def keep_writing(path, seed, until):
    rng = random.Random(seed)
    with open(path, "r+b", buffering=0) as f:
        while time.monotonic() < until:
            os.pwrite(f.fileno(), bytes([seed]) * 65536,
                      rng.randrange(64) * 65536)


def write_within(path, until, limit):
    with open(path, "r+b", buffering=0) as f:
        worst = n = 0
        while time.monotonic() < until:
            start = time.monotonic()
            os.pwrite(f.fileno(), b"mine", 4 << 20)
            worst = max(worst, time.monotonic() - start)
            n += 1
            time.sleep(.05)
    assert worst < limit, worst
    assert n > 10, n


def test_busy():
    """Who wants a file that others write without a pause gets it soon."""
    a, b = both("busy")
    put(a, bytes(4 << 20))
    until = time.monotonic() + 4
    workers([(keep_writing, a, i + 1, until) for i in range(4)] +
            [(write_within, b, until, 1)])
    os.unlink(a)


def test_refused():
    """What is not to be had beside other mounts yet is refused, not wrong."""
    import mmap
    a, b = both("r")
    put(a, bytes(8192))
    with open(b, "r+b") as f:
        refused(errno.ENODEV, mmap.mmap, f.fileno(), 8192)
        m = mmap.mmap(f.fileno(), 8192, mmap.MAP_PRIVATE)
        assert m[:] == bytes(8192)
        m.close()
    os.unlink(a)


def main(names):
    """Runs the tests that @names has, all or those asked for."""
    tests = {n[5:]: fn for n, fn in names.items() if n.startswith("test_")}
    for name in sys.argv[3:] or tests:
        print("# " + name, flush=True)
        tests[name]()


if __name__ == "__main__":
    main(globals())
