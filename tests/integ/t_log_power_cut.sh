#!/bin/bash
# A power cut of everything, log peers too: what a log had and the blocks did
# not is gone, but nothing is out of order. No page of a data file is there
# whose log record is not, no name is gone that was removed after a record that
# is lost, a database is whole, and no more than the destage interval is missing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/power.sh"
need sqlite3 python3
CUTS=${CUTS:-6}
ROUND=${SECONDS_OF_LOAD:-6}
power_begin
mkdir "$MNT/wal" "$MNT/data" "$MNT/sql"
wal_dir() { "$CTL" log enable "$@" >/dev/null || fail "log enable"; }
wal_dir "$MNT/wal"
wal_dir "$MNT/sql" --match '*-wal'
# The table is there after every cut; the -wal ends with the process that made it.
sqlite3 "$MNT/sql/db" "pragma journal_mode=wal;
	create table t(i integer primary key, x)" >"$T/check" ||
	fail "SQLite makes no table"
power_base
# Record n goes to the log; then page n % 64 of the data file says n, now and
# then with fsync, and every 50th time the file that was named by a record is
# made, and removed behind the next one.
cat >"$T/writer.py" <<'P'
import mmap, os, struct, sys, time
wal, data, acks, counter, until = sys.argv[1:5] + [time.monotonic() + float(sys.argv[5])]
clock = mmap.mmap(os.open(counter, os.O_RDONLY), 8, prot=mmap.PROT_READ)
log = os.open(wal + "/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
page = os.open(data + "/pages", os.O_CREAT | os.O_RDWR)
out = open(acks, "w")
n = 0
while time.monotonic() < until:
    n += 1
    os.write(log, struct.pack("<Q", n) + b"r" * 120)
    out.write("%d %d %d\n" % (n, struct.unpack("<Q", clock[:8])[0], time.monotonic() * 1000))
    os.pwrite(page, struct.pack("<Q", n) * 512, n % 64 * 4096)
    if n % 50 == 0:
        os.close(os.open(data + "/f%d" % n, os.O_CREAT | os.O_WRONLY))
    if n % 50 == 25 and n > 50:
        os.unlink(data + "/f%d" % (n - 25))
    if n % 97 == 0:
        os.fsync(page)
out.close()
P
cat >"$T/check.py" <<'P'
import os, struct, sys
wal, data, acks, at = sys.argv[1:4] + [int(sys.argv[4])]
log = open(wal + "/log", "rb").read() if os.path.exists(wal + "/log") else b""
have = len(log) // 128
for i in range(have):
    n, = struct.unpack("<Q", log[i * 128:i * 128 + 8])
    assert n == i + 1, "record %d of the log says %d" % (i + 1, n)
acked = [tuple(map(int, l.split())) for l in open(acks)]
now = [t for n, c, t in acked if c <= at]
last = len(now)
missing = now[-1] - now[max(have, 1) - 1] if last > have else 0
pages = open(data + "/pages", "rb").read() if os.path.exists(data + "/pages") else b""
for i in range(len(pages) // 4096):
    n, = struct.unpack("<Q", pages[i * 4096:i * 4096 + 8])
    assert n <= have, "page %d says %d, the log ends at %d" % (i, n, have)
gone = [n for n in range(50, have + 100, 50) if not os.path.exists(data + "/f%d" % n)]
for n in range(50, max(last, have) + 1, 50):
    if n + 25 > have and n < have:
        pass # it may or may not have been made
    removed = not os.path.exists(data + "/f%d" % n)
    later = any(os.path.exists(data + "/f%d" % m) for m in range(n + 50, last + 51, 50))
    if removed and later:
        assert n + 25 <= have, "f%d was removed after record %d, the log ends at %d" % (n, n + 25, have)
print(have, last, missing)
P
python3 "$T/writer.py" "$MNT/wal" "$MNT/data" "$T/acks" "$T/counter" "$ROUND" &
writer=$!
# Row i is 200 times "vi.", and is said to be there when its commit returned.
value="replace(hex(zeroblob(200)), '00', 'v' || i || '.')"
{
	echo ".output /dev/null"
	echo "pragma synchronous=full; pragma wal_autocheckpoint=20;"
	echo ".output stdout"
	for i in $(seq 100000); do
		echo "insert into t select i, $value from (select $i i);"
		echo "select $i;"
	done
} | timeout -s KILL "$ROUND" stdbuf -oL sqlite3 -bail "$MNT/sql/db" \
	2>"$T/sql.log" | python3 "$TOP/tests/integ/power_rows.py" note \
	"$T/counter" "$T/rows" || true
wait $writer || fail "the writer"
last=$(power_now)
power_end
kept=0
sql_kept=0
for i in $(seq 0 "$CUTS"); do
	power_choose "$i"
	power_cut "$at" "$seed"
	read -r have acked missing <<<"$(python3 "$T/check.py" "$MNT/wal" \
		"$MNT/data" "$T/acks" "$at")" || fail "order, cut at $at seed $seed"
	[ -n "$missing" ] || fail "order, cut at $at seed $seed"
	echo "# cut at $at: $have of $acked records, $missing ms are missing"
	# The interval, and what a destaging takes beside this load.
	[ "$missing" -le 4000 ] || fail "$missing ms are missing"
	kept=$((kept + have))
	sqlite3 "$MNT/sql/db" "pragma integrity_check" >"$T/check" 2>&1 || true
	[ "$(cat "$T/check")" = ok ] || { cat "$T/check"
		fail "SQLite after a cut at $at seed $seed"; }
	sqlite3 -separator ' ' "$MNT/sql/db" "select count(*),
		coalesce(max(i), 0), coalesce(sum(x <> $value), 0) from t" \
		>"$T/check" 2>&1 || true
	read -r count have wrong <"$T/check"
	[ "$count $wrong" = "$have 0" ] ||
		{ cat "$T/check"; fail "rows, cut at $at seed $seed"; }
	read -r acked missing <<<"$(python3 "$TOP/tests/integ/power_rows.py" \
		check "$T/rows" "$at" "$have")"
	echo "# SQLite: $have of $acked rows, $missing ms are missing"
	[ -n "$missing" ] && [ "$missing" -le 4000 ] ||
		fail "$missing ms of rows are missing: cut at $at seed $seed"
	sql_kept=$((sql_kept + have))
	power_disk_down
done
[ $kept -gt 0 ] || fail "no cut left a record"
[ $sql_kept -gt 0 ] || fail "no cut left a row of SQLite's"
