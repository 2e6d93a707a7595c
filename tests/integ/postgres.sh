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
