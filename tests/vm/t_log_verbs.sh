#!/bin/bash
# Logs written into the peers' memory over real verbs: nothing of them goes over
# TCP and no daemon works for it; a killed daemon and a killed mount lose nothing.
VM_LIMIT=${VM_LIMIT:-400}
. "$(dirname "$0")/lib.sh"
. "$VM_DIR/logs.sh"
need python3
test_cleanup() { exec 7>&-; }
# What the log daemons have used of processors, in microseconds.
cpu() {
	local sum=0 n t ns rest
	for n in 1 2 3 4; do
		for t in /proc/"$(pid_of "logd$n")"/task/*/schedstat; do
			read -r ns rest <"$t"
			sum=$((sum + ns / 1000))
		done
	done
	echo $sum
}
# writes N: so many to what is open; what they took, and of all daemons'
# processors, microseconds each.
writes() {
	local cpu began i
	cpu=$(cpu) began=$(date +%s%N)
	for i in $(seq "$1"); do echo "line $i" >&7; done
	took=$((($(date +%s%N) - began) / 1000 / $1))
	used=$((($(cpu) - cpu) / $1))
}
UP_OPTS=transport=verbs
logs_up
mkdir "$MNT/w" "$MNT/w"/{0,1,2}
for dir in "$MNT/w" "$MNT/w"/{0,1,2}; do
	"$CTL" "${K[@]}" log enable "$dir" >/dev/null
done

# ---- who works for a write ----
exec 7>"$MNT/w/one"
echo begin >&7
within 20 all_verbs || { cat "$T/st"; fail "not over verbs: $(ways)"; }
frames=$(counter frames_in)
posts=$(ask 'l["posts"]')
writes 2000
frames=$(($(counter frames_in) - frames))
echo "# figure: appends over verbs to 3 peers, by a shell: $took us each," \
	"log daemons' CPU $used us in all"
over_verbs=$used
posts=$(($(ask 'l["posts"]') - posts))
[ $posts -ge 4000 ] || fail "$posts posts" # a majority's
# Pings, heartbeats and this test's own questions: by time, not by writes.
[ $frames -lt 500 ] || fail "$frames requests for 2000 writes"
[ "$(counter writes)" = 0 ] || fail "$(counter writes) writes over TCP"
within 20 all_verbs || { cat "$T/st"; fail "given up: $(ways)"; }

# ---- a killed daemon, a killed mount ----
for victim in logd1 mount; do
	exec 7>&-
	"$TST/integ/acked" write "$MNT/w" "$T/acks" 300 3 2>/dev/null &
	writer=$!
	acked_more 100
	within 60 some_verbs || { cat "$T/st"; fail "$victim: $(ways)"; }
	crash $victim
	case $victim in
	mount)	wait $writer || true
		logs_again
		;;
	*)	acked_more 100
		logs_again
		acked_more 100
		kill $writer
		wait $writer || true
		;;
	esac
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "$victim: lost"
done

# ---- what daemons work where they have to ----
# Over verbs there are their heartbeats, by time, and nothing else; that is no
# more than a fraction on any machine, however busy.
mount=$(pid_of mount)
umount "$MNT"
within 60 gone "$mount" || fail "the mount does not end"
UP_OPTS=transport=tcp
logs_again
exec 7>"$MNT/w/two"
echo begin >&7
within 20 all_tcp || { cat "$T/st"; fail "not over TCP: $(ways)"; }
writes 500
echo "# figure: appends over TCP to 3 peers, by a shell: $took us each," \
	"log daemons' CPU $used us in all"
[ $((over_verbs * 4)) -lt $used ] ||
	fail "log daemons work $over_verbs us for a write over verbs"
