"""splitft: is a database with its log in a log directory as fast as one that
does not sync?

Each of them runs in three ways on one mount, in turn: strong (its log lies in
the blocks, each commit is synced), weak (the same, and commits are not synced)
and hailfs (each commit is synced, and the log is in a log directory).
"""
import os
import shutil
from functools import partial

from common import (Failed, Postgres, Redis, db_bench, log_enable, median,
                    sqlite_rate, tps_of, wanted)

WAYS = ("strong", "weak", "hailfs")
# What hailfs shall reach of weak, by writers; of strong, by metric.
OF_WEAK = {1: 0.5, 16: 0.9}
OF_STRONG = 3.0


# Each database, in an empty directory and a way: {metric: (unit, writers,
# function that returns one figure)}.

def rocksdb(d, way, quick):
    """Fills an empty database; then updates one that has all its keys, and
    reads and updates it by halves."""
    length = "--writes=300" if quick else "--duration=10"
    wal, db = os.path.join(d, "wal"), os.path.join(d, "db")
    log = ["--sync=%d" % (way != "weak")]
    os.mkdir(wal)
    # db_bench begins by removing the directory, if it is empty.
    open(wal + "/here", "w").close()
    if way == "hailfs":
        log_enable(wal)
        log.append("--wal_dir=" + wal)

    def run(bench, writers, more):
        base = ["--db=" + db, "--value_size=100",
                "--num=%d" % (5000 if quick else 200000)]
        if bench != "fillrandom":
            db_bench("fillseq", *base, *log[1:])
            more = more + ["--use_existing_db=1"]
        rate = db_bench(bench, *base, *log, *more, length,
                        "--threads=%d" % writers)
        shutil.rmtree(db)
        return rate
    return {"%s-%d" % (b, n): ("ops/s", n, partial(run, b, n, more))
            for n in (1, 16) for b, more in (
                ("fillrandom", []), ("updaterandom", []),
                ("readrandomwriterandom", ["--readwritepercent=50"]))}


def redis(d, way, quick):
    if way == "hailfs":
        os.mkdir(d + "/appendonlydir")
        log_enable(d + "/appendonlydir")

    def run(clients):
        srv = Redis(d, "--appendfsync", "no" if way == "weak" else "always")
        try:
            return srv.set_rate((300 if quick else 20000) * clients, clients)
        finally:
            srv.close()
    return {"redis-set-%d" % n: ("ops/s", n, partial(run, n)) for n in (1, 16)}


def sqlite(d, way, quick):
    if way == "hailfs":
        log_enable(d, "--match", "*-wal")

    def run():
        return sqlite_rate(d + "/db", "wal", "off" if way == "weak" else "full",
                           1 if quick else 10)[0]
    return {"sqlite-wal": ("txn/s", 1, run)}


def postgres(d, way, quick):
    wal = None
    if way == "hailfs":
        wal = os.path.join(d, "wal")
        os.mkdir(wal, 0o700)
        log_enable(wal)
    pg = Postgres(d, "synchronous_commit=%s\n" %
                  ("off" if way == "weak" else "on"), wal)
    try:
        pg.pgbench("-i", "-q", "-s", "2" if quick else "16")
    finally:
        pg.close()

    def run(script, clients):
        pg.start()
        try:
            return tps_of(pg.pgbench(
                "-n", "-b", script, "-c", str(clients), "-j",
                str(min(clients, 2)), "-t50" if quick else "-T10"))[0]
        finally:
            pg.close()
    return {"pgbench-%s-%d" % (s, n): ("tps", n, partial(run, s, n))
            for s in ("simple-update", "tpcb-like") for n in (1, 16)}


def in_turn(database):
    """The rows of a database: rows(cluster, runs, quick)."""
    def once(top, quick, got):
        made = {}
        for way in WAYS:
            d = os.path.join(top, way)
            os.makedirs(d)
            made[way] = database(d, way, quick)
        for metric in made["hailfs"]:
            for way in WAYS:
                unit, writers, run = made[way][metric]
                by = got.setdefault((metric, unit, writers), {})
                by.setdefault(way, []).append(run())

    def rows(cluster, runs, quick):
        top = os.path.join(cluster.mnt, "splitft")
        got = {}
        for _ in range(runs):
            once(top, quick, got)
            shutil.rmtree(top)
        for (metric, unit, writers), by in got.items():
            yield row(database.__name__, metric, unit, writers, by)
    return rows


def row(database, metric, unit, writers, by):
    med = {way: median(by[way]) for way in WAYS}
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
            wanted(r, "of_weak"), wanted(r, "of_strong")))
