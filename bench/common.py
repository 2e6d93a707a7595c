"""What the cases of bench/run share: programs, places, the cluster."""
import glob
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("HAILFS_BIN", os.path.join(TOP, "build/bin"))
TESTS = os.path.join(TOP, "build/release/tests/bench")
MICRO = os.path.join(TESTS, "micro")
NULLFS = os.path.join(TESTS, "nullfs")


WORK = ""  # where all is made
DISK = None  # what that is on, in /proc/diskstats


def begin(work):
    global WORK, DISK
    WORK = os.path.abspath(work)
    os.makedirs(WORK, exist_ok=True)
    os.chmod(WORK, 0o755)
    DISK = disk_of(WORK)


class Failed(Exception):
    """What to tell of a run that cannot go on."""


def sh(cmd, **kw):
    try:
        p = subprocess.run(cmd, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, **kw)
    except OSError as e:
        raise Failed("cannot run %s: %s" % (cmd[0], e.strerror)) from e
    if p.returncode != 0:
        raise Failed("'%s' ended with %d:\n%s" % (
            " ".join(cmd), p.returncode, (p.stderr or p.stdout).rstrip()))
    return p.stdout


def disk_of(path):
    """Name in /proc/diskstats of the device that holds path."""
    dev = os.stat(path).st_dev
    want = (str(os.major(dev)), str(os.minor(dev)))
    for line in open("/proc/diskstats"):
        f = line.split()
        if (f[0], f[1]) == want:
            return f[2]
    return None


def flushes(disk):
    for line in open("/proc/diskstats"):
        f = line.split()
        if f[2] == disk and len(f) > 18:
            return int(f[18])
    return 0


def kind_of(path):
    """The file system's type."""
    return sh(["stat", "-f", "-c", "%T", path]).strip()


def cpu_ns(pid):
    """What all its threads have used, also those that are gone: its clock, see
    clock_getcpuclockid(3)."""
    return time.clock_gettime_ns((~pid << 3) | 2)


class Place:
    """A directory under test and the name of what it is on."""

    def __init__(self, name, path, cluster=None):
        self.name = name
        self.path = path
        self.cluster = cluster
        # The null file system has no subdirectories.
        self.flat = name == "null"

    def sub(self, sub):
        return self.path if self.flat else os.path.join(self.path, sub)

    def fresh(self, sub):
        d = self.sub(sub)
        if self.flat:
            return d
        shutil.rmtree(d, ignore_errors=True)
        os.makedirs(d)
        return d


def log_enable(d, *more):
    sh([os.path.join(BIN, "hailctl"), "log", "enable", d] + list(more))


def synced(name, unit, fn):
    """fn() -> (value, syncs); with the disk's flushes for each sync."""
    f0 = flushes(DISK)
    value, syncs = fn()
    return {name: (unit, value, (flushes(DISK) - f0) / max(syncs, 1))}


def micro(place, args, sub="w", fresh=True):
    d = place.fresh(sub) if fresh else place.sub(sub)
    f0 = flushes(DISK)
    out = sh([MICRO, args[0], d] + [str(a) for a in args[1:]])
    f0 = flushes(DISK) - f0
    res = {}
    for line in out.splitlines():
        metric, unit, value, *syncs = line.split()
        res[metric] = (unit, float(value),
                       f0 / max(int(syncs[0]), 1) if syncs else None)
    return res


def pg_bin():
    for d in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True):
        if os.path.exists(d + "/initdb"):
            return d
    raise Failed("no PostgreSQL; 'make deps' installs it")


class Postgres:
    """A server on the database d/db; wal: where its log is, if elsewhere."""

    def __init__(self, d, conf="", wal=None):
        self.bin = pg_bin()
        self.db = d + "/db"
        self.run = os.path.join(WORK, "pgrun")
        os.makedirs(self.run, exist_ok=True)
        for p in (d, self.run) + ((wal,) if wal else ()):
            shutil.chown(p, "postgres")
        # Synced at once, not each of its thousand files.
        self.pg("initdb", "-N", "-D", self.db, "-A", "trust",
                "--no-instructions", *(("-X", wal) if wal else ()))
        sh(["sync", "-f", self.db])
        with open(self.db + "/postgresql.conf", "a") as f:
            f.write("listen_addresses=''\nunix_socket_directories='%s'\n"
                    "shared_buffers=256MB\nmax_wal_size=2GB\n"
                    "checkpoint_timeout=15min\n%s" % (self.run, conf))
        self.start()

    def start(self):
        self.pg("pg_ctl", "-D", self.db, "-w", "-l", self.run + "/log",
                "start")

    def pg(self, prog, *args):
        return sh(["runuser", "-u", "postgres", "--",
                   "%s/%s" % (self.bin, prog)] + list(args), cwd="/")

    def pgbench(self, *args):
        return self.pg("pgbench", "-h", self.run, *args, "postgres")

    def close(self):
        self.pg("pg_ctl", "-D", self.db, "-m", "fast", "stop")


def tps_of(out):
    tps = n = 0
    for line in out.splitlines():
        if line.startswith("tps"):
            tps = float(line.split()[2])
        elif "actually processed" in line:
            n = int(line.split(":")[1].split("/")[0])
    return tps, n


def db_bench(bench, *args):
    out = sh(["db_bench", "--benchmarks=" + bench,
              "--compression_type=none"] + list(args),
             stdin=subprocess.DEVNULL)
    for line in out.splitlines():
        if line.startswith(bench):
            return float(line.split("ops/sec")[0].split()[-1])
    raise Failed("db_bench printed no figure:\n" + out)


class Redis:
    def __init__(self, d, *args):
        self.sock = os.path.join(WORK, "redis.sock")
        self.srv = subprocess.Popen(
            ["redis-server", "--dir", d, "--port", "0", "--unixsocket",
             self.sock, "--appendonly", "yes", "--save", ""] + list(args),
            stdout=subprocess.DEVNULL)
        # Until it has read what it has: it refuses before.
        for _ in range(600):
            if self.answers():
                return
            if self.srv.poll() is not None:
                break
            time.sleep(0.05)
        self.close()
        raise Failed("redis-server does not answer in %s" % d)

    def answers(self):
        p = subprocess.run(["redis-cli", "-s", self.sock, "ping"],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                           text=True, check=False)
        return p.stdout == "PONG\n"

    def set_rate(self, count, clients):
        return float(sh(["redis-benchmark", "-s", self.sock, "-t", "set",
                         "-n", str(count), "-c", str(clients), "-d", "100",
                         "--csv"]).splitlines()[-1].split(",")[1].strip('"'))

    def close(self):
        self.srv.terminate()
        self.srv.wait()
        if os.path.exists(self.sock):
            os.unlink(self.sock)


def sqlite_rate(path, mode, synchronous, seconds):
    """Transactions of one row: a second, and how many."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("pragma journal_mode=" + mode)
    db.execute("pragma synchronous=" + synchronous)
    db.execute("create table t(a integer primary key, b text)")
    n, t = 0, time.monotonic()
    while time.monotonic() - t < seconds:
        db.execute("insert into t(b) values(?)", ("x" * 100,))
        n += 1
    rate = n / (time.monotonic() - t)
    db.close()
    return rate, n


class Cluster:
    """hailctl local; more: options for a new one."""

    def __init__(self, opts, name="cluster", more=()):
        self.dir = os.path.join(WORK, name)
        self.ctl = os.path.join(BIN, "hailctl")
        self.mnt = os.path.join(self.dir, "mnt")
        try:
            self.up(opts, more)
        except BaseException:
            subprocess.run([self.ctl, "local", "down", self.dir],
                           stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
            raise

    def up(self, opts, more=()):
        cmd = [self.ctl, "local", "up", self.dir] + list(more)
        if opts:
            cmd += ["-o", opts]
        sh(cmd)

    def remount(self, opts):
        sh(["umount", self.mnt])
        self.up(opts)

    def pid(self, name):
        with open("%s/run/%s.pid" % (self.dir, name)) as f:
            return int(f.read())

    def logds(self):
        """The pid of each log daemon by its name."""
        return {n: self.pid(n) for n in sorted(
            os.path.basename(p)[:-len(".pid")]
            for p in glob.glob(self.dir + "/run/logd*.pid"))}

    def ask(self, command):
        """What hailctl tells."""
        return json.loads(sh([self.ctl, "-c", self.dir + "/cluster.conf",
                              "--json", command]))

    def mount_status(self):
        """As of the last second; the mount tells metad."""
        for _ in range(200):
            for s in self.ask("sessions"):
                if s["state"] == "live" and "io_uring" in s.get("status", {}):
                    return s["status"]
            time.sleep(0.05)
        raise Failed("the mount at %s tells nothing of itself" % self.mnt)

    def over_uring(self):
        """Does the mount talk to the kernel over io_uring?"""
        return self.mount_status()["io_uring"].startswith("on")

    def close(self):
        sh([self.ctl, "local", "down", self.dir])


class Awake:
    """A SCHED_IDLE spinner on each core, in a control group that is idle as a
    whole: with automatic groups a session of its own would get its full share
    beside the daemons, which are sessions of their own."""

    def __init__(self):
        self.group = None
        for line in open("/proc/mounts"):
            _, path, kind, opts = line.split()[:4]
            if kind == "cgroup2" or (kind == "cgroup" and
                                     "cpu" in opts.split(",")):
                self.make_group(os.path.join(path, "hailfs-bench-%d" %
                                             os.getpid()))
            if self.group:
                break
        self.spin = subprocess.Popen([MICRO, "spin"])
        if self.group:
            with open(self.group + "/cgroup.procs", "w") as f:
                f.write("%d\n" % self.spin.pid)
        else:
            print("bench/run: no idle control group; the figures of awake "
                  "cores count the spinner as work", file=sys.stderr)

    def make_group(self, path):
        try:
            os.mkdir(path)
        except OSError:
            return
        try:
            with open(path + "/cpu.idle", "w") as f:
                f.write("1\n")
            self.group = path
        except OSError:
            os.rmdir(path)

    def close(self):
        self.spin.kill()
        self.spin.wait()
        if self.group:
            os.rmdir(self.group)


def most_table(rows):
    """Of figures that shall not be more than something."""
    print("\n%-26s %-8s %12s %12s" % ("metric", "unit", "value", "at most"))
    for r in rows:
        print("%-26s %-8s %12.3f %12s" % (named(r), r["unit"], r["value"],
                                          r.get("most", "")))


def named(row):
    return row["metric"] + (" awake" if row.get("awake") else "")


def wanted(row, key):
    """A ratio and what it shall be."""
    if key not in row:
        return ""
    want = row.get(key + "_target")
    return "%.2f" % row[key] + (" (%.1f)" % want if want else "")


def median(values):
    return statistics.median(values) if None not in values else None
