"""wal: are synced appends in a log directory faster than on the local disk?

One writer, of 4 KiB and of 128 bytes, as the case append; and 16 writers of 128
bytes, each with a log file of its own. Of writes of 128 bytes also the CPU time
that each log daemon takes for one, with all that it does besides and spins.
"""
import re

from common import (cpu_ns, log_enable, micro, most_table, named, wanted)

# What is wanted of one writer: of ext4's rate, at least; of the null file
# system's mean, and of its own mean the 99th percentile: no more than.
OF_EXT4 = 1.5
OF_NULL = 2.5
OF_MEAN = 4.0
# Microseconds of CPU, of a log daemon for a write, by writers: no more than.
CPU_US = {1: 15.0, 16: 6.0}


def case(p, q):
    d = p.fresh("wal")
    if p.name == "hailfs":
        log_enable(d)
    r = appends(p, q, 4096, 1)
    for writers in CPU_US:
        r.update(appends(p, q, 128, writers))
    return r


def appends(p, q, size, writers):
    ms = 500 if q else 4000
    logds = p.cluster.logds() if p.cluster and size == 128 else {}
    before = {n: cpu_ns(pid) for n, pid in logds.items()}
    got = micro(p, ["append", size, ms, writers], sub="wal", fresh=False)
    r = {m.replace("append", "wal"): v for m, v in got.items()}
    name = next(iter(r))
    writes = r[name][1] * ms / 1000
    us = {n: (cpu_ns(pid) - before[n]) / 1000 / writes
          for n, pid in logds.items()}
    r.update({"%s-cpu-%s" % (name, n): ("us", v, None)
              for n, v in us.items()})
    if us:
        r[name + "-cpu-all"] = ("us", sum(us.values()), None)
    return r


def want(metric, medians):
    """What is wanted of a metric; medians: of each, by place."""
    cpu = re.fullmatch(r"wal-128(-16)?-cpu-logd.*", metric)
    if cpu:
        return {"most": CPU_US[16 if cpu[1] else 1]}
    one = re.fullmatch(r"(wal-\d+)(|-mean|-p99)", metric)
    if not one:
        return {}
    here = medians[metric]
    if one[2] == "-mean":
        return {"of_null": round(here["hailfs"] / here["null"], 3),
                "of_null_target": OF_NULL}
    if one[2] == "-p99":
        mean = medians[one[1] + "-mean"]["hailfs"]
        return {"of_mean": round(here["hailfs"] / mean, 3),
                "of_mean_target": OF_MEAN}
    return {"ratio_target": OF_EXT4}


def table(rows):
    print("\n%-26s %-8s %9s %9s %14s %9s %15s %15s %15s" % (
        "metric", "unit", "hailfs", "ext4", "ratio (want)", "null",
        "of null (want)", "of mean (want)", "flushes/sync"))
    for r in rows:
        if "ext4" not in r:
            continue
        f = r.get("flushes")
        print("%-26s %-8s %9.1f %9.1f %14s %9.1f %15s %15s %15s" % (
            named(r), r["unit"], r["hailfs"], r["ext4"], wanted(r, "ratio"),
            r["null"], wanted(r, "of_null"), wanted(r, "of_mean"),
            "%(hailfs).2f / %(ext4).2f" % f if f else ""))
    most_table(r for r in rows if "value" in r)
