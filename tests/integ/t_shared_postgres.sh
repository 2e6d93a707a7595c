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
mount_b() {
	"$BIN/hailfs" -o "shared,log=$T/b.log,pidfile=$T/b.pid" \
		"$C/cluster.conf" "$B"
}
cluster_up -o shared
mount_b
mkdir "$MNT/pg" "$MNT/wal" "$T/run"
"$CTL" log enable "$MNT/wal" >/dev/null || fail "enable"
chown postgres "$MNT/pg" "$MNT/wal" "$T/run"
chmod 700 "$MNT/wal"
deserted() { ! readlink /proc/[0-9]*/cwd 2>/dev/null | grep -qx "$M/pg/db"; }
murder() {
	pg_stop KILL || true
	within 30 deserted || fail "a child of the server is still there"
}
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
pg "$pgb/pgbench" -h "$T/run" -i -q -s 2 postgres >/dev/null 2>&1 ||
	fail "pgbench -i"
sql "create table acked(i int primary key, v text)"
have=0
load() {
	pg "$pgb/pgbench" -n -h "$T/run" -c 4 -T 60 postgres >"$T/bench" 2>&1 &
	bench=$!
	(load_rows "insert into acked values(&, 'v&') returning i;" |
		pg "$pgb/psql" -h "$T/run" -XAtq -v ON_ERROR_STOP=1 postgres \
			>"$T/acked" 2>/dev/null || true) &
	client=$!
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
		p=$(cat "$T/b.pid")
		kill -9 "$p"
		within 10 gone "$p" || fail "it lives"
		other=$MNT
	fi
	t=$SECONDS
	murder
	wait $bench $client || true
	umount -l "$M"
	M=$other
	pg_start "$M/pg/db" "on the other mount"
	echo "# up again after $((SECONDS - t)) s"
	a=$(sql "select pg_catalog.sum(abalance) from pgbench_accounts")
	b=$(sql "select pg_catalog.sum(bbalance) from pgbench_branches")
	h=$(sql "select pg_catalog.sum(delta) from pgbench_history")
	[ "$a" = "$b" ] && [ "$a" = "$h" ] && [ -n "$a" ] ||
		fail "accounts $a, branches $b, history $h"
	sql "select i || ' ' || v from acked" >"$T/rows"
	rows_kept "fail-over $round"
	cluster_up -o shared
	[ -n "$(findmnt -n "$B")" ] || mount_b
done
pg_stop INT || fail "it does not end"
umount "$B"
fsck_clean
