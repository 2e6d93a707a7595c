"""splitft: is a database with its log in a log directory as fast as one that
does not sync?

Each of them runs in three ways on one mount, in turn: strong (its log lies in
the blocks, each commit is synced), weak (the same, and commits are not synced)
and hailfs (each commit is synced, and the log is in a log directory).
"""
import os
import shutil

from common import (Failed, Postgres, Redis, db_bench, log_enable, median,
                    sqlite_rate, tps_of)

WAYS = ("strong", "weak", "hailfs")
# What hailfs shall reach of weak, by writers; of strong, by metric.
OF_WEAK = {1: 0.5, 16: 0.9}
OF_STRONG = 3.0


def rocksdb(d, way, quick):
    """Fills an empty database; then updates one that has all its keys, and
    reads and updates it by halves."""
    seconds = 2 if quick else 10
    keys = 20000 if quick else 200000
    wal = os.path.join(d, "wal")
    log = ["--sync=%d" % (way != "weak")]
    os.mkdir(wal)
    # db_bench begins by removing the directory, if it is empty.
    open(wal + "/here", "w").close()
    if way == "hailfs":
        log_enable(wal)
        log.append("--wal_dir=" + wal)
    r = {}
    for writers in (1, 16):
        for bench, more in (("fillrandom", []), ("updaterandom", []),
                            ("readrandomwriterandom",
                             ["--readwritepercent=50"])):
            db = os.path.join(d, bench)
            base = ["--db=" + db, "--num=%d" % keys, "--value_size=100"]
            if bench != "fillrandom":
                db_bench("fillseq", *base, *log[1:])
                more = more + ["--use_existing_db=1"]
            r["%s-%d" % (bench, writers)] = ("ops/s", writers, db_bench(
                bench, *base, *log, *more, "--threads=%d" % writers,
                "--duration=%d" % seconds))
            shutil.rmtree(db)
    return r


def redis(d, way, quick):
    if way == "hailfs":
        os.mkdir(d + "/appendonlydir")
        log_enable(d + "/appendonlydir")
    srv = Redis(d, "--appendfsync", "no" if way == "weak" else "always")
    try:
        n = 3000 if quick else 20000
        return {"redis-set-%d" % c: ("ops/s", c, srv.set_rate(n * c, c))
                for c in (1, 16)}
    finally:
        srv.close()


def sqlite(d, way, quick):
    if way == "hailfs":
        log_enable(d, "--match", "*-wal")
    return {"sqlite-wal": ("txn/s", 1, sqlite_rate(
        d + "/db", "wal", "off" if way == "weak" else "full",
        2 if quick else 10)[0])}


def postgres(d, way, quick):
    wal = None
    if way == "hailfs":
        wal = os.path.join(d, "wal")
        os.mkdir(wal, 0o700)
        log_enable(wal)
    pg = Postgres(d, "synchronous_commit=%s\n" %
                  ("off" if way == "weak" else "on"), wal)
    try:
        r = {}
        pg.pgbench("-i", "-q", "-s", "2" if quick else "16")
        for script in ("simple-update", "tpcb-like"):
            for clients in (1, 16):
                out = pg.pgbench("-n", "-b", script, "-c", str(clients), "-j",
                                 str(min(clients, 2)), "-T",
                                 "3" if quick else "10")
                r["pgbench-%s-%d" % (script, clients)] = (
                    "tps", clients, tps_of(out)[0])
        return r
    finally:
        pg.close()


def in_turn(fn):
    """The rows of a database: rows(cluster, runs, quick)."""
    def rows(cluster, runs, quick):
        got = {}  # metric -> way -> [(unit, writers, value)]
        for _ in range(runs):
            for way in WAYS:
                d = os.path.join(cluster.mnt, "splitft")
                shutil.rmtree(d, ignore_errors=True)
                os.mkdir(d)
                for m, v in fn(d, way, quick).items():
                    got.setdefault(m, {}).setdefault(way, []).append(v)
        shutil.rmtree(d, ignore_errors=True)
        for m, by in got.items():
            yield row(fn.__name__, m, by)
    return rows


def row(database, metric, by):
    unit, writers, _ = by["hailfs"][0]
    med = {way: median([v[2] for v in by[way]]) for way in WAYS}
    if not all(med.values()):
        raise Failed("%s: nothing was done" % metric)
    r = {"metric": metric, "unit": unit}
    r.update({way: round(med[way], 1) for way in WAYS})
    r["of_weak"] = round(med["hailfs"] / med["weak"], 3)
    r["of_weak_target"] = OF_WEAK[writers]
    r["of_strong"] = round(med["hailfs"] / med["strong"], 3)
    if database == "rocksdb" and writers == 1:
        r["of_strong_target"] = OF_STRONG
    return r


def table(rows):
    print("\n%-26s %-8s %10s %10s %10s %16s %16s" % (
        "metric", "unit", "strong", "weak", "hailfs", "of weak (want)",
        "of strong (want)"))
    for r in rows:
        print("%-26s %-8s %10.0f %10.0f %10.0f %16s %16s" % (
            r["metric"], r["unit"], r["strong"], r["weak"], r["hailfs"],
            "%.2f (%.1f)" % (r["of_weak"], r["of_weak_target"]),
            "%.2f" % r["of_strong"] + (
                " (%.1f)" % r["of_strong_target"]
                if "of_strong_target" in r else "")))
