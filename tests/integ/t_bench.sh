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
test_cleanup() {
	[ ! -d "$T/w" ] || {
		"$CTL" local down "$T/w/logrec" --yes
		"$CTL" local down "$T/w/cluster"
		umount -l "$T/w/null"
	} >/dev/null 2>&1
}

run 0 --list
for c in seq random append wal files untar pgbench sqlite redis rocksdb \
	logrec splitft-rocksdb splitft-redis splitft-sqlite splitft-postgres; do
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
run 0 --quick --json --out "$T/rows" --plot "$T/plot" \
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

# ---- cases with their own comparison and what is wanted of it ----
run 0 --quick splitft-sqlite logrec
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
