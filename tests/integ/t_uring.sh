#!/bin/bash
# The facts of POSIX over FUSE's io_uring transport.
. "$(dirname "$0")/lib.sh"
need_root
need python3
P=/sys/module/fuse/parameters/enable_uring
[ -w $P ] || skip "this kernel has no FUSE over io_uring"
was=$(cat $P)
test_cleanup() { echo "$was" >$P; }
echo Y >$P
cluster_up -o io_uring=on
told() { # the mount tells metad with its keepalives
	for _ in $(seq 50); do
		"$CTL" -c "$C/cluster.conf" status --json >"$T/status"
		grep -q "$1" "$T/status" && return 0
		sleep 0.1
	done
	cat "$T/status"
	return 1
}
told 'on: asked for' || { told 'off: the libfuse' && skip "an old libfuse"
	fail "status does not tell"; }
"$TST/integ/posix/posix" "$MNT" >"$T/tap" 2>&1 ||
	{ grep -v '^ok' "$T/tap"; fail "over io_uring"; }
fsck_clean
# A signal that comes while a program waits leaves nothing in the mount.
cat >"$T/signals" <<-'END'
	import os, signal, sys
	fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
	taken = 0
	def take(*_):
	    global taken
	    taken += 1
	signal.signal(signal.SIGALRM, take)
	signal.setitimer(signal.ITIMER_REAL, 3e-4, 3e-4)
	while taken < int(sys.argv[2]):
	    os.pwrite(fd, b"x" * 4096, 0)
	    os.fdatasync(fd)
	signal.setitimer(signal.ITIMER_REAL, 0)
END
anon() { awk '/^RssAnon/ { print $2 }' "/proc/$(pid_of mount)/status"; }
python3 "$T/signals" "$MNT/signals" 1000
before=$(anon)
python3 "$T/signals" "$MNT/signals" 10000
[ $(($(anon) - before)) -lt 200 ] || ! memory_counts ||
	fail "10000 signals took $(($(anon) - before)) KiB"
cluster_down
cluster_up -o io_uring=auto
measured="\(on\|off\): measured .* classic [1-9].* io_uring [1-9]"
told "$measured" || fail "auto did not measure"
cluster_down
# Threads that reply at the same time do not lose each other's replies.
if [ "$FLAVOUR" != asan ]; then # a sanitizer wants to be preloaded first
	cluster_up --no-mount
	LD_PRELOAD=$TST/integ/preload/slowsubmit.so cluster_up -o io_uring=on
	mkdir "$MNT/replies"
	for i in 1 2 3 4 5 6 7 8; do
		timeout -s KILL 60 "$TST/integ/replies" "$MNT/replies/$i" 300 &
	done
	for i in $(jobs -p); do wait "$i" || fail "a reply was lost"; done
	cluster_down
fi
# Also in a plain chroot, whose "/" is no mount point.
cluster_up --no-mount
mkdir -p "$T/r/mnt" "$T/r/run" "$T/r$TOP" "$T/r$T"
for d in /usr /bin /sbin /lib /lib64 /etc /proc /sys /dev /tmp; do
	if [ -L $d ]; then cp -P $d "$T/r$d"; else mkdir -p "$T/r$d"; fi
done
cat >"$T/in_chroot" <<-'END'
	for d in /usr /bin /sbin /lib /lib64 /etc /proc /sys /dev; do
		[ -L $d ] || [ ! -e $d ] || mount --rbind $d "$1/r$d"
	done
	mount --bind "$2" "$1/r$2"
	mount --bind "$1" "$1/r$1"
	exec chroot "$1/r" "$3" -f "$1/c/cluster.conf" /mnt
END
unshare -m bash "$T/in_chroot" "$T" "$TOP" "$BIN/hailfs" >"$T/chroot.log" 2>&1 &
mount=$!
told "$measured" ||
	{ cat "$T/chroot.log"; kill $mount; fail "auto in a chroot"; }
kill $mount
wait $mount || { cat "$T/chroot.log"; fail "the mount in a chroot"; }
[ -z "$(ls -d "$T/r/tmp/hailfs"* 2>/dev/null)" ] ||
	fail "the measurement leaves something"
