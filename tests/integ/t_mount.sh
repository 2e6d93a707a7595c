#!/bin/bash
# mount(8), fstab and remount: the helper is silent, dev and suid are there, ro
# and noatime are honoured, unmounting flushes, a second mount waits for it.
. "$(dirname "$0")/lib.sh"
need_root
cluster_up --no-mount
conf=$C/cluster.conf
made=()
for l in /sbin/mount.hailfs /sbin/mount.fuse.hailfs; do
	[ -e "$l" ] || { ln -s "$BIN/hailfs" "$l"; made+=("$l"); }
done
test_cleanup() {
	umount -l "$MNT" 2>/dev/null
	rm -f "${made[@]}"
}
opts_of() { findmnt -no OPTIONS "$MNT"; }
mkdir -p "$MNT"
for type in hailfs fuse.hailfs; do
	mount -t $type -o log="$T/log" "$conf" "$MNT" >"$T/out" 2>&1 ||
		{ cat "$T/out"; fail "mount -t $type"; }
	[ -s "$T/out" ] && { cat "$T/out"; fail "the helper talks"; }
	# It is all there when mount returns, and nobody holds it.
	[ "$(cat "/sys/class/bdi/$(findmnt -no MAJ:MIN "$MNT" |
		tr -d ' ')/read_ahead_kb")" = 4096 ] || fail "read-ahead"
	[ "$(findmnt -no FSTYPE "$MNT")" = fuse.hailfs ] || fail "type"
	case ",$(opts_of)," in *,nodev,*|*,nosuid,*) fail "$(opts_of)" ;; esac
	echo "$type" >"$MNT/f"
	umount "$MNT"
done
mount -t hailfs -o ro,noatime,nodev,nosuid,log="$T/log" "$conf" "$MNT"
[ "$(cat "$MNT/f")" = fuse.hailfs ] || fail "unmounting did not flush"
for o in ro noatime nodev nosuid; do
	case ",$(opts_of)," in *,$o,*) ;; *) fail "no $o: $(opts_of)" ;; esac
done
touch "$MNT/x" 2>/dev/null && fail "ro was written to"
mount -o remount,rw "$MNT" || fail "remount,rw"
touch "$MNT/x" || fail "rw after remount"
# Not only names: bytes, by each way, and ends of files.
head -c 100000 /dev/urandom >"$T/in"
for way in "" direct; do
	dd if="$T/in" of="$MNT/w$way" bs=4096 count=20 conv=fsync \
		${way:+oflag=$way} 2>"$T/err" ||
		{ cat "$T/err"; fail "writing after remount,rw: $way"; }
done
truncate -s 5000 "$MNT/wdirect" || fail "truncate after remount,rw"
fallocate -l 1M "$MNT/x" || fail "fallocate after remount,rw"
mount -o remount,sfot "$MNT" 2>"$T/err" && fail "remount took nonsense"
grep -q "unknown mount option 'sfot'" "$T/err" || fail "$(cat "$T/err")"
# A second one at the same place would never have its turn.
timeout 20 mount -t hailfs "$conf" "$MNT" 2>"$T/err" &&
	fail "mounted over a living mount"
grep -q "a mount is alive here" "$T/err" || fail "twice: $(cat "$T/err")"
[ "$(cat "$MNT/f")" = fuse.hailfs ] || fail "the living mount"
mount -o remount,ro "$MNT" || fail "remount,ro"
touch "$MNT/y" 2>/dev/null && fail "ro after remount was written to"
umount "$MNT"
mount -t hailfs -o ro,writeback,log="$T/log" "$conf" "$MNT"
cmp -n 81920 "$T/in" "$MNT/w" || fail "lost after remount,rw"
[ "$(stat -c %s "$MNT/wdirect" "$MNT/x" | paste -sd ' ')" = "5000 1048576" ] ||
	fail "sizes after remount,rw"
mount -o remount,rw "$MNT" || fail "remount,rw with writeback"
cp "$T/in" "$MNT/w2" && sync "$MNT/w2" || fail "writeback after remount,rw"
umount "$MNT"
echo "$conf $MNT hailfs log=$T/log 0 0" >"$T/fstab"
mount -T "$T/fstab" "$MNT" || fail "fstab"
umount "$MNT"
mount -t hailfs -o nonsense "$conf" "$MNT" 2>"$T/err" && fail "nonsense taken"
grep -q "unknown mount option 'nonsense'" "$T/err" || fail "$(cat "$T/err")"
mount -t hailfs "$T/none" "$MNT" 2>"$T/err" && fail "no file, yet mounted"
echo precious >"$T/file"
"$BIN/hailfs" "$conf" "$T/file" 2>"$T/err" && fail "mounted over a file"
grep -q "$T/file: Not a directory" "$T/err" || fail "$(cat "$T/err")"
[ "$(cat "$T/file")" = precious ] || fail "a file is hidden"
# Cluster files and mount points whose names are long or have commas.
long=$T/$(printf 'l%.0s' {1..250})
for _ in 1 2 3 4 5; do long+=/$(printf 'l%.0s' {1..250}); done
mkdir -p "$long" "$T/a,b"
for c in "$long/c.conf" "$T/a,b\\c.conf"; do
	cp "$conf" "$c"
	"$BIN/hailfs" -o log="$T/log" "$c" "$MNT" >"$T/out" 2>&1 ||
		{ cat "$T/out"; fail "cluster file $c"; }
	[ "$(cat "$MNT/f")" = fuse.hailfs ] || fail "cluster file $c"
	umount "$MNT"
done
# umount(8) does not wait for the mount's process, and a mount elsewhere is
# refused until that has closed its session.
no_session() {
	until [ "$("$CTL" -c "$conf" sessions --json)" = "[]" ]; do
		sleep 0.02
	done
}
for m in "$long" "$T/a,b"; do
	no_session
	"$BIN/hailfs" -o log="$T/log" "$conf" "$m" >"$T/out" 2>&1 ||
		{ cat "$T/out"; fail "mount point $m"; }
	[ "$(cat "$m/f")" = fuse.hailfs ] || fail "mount point $m"
	umount "$m"
done
# What a killed mount left at the mount point is not there again afterwards.
no_session
"$BIN/hailfs" -o log="$T/log",pidfile="$T/a\\,b/pid" "$conf" "$MNT"
pid=$(cat "$T/a,b/pid")
kill -9 "$pid"
while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
stat -f "$MNT" >"$T/out" 2>&1 && fail "the mount is not dead"
mount -t hailfs -o log="$T/log",debug_subsys=meta:fuse "$conf" "$MNT" ||
	fail "over a dead one"
[ "$(cat "$MNT/f")" = fuse.hailfs ] || fail "over a dead one"
umount "$MNT"
findmnt "$MNT" && fail "the dead one is still there"
echo "frobnicate 7" >"$T/bad.conf"
"$BIN/hailfs" "$T/bad.conf" "$MNT" 2>"$T/err" && fail "bad file taken"
grep -q "bad.conf:1:" "$T/err" || fail "no line: $(cat "$T/err")"
