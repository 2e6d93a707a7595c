"""Locks of one file system by programs on two mounts of it, A and B.

usage: two_locks.py A B [TEST...]
"""
import ctypes
import errno
import fcntl
import mmap
import os
import random
import select
import signal
import sqlite3
import struct
import time

from two_mounts import both, get, main, put, refused, workers

FLOCK = "hhqqi4x"
OFD_GETLK, OFD_SETLK, OFD_SETLKW = 36, 37, 38


def lock(f, kind, start=0, length=0, wait=False, ofd=False):
    cmd = (OFD_SETLKW if wait else OFD_SETLK) if ofd else \
        fcntl.F_SETLKW if wait else fcntl.F_SETLK
    fcntl.fcntl(f, cmd, struct.pack(FLOCK, kind, os.SEEK_SET, start, length, 0))


def holder(f, kind, start=0, length=0, ofd=False):
    """Type, start, length, pid of what is in the way."""
    r = fcntl.fcntl(f, OFD_GETLK if ofd else fcntl.F_GETLK,
                    struct.pack(FLOCK, kind, os.SEEK_SET, start, length, 0))
    kind, _, start, length, pid = struct.unpack(FLOCK, r)
    return kind, start, length, pid


class Other:
    """A process that does what it is told: one line of Python at a time."""

    def __init__(self, path):
        self.path = path
        to, self.to = os.pipe()
        frm, said = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.to)
            self.serve(to, said)
        os.close(to)
        os.close(said)
        self.frm = os.fdopen(frm)

    def serve(self, to, frm):
        signal.signal(signal.SIGALRM, lambda *_: None)
        f = open(self.path, "r+b", buffering=0)
        names = dict(globals(), f=f, frm=frm)
        for line in os.fdopen(to):
            try:
                exec(line, names)
                said = "ok"
            except OSError as e:
                said = errno.errorcode[e.errno]
            except BaseException as e:
                said = repr(e)
            os.write(frm, (said + "\n").encode())
        os._exit(0)

    def tell(self, line):
        os.write(self.to, (line + "\n").encode())

    def heard(self):
        return self.frm.readline().strip()

    def do(self, line):
        self.tell(line)
        return self.heard()

    def end(self, sig=0):
        if sig:
            os.kill(self.pid, sig)
        else:
            self.tell("os._exit(0)")  # others have its pipe, too
        os.close(self.to)
        os.waitpid(self.pid, 0)
        self.frm.close()


def soon(fn, seconds=10):
    until = time.monotonic() + seconds
    while not fn():
        assert time.monotonic() < until, fn
        time.sleep(0.002)


def test_conflicts():
    """Ranges, read and write, of processes, handles and flock, seen there."""
    a, b = both("l")
    put(a, b"")
    p = Other(b)
    with open(a, "r+b") as f:
        for ofd in "", ", ofd=True":
            assert p.do("lock(f, fcntl.F_WRLCK, 10, 10%s)" % ofd) == "ok"
            refused(errno.EAGAIN, lock, f, fcntl.F_WRLCK, 15, 1)
            refused(errno.EAGAIN, lock, f, fcntl.F_RDLCK, 0, 0)
            lock(f, fcntl.F_WRLCK, 0, 10)
            lock(f, fcntl.F_WRLCK, 20, 0)
            assert holder(f, fcntl.F_RDLCK)[:3] == (fcntl.F_WRLCK, 10, 10)
            assert holder(f, fcntl.F_RDLCK, 0, 10)[0] == fcntl.F_UNLCK
            assert p.do("lock(f, fcntl.F_WRLCK, 9, 1%s)" % ofd) == "EAGAIN"
            assert p.do("lock(f, fcntl.F_RDLCK, 10, 10%s)" % ofd) == "ok"
            lock(f, fcntl.F_RDLCK, 12, 2, ofd=True)
            refused(errno.EAGAIN, lock, f, fcntl.F_WRLCK, 12, 2)
            assert p.do("lock(f, fcntl.F_WRLCK, 10, 10%s)" % ofd) == "EAGAIN"
            lock(f, fcntl.F_UNLCK)
            lock(f, fcntl.F_UNLCK, ofd=True)
            assert p.do("lock(f, fcntl.F_UNLCK, 0, 0%s)" % ofd) == "ok"
        # The same process number is told on its own mount only.
        q = Other(a)
        assert q.do("lock(f, fcntl.F_WRLCK, 3, 1)") == "ok"
        assert holder(f, fcntl.F_RDLCK) == (fcntl.F_WRLCK, 3, 1, q.pid)
        assert p.do("assert holder(f, fcntl.F_RDLCK) == "
                    "(fcntl.F_WRLCK, 3, 1, 0)") == "ok"
        q.end()
        # flock is another kind.
        fcntl.flock(f, fcntl.LOCK_EX)
        assert p.do("lock(f, fcntl.F_WRLCK)") == "ok"
        flock = "fcntl.flock(f, fcntl.LOCK_%s | fcntl.LOCK_NB)"
        assert p.do(flock % "SH") == "EAGAIN"
        fcntl.flock(f, fcntl.LOCK_SH)
        assert p.do(flock % "SH") == "ok"
        refused(errno.EAGAIN, fcntl.flock, f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # That conversion has lost the old one.
        assert p.do(flock % "EX") == "ok"
        assert p.do(flock % "UN") == "ok"
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    p.end()
    os.unlink(a)


def test_released():
    """With close(), the process, and the last handle."""
    a, b = both("l")
    put(a, b"")
    with open(a, "r+b") as f:
        for i in range(50):
            p = Other(b)
            assert p.do("lock(f, fcntl.F_WRLCK)") == "ok"
            refused(errno.EAGAIN, lock, f, fcntl.F_RDLCK)
            # Any descriptor's close drops a process's locks, at once.
            assert p.do("os.close(os.open(%r, os.O_RDONLY))" % b) == "ok"
            lock(f, fcntl.F_WRLCK)
            lock(f, fcntl.F_UNLCK)
            how = i % 3
            assert p.do("fcntl.flock(f, fcntl.LOCK_EX)" if how == 0 else
                        "lock(f, fcntl.F_WRLCK%s)" %
                        (", ofd=True" if how == 1 else "")) == "ok"
            take = fcntl.flock if how == 0 else lock
            arg = fcntl.LOCK_EX | fcntl.LOCK_NB if how == 0 else fcntl.F_WRLCK
            refused(errno.EAGAIN, take, f, arg)
            p.end(signal.SIGKILL if i % 2 else 0)
            if how == 0:
                fcntl.flock(f, fcntl.LOCK_EX)
                fcntl.flock(f, fcntl.LOCK_UN)
            else:
                lock(f, fcntl.F_WRLCK, wait=True)
                lock(f, fcntl.F_UNLCK)
    os.unlink(a)


def test_order():
    """Who waits is served in order of arrival."""
    a, b = both("l")
    put(a, b"")
    for i in range(5):
        ps = [Other((a, b)[n % 2]) for n in range(6)]
        with open(b, "r+b") as f:
            lock(f, fcntl.F_WRLCK)
            for p in ps:
                p.tell("lock(f, fcntl.F_WRLCK, wait=True)")
                time.sleep(0.03)  # they arrive one after the other
            lock(f, fcntl.F_UNLCK)
            for n, p in enumerate(ps):
                assert p.heard() == "ok"
                for q in ps[n + 1:]:
                    assert not select.select([q.frm], [], [], 0)[0]
                assert p.do("lock(f, fcntl.F_UNLCK)") == "ok"
        for p in ps:
            p.end()
    os.unlink(a)


def test_deadlock():
    """Of those who would wait for each other one is told."""
    a, b = both("l")
    put(a, b"")
    for n in 2, 3, 5:
        ps = [Other((a, b)[i % 2]) for i in range(n)]
        for i, p in enumerate(ps):
            assert p.do("lock(f, fcntl.F_WRLCK, %d, 1)" % i) == "ok"
        for i, p in enumerate(ps[:-1]):
            p.tell("lock(f, fcntl.F_WRLCK, %d, 1, wait=True)" % (i + 1))
            time.sleep(0.05)
        assert ps[-1].do("lock(f, fcntl.F_WRLCK, 0, 1, wait=True)") == \
            errno.errorcode[errno.EDEADLK]
        assert ps[-1].do("lock(f, fcntl.F_UNLCK)") == "ok"
        for p in reversed(ps[:-1]):
            assert p.heard() == "ok"
            assert p.do("lock(f, fcntl.F_UNLCK)") == "ok"
        for p in ps:
            p.end()
    os.unlink(a)


def test_interrupted():
    """A signal ends a wait; what it waited for is nobody's then."""
    a, b = both("l")
    put(a, b"")
    with open(a, "r+b") as f:
        for i in range(20):
            p = Other(b)
            lock(f, fcntl.F_WRLCK)
            # Python would call again: the C library's function does not.
            p.tell("fl = struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0); "
                   "signal.siginterrupt(signal.SIGALRM, True); "
                   "signal.setitimer(signal.ITIMER_REAL, %f); "
                   "r = ctypes.CDLL(None, use_errno=True).fcntl("
                   "f.fileno(), fcntl.F_SETLKW, fl); "
                   "assert r == -1 and ctypes.get_errno() == errno.EINTR"
                   % (0.02 + 0.005 * i))
            assert p.heard() == "ok"
            lock(f, fcntl.F_UNLCK)
            lock(f, fcntl.F_WRLCK)
            # One that is killed while it waits, too.
            p.tell("lock(f, fcntl.F_WRLCK, wait=True)")
            time.sleep(0.03)
            p.end(signal.SIGKILL)
            lock(f, fcntl.F_UNLCK)
            lock(f, fcntl.F_WRLCK, wait=True)
    os.unlink(a)


def test_closed_by_another_thread():
    """A lock that is granted after another thread has closed the file, which
    ends what the process has, is dropped with the last close all the same."""
    a, b = both("l")
    put(a, b"")
    with open(a, "r+b") as f:
        for i in range(5):
            lock(f, fcntl.F_WRLCK)
            p = Other(b)
            p.tell("import threading; t = threading.Thread(target=lock, "
                   "args=(f, fcntl.F_WRLCK), kwargs={'wait': True}); "
                   "t.start(); time.sleep(.1); "
                   "os.close(os.open(%r, os.O_RDONLY)); "
                   "os.write(frm, b'closed\\n'); t.join()" % b)
            assert p.heard() == "closed"
            lock(f, fcntl.F_UNLCK)
            assert p.heard() == "ok"
            refused(errno.EAGAIN, lock, f, fcntl.F_WRLCK)
            p.end(signal.SIGKILL if i % 2 else 0)
            soon(lambda: not os.path.exists("/proc/%d" % p.pid))
            lock(f, fcntl.F_WRLCK)
            lock(f, fcntl.F_UNLCK)
    os.unlink(a)


def test_signals():
    """A signal never ends what does not wait."""
    a, b = both("l")
    put(a, b"")
    with open(a, "r+b") as f:
        lock(f, fcntl.F_WRLCK)
        p = Other(b)
        assert p.do(
            "signal.siginterrupt(signal.SIGALRM, True); "
            "signal.setitimer(signal.ITIMER_REAL, .0003, .0003); "
            "c = ctypes.CDLL(None, use_errno=True); "
            "fl = struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0); "
            "got = {(c.fcntl(f.fileno(), fcntl.F_SETLK, fl), "
            "ctypes.get_errno()) for _ in range(2000)}; "
            "signal.setitimer(signal.ITIMER_REAL, 0); "
            "assert got == {(-1, errno.EAGAIN)}, got") == "ok"
        p.end()
    os.unlink(a)


def add(path, shared, seed, rounds):
    """Adds to numbers in the file, each under its lock."""
    rng = random.Random(seed)
    with open(path, "r+b", buffering=0) as f:
        for i in range(rounds):
            at = 8 * rng.randrange(4)
            ofd = rng.random() < 0.3
            lock(f, fcntl.F_WRLCK, at, 8, wait=True, ofd=ofd)
            assert shared[at] == 0, "two have it"
            shared[at] = 1
            n, = struct.unpack("q", os.pread(f.fileno(), 8, at))
            os.pwrite(f.fileno(), struct.pack("q", n + 1), at)
            shared[at] = 0
            lock(f, fcntl.F_UNLCK, at, 8, ofd=ofd)


def test_torture():
    """Nobody has what another has, and each sees what was written under it."""
    a, b = both("l")
    put(a, bytes(32))
    shared = mmap.mmap(-1, 4096)
    workers([(add, (a, b)[i % 2], shared, i, 400) for i in range(4)])
    assert sum(struct.unpack("4q", get(a))) == 1600
    os.unlink(a)


def pairs(path, seconds, count, which):
    n = 0
    until = time.monotonic() + seconds
    with open(path, "r+b") as f:
        while time.monotonic() < until:
            lock(f, fcntl.F_WRLCK, wait=True)
            lock(f, fcntl.F_UNLCK)
            n += 1
    struct.pack_into("q", count, 8 * which, n)


def test_fight():
    """Two that fight for a lock: both have it, and often."""
    a, b = both("l")
    put(a, b"")
    count = mmap.mmap(-1, 4096)
    workers([(pairs, p, 2, count, i) for i, p in enumerate((a, b))])
    n = struct.unpack_from("2q", count)
    print("# figure: %d lock/unlock pairs a second of two mounts that fight "
          "for one lock (%d, %d) [1000]" % (sum(n) / 2, *n))
    assert min(n) > 50, n
    os.unlink(a)


def transfers(path, seed, rounds):
    rng = random.Random(seed)
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    done = 0
    while done < rounds:
        x, y = rng.sample(range(20), 2)
        try:
            db.execute("begin immediate")
            db.execute("update t set v = v - 1 where k = ?", (x,))
            db.execute("update t set v = v + 1 where k = ?", (y,))
            db.execute("insert into log values (?, ?)", (seed, done))
            db.execute("commit")
            done += 1
        except sqlite3.OperationalError as e:
            assert "locked" in str(e), e
            if db.in_transaction:
                db.execute("rollback")
    db.close()


def test_sqlite():
    """A database with a rollback journal, used from both at once."""
    a, b = both("db")
    db = sqlite3.connect(a)
    db.execute("pragma journal_mode = delete")
    db.execute("create table t (k integer primary key, v integer)")
    db.execute("create table log (who integer, n integer)")
    db.executemany("insert into t values (?, 100)", [(k,) for k in range(20)])
    db.commit()
    db.close()
    workers([(transfers, (a, b)[i % 2], i, 40) for i in range(4)])
    db = sqlite3.connect(b)
    assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    assert db.execute("select sum(v), count(*) from t").fetchall() == \
        [(2000, 20)]
    assert db.execute("select who, count(*), count(distinct n) from log "
                      "group by who").fetchall() == \
        [(i, 40, 40) for i in range(4)]
    db.close()
    os.unlink(a)


main(globals())
