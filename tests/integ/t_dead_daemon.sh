#!/bin/bash
# A dead block daemon: a hard mount waits, and a waiting program can be killed;
# when the daemon is back everything goes on. A soft mount gives an error.
. "$(dirname "$0")/lib.sh"
need_root
# What is still buffered could not be flushed without them.
test_cleanup() { "$CTL" local up "$C" >/dev/null 2>&1; }
stop_all_blockds() { crash blockd1 blockd2 blockd3; }
cluster_up
echo before >"$MNT/f"
sync "$MNT/f"
for victim in 'dd if=/dev/zero of='"$MNT"'/g bs=1M count=4 conv=fsync' \
	'cat '"$MNT"'/f' 'dd if=/dev/zero of='"$MNT"'/f2 bs=4k count=1 oflag=direct'; do
	head -c 100000 /dev/zero >"$MNT/f2"
	sync "$MNT/f2"
	stop_all_blockds
	drop_caches
	bash -c "exec $victim" >/dev/null 2>&1 &
	pid=$!
	sleep 2
	kill -0 $pid 2>/dev/null || fail "a hard mount did not wait: $victim"
	kill -9 $pid
	for _ in $(seq 60); do
		kill -0 $pid 2>/dev/null || break
		[ "$(ps -o stat= -p $pid | cut -c1)" = Z ] && break
		sleep 0.1
	done
	[ "$(ps -o stat= -p $pid | cut -c1)" != D ] ||
		fail "SIGKILL does not end: $victim"
	wait $pid 2>/dev/null || true
	cluster_up
	[ "$(cat "$MNT/f")" = before ] || fail "after $victim"
done
fsck_clean
cluster_down
cluster_up -o soft,timeo=2s
stop_all_blockds
drop_caches
start=$(date +%s)
timeout 20 cat "$MNT/f" >/dev/null 2>"$T/err" && fail "soft, yet it read"
grep -q 'timed out' "$T/err" || { cat "$T/err"; fail "not ETIMEDOUT"; }
[ $(($(date +%s) - start)) -lt 15 ] || fail "soft took too long"
cluster_up
[ "$(cat "$MNT/f")" = before ] || fail "afterwards"
