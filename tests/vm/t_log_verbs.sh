#!/bin/bash
# Logs written into the peers' memory over real verbs: nothing of them goes over
# TCP and no daemon works for it; a killed daemon and a killed mount lose nothing.
VM_LIMIT=${VM_LIMIT:-400}
. "$(dirname "$0")/lib.sh"
. "$VM_DIR/logs.sh"
need python3
test_cleanup() { exec 7>&-; }
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
began=$(date +%s%N)
for i in $(seq 500); do echo "line $i" >&7; done
took=$((($(date +%s%N) - began) / 500000))
frames=$(($(counter frames_in) - frames))
echo "# figure: appends over verbs to 3 peers, by a shell: $took us each"
posts=$(($(ask 'l["posts"]') - posts))
[ $posts -ge 1000 ] || fail "$posts posts" # a majority's
# Pings, heartbeats and this test's own questions: by time, not by writes.
[ $frames -lt 500 ] || fail "$frames requests for 500 writes"
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
