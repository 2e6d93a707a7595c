# Shell side of the integration tests: sourced by every script.
#
# A script gets a scratch directory ($T, removed afterwards) and may start a
# cluster in it. It ends with 0 (holds), 77 (cannot be tried here) or fails.
# Nothing is killed by name: processes by the pid they were started with or
# that their pid file (locked by the process) tells.

set -eu
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
FLAVOUR=${FLAVOUR:-release}
if [ "$FLAVOUR" = release ]; then BIN=$TOP/build/bin; else
	BIN=$TOP/build/$FLAVOUR/bin; fi
TST=$TOP/build/$FLAVOUR/tests
CTL=$BIN/hailctl
# For wire.py.
export PYTHONPATH=$TOP/tests/integ PYTHONDONTWRITEBYTECODE=1
# On a real disk: tmpfs takes no O_DIRECT and tells nothing of flushes.
T=$(mktemp -d "${TEST_DIR:-/var/tmp}/hailfs-test.XXXXXX")
chmod 755 "$T"
C=$T/c
MNT=$C/mnt
UPS=()

fail() { echo "# FAILED: $*" >&2; exit 1; }
skip() { echo "# skipped: $*" >&2; exit 77; }
need() { for p in "$@"; do command -v "$p" >/dev/null || skip "no $p"; done; }
need_root() { [ "$(id -u)" = 0 ] || skip "needs root"; }

# cluster_up [hailctl options]: starts or completes the cluster in $C. $UP_OPTS:
# mount options for every test that does not choose its own.
cluster_up() {
	[ $# -gt 0 ] || [ -z "${UP_OPTS:-}" ] || set -- -o "$UP_OPTS"
	# Also of one that comes up in part.
	UPS=("$C")
	"$CTL" local up "$C" "$@" >>"$T/up.log" 2>&1 ||
		{ cat "$T/up.log" >&2; fail "local up"; }
}
cluster_down() {
	"$CTL" local down "$C" >>"$T/up.log" 2>&1 ||
		{ tail -n 20 "$T/up.log" >&2; fail "local down"; }
	UPS=()
}
# mount_at NAME DIR [options]: one more mount, whose files are $T/NAME.*.
mount_at() {
	"$BIN/hailfs" -o "${3:-shared},log=$T/$1.log,pidfile=$T/$1.pid" \
		"$C/cluster.conf" "$2"
}
# mount_crash NAME: its process is killed, and gone.
mount_crash() {
	local p
	p=$(cat "$T/$1.pid")
	kill -9 "$p"
	within 10 gone "$p" || fail "$1 lives"
}
# The scripts of databases are run a second time with $LOGS set (t_log_*.sh):
# their logs lie in log directories then.
# wal_dir DIR [options]: makes DIR, which is one then.
wal_dir() {
	mkdir -p "$1"
	[ -z "${LOGS:-}" ] || "$CTL" log enable "$@" >/dev/null ||
		fail "log enable $1"
}
# What the mount's status s tells of logs, as Python sees it: log_status
# 'l["opened"]'
log_status() {
	"$CTL" -c "$C/cluster.conf" sessions --json | python3 -c '
import json, sys
def find(o):
    if isinstance(o, dict):
        if "logs" in o: return o
        o = list(o.values())
    if isinstance(o, list):
        for v in o:
            r = find(v)
            if r: return r
s = find(json.load(sys.stdin))
l = s["logs"]
print(eval(sys.argv[1]))' "$1"
}
log_counter() { log_status "l['$1']"; }
# With $LOGS: did writes really go to logs?
logs_used() {
	[ -z "${LOGS:-}" ] || within 5 logs_counted || fail "no log was used"
}
logs_counted() { [ "$(log_counter appends)" -gt 0 ]; }
# What they are loaded with: rows i = $have + 1, $have + 2, ... of the value vi, one
# after the other, by a process $client that adds a line to $T/acked when it is
# told of a commit, at once.
# load_rows TEXT: TEXT for each of these, with i for each &, and \n.
load_rows() { seq $((have + 1)) $((have + 1000000)) | sed "s/.*/$1/"; }
# It has been at it for a while, and is.
loaded() {
	within 60 test -s "$T/acked" || fail "nothing is committed"
	sleep 2
	logs_used
	! gone "$client" || fail "the load ended by itself"
}
# rows_kept WHEN: $T/rows has, as "i vi", the rows up to the last one that was
# acknowledged, maybe the one that was under way, and no other. $have is the last.
rows_kept() {
	local acked=$((have + $(wc -l <"$T/acked")))
	have=$(wc -l <"$T/rows")
	seq "$have" | sed 's/.*/& v&/' >"$T/expected"
	sort -n "$T/rows" | diff "$T/expected" - >"$T/diff" ||
		{ head "$T/diff" >&2; fail "$1: not the rows that were written"; }
	[ "$have" -ge "$acked" ] && [ "$have" -le $((acked + 1)) ] ||
		fail "$1: $acked acked, $have there"
	echo "# $1: $acked acked, $have there"
	: >"$T/acked"
}
# pid_of metad1|blockd2|mount
pid_of() { cat "$C/run/$1.pid"; }
# crash NAME...: kill -9 of all at once, and wait until they are gone.
crash() {
	local pids=() n p
	for n in "$@"; do pids+=("$(pid_of "$n")"); done
	kill -9 "${pids[@]}"
	for p in "${pids[@]}"; do
		while kill -0 "$p" 2>/dev/null; do sleep 0.01; done
	done
}
# metad_start [ID]: the one that was crashed, and nothing else of the cluster;
# with the options in $METAD_OPTS.
metad_start() {
	"$BIN/hail-metad" --cluster "$C/cluster.conf" --id "${1:-1}" \
		--pidfile "$C/run/metad${1:-1}.pid" \
		--log "$C/run/metad${1:-1}.log" ${METAD_OPTS:-} ||
		fail "metad does not start"
}
# Of several metads, which leads; "0" while none does.
leader() {
	"$CTL" -c "$C/cluster.conf" status --json 2>/dev/null | python3 -c '
import json, sys
for d in json.load(sys.stdin)["daemons"]:
    if d["program"] == "hail-metad" and d.get("leader") == d["id"] and "epoch" in d:
        print(d["id"])
        break
else:
    print(0)'
}
leads() { [ "$(leader)" != 0 ]; }
leads_other() { local l; l=$(leader); [ "$l" != 0 ] && [ "$l" != "$1" ]; }
# metad_json ID PYTHON: of what that metad says of itself, d.
metad_json() {
	"$CTL" -c "$C/cluster.conf" status --json 2>/dev/null | python3 -c '
import json, sys
d = [d for d in json.load(sys.stdin)["daemons"]
     if d["program"] == "hail-metad" and d["id"] == int(sys.argv[1])][0]
print(eval(sys.argv[2]))' "$1" "$2"
}
# All three have all of it.
alike() {
	local pos
	pos=$(metad_json 1 'd["pos"]')
	[ "$(metad_json 2 'd["pos"]')" = "$pos" ] &&
		[ "$(metad_json 3 'd["pos"]')" = "$pos" ]
}
# halt PID...: SIGSTOP of these. One of a process's threads is woken to tell the
# others: until all know of it they go on.
halt() {
	kill -STOP "$@"
	for p in "$@"; do within 10 halted "$p" || fail "$p does not stop"; done
}
halted() { ! grep -q '^State:[[:space:]]*[RS]' "/proc/$1"/task/*/status; }
# stop NAME...: halts these, too, until go_on or the end of the script.
STOPPED=()
stop() {
	for n in "$@"; do STOPPED+=("$(pid_of "$n")"); done
	halt "${STOPPED[@]}"
}
go_on() {
	kill -CONT "${STOPPED[@]}"
	STOPPED=()
}
# within SECONDS COMMAND...: as soon as it succeeds; fails when that is later.
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -le $end ] || return 1
		sleep 0.05
	done
}
# said PID FILE WORD: until our child has written WORD to FILE.
said() {
	until grep -q "$3" "$2"; do
		kill -0 "$1" || fail "it ended before it said $3"
		sleep 0.02
	done
}
gone() { ! kill -0 "$1" 2>/dev/null; }
# kill_waiting PID: SIGKILL ends our child, though what it waits for does not
# come.
kill_waiting() {
	sleep 1.5 # who waits for less is not looked after
	gone "$1" && fail "nothing had to be waited for"
	kill -KILL "$1"
	within 3 gone "$1" || fail "a killed process still waits"
}
fsck_clean() { "$CTL" -c "$C/cluster.conf" fsck >"$T/fsck" 2>&1 ||
	{ cat "$T/fsck" >&2; fail "fsck is not clean"; }; }
# What acked was told of its files in $MNT/w is there, also after a restart.
acked_kept() {
	drop_caches
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
	cluster_down
	cluster_up
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" ||
		fail "lost after a restart"
	fsck_clean
}
# Bounds of memory are those of what is installed: a sanitizer's build takes
# some times as much.
memory_counts() { case $FLAVOUR in asan|tsan) return 1 ;; esac; }
drop_caches() { echo 3 >/proc/sys/vm/drop_caches; }

cleanup() {
	local code=$?
	set +e
	trap - EXIT
	if [ $code != 0 ] && [ $code != 77 ]; then
		for f in "$C"/run/*.log; do
			[ -s "$f" ] && { echo "# --- ${f##*/}"; tail -n 20 "$f" |
				sed 's/^/# /'; }
		done >&2
	fi
	[ ${#STOPPED[@]} = 0 ] || kill -CONT "${STOPPED[@]}" 2>/dev/null
	type test_cleanup >/dev/null 2>&1 && test_cleanup
	if [ ${#UPS[@]} -gt 0 ]; then
		# A mount whose daemons are gone is not unmounted, it waits.
		timeout -k 5 90 "$CTL" local down "$C" --yes >/dev/null 2>&1 ||
			for f in "$C"/run/*.pid; do
				[ -f "$f" ] && kill -9 "$(cat "$f")" 2>/dev/null
			done
		umount -l "$MNT" 2>/dev/null
	fi
	[ "${KEEP:-0}" = 1 ] || rm -rf --one-file-system "$T"
	exit $code
}
trap cleanup EXIT
trap 'exit 130' INT TERM
