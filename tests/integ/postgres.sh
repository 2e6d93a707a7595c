# For scripts with a PostgreSQL: sourced after lib.sh. The server is a child of
# the script, not of process 1, which may leave it unburied for seconds: the next
# start on a directory that still has a postmaster.pid, as after a kill or a
# power cut, refuses to begin beside what looks like a living server.

pgb=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
[ -x "$pgb/initdb" ] || skip "no PostgreSQL"
need setpriv runuser
postmaster=
pg() { runuser -u postgres -- "$@"; }
sql() { pg "$pgb/psql" -h "$T/run" -XAtq -c "$1" postgres; }
pg_ready() { gone "$postmaster" || pg "$pgb/pg_isready" -q -h "$T/run"; }
# pg_start DIR WHEN [options of the server]: its sockets are in $T/run.
pg_start() {
	local dir=$1 when=$2
	shift 2
	# It becomes the server, without a fork.
	setpriv --reuid postgres --regid postgres --init-groups \
		"$pgb/postgres" -D "$dir" -k "$T/run" -c listen_addresses= \
		"$@" >>"$T/run/log" 2>&1 &
	postmaster=$!
	if ! within 120 pg_ready || gone "$postmaster"; then
		tail -n 30 "$T/run/log"
		fail "PostgreSQL does not start $when"
	fi
}
# pg_murder DIR: kill -9, and wait until its children are gone, too, which notice
# by themselves and work in DIR: PostgreSQL will not start beside them.
pg_murder() {
	pg_stop KILL || true
	within 30 pg_deserted "$1" || fail "a child of the server is still there"
}
pg_deserted() { ! readlink /proc/[0-9]*/cwd 2>/dev/null | grep -qx "$1"; }
# pg_load: pgbench $bench, what it says in $T/bench, and rows ($client, see
# load_rows) into the table acked.
pg_load() {
	pg "$pgb/pgbench" -n -h "$T/run" -c 4 -T 60 postgres >"$T/bench" 2>&1 &
	bench=$!
	(load_rows "insert into acked values(&, 'v&') returning i;" |
		pg "$pgb/psql" -h "$T/run" -XAtq -v ON_ERROR_STOP=1 postgres \
			>"$T/acked" 2>/dev/null || true) &
	client=$!
}
# pg_tables: those of both.
pg_tables() {
	pg "$pgb/pgbench" -h "$T/run" -i -q -s 2 postgres >/dev/null 2>&1 ||
		fail "pgbench -i"
	sql "create table acked(i int primary key, v text)"
}
# pg_sums WHEN: what pgbench has added up agrees, and each row is there.
pg_sums() {
	local a b h
	a=$(sql "select pg_catalog.sum(abalance) from pgbench_accounts")
	b=$(sql "select pg_catalog.sum(bbalance) from pgbench_branches")
	h=$(sql "select coalesce(pg_catalog.sum(delta), 0) from pgbench_history")
	[ "$a" = "$b" ] && [ "$a" = "$h" ] && [ -n "$a" ] ||
		fail "$1: accounts $a, branches $b, history $h"
	[ "$a" != 0 ] || fail "pgbench changed nothing"
	sql "select i || ' ' || v from acked" >"$T/rows"
	rows_kept "$1"
}
# pg_stop SIGNAL: INT is a fast stop, QUIT an immediate one, which like KILL may
# say that it failed. It is buried then.
pg_stop() {
	local code=0
	[ -n "$postmaster" ] || return 0
	kill -s "$1" "$postmaster" 2>/dev/null || true
	wait "$postmaster" 2>/dev/null || code=$?
	postmaster=
	return $code
}
