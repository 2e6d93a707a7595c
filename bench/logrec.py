"""logrec: a log of 60 MiB that is not in the blocks yet.

Recovery: how much longer a mount takes that finds such a log of a killed one,
until a program has read it; in records of a size. Replacement: one of the log's
peers is killed, or hangs, under a writer that syncs each write: until it has
three again, and the longest of all its writes ("undisturbed": the same with no
loss, which is the machine's). Memory: what the mount and the peers hold for it.

In a cluster of its own, with a fourth log daemon, and a mount that by itself
destages nothing before it has twice as much.
"""
import os
import signal
import socket
import subprocess
import time
import urllib.request

from common import MICRO, Cluster, Failed, log_enable, median

LOG_MIB = 60
REGION_MIB = 0.25
# What is wanted: no more than.
RECOVER_S = 0.5
REPLACE_S = 1.0
STALL_MS = 50.0
REST_MIB = 8.0  # of a mount beside the log's mirror


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class LogCluster(Cluster):
    def __init__(self):
        self.port = free_port()
        self.opts = "writeback,wb_size=512m,metrics_port=%d" % self.port
        super().__init__(self.opts, "logrec", ("--logds", "4", "--log-memory",
                                               "256m"))
        self.logs = os.path.join(self.mnt, "logs")
        try:
            os.makedirs(self.logs, exist_ok=True)
            log_enable(self.logs, "--destage", "off")
        except BaseException:
            self.close()
            raise

    def kill(self, name):
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        while os.path.exists("/proc/%d" % pid):
            time.sleep(0.001)

    def mount_metrics(self):
        """What the mount tells at this moment."""
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % self.port,
                                    timeout=10) as page:
            text = page.read().decode()
        r = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                r[name] = float(value)
        return r

    def gauge(self, name):
        return self.mount_metrics()["hailfs_logs_" + name]

    def peers(self):
        """Of the log; the mount tells metad each second."""
        files = self.mount_status()["logs"]["files"]
        return [p["id"] for f in files for p in f["peers"]]

    def lent_mib(self):
        """By the daemon that lends most."""
        return max(v["lent_bytes"] for k, v in self.ask("stats").items()
                   if k.startswith("logd")) / 2 ** 20

    def rss_mib(self):
        """The mount's."""
        with open("/proc/%d/status" % self.pid("mount")) as f:
            for line in f:
                if line.startswith("VmRSS"):
                    return int(line.split()[1]) / 1024


def wait_for(what, fn, seconds=60):
    end = time.monotonic() + seconds
    while not fn():
        if time.monotonic() > end:
            raise Failed("logrec: %s did not happen" % what)
        time.sleep(0.01)


class Writer:
    """micro log: 60 MiB, and then synced writes for ms, or none."""

    def __init__(self, c, size, ms):
        self.p = subprocess.Popen(
            [MICRO, "log", c.logs, str(size), str(LOG_MIB), str(ms)],
            stdout=subprocess.PIPE, text=True)
        if self.p.stdout.readline() != "full\n":
            self.p.wait()
            raise Failed("logrec: no log was written")

    def kill(self):
        self.p.kill()
        self.p.wait()
        self.p.stdout.close()

    def longest_ms(self):
        out = self.p.communicate()[0]
        if self.p.returncode:
            raise Failed("logrec: a write failed")
        return float(out.split()[2]) / 1000


def log_gone(c):
    """All is in the blocks, the file and its log are not any more."""
    os.unlink(c.logs + "/log")
    wait_for("the log's end", lambda: c.gauge("mirror_bytes") == 0)


# ---- recovery ----

def begin_s(c, path=None):
    """From the death of a mount until another is there, and has read path."""
    c.kill("mount")
    t = time.monotonic()
    c.up(c.opts)
    size = 0
    if path:
        with open(path, "rb", buffering=0) as f:
            while True:
                piece = f.read(1 << 20)
                if not piece:
                    break
                size += len(piece)
        if size != LOG_MIB << 20:
            raise Failed("logrec: %d bytes were recovered" % size)
    return time.monotonic() - t


def recovery(c, runs, size):
    plain, log = [], []
    for _ in range(runs):
        plain.append(begin_s(c))
        w = Writer(c, size, 0)
        try:
            if c.gauge("mirror_bytes") < LOG_MIB << 20:
                raise Failed("logrec: the log is not as long as it shall be")
            log.append(begin_s(c, c.logs + "/log"))
        finally:
            w.kill()
        if c.gauge("recovered") != 1:
            raise Failed("logrec: nothing was recovered")
        log_gone(c)
    yield "recover-%d" % size, "s", median(log) - median(plain), RECOVER_S
    yield "mount-without-%d" % size, "s", median(plain), None


# ---- replacement ----

def replace(c, how):
    """A peer is killed or stopped (how: a signal; 0: none) under a writer.
    Seconds until there are three again, and the longest write in ms."""
    w = Writer(c, 4096, 4000)
    taken, victim = 0.0, None
    try:
        wait_for("a log of three peers", lambda: len(c.peers()) == 3)
        had = c.gauge("replaced")
        if how:
            victim = c.pid("logd%d" % c.peers()[0])
            t = time.monotonic()
            os.kill(victim, how)
            wait_for("a replacement", lambda: c.gauge("replaced") > had and
                     c.gauge("degraded") == 0)
            taken = time.monotonic() - t
        return taken, w.longest_ms()
    finally:
        w.kill()
        if victim and how == signal.SIGSTOP:
            os.kill(victim, signal.SIGCONT)
        c.up(c.opts)
        log_gone(c)


def replacement(c, runs):
    for name, how in (("undisturbed", 0), ("killed", signal.SIGKILL),
                      ("hung", signal.SIGSTOP)):
        got = [replace(c, how) for _ in range(runs)]
        if how:
            yield ("replace-" + name, "s", median([g[0] for g in got]),
                   REPLACE_S)
        yield ("longest-" + name, "ms", median([g[1] for g in got]),
               STALL_MS if how else None)


# ---- memory ----

def memory(c):
    """What the mount and its peers hold for a log, and when it is gone. Of the
    mount's own, what it keeps for write-back buffers in any case is left out:
    it is there afterwards."""
    w = Writer(c, 4096, 0)
    try:
        mirror, lent = c.gauge("mirror_bytes") / 2 ** 20, c.lent_mib()
        rss = c.rss_mib()
    finally:
        w.kill()
    log_gone(c)
    wait_for("the memory's return", lambda: c.lent_mib() == 0)
    yield "lent-by-peer", "MiB", lent, None
    yield "mirror", "MiB", mirror, lent + REGION_MIB
    yield "mount-for-log", "MiB", rss - c.rss_mib(), mirror + REST_MIB
    yield "lent-after", "MiB", c.lent_mib(), 0.0
    yield "mirror-after", "MiB", c.gauge("mirror_bytes") / 2 ** 20, 0.0


def rows(_, runs, quick):
    c = LogCluster()
    try:
        got = list(memory(c))
        for size in (4096,) if quick else (4096, 128):
            got += recovery(c, runs, size)
        got += replacement(c, runs)
    finally:
        c.close()
    for metric, unit, value, most in got:
        r = {"metric": metric, "unit": unit, "value": round(value, 3)}
        if most is not None:
            r["most"] = round(most, 3)
        yield r
