#!/bin/bash
# Log peers come and go under load: one is lost and replaced by a spare, one
# hangs, one wants its memory back, one comes back empty; a majority is lost
# while the mount lives, metad is away. No writer sees an error, and after the
# death of the mount everything acknowledged is there. A majority that is lost
# with the mount is an error that is told, and no half of a log.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up --logds 4
mkdir "$MNT/w" "$MNT/l"
for i in 0 1; do
	mkdir "$MNT/w/$i"
	"$CTL" log enable "$MNT/w/$i" >/dev/null
done
"$CTL" log enable "$MNT/l" >/dev/null
# Was it replaced in all logs? It is offered to no new one.
replaced() {
	[ "$(log_counter replaced)" -gt "$had" ] &&
		[ "$(log_counter degraded)" = 0 ]
}
# The peers of the first log that has any; the mount tells each second.
holders() {
	log_status "' '.join(([' '.join(str(p['id']) for p in f['peers'])
		for f in l['files'] if f['peers']] + [''])[0].split()[:3])"
}
holders_known() { [ -n "$(holders)" ]; }
begin() {
	"$TST/integ/acked" write "$MNT/w" "$T/acks" 60 2 2>"$T/writer" &
	writer=$!
	sleep 0.5
	gone $writer && { cat "$T/writer"; fail "no load"; }
	within 5 holders_known || fail "no log"
	had=$(log_counter replaced)
	read -r a b c <<<"$(holders)"
}
# end [NAME...]: these die, and the mount with them.
end() {
	gone $writer && { cat "$T/writer"; fail "the writer ended"; }
	sleep 0.5
	gone $writer && { cat "$T/writer"; fail "the writer ended"; }
	crash mount "$@"
	wait $writer || true
	[ ${#STOPPED[@]} = 0 ] || go_on
	cluster_up
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost: $*"
}

# From the loss of a daemon until it is replaced in the first log, as the mount
# told it: sooner than one that may come back?
at_once() {
	python3 - "$C/run/mount.log" <<'P'
import datetime, sys
lost = None
for line in open(sys.argv[1]):
    at = datetime.datetime.fromisoformat(line.split("Z")[0])
    if "event=logd-lost" in line:
        lost, done = at, None
    elif "event=peer_replaced" in line and 'error="Success"' in line:
        done = done or at
print("#", done - lost)
sys.exit(done - lost >= datetime.timedelta(milliseconds=700))
P
}

echo "# one that has ended is replaced at once"
for round in 1 2 3 4 5; do
	begin
	crash "logd$a"
	within 20 replaced || fail "logd$a was not replaced"
	kill $writer
	wait $writer || true
	cluster_up
	! at_once || break # it is only the machine that is slow
	[ $round != 5 ] || fail "a daemon that has ended was waited for"
done

echo "# one is lost, and replaced; then another, with the mount"
begin
crash "logd$a"
within 20 replaced || fail "logd$a was not replaced"
end "logd$b"

echo "# one hangs"
begin
stop "logd$a"
within 20 replaced || fail "logd$a, which hangs, was not replaced"
end

echo "# one wants its memory back"
begin
"$CTL" -c "$C/cluster.conf" logd drain "$a" --deadline 20s >/dev/null ||
	fail "drain"
within 20 replaced || fail "logd$a, which is drained, was not replaced"
end
"$CTL" -c "$C/cluster.conf" logd drain "$a" --off >/dev/null || fail "drain --off"

echo "# a majority is lost while the mount lives; they come back empty"
begin
crash "logd$a" "logd$b"
sleep 3
cluster_up # starts what is gone
end

echo "# a majority hangs"
begin
stop "logd$a" "logd$b"
sleep 3
end

echo "# metad is away: logs go on"
within 20 eval '[ "$(log_status "len(l[\"files\"])")" = 0 ]' || fail "old logs"
exec 9>>"$MNT/l/f"
echo a log >&9
within 5 holders_known || fail "no log"
python3 - "$MNT/l/f" "$(pid_of metad1)" <<'P' || fail "a log does not go on without metad"
import os, signal, sys, threading, time
f = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
metad = int(sys.argv[2])
slow = 0
end = time.monotonic() + 8 # longer than the mount's lease
go_on = threading.Timer(8.5, os.kill, (metad, signal.SIGCONT))
os.kill(metad, signal.SIGSTOP)
go_on.start()
while time.monotonic() < end:
    t = time.monotonic()
    os.write(f, b"y" * 128)
    os.fdatasync(f)
    slow = max(slow, time.monotonic() - t)
    time.sleep(0.002)
go_on.join()
assert slow < 1, slow
P
exec 9>&-
crash mount
cluster_up
[ "$(tail -c 128 "$MNT/l/f" | tr -d y)" = "" ] || fail "the log's end"

echo "# a majority is lost with the mount"
echo kept >"$MNT/kept"
sync "$MNT/kept"
exec 9>>"$MNT/l/lost"
echo first >&9
within 5 holders_known || fail "no log"
echo second >&9
read -r a b c <<<"$(holders)"
crash mount "logd$a" "logd$b"
exec 9>&-
cluster_up
[ "$(cat "$MNT/kept")" = kept ] || fail "other files"
if cat "$MNT/l/lost" >"$T/lost" 2>"$T/err"; then
	fail "half of a log: $(cat "$T/lost")"
fi
grep -q "Input/output error" "$T/err" || fail "$(cat "$T/err")"
: >"$MNT/l/lost" || fail "truncating it"
echo again >>"$MNT/l/lost"
[ "$(cat "$MNT/l/lost")" = again ] || fail "writing it anew"
crash mount
cluster_up
[ "$(cat "$MNT/l/lost")" = again ] || fail "the old log came back"
fsck_clean
