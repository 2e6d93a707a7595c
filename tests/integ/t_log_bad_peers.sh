#!/bin/bash
# Log peers that are not what they shall be: memory that was changed behind
# their backs, a daemon of another cluster at a peer's address, more memory
# promised than there is, verbs without a device. Writers see no error while
# there is another way, a mount that dies under it loses nothing, and what
# cannot be recovered is told, not made up.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up -o flush_age=1h
mkdir "$MNT/l"
"$CTL" log enable "$MNT/l" --destage off >/dev/null || fail "enable"
K=(-c "$C/cluster.conf")
writer=
test_cleanup() {
	[ -z "$writer" ] || kill -9 $writer 2>/dev/null
	[ ! -d "$T/other" ] || "$CTL" local down "$T/other" --yes >/dev/null 2>&1
}
# Writes records and stays; the file's copy is $T/copy.
begin() { # FILE COUNT
	: >"$T/acks"
	python3 - "$MNT/l/$1" "$T/copy" "$2" "$T/acks" <<'P' &
import os, random, sys, time
fds = [os.open(p, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644) for p in sys.argv[1:3]]
r = random.Random(1)
at = 0
for i in range(int(sys.argv[3])):
    d = b"RECORD%06d" % i + r.randbytes(r.randrange(1, 3000))
    for fd in fds:
        os.pwrite(fd, d, at)
    at += len(d) - r.randrange(12) # a part of each is written again
os.fsync(fds[0]) # where there is no log
open(sys.argv[4], "w").write("done")
while True: time.sleep(1)
P
	writer=$!
	within 60 grep -q done "$T/acks" || fail "the writer"
}
settled() { log_status "any(f['seq'] >= $1 and f['peers'] and
	all(p['acknowledged'] == f['seq'] for p in f['peers'])
	for f in l['files'])" | grep -q True; }
end() {
	crash mount
	kill -9 $writer
	wait $writer 2>/dev/null || true
	writer=
}
# damage NAME slot|record: turns a bit of each slot, or of one record in the
# middle, in a daemon's memory.
damage() {
	python3 - "$(pid_of "$1")" "$2" <<'P' || fail "damage $1"
import re, sys
pid, what = sys.argv[1:]
found = 0
with open("/proc/%s/maps" % pid) as maps, open("/proc/%s/mem" % pid, "r+b", 0) as mem:
    for line in maps:
        m = re.match(r"(\w+)-(\w+) rw..", line)
        if not m or "[" in line:
            continue
        begin, end = (int(x, 16) for x in m.groups())
        if end - begin < 1 << 20:
            continue
        mem.seek(begin)
        b = mem.read(end - begin)
        for at in range(0, len(b), 4096): # regions are pages
            if b[at:at + 4] == b"HLOG" and what == "slot":
                for k in (0, 64):
                    if b[at + k:at + k + 4] == b"HLOG":
                        mem.seek(begin + at + k + 30)
                        mem.write(bytes([b[at + k + 30] ^ 1]))
                        found += 1
        if what == "record":
            for m in re.finditer(rb"RECORD000050", b):
                mem.seek(begin + m.start() + 6)
                mem.write(b"1")
                found += 1
assert found, "nothing found"
P
}
is_eio() {
	if cat "$1" >/dev/null 2>"$T/err"; then fail "$1 is read"; fi
	grep -q "Input/output error" "$T/err" || fail "$(cat "$T/err")"
}
salvaged() { # FILE
	rm -f "$T/out.$1"
	"$CTL" "${K[@]}" log salvage "/l/$1" "$T/out.$1" >"$T/out" 2>&1 &&
		fail "salvage calls it complete"
	grep -q "damaged" "$T/out" || { cat "$T/out"; fail "it is not told"; }
}

for what in slot record; do
	for bad in "logd1" "logd2" "logd3"; do
		echo "# a $what of $bad is damaged"
		begin a 100
		within 20 settled 100 || fail "the peers do not catch up"
		damage $bad $what
		end
		cluster_up
		cmp "$MNT/l/a" "$T/copy" || fail "$what of $bad"
		rm "$MNT/l/a"
	done
done

echo "# slots of two are damaged: it cannot be known whose log is the longest"
begin b 100
within 20 settled 100 || fail "the peers do not catch up"
damage logd1 slot
damage logd3 slot
end
cluster_up
is_eio "$MNT/l/b"
"$CTL" "${K[@]}" log salvage >"$T/out"
grep -q "lost.*/l/b" "$T/out" || { cat "$T/out"; fail "not listed"; }
rm -f "$T/out.b"
"$CTL" "${K[@]}" log salvage /l/b "$T/out.b" >"$T/out" && fail "called complete"
cmp "$T/out.b" "$T/copy" || fail "salvaged from the one that is whole"
rm "$MNT/l/b"

echo "# a record of all three is damaged"
begin c 100
within 20 settled 100 || fail "the peers do not catch up"
for i in 1 2 3; do damage logd$i record; done
end
cluster_up
is_eio "$MNT/l/c"
salvaged c
# What was before it is there, byte for byte, and nothing behind it.
python3 - "$T/out.c" "$T/copy" <<'P' || fail "what was salvaged"
import sys
out, copy = (open(p, "rb").read() for p in sys.argv[1:])
assert b"RECORD000049" in out and b"RECORD000050" not in out
assert copy.startswith(out[:-12]), "not what was written"
P
rm "$MNT/l/c"

echo "# a daemon of another cluster is where logd3 was"
"$CTL" local up "$T/other" --no-mount >"$T/up.log" 2>&1 || fail "other"
port() { sed -n "s/^logd  *$2 .*:\([0-9]*\)\( .*\|\)$/\1/p" "$1/cluster.conf"; }
begin d 50
"$CTL" local down "$T/other" --yes >"$T/up.log" 2>&1 || fail "other"
crash logd3
sed -i "s/^\(logd  *3 .*:\)$(port "$T/other" 3)/\1$(port "$C" 3)/" \
	"$T/other/cluster.conf"
cp "$C/cluster.key" "$T/other/cluster.key" # or it is not even spoken to
"$CTL" local up "$T/other" --no-mount >"$T/up.log" 2>&1 ||
	{ cat "$T/up.log"; fail "other"; }
refused() { grep -q "what=other-cluster" "$T/other/run/logd3.log"; }
within 20 refused || fail "nobody came to it"
python3 - "$MNT/l/d" "$T/copy" <<'P' || fail "a write fails"
import os, sys
for p in sys.argv[1:]:
    f = os.open(p, os.O_WRONLY | os.O_APPEND)
    for i in range(100):
        os.write(f, b"x" * 1000)
        os.fsync(f)
P
end
"$CTL" local down "$T/other" --yes >"$T/up.log" 2>&1 || fail "other"
rm -rf "$T/other"
cluster_up
cmp "$MNT/l/d" "$T/copy" || fail "lost beside another cluster's daemon"
rm "$MNT/l/d"

echo "# more memory is promised than there is"
all=$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)
crash logd3
code=0
# If it does take it, it is this one that is killed.
(echo 1000 >"/proc/$BASHPID/oom_score_adj"
exec timeout 30 "$BIN/hail-logd" "${K[@]}" -i 3 -f --memory "${all}k") \
	2>"$T/err" || code=$?
[ $code = 3 ] && grep -q "MiB are available" "$T/err" ||
	{ cat "$T/err"; fail "it promises them, $code"; }
cluster_down

echo "# verbs are asked for, and there is no device"
cluster_up -o transport=verbs,flush_age=1h
start=$SECONDS
begin e 50
took=$((SECONDS - start))
[ $took -le 10 ] || fail "50 writes take $took s"
grep -q "event=no_majority" "$C/run/mount.log" || fail "they have a log"
end
cluster_up
cmp "$MNT/l/e" "$T/copy" || fail "lost without a device"
fsck_clean
