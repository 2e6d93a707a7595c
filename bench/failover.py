"""failover: three metads against one, and the loss of the one that leads.

sync-create: a file is made and synced, and its directory is, by one program.
failover: the metad that leads is killed while a program does that without end;
the longest time between two that were done. The one that was killed comes back
before the next is.
"""
import os
import signal
import subprocess
import threading
import time

from common import BIN, Cluster, Failed, median

KILLS = 20
# metric -> (key, value): "most" that is wanted
WANT = {"failover-median": 3000, "failover-worst": 5000,
        "sync-create-3-of-1": 2}


def synced_create(dirfd, name):
    f = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=dirfd)
    os.write(f, b"x" * 100)
    os.fsync(f)
    os.close(f)
    os.fsync(dirfd)


def rate_us(cluster, n):
    d = os.path.join(cluster.mnt, "rate")
    os.makedirs(d, exist_ok=True)
    dirfd = os.open(d, os.O_RDONLY)
    took = []
    for i in range(n):
        t = time.perf_counter()
        synced_create(dirfd, "f%d" % i)
        took.append(1e6 * (time.perf_counter() - t))
    for i in range(n):
        os.unlink("f%d" % i, dir_fd=dirfd)
    os.close(dirfd)
    return median(took)


class Writer(threading.Thread):
    """Makes files; @longest: seconds between two that were done."""

    def __init__(self, mnt):
        super().__init__(daemon=True)
        self.dir = os.path.join(mnt, "kills")
        os.makedirs(self.dir, exist_ok=True)
        self.last, self.longest, self.done = time.monotonic(), 0, 0
        self.error, self.ends = None, False
        self.start()

    def run(self):
        dirfd = os.open(self.dir, os.O_RDONLY)
        try:
            while not self.ends:
                synced_create(dirfd, "f%d" % self.done)
                now = time.monotonic()
                self.longest = max(self.longest, now - self.last)
                self.last = now
                self.done += 1
                time.sleep(0.01)
        except OSError as e:
            self.error = e
        os.close(dirfd)


def leader(cluster):
    for d in cluster.ask("status")["daemons"]:
        if d["program"] == "hail-metad" and d.get("leader") == d["id"] and \
                "epoch" in d:
            return d["id"]
    return 0


def until(what, seconds, fn):
    end = time.monotonic() + seconds
    while True:
        try:
            v = fn()
        except Failed:
            v = None
        if v:
            return v
        if time.monotonic() > end:
            raise Failed("not in %d s: %s" % (seconds, what))
        time.sleep(0.05)


def whole(cluster):
    """Three that are there and have the same."""
    pos = [d["pos"] for d in cluster.ask("status")["daemons"]
           if d["program"] == "hail-metad" and "pos" in d]
    return len(pos) == 3 and max(pos) - min(pos) < 50


def metad_start(cluster, n):
    subprocess.run([os.path.join(BIN, "hail-metad"), "--cluster",
                    cluster.dir + "/cluster.conf", "--id", str(n),
                    "--pidfile", "%s/run/metad%d.pid" % (cluster.dir, n),
                    "--log", "%s/run/metad%d.log" % (cluster.dir, n)],
                   check=True)


def kills(cluster, count):
    """Milliseconds of each."""
    took = []
    w = Writer(cluster.mnt)
    for _ in range(count):
        until("all metads are alike", 30, lambda: whole(cluster))
        n = until("one leads", 20, lambda: leader(cluster))
        time.sleep(0.5)
        w.longest = 0
        done = w.done
        os.kill(cluster.pid("metad%d" % n), signal.SIGKILL)
        until("files are made", 60, lambda: w.done > done + 5 or w.error)
        if w.error:
            raise Failed("the program on the mount: %s" % w.error)
        took.append(1000 * w.longest)
        metad_start(cluster, n)
    w.ends = True
    w.join()
    if w.error or len(os.listdir(w.dir)) != w.done:
        raise Failed("files are lost")
    return took


def rows(cluster, runs, quick):
    del cluster
    n = 100 if quick else 1000
    us = {1: [], 3: []}
    one = Cluster("", "metads-1")
    try:
        three = Cluster("", "metads-3", ("--metads", "3"))
        try:
            for _ in range(runs):
                us[1].append(rate_us(one, n))
                us[3].append(rate_us(three, n))
            took = kills(three, 2 if quick else KILLS)
        finally:
            three.close()
    finally:
        one.close()
    a, b = median(us[1]), median(us[3])
    for metric, unit, v in (("sync-create-1", "us", a),
                            ("sync-create-3", "us", b),
                            ("sync-create-3-of-1", "", b / a),
                            ("failover-median", "ms", median(took)),
                            ("failover-worst", "ms", max(took))):
        r = {"metric": metric, "unit": unit, "value": round(v, 2)}
        if metric in WANT:
            r["most"] = WANT[metric]
        yield r
