#!/bin/bash
# hail-metad --copy is killed at each step of its writing, and its disk is lost
# with it: what is restored from the copy is a state that there was, with all
# that the copy had before. A disk of the copy that hangs keeps nobody from
# ending, and does not spoil the copy.
. "$(dirname "$0")/lib.sh"
need_root
need python3
[ "$FLAVOUR" != asan ] || skip "a sanitizer wants to be preloaded first"
conf=$C/cluster.conf
copy=$T/copy
export HELD=$T/held
test_cleanup() { rm -f "$HELD"; }
up() { LD_PRELOAD=$TST/integ/preload/held.so cluster_up; }
state() { "$CTL" -c "$conf" status --json | python3 -c '
import json, sys
print([d for d in json.load(sys.stdin)["daemons"] if "metad" in d["program"]
      ][0].get("copy"))'; }
until_ok() { until [ "$(state)" = ok ]; do sleep 0.05; done; }
until_there() { within 30 test -e "$1" || fail "waited for $1"; }
restore() {
	rm -rf "$C/metad1"
	"$CTL" -c "$conf" metad restore "$copy" "$C/metad1" >"$T/out" 2>&1 ||
		{ cat "$T/out"; fail "restore: $*"; }
}
# Number n makes b-n and gives b-(n-1) the name a-(n-1).
cat >"$T/work" <<'PY'
import os, sys
d, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
n = first
# What the one before it was killed at.
if os.path.exists(f"{d}/b-{n-2}"):
    os.rename(f"{d}/b-{n-2}", f"{d}/a-{n-2}")
while count == 0 or n < first + count:
    try:
        dir = os.open(d, os.O_RDONLY)
        os.close(os.open(f"{d}/b-{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        if n > 1:
            os.rename(f"{d}/b-{n-1}", f"{d}/a-{n-1}")
        os.fsync(dir)
        os.close(dir)
    except OSError:
        sys.exit(0 if count == 0 else 1)
    n += 1
PY
# last: the newest number, if the names are those of a moment of that
last() {
	python3 - "$MNT/d" <<-'PY'
		import os, sys
		have = set(os.listdir(sys.argv[1]))
		b = sorted(int(n[2:]) for n in have if n[0] == "b")
		want = set()
		assert 1 <= len(b) <= 2, b
		assert len(b) == 1 or b[1] == b[0] + 1, b
		want = {f"a-{i}" for i in range(1, b[0])} | {f"b-{i}" for i in b}
		assert have == want, have ^ want
		print(b[-1])
	PY
}
# in_copy: the newest number whose name the copy has
in_copy() {
	cat "$copy"/base-*[0-9] "$copy"/log-* | grep -aoE 'b-[0-9]+' |
		cut -c3- | sort -n | tail -n 1
}
# metad and the mount are killed and the disk is lost: what comes back?
lost() {
	before=$(in_copy)
	crash metad1 mount
	rm -f "$HELD"
	umount -l "$MNT"
	wait $work
	restore "$1"
	cluster_up
	now=$(last) || fail "$1: no state that there was"
	[ "$now" -ge "$before" ] || fail "$1: $now of $before"
}

cluster_up --blockds 1
cluster_down
sed -i "/^metad /s|\$| copy=$copy|" "$conf"
up
mkdir "$MNT/d"
# A base of several pieces.
python3 - "$MNT" <<'PY'
import os, sys
for i in range(48):
    open(f"{sys.argv[1]}/x{i}", "w").close()
    # Nothing that looks like a name: in_copy() looks for those.
    os.setxattr(f"{sys.argv[1]}/x{i}", "user.x",
                os.urandom(30000).hex().encode())
PY
python3 "$T/work" "$MNT/d" 1 20
until_ok
now=20

# At each step of a base that begins with the start, and of the log then.
for point in "write */base-*" "fsync */base-*" "renameat base-*[0-9]" \
	"fsync */copy" "unlinkat base-*" "unlinkat log-*" "write */log-*" \
	"fdatasync */log-*"; do
	cluster_down
	before=$(in_copy)
	[ "$before" = "$now" ] || fail "$point: stopped, the copy has $before"
	up
	case $point in *log-*[!0-9]*) until_ok ;; esac
	rm -f "$HELD".*
	echo "$point" >"$HELD.new"
	case $point in
	write*log-* | fdatasync*) mv "$HELD.new" "$HELD" ;;
	*)
		# The start that begins it.
		cluster_down
		mv "$HELD.new" "$HELD"
		up
		;;
	esac
	python3 "$T/work" "$MNT/d" $((now + 1)) 0 &
	work=$!
	until_there "$HELD.${point%% *}"
	sleep 0.$((RANDOM % 5))
	lost "$point"
	[ "$(find "$MNT" -name 'x*' | wc -l)" = 48 ] || fail "$point: not all"
	cluster_down
	up
	until_ok
done

# At any moment.
for round in 1 2; do
	python3 "$T/work" "$MNT/d" $((now + 1)) 0 &
	work=$!
	if [ $((round % 2)) = 0 ]; then
		crash metad1
		cluster_up
	fi
	sleep 0.$((RANDOM % 10))$((RANDOM % 10))
	lost "round $round"
	until_ok
done

# The disk hangs in the middle of a base while the daemon is stopped: it ends
# without it, and what the thread that was left behind writes is still right.
cluster_down
rm -f "$HELD".*
printf '%s\n' "write */base-*" "exit hail-metad" >"$HELD"
up
until_there "$HELD.write"
part=$(echo "$copy"/base-*.part)
umount "$MNT"
pid=$(pid_of metad1)
kill -TERM "$pid"
until grep -q "event=left-behind" "$C/run/metad1.log"; do sleep 0.05; done
until_there "$HELD.exit"
echo "exit hail-metad" >"$HELD.new"
mv "$HELD.new" "$HELD" # the base is no longer held
within 5 test ! -e "$part" || fail "the thread did not end its base"
rm "$HELD"
while readlink "/proc/$pid/exe" >/dev/null; do sleep 0.02; done
restore "left behind"
cluster_up
[ "$(last)" = "$now" ] || fail "left behind: $(last) of $now"
fsck_clean

# While it is restored the copy goes on to its next generation.
cluster_down
rm -rf "$C/metad1"
cat >"$T/race" <<'PY'
import fcntl, os, re, shutil, signal, subprocess, sys
copy, cmd = sys.argv[1], sys.argv[2:]
base = max(n for n in os.listdir(copy) if re.fullmatch("base-[0-9]+", n))
g = base[5:]
n = f"{int(g) + 1:012d}"
keep = copy + ".next"
shutil.copytree(copy, keep)
f = os.open(f"{copy}/base-{g}", os.O_RDWR)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
p = subprocess.Popen(cmd)
signal.sigwait({signal.SIGIO}) # it opens the base
os.rename(f"{keep}/log-{g}", f"{copy}/log-{n}")
os.rename(f"{keep}/base-{g}", f"{copy}/base-{n}")
os.unlink(f"{copy}/log-{g}")
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK)
sys.exit(p.wait())
PY
python3 "$T/race" "$copy" "$CTL" -c "$conf" metad restore "$copy" \
	"$C/metad1" >"$T/out" 2>&1 || { cat "$T/out"; fail "a moving copy"; }
cluster_up
[ "$(last)" = "$now" ] || fail "a moving copy: $(last) of $now"
fsck_clean
