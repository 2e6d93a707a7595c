#!/bin/bash
# bench/run and the demonstration: what they print, and how they end when
# something is missing or fails.
. "$(dirname "$0")/lib.sh"
need_root
need python3 gnuplot
run() { # STATUS ARGUMENTS...
	local want=$1 got=0
	shift
	BENCH_DIR=$T/w "$TOP/bench/run" "$@" >"$T/out" 2>"$T/err" || got=$?
	[ $got = "$want" ] || { cat "$T/err" >&2
		fail "bench/run $*: exit $got, not $want"; }
	! grep -q Traceback "$T/err" || { cat "$T/err" >&2
		fail "bench/run $*: a traceback"; }
}
says() { grep -q -e "$1" "$T/err" || { cat "$T/err" >&2; fail "no '$1'"; }; }
P=/sys/module/fuse/parameters/enable_uring
was=
test_cleanup() {
	[ -z "$was" ] || echo "$was" >$P
	[ ! -d "$T/w" ] || {
		"$CTL" local down "$T/w/logrec" --yes
		for w in shared1 shared2 shared3; do umount -l "$T/w/$w"; done
		for w in cluster shared metads-1 metads-3 wire-plain wire-mac wire-tls; do
			"$CTL" local down "$T/w/$w"
		done
		umount -l "$T/w/null"
	} >/dev/null 2>&1
}

run 0 --list
for c in seq random append wal files untar pgbench sqlite redis rocksdb \
	logrec splitft-rocksdb splitft-redis splitft-sqlite splitft-postgres \
	wire shared failover; do
	grep -qx $c "$T/out" || fail "--list has no $c"
done
run 2
run 2 nonsense
says "no case 'nonsense'; --list"
mkdir "$T/path"
PATH=$T/path "$(python3 -c 'import sys; print(sys.executable)')" \
	"$TOP/bench/run" wal splitft-redis >"$T/out" 2>"$T/err" &&
	fail "without redis"
says "case splitft-redis: no redis-server; 'make deps'"
[ ! -e "$T/w" ] || fail "something is left"

# ---- one line a metric ----
run 0 --quick --json --out "$T/rows" --plot "$T/plot" -o io_uring=off \
	append seq random files untar
python3 - "$T/out" <<'PY' || fail "rows"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
for r in rows:
    for k, t in (("case", str), ("metric", str), ("unit", str),
                 ("hailfs", (int, float)), ("ext4", (int, float)),
                 ("ratio", (int, float))):
        assert isinstance(r[k], t), (k, r)
    if r["case"] == "append":
        assert isinstance(r["null"], (int, float)), r
        assert isinstance(r["awake"], bool), r
        assert r["io_uring"] is False, r
append = [r for r in rows if r["metric"] == "append-4096"]
assert [r["awake"] for r in append] == [False, True], append
synced = {r["metric"] for r in rows if "flushes" in r}
assert synced == {"append-4096", "append-128", "seqwrite"}, synced
assert all(set(r["flushes"]) == {"hailfs", "ext4"} and
           r["flushes"]["ext4"] > 0 for r in rows if "flushes" in r), rows
for r in rows:
    if r["case"] in ("files", "untar", "random"):
        assert "null" not in r and "awake" not in r, r
cases = {r["case"] for r in rows}
assert cases == {"append", "seq", "random", "files", "untar"}, cases
PY
cmp "$T/out" "$T/rows" || fail "--out"
[ "$(head -c 4 "$T/plot/ratios.png" | tail -c 3)" = PNG ] || fail "no plot"
[ ! -e "$T/w" ] || fail "something is left"

# ---- a log directory, with what is wanted; the null one is as the mount ----
uring=False
if [ -w $P ] && ! grep -q "loses replies over" "$BIN/hailfs"; then
	was=$(cat $P) uring=True
	echo Y >$P
fi
run 0 --quick -o io_uring=on wal
[ -z "$was" ] || echo "$was" >$P
was=
python3 - "$T/out" $uring <<'PY' || fail "rows"
import json, sys
text = open(sys.argv[1]).read().splitlines()
rows = [json.loads(line) for line in text if line.startswith("{")]
assert all(r["case"] == "wal" for r in rows), rows
for awake in (False, True):
    by = {r["metric"]: r for r in rows if r["awake"] is awake}
    for name in ("wal-4096", "wal-128", "wal-128-16"):
        rate, mean, p99 = (by[name + s] for s in ("", "-mean", "-p99"))
        for r in (rate, mean, p99):
            assert min(r["hailfs"], r["ext4"], r["null"]) > 0, r
            assert r["io_uring"] is (sys.argv[2] == "True"), r
        if name.endswith("-16"):
            assert not [k for r in (rate, mean, p99) for k in r
                        if k.endswith("_target")], by
            continue
        # Its rate is what each of its writes takes.
        assert 0.9 < rate["hailfs"] * mean["hailfs"] / 1e6 < 1.1, by
        assert rate["ratio_target"] == 1.5, rate
        assert mean["of_null_target"] == 2.5, mean
        assert abs(mean["of_null"] -
                   mean["hailfs"] / mean["null"]) < 0.01, mean
        assert p99["of_mean_target"] == 4.0, p99
        assert abs(p99["of_mean"] -
                   p99["hailfs"] / mean["hailfs"]) < 0.01, p99
    for name, most in (("wal-128", 15.0), ("wal-128-16", 6.0)):
        each = [by["%s-cpu-logd%d" % (name, n)] for n in (1, 2, 3)]
        for r in each:
            assert r["most"] == most and r["unit"] == "us", r
            assert 0 < r["value"] < 1000, r
        both = by[name + "-cpu-all"]
        assert abs(both["value"] - sum(r["value"] for r in each)) < 0.01, by
        assert both["value"] > 0.5 and "most" not in both, both
for title in ("ratio (want)", "of null (want)", "of mean (want)", "at most"):
    assert any(title in line for line in text), title
PY
[ ! -e "$T/w" ] || fail "something is left"

# ---- cases with their own comparison and what is wanted of it ----
run 0 --quick splitft-sqlite logrec wire shared failover
python3 - "$T/out" <<'PY' || fail "rows"
import json, sys
text = open(sys.argv[1]).read().splitlines()
rows = {r["metric"]: r for r in
        [json.loads(line) for line in text if line.startswith("{")]}
r = rows["sqlite-wal"]
assert r["case"] == "splitft-sqlite" and r["unit"] == "txn/s", r
assert min(r["strong"], r["weak"], r["hailfs"]) > 0, r
assert abs(r["of_weak"] - r["hailfs"] / r["weak"]) < 0.01, r
assert r["of_weak_target"] == 0.5, r
for m in ("recover-4096", "mount-without-4096", "longest-undisturbed",
          "replace-killed", "longest-killed", "replace-hung", "longest-hung",
          "lent-by-peer", "mirror", "mount-for-log"):
    assert rows[m]["case"] == "logrec" and rows[m]["value"] > 0, (m, rows)
for m, key in (("recall-dirty", "most"), ("recall-synced", "most"),
               ("locks", "least"), ("create-4-of-1", "least")):
    assert rows[m]["case"] == "shared" and rows[m]["value"] > 0, (m, rows)
    assert rows[m][key] > 0, rows[m]
for m in ("sync-create-3-of-1", "failover-median", "failover-worst"):
    assert rows[m]["case"] == "failover" and rows[m]["value"] > 0, (m, rows)
    assert rows[m]["most"] > 0, rows[m]
for m, least in (("seqread", 0.95), ("seqwrite", 0.95)):
    r = rows[m]
    assert min(r["plain"], r["mac"], r["tls"]) > 0, r
    assert abs(r["mac_of_plain"] - r["mac"] / r["plain"]) < 0.01, r
    assert r["mac_of_plain_target"] == least, r
assert rows["recover-4096"]["most"] == 0.5, rows
assert rows["mirror"]["value"] >= 60 <= rows["lent-by-peer"]["value"], rows
assert rows["mirror-after"]["value"] == rows["lent-after"]["value"] == 0, rows
for title in ("of weak (want)", "at most"):
    assert any(title in line for line in text), title
PY
[ ! -e "$T/w" ] || fail "something is left"

# ---- what fails is told, and taken away ----
mkdir "$T/bin"
HAILFS_BIN=$T/bin run 1 files
says "$T/bin/hailctl.*make all tests"
ln -s "$BIN"/* "$T/bin"
rm "$T/bin/hailfs"
printf '#!/bin/sh\necho "hailfs: no luck" >&2\nexit 1\n' >"$T/bin/hailfs"
chmod 755 "$T/bin/hailfs"
cp --remove-destination "$(readlink -f "$BIN/hailctl")" "$T/bin/hailctl"
HAILFS_BIN=$T/bin run 1 files
says "hailctl local up .*"
says "hailfs: no luck"
! grep -q "$T/w" /proc/mounts || fail "a mount is left"
! "$CTL" local status "$T/w/cluster" >"$T/out" 2>&1 || fail "daemons are left"
! grep -q ' ok$' "$T/out" || fail "daemons are left"
rm -rf "$T/w"
chmod 755 "$T"
for p in "bench/run files" bench/demo.sh; do
	! (cd / && setpriv --reuid 1000 --regid 1000 --clear-groups \
		$TOP/$p) >"$T/out" 2>"$T/err" || fail "$p without root"
	says "needs root"
done
