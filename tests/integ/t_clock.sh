#!/bin/bash
# The wall clock is set an hour ahead, a day and ten years back under load, in
# every process and in each alone: leases and time-outs do not notice, nothing
# is lost, and what is restarted in the past is let in.
. "$(dirname "$0")/lib.sh"
need_root
need python3
[ "$FLAVOUR" != asan ] || skip "a sanitizer wants to be preloaded first"
JUMP=$TST/integ/preload/jumpclock.so
[ -f "$JUMP" ] || skip "not built: $JUMP"

# jump NAME SECONDS: of metad1, blockd1.., logd1.. or mount
jump() {
	python3 -c "import struct, sys
open(sys.argv[1], 'r+b').write(struct.pack('<q', int(sys.argv[2])))" \
		"$T/jump.$1" "$2"
}
ALL="metad1 blockd1 blockd2 blockd3 logd1 logd2 logd3 mount"
for n in $ALL; do head -c 8 /dev/zero >"$T/jump.$n"; done

# hailctl starts the programs next to itself: these put the clock in between.
mkdir "$T/bin"
cp "$CTL" "$T/bin/hailctl"
for p in hail-metad hail-blockd hail-logd hailfs; do
	cp "$BIN/$p" "$T/bin/$p.real"
done
for p in hail-metad hail-blockd hail-logd; do
	cat >"$T/bin/$p" <<-EOF
		#!/bin/bash
		a=("\$@")
		for i in "\${!a[@]}"; do [ "\${a[i]}" = --id ] && id=\${a[i+1]}; done
		role=${p#hail-}
		export JUMP_FILE="$T/jump.\$role\$id" LD_PRELOAD="$JUMP"
		exec -a $p "$T/bin/$p.real" "\$@"
	EOF
done
cat >"$T/bin/hailfs" <<-EOF
	#!/bin/bash
	export JUMP_FILE="$T/jump.mount" LD_PRELOAD="$JUMP"
	exec -a hailfs "$T/bin/hailfs.real" "\$@"
EOF
chmod +x "$T"/bin/*
# hailctl looks for the program of a pid by its file's name.
for p in hail-metad hail-blockd hail-logd hailfs; do
	mkdir "$T/bin/$p.d"
	mv "$T/bin/$p.real" "$T/bin/$p.d/$p"
	sed -i "s,$T/bin/$p.real,$T/bin/$p.d/$p," "$T/bin/$p"
done
CTL=$T/bin/hailctl

cluster_up -o nowriteback
declare -A PID
for n in $ALL; do
	PID[$n]=$(pid_of "$n")
	grep -q jumpclock "/proc/${PID[$n]}/maps" ||
		fail "$n runs by the true clock"
done
mkdir "$MNT/w" "$MNT/w/0" "$MNT/w/1"
"$CTL" log enable "$MNT/w/0" >/dev/null || fail "log enable"
"$TST/integ/acked" write "$MNT/w" "$T/acks" 11 4 &
writer=$!
sleep 1
for n in $ALL; do jump "$n" 3600; done
sleep 1.2
for n in $ALL; do jump "$n" -86400; done
sleep 1.2
for n in metad1 blockd2 logd2 mount; do jump "$n" -315360000; sleep 1
	jump "$n" 3600; sleep 0.5; done
wait $writer || fail "a writer saw an error (status $?)"
for n in $ALL; do
	kill -0 "${PID[$n]}" 2>/dev/null || fail "$n died"
done
grep -hE '^[^ ]+ [^ ]+ (warn|err) ' "$C"/run/*.log &&
	fail "somebody noticed"
drop_caches
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
# A file's time is what the clock says, also when that went back.
jump mount 0
echo a >"$MNT/f"
jump mount -3600
echo b >>"$MNT/f"
age=$(($(date +%s) - $(stat -c %Y "$MNT/f")))
[ $age -ge 3590 ] && [ $age -le 3610 ] || fail "mtime is $age s old"
jump mount 0

# Killed and started again a day in the past: every connection is older than
# the one before it, by the clock.
for n in $ALL; do jump "$n" 0; done
"$TST/integ/acked" write "$MNT/w" "$T/acks" 10 4 &
writer=$!
sleep 1
for n in blockd1 logd1 metad1; do
	jump "$n" -86400
	crash "$n"
	cluster_up
done
wait $writer || fail "a writer saw an error (status $?)"
drop_caches
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost after restarts"
[ "$("$CTL" -c "$C/cluster.conf" status --json |
	python3 -c 'import json, sys
print(sum(d["state"] == "ok" for d in json.load(sys.stdin)["daemons"]))')" \
	-ge 3 ] || fail "not everything is back"
fsck_clean
