#!/bin/bash
# Whichever allocation of hail-metad fails, it answers, or closes the connection
# and answers who asks again, or ends, says why, and knows everything when it is
# started again: the calls of a mount succeed, or say ENOMEM. Snapshots are taken
# and a copy is kept all the while.
. "$(dirname "$0")/lib.sh"
need_root
case $FLAVOUR in asan|tsan) skip "a sanitizer wants to be preloaded first" ;; esac
cluster_up --no-mount
conf=$C/cluster.conf
mkdir -p "$MNT"
test_cleanup() {
	rm -f "$T/go"
	for f in "$T/pid" "$T/metad.pid"; do
		[ ! -s "$f" ] || kill -9 "$(cat "$f")" 2>/dev/null
	done
	umount -l "$MNT" 2>/dev/null
}
# Whenever it ends it is started again, as long as there is $T/go.
keep_metad() {
	local code
	while [ -e "$T/go" ]; do
		LD_PRELOAD=$TST/integ/preload/kthmalloc.so FAIL_AT=$T/count \
			"$BIN/hail-metad" -f -c "$conf" -i 1 --copy "$T/copy" \
			--snapshot-bytes 16k >>"$T/metad.log" 2>&1 &
		echo $! >"$T/metad.pid"
		code=0
		wait $! || code=$?
		echo "$code" >>"$T/ends"
	done
}
mounted() {
	until "$BIN/hailfs" -o "log=$T/log,pidfile=$T/pid" "$conf" "$MNT" \
		2>"$T/err"; do
		grep -q "already running" "$T/err" || fail "$(cat "$T/err")"
		sleep 0.05
	done
}
head -c 8 /dev/zero >"$T/count"
pid=$(pid_of metad1)
kill "$pid"
while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
touch "$T/go"
keep_metad &
keeper=$!
mounted
"$TST/integ/nomem_calls" run "$MNT" "$T/count" "$T/kept" "$@" ||
	{ tail "$T/log" "$T/metad.log"; fail "the calls"; }
umount "$MNT"
mounted
"$TST/integ/nomem_calls" verify "$T/kept" || fail "lost"
umount "$MNT"
fsck_clean
rm "$T/go"
kill "$(cat "$T/metad.pid")"
wait $keeper
# Each end was said, but for those in libuv, which aborts where its table of
# descriptors cannot grow.
ends=$(grep -c '^3$' "$T/ends") || fail "it has never ended"
said=$(grep -c '^hail-metad: .*out of memory' "$T/metad.log") || true
[ "$said" = "$ends" ] || fail "$ends ends, $said said"
aborts=$(grep -c '^134$' "$T/ends") || true
others=$(grep -cv '^0$\|^3$\|^134$' "$T/ends") || true
[ "$aborts" -le 4 ] && [ "$others" = 0 ] ||
	fail "ends with $(sort "$T/ends" | uniq -c | paste -sd ,)"
snapshots=$(grep -c event=snapshot "$T/metad.log") || fail "no snapshots"
echo "# $ends ends, $aborts in libuv; $snapshots snapshots"
