#!/bin/bash
# Fail-over: PostgreSQL with its log in a log directory runs on one of two mounts;
# that mount is killed with the server under load, as if its machine were lost, and
# the server is started on the other one, which has recovered the log meanwhile:
# each committed transaction is there, and no other. Then back again.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/postgres.sh"
need_root
B=$T/b
mkdir "$B"
cluster_up -o shared
mount_at b "$B"
mkdir "$MNT/pg" "$MNT/wal" "$T/run"
"$CTL" log enable "$MNT/wal" >/dev/null || fail "enable"
chown postgres "$MNT/pg" "$MNT/wal" "$T/run"
chmod 700 "$MNT/wal"
test_cleanup() {
	pg_stop KILL
	umount -l "$B" 2>/dev/null
}
M=$MNT
pg "$pgb/initdb" -D "$M/pg/db" -A trust -k -X "$M/wal" >"$T/initdb" 2>&1 ||
	{ cat "$T/initdb"; fail initdb; }
# Wherever it is mounted.
ln -sfn ../../wal "$M/pg/db/pg_wal"
pg_start "$M/pg/db" "first"
pg_tables
have=0
load() {
	pg_load
	within 60 test -s "$T/acked" || fail "nothing is committed"
	sleep 2
	! gone "$client" || fail "the load ended by itself"
}
# What its mount tells of logs, some time.
with_log() {
	"$CTL" -c "$C/cluster.conf" sessions --json | python3 -c '
import json, sys
sys.exit(not any(s["mountpoint"] == sys.argv[1] and
    s["status"]["logs"]["files"] for s in json.load(sys.stdin)))' "$M"
}
for round in $(seq "${ROUNDS:-2}"); do
	load
	within 5 with_log || fail "no log was used"
	if [ "$M" = "$MNT" ]; then
		crash mount
		other=$B
	else
		mount_crash b
		other=$MNT
	fi
	t=$SECONDS
	pg_murder "$M/pg/db"
	wait $bench $client || true
	umount -l "$M"
	M=$other
	pg_start "$M/pg/db" "on the other mount"
	echo "# up again after $((SECONDS - t)) s"
	pg_sums "fail-over $round"
	cluster_up -o shared
	[ -n "$(findmnt -n "$B")" ] || mount_at b "$B"
done
pg_stop INT || fail "it does not end"
umount "$B"
fsck_clean
