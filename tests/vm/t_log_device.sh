#!/bin/bash
# A database with its log over verbs keeps what it committed when its mount is
# killed; and devices that go away while logs are written lose nothing, logs go
# on over TCP.
VM_LIMIT=${VM_LIMIT:-400}
. "$(dirname "$0")/lib.sh"
. "$VM_DIR/logs.sh"
need python3 sqlite3
UP_OPTS=transport=verbs
logs_up

# ---- a database ----
mkdir "$MNT/db"
"$CTL" "${K[@]}" log enable "$MNT/db" --match '*-wal' >/dev/null
sqlite3 "$MNT/db/x" "pragma journal_mode=wal; pragma synchronous=full;
	create table t(i int);" >/dev/null
(for i in $(seq 100000); do echo "insert into t values($i); select $i;"
done | sqlite3 -bail "$MNT/db/x" >"$T/rows" 2>&1) &
rows() { grep -cE '^[0-9]+$' "$T/rows" || true; }
committed() { [ "$(rows)" -ge "$1" ]; }
within 60 committed 50 || fail "sqlite: $(cat "$T/rows")"
within 20 all_verbs || { cat "$T/st"; fail "sqlite: $(ways)"; }
crash mount
wait || true
UP_OPTS=
logs_again
last=$(grep -E '^[0-9]+$' "$T/rows" | tail -n 1)
have=$(sqlite3 "$MNT/db/x" 'select count(*) from t')
[ "$have" -ge "$last" ] || fail "sqlite: $last acked, $have there"
[ "$(sqlite3 "$MNT/db/x" 'pragma integrity_check')" = ok ] || fail integrity

# ---- devices that go away ----
mkdir "$MNT/w" "$MNT/w"/{0,1,2}
for dir in "$MNT/w" "$MNT/w"/{0,1,2}; do
	"$CTL" "${K[@]}" log enable "$dir" >/dev/null
done
"$TST/integ/acked" write "$MNT/w" "$T/acks" 300 3 2>/dev/null &
writer=$!
acked_more 100
within 60 some_verbs || { cat "$T/st"; fail "$(ways)"; }
# These end when the daemons, and the mount, have closed them.
for n in 1 2 3 4; do rdma link delete "rxe$n" & done
said_so() { grep -q what=device-removed "$C/run/logd1.log" &&
	grep -q what=device-removed "$C/run/logd2.log"; }
within 30 said_so || fail "not said"
acked_more 100
gone $writer && fail "the devices went and writing failed"
within 60 all_tcp || { cat "$T/st"; fail "devices went: $(ways)"; }
kill $writer
wait $writer || true
# Metad knows, and so do mounts: nobody tries it for the next log.
told_so() {
	for n in 1 2 3 4; do
		awk '/what=device-removed/ { gone = 1 }
			gone && /what=registered/ { told = 1 }
			END { exit !told }' "$C/run/logd$n.log" || return 1
	done
}
within 20 told_so || fail "it is registered as before"
tried=$(grep -c event=verbs_given_up "$C/run/mount.log")
mkdir "$MNT/new" # which brings the map
"$CTL" "${K[@]}" log enable "$MNT/new" >/dev/null
echo new >"$MNT/new/one"
[ "$(grep -c event=verbs_given_up "$C/run/mount.log")" = "$tried" ] ||
	fail "it is tried as before"
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "device: lost"
crash mount
cluster_up
"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "device: lost in the end"
fsck_clean
