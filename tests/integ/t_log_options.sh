#!/bin/bash
# What the options of a log directory promise: when a log is copied to the
# blocks, and what its memory is (--destage), and what happens without peers
# (--fallback), what the domains of peers have to do with it, and how many of them
# may die (--peers). After each the mount is killed, and everything is there.
. "$(dirname "$0")/lib.sh"
need_root
# Nothing gets to the blocks by age: only where a log is destaged.
export UP_OPTS=flush_age=1h
cluster_up
for when in interval close off; do
	mkdir "$MNT/$when"
	"$CTL" log enable "$MNT/$when" --destage $when >/dev/null || fail "enable"
done
for how in blocks refuse; do
	mkdir "$MNT/$how"
	"$CTL" log enable "$MNT/$how" --destage close --fallback $how >/dev/null ||
		fail "enable"
done
K=(-c "$C/cluster.conf")
lent() { "$CTL" "${K[@]}" status --json | python3 -c '
import json, sys
print(sum(d["lent_bytes"] for d in json.load(sys.stdin)["daemons"]
          if "lent_bytes" in d))'; }
none_lent() { [ "$(lent)" = 0 ]; }
is() { [ "$(log_status "$1")" = True ]; } # as the mount tells each second
# The file that is written: so many pieces of 64 KiB, each synced.
write() { # FILE PIECES
	python3 - "$1" "$2" "$T/copy" <<'P'
import os, sys
f = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
c = os.open(sys.argv[3], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
for i in range(int(sys.argv[2])):
    d = os.urandom(1 << 16)
    os.write(f, d)
    os.fsync(f)
    os.write(c, d)
P
}
kept() { # FILE NAME...: after the death of these and the mount
	local file=$1
	shift
	crash mount "$@"
	cluster_up
	cmp "$file" "$T/copy" || fail "lost: $file"
	rm "$file" "$T/copy"
	within 20 none_lent || fail "memory of $file: $(lent)"
}

for when in close off; do
	echo "# $when: while it is open its log is its own"
	exec 9>>"$MNT/$when/f"
	write "$MNT/$when/f" 32
	within 10 is "any(f['seq'] >= 32 for f in l['files'])" || fail "no log"
	sleep 1.5
	is "all(f['destaged'] == 0 and not f['ordered'] for f in l['files'])" ||
		fail "destaged: $(log_status "l['files']")"
	[ "$(lent)" -gt $((3 * 32 * 65536)) ] || fail "not all of it: $(lent)"
	exec 9>&-
	if [ $when = close ]; then
		within 20 none_lent || fail "closed: $(lent)"
	else
		sleep 2
		[ "$(lent)" -gt $((3 * 32 * 65536)) ] || fail "off: destaged"
		is "len(l['files']) == 1" || fail "off: it has ended"
	fi
	kept "$MNT/$when/f" logd1
done

echo "# off: many closed logs end when memory is short"
for i in $(seq 300); do # 225 MiB of regions at least, of 64
	head -c 100000 /dev/urandom >"$T/many.$i"
	cat "$T/many.$i" >"$MNT/off/$i"
done
[ "$(lent)" -gt 0 ] || fail "off: all destaged"
crash mount
cluster_up
for i in $(seq 300); do
	cmp "$MNT/off/$i" "$T/many.$i" || fail "lost: off/$i"
done
rm "$MNT/off/"* "$T/many."*
within 20 none_lent || fail "memory: $(lent)"

echo "# region: memory is lent in pieces of that size"
mkdir "$MNT/region"
for size in 65536 1048576; do
	"$CTL" log enable "$MNT/region" --region $size --destage close \
		>/dev/null || fail "enable"
	exec 9>>"$MNT/region/$size"
	echo x >&9
	within 10 is "[f['mirror_bytes'] for f in l['files']] == [$size]" ||
		fail "region: $(log_status "l['files']")"
	within 10 eval '[ "$(lent)" = $((3 * size)) ]' || fail "region: $(lent)"
	exec 9>&-
	within 20 none_lent || fail "region: $(lent)"
done

echo "# disable: files made from then on are ordinary, those before are not"
exec 9>"$MNT/region/before"
echo x >&9
within 10 is "[f['seq'] for f in l['files']] == [1]" || fail "disable: no log"
"$CTL" log disable "$MNT/region" >/dev/null || fail "disable"
exec 8>"$MNT/region/after"
echo y >&8
mv "$MNT/region/65536" "$MNT/region/renamed"
echo y >>"$MNT/region/renamed"
echo x >&9 # behind all that
within 10 is "[f['seq'] for f in l['files']] == [2]" ||
	fail "disable: $(log_status "l['files']")"
exec 8>&- 9>&-
within 20 none_lent || fail "disable: $(lent)"
rm -r "$MNT/region"

echo "# off: an orderly stop destages"
write "$MNT/off/f" 16
[ "$(lent)" -gt 0 ] || fail "off: destaged"
cluster_down
cluster_up
[ "$(lent)" = 0 ] || fail "off: still in the peers' memory"
cmp "$MNT/off/f" "$T/copy" || fail "lost: off/f"
rm "$MNT/off/f" "$T/copy"
cluster_down

echo "# interval: while it is open it follows at the interval"
UP_OPTS=flush_age=300ms
cluster_up
exec 9>>"$MNT/interval/f"
write "$MNT/interval/f" 200
within 10 is "any(f['seq'] >= 200 and f['destaged'] == f['seq'] and f['ordered']
	for f in l['files'])" || fail "not destaged"
within 10 eval '[ "$(lent)" -le $((3 * 4 * 262144)) ]' ||
	fail "memory of what is destaged: $(lent)"
exec 9>&-
kept "$MNT/interval/f"

echo "# blocks: without peers it is an ordinary file"
crash logd1 logd2 logd3
write "$MNT/blocks/f" 8 || fail "no peers: a write fails"
[ "$(log_counter fallbacks)" -gt 0 ] || within 5 eval \
	'[ "$(log_counter fallbacks)" -gt 0 ]' || fail "who has it?"
kept "$MNT/blocks/f"

echo "# refuse: without peers it is not written; what there was is kept"
write "$MNT/refuse/f" 8
crash logd1 logd2 logd3
write "$MNT/refuse/g" 1 2>"$T/err" && fail "refuse: a write without peers"
grep -q "Input/output error" "$T/err" || fail "$(cat "$T/err")"
[ ! -s "$MNT/refuse/g" ] || fail "refuse: it was written"
rm "$MNT/refuse/g"
rm -f "$MNT/refuse/g"
cluster_up # the peers are back
try() { echo again >>"$MNT/refuse/h"; } 2>/dev/null
within 20 try || fail "refuse: peers are back"
kept "$MNT/refuse/f"
grep -q again "$MNT/refuse/h" || fail "refuse: lost"
fsck_clean
cluster_down

# A log of a directory without --destage, and where it is while the file is open
# and afterwards.
domains() { # NAME FOR EACH: of logd1, logd2, logd3
	local i=0 name
	sed -i '/^logd/s/ domain=.*//' "$C/cluster.conf"
	for name in "$@"; do
		i=$((i + 1))
		sed -i "/^logd  *$i /s/\$/ domain=$name/" "$C/cluster.conf"
	done
	cluster_up
	exec 9>>"$MNT/default/$1$2$3"
	write "$MNT/default/$1$2$3" 32
	within 10 is "len(l['files']) == 1 and l['files'][0]['seq'] >= 32" ||
		fail "no log: $(log_status "l['files']")"
}
echo "# domains: where each peer has its own, the default is close"
cluster_up
mkdir "$MNT/default"
"$CTL" log enable "$MNT/default" >/dev/null || fail "enable"
cluster_down
domains a b c
sleep 1.5 # five intervals, and the mount has told of that
is "all(f['destaged'] == 0 and not f['ordered'] for f in l['files'])" ||
	fail "domains: $(log_status "l['files']")"
[ "$(lent)" -gt $((3 * 32 * 65536)) ] || fail "domains: not all of it: $(lent)"
exec 9>&-
within 20 none_lent || fail "domains: closed: $(lent)"
kept "$MNT/default/abc"

echo "# domains: where two share one, it is interval"
cluster_down
domains a b a
within 10 is "all(f['destaged'] == f['seq'] and f['ordered'] for f in l['files'])" ||
	fail "domains: $(log_status "l['files']")"
exec 9>&-
kept "$MNT/default/aba"
fsck_clean
cluster_down

echo "# peers: five have it, two of them die with the mount"
C=$T/five
MNT=$C/mnt
K=(-c "$C/cluster.conf")
UP_OPTS=
cluster_up --logds 5 -o flush_age=1h
UP_OPTS=flush_age=1h
mkdir "$MNT/five"
"$CTL" log enable "$MNT/five" --peers 5 --destage off >/dev/null || fail "enable"
write "$MNT/five/f" 32
within 10 is "[sorted(p['id'] for p in f['peers'] if p['state'] == 'up' and
	p['acknowledged'] == f['seq']) for f in l['files']
	if f['destaged'] == 0 and f['seq'] >= 32] == [[1, 2, 3, 4, 5]]" ||
	fail "peers: $(log_status "l['files']")"
[ "$(lent)" -gt $((5 * 32 * 65536)) ] || fail "peers: not all of it: $(lent)"
read -r a b <<<"$(shuf -e 1 2 3 4 5 | tr '\n' ' ')"
echo "# logd$a and logd${b%% *}"
kept "$MNT/five/f" logd$a "logd${b%% *}"
within 5 eval '[ "$(log_counter recovered)" -gt 0 ]' || fail "peers: there was no log"
fsck_clean
