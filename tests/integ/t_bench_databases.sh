#!/bin/bash
# The cases of bench/run that run databases, each in its quick form; t_bench.sh
# has the others. Those whose database is not there are told as skipped.
. "$(dirname "$0")/lib.sh"
need_root
need python3
cases=(sqlite) missing=()
# PROGRAM CASE...: what runs it.
with() {
	if command -v "$1" || ls /usr/lib/postgresql/*/bin/"$1"; then
		cases+=("${@:2}")
	else
		missing+=("${@:2}")
	fi >/dev/null 2>&1
}
with db_bench rocksdb rocksdb-nowriteback splitft-rocksdb
with redis-benchmark redis splitft-redis
with initdb pgbench splitft-postgres
test_cleanup() {
	[ ! -d "$T/w" ] || "$CTL" local down "$T/w/cluster" --yes
} >/dev/null 2>&1

BENCH_DIR=$T/w "$TOP/bench/run" --quick "${cases[@]}" >"$T/out" 2>"$T/err" ||
	{ cat "$T/err" >&2; fail "bench/run ${cases[*]}"; }
python3 - "$T/out" "${cases[@]}" <<'PY' || fail "rows"
import json, sys
text = open(sys.argv[1]).read().splitlines()
rows = [json.loads(line) for line in text if line.startswith("{")]
# How many figures each has.
want = {"sqlite": 4, "rocksdb": 3, "rocksdb-nowriteback": 1, "redis": 4,
        "pgbench": 2, "splitft-rocksdb": 6, "splitft-redis": 2,
        "splitft-postgres": 4}
got = {c: sum(r["case"] == c for r in rows) for c in sys.argv[2:]}
assert got == {c: want[c] for c in sys.argv[2:]}, got
for r in rows:
    if not r["case"].startswith("splitft-"):
        assert r["hailfs"] > 0 and r["ext4"] > 0 and r["ratio"] > 0, r
        continue
    assert min(r["strong"], r["weak"], r["hailfs"]) > 0, r
    one = r["metric"].endswith("-1")
    assert one or r["metric"].endswith("-16"), r
    assert r["of_weak_target"] == (0.5 if one else 0.9), r
    assert abs(r["of_weak"] - r["hailfs"] / r["weak"]) < 0.01, r
    assert abs(r["of_strong"] - r["hailfs"] / r["strong"]) < 0.01, r
    rocksdb = one and r["case"] == "splitft-rocksdb"
    assert r.get("of_strong_target") == (3.0 if rocksdb else None), r
PY
[ ! -e "$T/w" ] || fail "something is left"
[ ${#missing[@]} = 0 ] || skip "not installed, so not run: ${missing[*]}"
