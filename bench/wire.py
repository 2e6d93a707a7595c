"""wire: what the protection of frames costs (hailfs-security(7)).

A cluster for each of plain, mac and tls, in turn: sequential writing and
reading, and small synced appends. All of it runs on one machine, so that the
frames of both ends are protected by the same cores.
"""
import shutil

from common import Cluster, Failed, Place, median, micro, wanted

# Of the plain figure; what is wanted of sequential bandwidth.
WANT = {"mac": 0.95, "tls": 0.75}
WAYS = ("plain",) + tuple(WANT)


def once(cluster, quick):
    p = Place("hailfs", cluster.mnt, cluster)
    r = micro(p, ["seqwrite", 128 if quick else 1024])
    r.update(micro(p, ["seqread"], fresh=False))
    r.update(micro(p, ["append", 4096, 300 if quick else 2000]))
    shutil.rmtree(p.sub("w"))
    return {m: v[:2] for m, v in r.items()}


def measured(runs, quick):
    """metric -> (unit, {way: [figure]})"""
    clusters, got = {}, {}
    try:
        for way in WAYS:
            clusters[way] = Cluster("", "wire-" + way, ("--wire", way))
        for _ in range(runs):
            for way in WAYS:
                for m, (unit, v) in once(clusters[way], quick).items():
                    got.setdefault(m, (unit, {}))[1].setdefault(
                        way, []).append(v)
    finally:
        for c in clusters.values():
            c.close()
    return got


def rows(cluster, runs, quick):
    del cluster # each way has its own
    for metric, (unit, by) in measured(runs, quick).items():
        med = {way: median(by[way]) for way in WAYS}
        if not all(med.values()):
            raise Failed("%s: nothing was done" % metric)
        r = {"metric": metric, "unit": unit}
        for way in WAYS:
            r[way] = round(med[way], 1)
        for way, least in WANT.items():
            key = way + "_of_plain"
            r[key] = round(med["plain"] / med[way] if unit == "us" else
                           med[way] / med["plain"], 3)
            if metric.startswith("seq"):
                r[key + "_target"] = least
        yield r


def table(rows_):
    print("\n%-20s %-6s %9s %9s %9s %15s %15s" % (
        "metric", "unit", *WAYS, "mac (want)", "tls (want)"))
    for r in rows_:
        print("%-20s %-6s %9.1f %9.1f %9.1f %15s %15s" % (
            r["metric"], r["unit"], *(r[w] for w in WAYS),
            wanted(r, "mac_of_plain"), wanted(r, "tls_of_plain")))
