#!/bin/bash
# Programs of different releases with each other: built here are those of the
# next minor of the protocol, whose messages end in a field that today's do not
# know, and those of the next major. Clients work with daemons of the other
# minor, both ways, and metads of both make a group; those of the other major
# are refused, and both sides say why.
. "$(dirname "$0")/lib.sh"
need_root
need make gcc python3
[ "$FLAVOUR" = release ] || skip "has programs of its own"
for f in minor major; do
	# Not as part of another make.
	env -u MAKEFLAGS -u MAKELEVEL make -s -C "$TOP" -j2 FLAVOUR=$f all \
		>"$T/make" 2>&1 || { tail "$T/make" >&2; fail "make $f"; }
done
K=(-c "$C/cluster.conf")
today=$BIN minor=$TOP/build/minor/bin major=$TOP/build/major/bin

# program ROLE BIN: whose program for that is started from now on. hailctl
# starts what lies beside it.
P=$T/bin
mkdir "$P"
CTL=$P/hailctl
program() { ln -sf "$2/$1" "$P/$1"; }
programs() { # METAD BLOCKD LOGD MOUNT
	program hail-metad "$1"
	program hail-blockd "$2"
	program hail-logd "$3"
	program hailfs "$4"
	cp "$today/hailctl" "$P/hailctl"
}
# protocol NAME: what status says of it.
protocols() {
	"$CTL" "${K[@]}" status --json | python3 -c '
import json, sys
print(" ".join(d.get("protocol", "?") for d in json.load(sys.stdin)["daemons"]))'
}
# Names, attributes, blocks and logs.
load() {
	local i
	mkdir "$MNT/$1" "$MNT/$1/wal"
	"$CTL" log enable "$MNT/$1/wal" >/dev/null || fail "log enable"
	for i in $(seq 30); do
		echo "$1 $i" >"$MNT/$1/$i"
	done
	dd if=/dev/urandom of="$MNT/$1/big" bs=1M count=12 conv=fsync \
		status=none
	truncate -s 7000000 "$MNT/$1/big"
	fallocate -p -o 4096 -l 65536 "$MNT/$1/big"
	dd if=/dev/zero of="$MNT/$1/wal/log" bs=4k count=40 oflag=dsync \
		status=none
	within 8 logs_counted || fail "no log was used"
	ln "$MNT/$1/1" "$MNT/$1/one"
	mv "$MNT/$1/2" "$MNT/$1/two"
	rm "$MNT/$1/3"
	chmod 640 "$MNT/$1/4"
	setfattr -n user.x -v y "$MNT/$1/5" 2>/dev/null || true
}
sums() { (cd "$MNT" && find "$1" -type f -print0 | sort -z |
	xargs -0 sha256sum && ls -l "$1" | awk '{ print $1, $2, $5, $9 }'); }
# kept NAME...: as load() left it.
kept() {
	local n
	for n in "$@"; do
		sums "$n" | diff "$T/sums.$n" - >"$T/diff" ||
			{ cat "$T/diff" >&2; fail "$n is not what it was"; }
	done
}
# Durably: a mount that is killed loses the rest.
put() {
	load "$1"
	find "$MNT/$1" -print0 | xargs -0 sync
	sums "$1" >"$T/sums.$1"
}

# Each kind of program of the other minor, among those of this one, and the
# other way round; each over the state and the disks that the one before left.
# (An older metad does not come after a newer one: see below.)
seen=()
for which in \
	"$today $today $today $minor 1.1 1.1 1.1" \
	"$today $minor $minor $today 1.1 1.2 1.2" \
	"$minor $today $today $today 1.2 1.1 1.1" \
	"$minor $minor $minor $today 1.2 1.2 1.2"; do
	read -r m b l h pm pb pl <<<"$which"
	programs "$m" "$b" "$l" "$h"
	cluster_up --logds 3 --blockds 2
	want="$pm $pb $pb $pl $pl $pl"
	[ "$(protocols)" = "$want" ] || fail "status: $(protocols), not $want"
	# People are told of what is not of their own release.
	"$CTL" "${K[@]}" status >"$T/out"
	[ "$(grep -c 'protocol=1\.2' "$T/out")" = \
		"$(tr ' ' '\n' <<<"$want" | grep -c '1\.2')" ] ||
		{ cat "$T/out" >&2; fail "status in words"; }
	grep -q 'protocol=1\.1' "$T/out" && fail "its own is told"
	name=n${#seen[@]}
	put "$name"
	seen+=("$name")
	# What is not in memory, too; and what a killed mount leaves is taken over.
	drop_caches
	kept "${seen[@]}"
	crash mount
	cluster_up
	kept "${seen[@]}"
	fsck_clean
	cluster_down
done

# Another major: nobody serves it, it is told why, and asked rarely.
C=$T/m
MNT=$C/mnt
K=(-c "$C/cluster.conf")
programs "$today" "$today" "$today" "$today"
cluster_up --logds 3
put m0
for p in hailctl hailfs; do
	args=("${K[@]}" --timeout 10 status)
	[ $p = hailctl ] ||
		args=(-o "log=$T/mount.log" "$C/cluster.conf" "$T/bin")
	code=0
	timeout 60 "$major/$p" "${args[@]}" >"$T/out" 2>&1 || code=$?
	{ [ $code != 0 ] && [ $code != 124 ]; } || fail "$p of major 2: $code"
	grep -q 'another \(release\|version\)' "$T/out" ||
		{ cat "$T/out" >&2; fail "$p does not say why"; }
	[ $p = hailctl ] || cat "$T/mount.log" >>"$T/out"
	grep -q 'event=other-version .*theirs=1 ours=2\.1' "$T/out" ||
		{ cat "$T/out" >&2; fail "$p does not say which"; }
done
for d in metad1 blockd1; do
	grep -q 'other-version .*theirs=2 ours=1\.1' "$C/run/$d.log" ||
		fail "$d does not say which"
done
# A block daemon of the other major beside today's metad goes on asking; it is
# counted from the first refusal on.
: >"$C/run/metad1.log"
crash blockd1
"$major/hail-blockd" "${K[@]}" --id 1 --log "$T/blockd.log" \
	--pidfile "$C/run/blockd1.pid" || fail "it does not start"
refusals() { grep -c 'other-version' "$C/run/metad1.log"; }
asked() { [ "$(refusals)" -ge "$1" ]; }
within 20 asked 1 || fail "metad does not refuse it"
began=$(date +%s%N)
first=$(refusals)
within 30 asked $((first + 2)) || fail "it does not ask again"
took=$((($(date +%s%N) - began) / 1000000))
# Two more cannot be there before 5 s and some ms, less what the first took.
[ $took -ge 4500 ] || fail "asked again after $took ms"
[ "$(grep -c 'event=other-version' "$T/blockd.log")" = 1 ] ||
	fail "it says it each time"
crash blockd1
cluster_up
kept m0
cluster_down

# A group of three metads and a newer client, as in an upgrade. What its
# commands have that not all members know none executes, whoever leads.
C=$T/g
MNT=$C/mnt
K=(-c "$C/cluster.conf")
programs "$today" "$today" "$today" "$minor"
cluster_up --metads 3 --logds 3
renew() { # ID BIN
	crash "metad$1"
	BIN=$2 metad_start "$1"
}
lead() {
	"$CTL" "${K[@]}" metad transfer "$1" >/dev/null 2>&1 || true
	[ "$(leader)" = "$1" ]
}
# minor_is N: what the one that leads makes commands of.
minor_is() {
	local l
	l=$(leader)
	[ "$l" != 0 ] && [ "$(metad_json "$l" 'd["minor"]')" = "$1" ]
}
all_have() { # the same, of all that was told
	"$CTL" "${K[@]}" status --json 2>/dev/null | python3 -c '
import json, sys
m = [d for d in json.load(sys.stdin)["daemons"]
     if d["program"] == "hail-metad"]
sys.exit(len({d.get("pos") for d in m}) != 1)'
}
put g0
for id in 1 2; do
	renew "$id" "$minor"
	within 30 lead "$id" || fail "metad $id does not lead"
	within 10 minor_is 1 || fail "an older one is there: $(protocols)"
	put "g$id"
	within 20 all_have || fail "not all follow metad $id"
done
within 30 lead 3 || fail "metad 3 does not lead"
put g3
within 20 all_have || fail "not all follow metad 3"
grep -l 'event=\(bad-command\|failed\)' "$C"/run/metad*.log &&
	fail "a metad does not understand another"
# When all have it, it is used; who is older then does not come back.
renew 3 "$minor"
within 30 lead 3 || fail "metad 3 does not lead"
within 20 minor_is 2 || fail "all are newer: $(protocols)"
put g4
within 20 all_have || fail "not all follow metad 3"
crash metad3
"$today/hail-metad" -f --cluster "$C/cluster.conf" --id 3 >"$T/older" 2>&1 &
older=$!
within 30 gone $older || { kill -9 $older; fail "an older metad goes on"; }
grep -q 'later version' "$T/older" ||
	{ cat "$T/older" >&2; fail "the older metad does not say why"; }
put g5
BIN=$minor metad_start 3
within 20 all_have || fail "not all follow"
drop_caches
kept g0 g1 g2 g3 g4 g5
fsck_clean
cluster_down
