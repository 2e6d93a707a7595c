#!/bin/bash
# Log daemons take their memory in huge pages where there are enough: logs over
# verbs in it, and in that of one that came too late, are written, keep what they
# were given when the mount is killed, and take no processor while they are idle.
VM_LIMIT=${VM_LIMIT:-300}
. "$(dirname "$0")/lib.sh"
. "$VM_DIR/logs.sh"
need python3
test_cleanup() { exec 7>&-; }
UP_OPTS=transport=verbs
# What these have used of processors, in microseconds.
cpu() {
	local sum=0 n t ns rest
	for n in "$@"; do
		for t in /proc/"$(pid_of "$n")"/task/*/schedstat; do
			read -r ns rest <"$t"
			sum=$((sum + ns / 1000))
		done
	done
	echo $sum
}
pages() { awk -v w="HugePages_$1:" '$1 == w { print $2 }' /proc/meminfo; }
# huge: of the four daemons' memory, as they say it.
huge() { "$CTL" "${K[@]}" --json status | python3 -c '
import json, sys
print(*[x["huge_pages"] for x in json.load(sys.stdin)["daemons"]
        if x["program"] == "hail-logd"])'; }

# ---- huge pages for three of the four daemons, and some that are too few ----
[ -n "$(pages Total)" ] || skip "the kernel has no huge pages"
each=$((64 / 2)) left=10
want=$((3 * each + left))
echo $want >/proc/sys/vm/nr_hugepages
[ "$(pages Total)" = $want ] || skip "no memory for $want huge pages"
logs_up
[ "$(huge | tr ' ' '\n' | grep -c True)" = 3 ] || fail "huge pages: $(huge)"
[ "$(pages Free)" = $left ] || fail "$(pages Free) of $want are free"
mkdir "$MNT/w" "$MNT/w"/{0,1,2}
for dir in "$MNT/w" "$MNT/w"/{0,1,2}; do
	"$CTL" "${K[@]}" log enable "$dir" >/dev/null
done

# ---- idle, with a log open ----
exec 7>"$MNT/w/one"
for i in $(seq 200); do echo "line $i" >&7; done
within 20 all_verbs || { cat "$T/st"; fail "not over verbs: $(ways)"; }
sleep 3 # what it has to destage
logds="logd1 logd2 logd3 logd4"
# shellcheck disable=SC2086
logds_was=$(cpu $logds) mount_was=$(cpu mount)
sleep 5
# shellcheck disable=SC2086
logds_used=$(($(cpu $logds) - logds_was)) mount_used=$(($(cpu mount) - mount_was))
echo "# figure: idle for 5 s with a log over verbs: log daemons' CPU" \
	"$logds_used us in all, the mount's $mount_used us"
# Emulated, and on a busy machine, little counts as some hundred milliseconds;
# who polls takes all of the five seconds.
[ $logds_used -lt 2000000 ] || fail "idle: log daemons took $logds_used us of 5 s"
[ $mount_used -lt 2000000 ] || fail "idle: the mount took $mount_used us of 5 s"
within 20 all_verbs || { cat "$T/st"; fail "given up: $(ways)"; }

# ---- a killed mount ----
"$TST/integ/acked" write "$MNT/w" "$T/acks" 300 3 2>/dev/null &
writer=$!
acked_more 100
exec 7>&-
crash mount
wait $writer || true
logs_again
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "lost"
[ "$(wc -l <"$MNT/w/one")" = 200 ] || fail "lost: one"
