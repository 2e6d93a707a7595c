#!/bin/bash
# Two mounts, each with programs that sync what they write and read it back at the
# other: kill -9 of one, of both, of metad, of everything. What was acknowledged is
# there, at whichever mount it is looked for. Then each process is stopped for
# longer than a heartbeat, under random operations of both: nobody is fenced.
. "$(dirname "$0")/lib.sh"
need_root
rounds=${ROUNDS:-1}
B=$T/b
mkdir "$B"
b_pid() { cat "$T/b.pid"; }
test_cleanup() { umount -l "$B" 2>/dev/null; }
round=0
# dies NAME...: of the cluster's; b: the other mount.
dies() {
	local names=() n a b
	round=$((round + 1))
	mkdir "$MNT/a$round" "$B/b$round"
	"$TST/integ/acked" write "$MNT/a$round" "$T/a.acks" 20 2 2>/dev/null &
	a=$!
	"$TST/integ/acked" write "$B/b$round" "$T/b.acks" 20 2 2>/dev/null &
	b=$!
	sleep "1.$((RANDOM % 9))"
	for n in "$@"; do
		[ "$n" = b ] && mount_crash b || names+=("$n")
	done
	[ ${#names[@]} = 0 ] || crash "${names[@]}"
	for n in "$@"; do
		case $n in
		b) umount -l "$B" ;;
		mount) wait $a || true ;;
		esac
	done
	cluster_up -o shared
	[ -z "$(findmnt -n "$B")" ] && mount_at b "$B"
	kill $a $b 2>/dev/null || true
	wait $a || true
	wait $b || true
	for n in a b; do
		for m in "$MNT" "$B"; do
			"$TST/integ/acked" verify "$m/$n$round" "$T/$n.acks" ||
				fail "lost when $* died"
		done
	done
	rm -r "$MNT/b$round" "$B/a$round"
	rm "$T/a.acks" "$T/b.acks"
}
cluster_up -o shared
mount_at b "$B"
for _ in $(seq "$rounds"); do
	dies b
	dies mount
	dies metad1
	dies b metad1
	dies mount b metad1 blockd1 blockd2 blockd3
done

mkdir "$T/local" "$MNT/r"
(while [ ! -e "$T/stop" ]; do
	rm -rf "$T/local" "$MNT/r" && mkdir "$T/local" "$MNT/r" &&
		OTHERS=$B/r "$TST/integ/randops" "$T/local" "$MNT/r" 500 ||
		exit 1
done) >"$T/randops" 2>&1 &
model=$!
: >"$T/b.log"
for s in blockd1:2 metad1:3 metad1:8 mount:4; do
	stop "${s%:*}"
	sleep "${s#*:}"
	go_on
	sleep 1
done
p=$(b_pid)
halt "$p"
sleep 3
kill -CONT "$p"
sleep 1
touch "$T/stop"
wait $model || { tail -n 20 "$T/randops" >&2; fail "differs from a local disk"; }
grep -h 'evicted\|lost=yes\|event=fenced' "$T/b.log" && fail "fenced"
[ "$(grep -h 'evicted' "$C/run/metad1.log" | grep -c 'does not return')" = 0 ] ||
	fail "somebody did not return what was wanted"
p=$(b_pid)
umount "$B"
within 30 gone "$p" || fail "it does not end"
fsck_clean
