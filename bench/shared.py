"""shared: what several mounts of one file system cost each other.

recall: a mount writes into a file that another one has the write lease of,
with what it wrote still in memory ("dirty") or synced: the time of that
write(2), until the other has given the lease back. locks: pairs of lock and
unlock by two mounts that fight for one byte. create: files of 4 KiB by one
mount, and by four in directories of their own.
"""
import fcntl
import os
import shutil
import time

import common
from common import BIN, Cluster, Failed, median, sh

MOUNTS = 4
# metric -> (key, value): "most" or "least" that is wanted
WANT = {"recall-dirty": ("most", 2000), "recall-synced": ("most", 2000),
        "locks": ("least", 1000), "create-4-of-1": ("least", 3)}


class Mounts:
    """Of one cluster, which mounts the first itself."""

    def __init__(self):
        self.cluster = Cluster("shared", "shared")
        self.paths = [self.cluster.mnt]
        for i in range(1, MOUNTS):
            p = os.path.join(common.WORK, "shared%d" % i)
            os.makedirs(p, exist_ok=True)
            sh([os.path.join(BIN, "hailfs"), "-o",
                "shared,log=%s.log,pidfile=%s.pid" % (p, p),
                self.cluster.dir + "/cluster.conf", p])
            self.paths.append(p)

    def close(self):
        pids = []
        for p in self.paths[1:]:
            with open(p + ".pid") as f:
                pids.append(int(f.read()))
            sh(["umount", p])
        # They end their sessions after that: the cluster is needed still.
        for pid in pids:
            while os.path.exists("/proc/%d" % pid):
                time.sleep(0.02)
        self.cluster.close()


def percentile(values, part):
    return sorted(values)[int(len(values) * part)]


def recall(paths, n, synced):
    """Microseconds of each write that takes the lease away."""
    fds = [os.open(p + "/recall", os.O_RDWR | os.O_CREAT) for p in paths[:2]]
    took = []
    try:
        for i in range(2 * n):
            t = time.perf_counter()
            os.pwrite(fds[i % 2], b"x" * 100, 100 * (i % 2))
            took.append(1e6 * (time.perf_counter() - t))
            if synced:
                os.fsync(fds[i % 2])
    finally:
        for f in fds:
            os.close(f)
    return took[2:]


def cpu_ticks():
    with open("/proc/stat") as f:
        return [int(v) for v in f.readline().split()[1:9]]


def at_once(count, work):
    """Runs work(i) in as many processes from one moment on."""
    ready, go = os.pipe(), os.pipe()
    pids = []
    for i in range(count):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.write(ready[1], b"r")
                os.read(go[0], 1)
                work(i)
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    for _ in pids:
        os.read(ready[0], 1)
    t = time.perf_counter()
    os.write(go[1], b"g" * count)
    failed = [p for p in pids if os.waitpid(p, 0)[1] != 0]
    took = time.perf_counter() - t
    for f in ready + go:
        os.close(f)
    if failed:
        raise Failed("a program on a mount failed")
    return took


def locks(paths, n):
    """Pairs a second of both together."""
    open(paths[0] + "/lock", "w").close()

    def fight(i):
        with open(paths[i] + "/lock", "r+b") as f:
            for _ in range(n):
                fcntl.lockf(f, fcntl.LOCK_EX, 1)
                fcntl.lockf(f, fcntl.LOCK_UN, 1)

    return 2 * n / at_once(2, fight)


def create(paths, n):
    """Files a second of all together, and what of the cores was idle."""
    for i, p in enumerate(paths):
        os.mkdir("%s/create%d" % (p, i))

    def make(i):
        d = "%s/create%d" % (paths[i], i)
        for k in range(n):
            f = os.open("%s/%d" % (d, k), os.O_CREAT | os.O_WRONLY, 0o644)
            os.write(f, b"x" * 4096)
            os.close(f)

    before = cpu_ticks()
    rate = len(paths) * n / at_once(len(paths), make)
    ticks = [b - a for a, b in zip(before, cpu_ticks())]
    for i, p in enumerate(paths):
        shutil.rmtree("%s/create%d" % (p, i))
    return rate, 100 * (ticks[3] + ticks[4]) / max(1, sum(ticks))


def once(paths, quick):
    n = 100 if quick else 500
    dirty, synced = recall(paths, n, False), recall(paths, n, True)
    one, four = create(paths[:1], 3 * n), create(paths, 3 * n)
    return {"recall-dirty": ("us", median(dirty)),
            "recall-dirty-p99": ("us", percentile(dirty, 0.99)),
            "recall-synced": ("us", median(synced)),
            "recall-synced-p99": ("us", percentile(synced, 0.99)),
            "locks": ("1/s", locks(paths, 5 * n)),
            "create-1": ("files/s", one[0]), "create-4": ("files/s", four[0]),
            "create-4-of-1": ("", four[0] / one[0]),
            "create-1-idle": ("%", one[1]), "create-4-idle": ("%", four[1])}


def rows(cluster, runs, quick):
    del cluster # it is mounted alone
    got = {}
    m = Mounts()
    try:
        for _ in range(runs):
            for metric, (unit, v) in once(m.paths, quick).items():
                got.setdefault(metric, (unit, []))[1].append(v)
    finally:
        m.close()
    for metric, (unit, values) in got.items():
        r = {"metric": metric, "unit": unit, "value": round(median(values), 2)}
        if metric in WANT:
            r[WANT[metric][0]] = WANT[metric][1]
        yield r


def table(rows_):
    print("\n%-20s %-8s %12s %12s %12s" % ("metric", "unit", "value",
                                           "at most", "at least"))
    for r in rows_:
        print("%-20s %-8s %12.2f %12s %12s" % (
            r["metric"], r["unit"], r["value"], r.get("most", ""),
            r.get("least", "")))
