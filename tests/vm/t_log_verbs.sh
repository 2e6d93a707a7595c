#!/bin/bash
# Logs written into the peers' memory over real verbs: nothing of them goes over
# TCP and no daemon works for it; a killed daemon and a killed mount lose nothing.
VM_LIMIT=${VM_LIMIT:-600}
. "$(dirname "$0")/lib.sh"
need python3
K=(-c "$C/cluster.conf")
test_cleanup() { exec 7>&-; }
# ask EXPR: of the mount's logs (l), in Python.
ask() {
	"$CTL" "${K[@]}" --json status >"$T/st" 2>/dev/null || true
	python3 -c '
import json, sys
s = json.load(open(sys.argv[1]))["sessions"]
l = [x["status"]["logs"] for x in s if "logs" in x.get("status", {})][0]
p = [p for f in l["files"] for p in f["peers"]]
print(eval(sys.argv[2]))' "$T/st" "$1"
}
ways() { ask '" ".join(sorted(x["transport"] for x in p))'; }
all_verbs() { [ "$(ways)" = "verbs verbs verbs" ]; }
# counter NAME: of all log daemons.
counter() {
	"$CTL" "${K[@]}" --json stats >"$T/stats" || fail "stats"
	python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
v = [d[k][sys.argv[2]] for k in d if k.startswith("logd")]
assert v
print(int(sum(v)))' "$T/stats" "$1"
}

cluster_up --logds 4
cluster_down
for n in 1 2 3 4; do
	sed -i "s/^logd *$n .*/& rdma=10.9.0.$n/" "$C/cluster.conf"
done
cluster_up
mkdir "$MNT/w" "$MNT/w"/{0,1,2}
for dir in "$MNT/w" "$MNT/w"/{0,1,2}; do
	"$CTL" "${K[@]}" log enable "$dir" >/dev/null
done

# ---- who works for a write ----
exec 7>"$MNT/w/one"
echo begin >&7
within 20 all_verbs || { cat "$T/st"; fail "not over verbs: $(ways)"; }
frames=$(counter frames_in)
began=$(date +%s%N)
for i in $(seq 500); do echo "line $i" >&7; done
took=$((($(date +%s%N) - began) / 500000))
frames=$(($(counter frames_in) - frames))
echo "# figure: appends over verbs to 3 peers, by a shell: $took us each"
[ "$(ask 'l["posts"]')" -ge 1500 ] || fail "no posts: $(ask 'l["posts"]')"
# Pings, heartbeats and this test's own questions.
[ $frames -lt 300 ] || fail "$frames requests for 500 writes"
[ "$(counter writes)" = 0 ] || fail "$(counter writes) writes over TCP"
all_verbs || fail "given up: $(ways)"

# ---- a killed daemon, a killed mount ----
for victim in logd1 mount; do
	exec 7>&-
	"$TST/integ/acked" write "$MNT/w" "$T/acks" 60 3 2>/dev/null &
	writer=$!
	sleep 2
	case $victim in
	mount)	all=$(ways)
		crash mount
		wait $writer || true
		cluster_up
		;;
	*)	crash $victim
		sleep 3
		cluster_up
		sleep 1
		all=$(ways)
		kill -INT $writer
		wait $writer || true
		;;
	esac
	case " $all " in
	*" tcp "*) fail "$victim: over TCP: $all" ;;
	*verbs*) ;;
	*) fail "$victim: $all" ;;
	esac
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "$victim: lost"
done
