#!/bin/bash
# Who must not write a log any more cannot, whatever he knows: a log daemon that
# wants its memory back has it, and a mount that was stopped while another took
# its logs over, or one that goes on writing to the memory itself; nothing is lost
# by it.
VM_LIMIT=${VM_LIMIT:-300}
. "$(dirname "$0")/lib.sh"
. "$VM_DIR/logs.sh"
need python3
M2=$T/m2 first=
mkdir "$M2"
test_cleanup() {
	exec 7>&- 8>&-
	[ -z "$first" ] || kill -CONT "$first" 2>/dev/null
	umount -l "$M2" 2>/dev/null
}

# ---- the memory itself ----
BIN=$BIN "$TST/vm/log_fence" 10.9.0.2 || fail "log_fence"

UP_OPTS=transport=verbs
logs_up
mkdir "$MNT/w"
"$CTL" "${K[@]}" log enable "$MNT/w" --destage off >/dev/null

# ---- memory that is wanted back ----
exec 8>"$MNT/w/two"
echo begin >&8
within 20 all_verbs || { cat "$T/st"; fail "not over verbs: $(ways)"; }
id=$(ask 'p[0]["id"]')
"$CTL" "${K[@]}" logd drain "$id" --wait >"$T/drain" ||
	{ cat "$T/drain"; fail "drain"; }
for i in $(seq 100); do echo "line $i" >&8; done
{ echo begin; for i in $(seq 100); do echo "line $i"; done; } |
	cmp - "$MNT/w/two" || fail "drained: other bytes"
# The mount tells its state once a second.
drained() { [ "$(ask "[x for x in p if x['id'] == $id]")" = "[]" ]; }
within 20 drained || { cat "$T/st"; fail "the drained one is still a peer"; }
[ "$(counter logs_reclaimed)" = 0 ] || fail "taken by force"
within 20 all_verbs || { cat "$T/st"; fail "drained: $(ways)"; }
exec 8>&-
"$CTL" "${K[@]}" logd drain "$id" --off >/dev/null

# ---- a mount that another has replaced ----
# A program of its own has the file: who closes one waits for its mount.
mkfifo "$T/in"
cat <"$T/in" >"$MNT/w/zombie" 2>"$T/zombie" &
writer=$!
exec 7>"$T/in"
echo before >&7
within 20 grep -q before "$MNT/w/zombie" || fail "not written"
within 20 all_verbs || { cat "$T/st"; fail "zombie: $(ways)"; }
first=$(pid_of mount)
cut=$(counter logs_cut)
halt "$first"
echo zombie >&7
until "$BIN/hailfs" -o "transport=verbs,log=$T/m2.log,pidfile=$T/m2.pid" \
	"$C/cluster.conf" "$M2" 2>"$T/err" 7>&-; do
	grep -q 'another mount is alive' "$T/err" ||
		{ cat "$T/err"; fail "not refused, not mounted"; }
	[ $SECONDS -lt 250 ] || fail "no takeover"
	sleep 0.5
done
[ "$(cat "$M2/w/zombie")" = before ] ||
	fail "not recovered: $(cat "$M2/w/zombie")"
[ "$(counter logs_cut)" -gt "$cut" ] || fail "nobody was shut out"
echo after >>"$M2/w/zombie"
kill -CONT "$first"
wait $writer && fail "the zombie's write succeeded"
grep -q "Input/output error" "$T/zombie" || { cat "$T/zombie"; fail "how?"; }
[ "$(cat "$M2/w/zombie")" = "$(printf 'before\nafter')" ] ||
	fail "the zombie wrote: $(cat "$M2/w/zombie")"
exec 7>&-
umount "$MNT" 2>/dev/null || umount -l "$MNT"
within 20 gone "$first" || fail "the zombie does not end"
first=
umount "$M2"
within 30 gone "$(cat "$T/m2.pid" 2>/dev/null || echo 0)" || true
[ "$(counter writes)" = 0 ] || fail "$(counter writes) writes over TCP"

# ---- all memory is back ----
logs_again
[ "$(cat "$MNT/w/zombie")" = "$(printf 'before\nafter')" ] || fail "lost"
unlent() { [ "$(counter lent_bytes)" = 0 ] && [ "$(counter verbs_keys)" = 0 ] &&
	[ "$(counter verbs_connections)" = 0 ]; }
within 30 unlent || { cat "$T/stats"; fail "memory is still lent"; }
fsck_clean
