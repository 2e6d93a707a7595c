#!/bin/bash
# hailctl: exit codes, what it tells, starting what does not run.
. "$(dirname "$0")/lib.sh"
need_root
need python3

stopped=
test_cleanup() { [ -z "$stopped" ] || kill -CONT "$stopped"; }
# code WANTED ARGUMENTS...: runs hailctl, compares its exit code.
code() {
	local want=$1 got=0
	shift
	"$CTL" "$@" >"$T/out" 2>"$T/err" || got=$?
	[ $got = "$want" ] || { cat "$T/out" "$T/err" >&2
		fail "hailctl $* exited with $got, not $want"; }
	case " $* " in *" --json "*)
		echo " $* " >>"$T/jsons"
		json "d is not None" ;;
	esac
}
says() { grep -q -e "$1" "$T/err" || { cat "$T/err" >&2
	fail "no '$1' in the error"; }; }
json() { python3 -c "
import json, sys
d = json.load(open('$T/out'))
assert ($1), d" || fail "JSON: $1"; }

# ---- usage ----
code 2; says "which command"
code 2 frobnicate; says "no command 'frobnicate'"
code 2 local; says "local up DIR"
code 2 local up; says "something is missing"
code 2 local up a b; says "not understood"
code 2 df --scrub; says "no option of 'hailctl df'"
code 2 --nonsense df
code 2 local up "$C" --blokds 3; says "no option '--blokds'"
code 2 fsck --limit; says "'--limit' needs a value"
code 2 local up "$C" --metads 2; says "1, 3 or 5"
code 2 local up "$C" --metads 7; says "1 to 5"
code 2 local up "$C" --replicas 2; says "--replicas 2"
[ ! -e "$C" ] || fail "a refused local up left something"
code 1 -c "$T/none" status; says "$T/none"
printf 'id 5\nmetad 1 here\n' >"$T/bad.conf"
code 1 -c "$T/bad.conf" status; says "$T/bad.conf:2:9"
code 1 local status "$T/none"; says "hailctl local up"
code 0 --help

# ---- up ----
code 0 local up "$C" --blockds 2 --logds 2 --no-mount --json
json "d['started'] == ['metad1', 'blockd1', 'blockd2', 'logd1', 'logd2'] and not d['mountpoint']"
code 0 local up "$C" --json
UPS=("$C")
json "d['started'] == ['mount'] and d['mountpoint'] == '$MNT'"
code 0 local up "$C" --json
json "d['started'] == []"
code 1 local up "$C" --blockds 5; says "2 block daemons"; says "hold no data"
code 1 local up "$C" --metads 3; says "the cluster in $C has 1"
echo hello >"$MNT/a"
sync "$MNT/a"

# ---- looking ----
K=(-c "$C/cluster.conf")
# One metad is no group (t_metads_members has one).
for what in add remove transfer; do
	code 1 "${K[@]}" metad $what 2; says "names no other metad"
	code 2 "${K[@]}" metad $what x; says "no daemon id"
done
code 0 local status "$C" --json
json "[p['name'] for p in d['processes']] == ['metad1', 'blockd1', 'blockd2', 'logd1', 'logd2', 'mount']"
json "all(p['pid'] > 1 for p in d['processes'])"
json "[p['program'] for p in d['processes']] == ['hail-metad'] + 2 * ['hail-blockd'] + 2 * ['hail-logd'] + ['hailfs']"
json "[p['role'] for p in d['processes']] == ['metadata', 'blocks', 'blocks', 'logs', 'logs', 'client']"
json "[p['address'].rsplit(':', 1)[0] for p in d['processes'][:5]] == 5 * ['127.0.0.1']"
json "d['processes'][5]['address'] == '$MNT'"
json "[p['state'] for p in d['processes']] == 5 * ['ok'] + ['mounted']"
code 0 "${K[@]}" status --json
json "len(d['daemons']) == 5 and len(d['sessions']) == 1"
json "d['sessions'][0]['mountpoint'] == '$MNT'"
json "all('epoch' in p and 'state' in p for p in d['daemons'])"
json "[l['id'] for l in d['daemons'][0]['logds']] == [1, 2] and d['daemons'][0]['logs'] == 0"
json "all(l['up'] and not l['draining'] for l in d['daemons'][0]['logds'])"
json "all(l['bytes_total'] >= l['bytes_free'] > 0 for l in d['daemons'][0]['logds'])"
json "all(l['addr'] == l['domain'] == '127.0.0.1' and l['port'] > 0 for l in d['daemons'][0]['logds'])"
code 0 "${K[@]}" status
grep -Eq '^logd 1 +127.0.0.1:[0-9]+ +up ' "$T/out" || { cat "$T/out"; fail "lenders"; }
code 0 "${K[@]}" df --json
json "d['bytes_total'] > d['bytes_free'] > 0 and d['inodes'] == 2"
# Daemons on one disk have it once, not twice, with what they have taken
# already, a segment or two each; and so says statfs. (Others may be filling or
# emptying the disk meanwhile.)
disk=$(($(stat -f -c '%a * %S' "$C") * 3 / 2))
json "0 < d['bytes_free'] <= $disk"
free=$(($(stat -f -c '%a * %S' "$MNT")))
[ $free -gt 0 ] && [ $free -le $disk ] || fail "statfs: $free of $disk"
code 0 "${K[@]}" stats --json
json "set(d) == {'metad1', 'blockd1', 'blockd2', 'logd1', 'logd2'}"
code 0 "${K[@]}" map --json
json "[b['id'] for b in d['blockds']] == [1, 2] and len(d['slots']) == 4096"
json "[b['slots'] for b in d['blockds']] == [2048, 2048]"
json "all(b['state'] == 'up' for b in d['blockds']) and d['epoch'] > 0"
json "len(d['sessions']) == 1 and {len(s) for s in d['slots']} == {1}"
code 0 "${K[@]}" map
grep -Eq '^1 .* up +2048 +50.0%$' "$T/out" || { cat "$T/out"; fail "map"; }
# What it tells is what was done meanwhile.
"$CTL" "${K[@]}" top --json --interval 3s --count 1 >"$T/top" &
top=$!
for i in $(seq 100); do
	echo "$i" >"$MNT/t"
	sync "$MNT/t"
	sleep 0.01
done
rm "$MNT/t"
wait $top || fail "top"
cp "$T/top" "$T/out"
json "d['interval_ms'] >= 3000"
json "[r['who'].split()[0] for r in d['rows']] == ['mount', 'metad'] + 2 * ['blockd'] + 2 * ['logd']"
json "5 < d['rows'][0]['sync']['per_s'] * d['interval_ms'] / 1000 < 100.5"
json "0 < d['rows'][0]['sync']['mean_us'] < 1e6"
json "0 < sum(r['write']['per_s'] for r in d['rows'][2:]) * d['interval_ms'] < 3e5"
json "0 < sum(r['write']['mean_us'] for r in d['rows'][2:]) < 1e6"
code 0 "${K[@]}" top --interval 100ms --count 2
[ "$(grep -c '^WHO ' "$T/out")" = 2 ] || { cat "$T/out"; fail "top twice"; }
code 2 "${K[@]}" top --interval 1ms; says "interval"
code 0 "${K[@]}" sessions --json
json "[s['mountpoint'] for s in d] == ['$MNT'] and d[0]['state'] == 'live'"
code 0 "${K[@]}" locks --json
json "d['locks'] == d['waiting'] == [] and d['lock_count'] == 0"
code 0 "${K[@]}" locks
code 0 "${K[@]}" leases --json
json "d['lease_count'] >= len(d['leases'])"
code 0 "${K[@]}" leases --limit 1
code 1 "${K[@]}" evict 4711 --yes; says "no session 4711"
code 2 "${K[@]}" evict 1; says "--yes"
for i in 0 -1 x 1x 99999999999999999999; do
	code 2 "${K[@]}" evict --yes -- "$i"; says "is no session"
done
code 0 "${K[@]}" top --json --interval 100ms --count 1
code 0 block-size "$MNT" --json
json "d['block_bytes'] == 1 << 20"
code 0 block-size "$MNT" 1M --json
mkdir "$MNT/logs"
tells() { # WORDS: of the log directory, all of the output
	[ "$(cat "$T/out")" = "$MNT/logs: $1" ] ||
		fail "log: $(cat "$T/out"), not $1"
}
code 0 log status "$MNT/logs" --json
json "d == {'path': '$MNT/logs', 'enabled': False, 'options': ''}"
code 0 log status "$MNT/logs"; tells "no log directory"
code 0 log enable "$MNT/logs"; tells "log directory"
code 0 log enable "$MNT/logs" --match '*.log' --peers 3 --json
json "d == {'path': '$MNT/logs', 'enabled': True, 'options': 'match=*.log peers=3'}"
code 0 log status "$MNT/logs"; tells "log directory, match=*.log peers=3"
# Given again it replaces all that was said; what is wrong changes nothing.
all="region=1M destage=close fallback=refuse"
code 0 log enable "$MNT/logs" --region 1M --destage close --fallback refuse
tells "log directory, $all"
for wrong in "--region 3M" "--region 32K" "--region 128M" "--region x" \
	"--peers 2" "--destage never" "--fallback no" "--match ["; do
	# shellcheck disable=SC2086
	code 1 log enable "$MNT/logs" $wrong; says "is not understood"
done
code 0 log status "$MNT/logs" --json
json "d == {'path': '$MNT/logs', 'enabled': True, 'options': '$all'}"
code 0 "${K[@]}" log salvage --json
json "d['logs'] == []"
code 0 "${K[@]}" log salvage
code 1 "${K[@]}" log salvage /nowhere "$T/salvaged"; says "No such file"
code 0 log disable "$MNT/logs" --json
json "d == {'path': '$MNT/logs', 'enabled': False, 'options': ''}"
code 0 log disable "$MNT/logs"; tells "no log directory"
code 0 log status "$MNT/logs"; tells "no log directory"
code 1 log enable "$T"
rmdir "$MNT/logs"
code 0 why "$MNT/a" --json
json "d['inode'] > 1 and d['block_count'] == 1 and d['misplaced'] == 0"
json "d['blocks'][0]['blockd'] in (1, 2) and d['blocks'][0]['units'] == 1"
# The mount tells the size with its lease, half a second after the last write.
for _ in $(seq 100); do
	(cd "$MNT" && "$CTL" why ./a) >"$T/why"
	grep -q "size 6 bytes" "$T/why" && break
	sleep 0.1
done
grep -q "size 6 bytes" "$T/why" || fail "why ./a"
code 1 why "$MNT/nothing"; says "No such file"
ln -s a "$MNT/l"
code 1 why "$MNT/l/x"; says "symbolic link"
code 0 "${K[@]}" fsck --scrub --json
json "d['clean'] and d['findings'] == []"
code 0 "${K[@]}" blockd scrub 1 --json
json "d['id'] == 1 and d['units_read'] >= 0 and d['units_bad'] == 0"
code 0 "${K[@]}" blockd scrub 2
# How far it is shows on a terminal, and nowhere else.
for c in "fsck --scrub" "metad backup $T/progress"; do
	script -qec "'$CTL' -c '$C/cluster.conf' $c" /dev/null >"$T/tty"
	grep -q $'\r\033\[K[0-9.]* .*[a-zB]\r\033\[K' "$T/tty" ||
		{ cat -v "$T/tty"; fail "$c: no progress"; }
	# shellcheck disable=SC2086
	code 0 "${K[@]}" $c
	grep -q $'\033' "$T/out" "$T/err" && fail "$c: progress in a file"
done
script -qec "'$CTL' -c '$C/cluster.conf' blockd scrub 2" /dev/null >"$T/tty"
grep -q 'blockd 2: [0-9.]* [KMG]*i*B of [0-9.]* [KMGT]iB read' "$T/tty" ||
	{ cat -v "$T/tty"; fail "scrub: no progress"; }
code 2 "${K[@]}" blockd scrub x
code 1 "${K[@]}" blockd scrub 9; says "no blockd 9"
code 0 "${K[@]}" logd drain 1 --wait --json
json "d['state'] == 'drained' and d['draining'] and d['lent_bytes'] == 0"
json "d['free_bytes'] == 0"
for _ in $(seq 100); do # its next heartbeat tells metad
	"$CTL" "${K[@]}" status >"$T/out"
	grep -Eq '^logd 1 .* draining ' "$T/out" && break
	sleep 0.1
done
grep -Eq '^logd 1 .* draining ' "$T/out" || fail "drained, and offered"
code 0 "${K[@]}" logd drain 1 --off --json
json "d['state'] == 'ok' and d['free_bytes'] == d['total_bytes'] > 0"
code 1 "${K[@]}" logd drain 9; says "no logd 9"
code 2 "${K[@]}" logd drain x; says "no daemon id"
code 2 "${K[@]}" df --off; says "no option of 'hailctl df'"

# ---- something is there, and does nothing ----
for n in metad1 blockd2; do
	stopped=$(pid_of $n)
	halt "$stopped"
	code 1 local up "$C" --timeout 1s
	says "$n: process $stopped is there, but does not answer"
	says "kill -CONT $stopped"
	kill -CONT "$stopped"
	stopped=
	code 0 local up "$C"
	grep -q "was up already" "$T/out" || fail "up again: $(cat "$T/out")"
done

# ---- something is gone ----
crash blockd2
code 3 local status "$C" --json
json "d['processes'][2]['state'] == 'stopped' and not d['processes'][2]['pid']"
code 3 "${K[@]}" status; says "blockd 2"
code 3 "${K[@]}" df
code 1 "${K[@]}" fsck; says "blockd 2"
# Who does not answer is not nothing.
crash metad1
code 3 "${K[@]}" status --json
json "d['sessions'] is None and len(d['daemons']) == 5"
code 3 "${K[@]}" df --json
json "d['inodes'] is None and d['inodes_max'] is None"
json "d['purge_pending'] is None and d['bytes_free'] > 0"
crash mount
code 3 local status "$C" --json
json "d['processes'][5]['state'] == 'dead'"
code 0 local up "$C" --json
json "d['started'] == ['metad1', 'blockd2', 'mount']"
[ "$(cat "$MNT/a")" = hello ] || fail "the file changed"

# ---- backup, restore ----
code 0 "${K[@]}" metad backup "$T/backup" --json
json "d['file'] == '$T/backup' and d['bytes'] == $(stat -c %s "$T/backup")"
code 1 "${K[@]}" metad backup "$T/no/such/dir"; says "$T/no/such/dir"
[ ! -e "$T/backup.part" ] || fail "a part of the backup is left"
# One at a time; what a killed one left does no harm.
echo half >"$T/backup.part"
sum=$(sha256sum <"$T/backup")
exec 9<"$T/backup.part"
flock 9
code 1 "${K[@]}" metad backup "$T/backup"; says "another backup"
[ "$(cat "$T/backup.part")" = half ] || fail "two backups wrote one file"
[ "$(sha256sum <"$T/backup")" = "$sum" ] || fail "a refused backup replaced one"
exec 9<&-
code 0 "${K[@]}" metad backup "$T/backup"
[ ! -e "$T/backup.part" ] || fail "a part of the backup is left"
mkfifo "$T/fifo"
ln -s backup "$T/link"
for f in fifo link; do # as /dev/stdout is one
	code 1 "${K[@]}" metad backup "$T/$f"; says "$T/$f is there and no regular"
done
[ -p "$T/fifo" ] && [ -L "$T/link" ] || fail "a backup replaced something"

# Not beside the metad that runs.
code 1 "${K[@]}" metad restore "$T/backup" "$T/beside"
says "another process listens there, this daemon perhaps: stop it"

# ---- down ----
(cd "$MNT" && code 1 local down "$C" && says "fuser -vm $MNT'") || fail "busy"
code 0 local status "$C"
code 0 local down "$C" --json
json "d['dir'] == '$C'"
UPS=()
code 1 local status "$C"
code 0 local down "$C"
code 1 "${K[@]}" status; says "does not run"
code 0 "${K[@]}" metad restore "$T/backup" "$T/restored" --json
json "d['file'] == '$T/backup' and '$T/restored' in d.values()"
code 1 "${K[@]}" metad restore "$T/backup" "$T/restored"; says "empty"
code 1 "${K[@]}" metad restore "$T/none" "$T/r2"; says "$T/none"
code 0 local up "$C" --json
UPS=("$C")
[ "$(cat "$MNT/a")" = hello ] || fail "the file changed"

code 0 "${K[@]}" sessions
id=$(awk -v m="$MNT" '$3 == m { print $1 }' "$T/out")
code 0 "${K[@]}" evict "$id" --yes --json
json "d == {'session': $id, 'ended': True}"
umount -l "$MNT"
code 0 local up "$C"
[ "$(cat "$MNT/a")" = hello ] || fail "the file changed"

code 0 key new "$T/key" --json
json "d['path'] == '$T/key' and len(d['id']) == 16"
code 1 key new "$T/key"; says "hailctl key rotate"
code 0 key rotate "$T/key" --json
[ "$(grep -c '^key ' "$T/key")" = 2 ] || fail "the key in use is gone"
chmod 644 "$T/key"
code 1 key rotate "$T/key"; says "$T/key"

# ---- all with an example, and with --json (blockd give-up: t_lost_store; a
# group of metads: t_metads_members) ----
"$CTL" --help | sed -n '/^Commands/,/^$/s/^  \([a-z].*\)/\1/p' |
	sed 's/   *.*//; s/ [A-Z][A-Z ]*$//' | sort -u >"$T/commands"
[ "$(wc -l <"$T/commands")" -ge 14 ] || fail "--help lists too few commands"
"$CTL" --help | sed -n '/^Examples/,/^$/p' >"$T/examples"
while read -r words; do
	grep -q "^  hailctl.* $words\b" "$T/examples" ||
		fail "help has no example of $words"
	case $words in "blockd give-up" | "metad add" | "metad remove" | \
		"metad transfer") continue ;;
	esac
	grep -qF " $words " "$T/jsons" ||
		fail "'hailctl $words --json' was not tried"
done <"$T/commands"
