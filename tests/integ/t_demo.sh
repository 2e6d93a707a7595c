#!/bin/bash
# The demonstration, in its quick form: each step does what it says, it takes
# everything away again, and so it does when it is ended in the middle.
. "$(dirname "$0")/lib.sh"
need_root
need python3 sqlite3
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || skip "no PostgreSQL"
mkdir -m 755 "$T/demo"
export DEMO_DIR=$T/demo
demo=
test_cleanup() {
	[ -z "$demo" ] || { kill "$demo"; wait "$demo"; }
} 2>/dev/null
nothing_left() {
	[ -z "$(ls -A "$T/demo")" ] || { ls -lR "$T/demo" | head -n 20 >&2
		fail "$1: directories are left"; }
	! grep -F "$T/demo" /proc/mounts >&2 || fail "$1: a mount is left"
	# Not in the command line of grep. Some end while it looks: its status
	# tells nothing.
	echo "$T/demo" >"$T/where"
	grep -lFf "$T/where" /proc/[0-9]*/cmdline >"$T/left" 2>/dev/null || true
	[ ! -s "$T/left" ] || { cat "$T/left" >&2
		fail "$1: processes are left"; }
}
says() { grep -qE -e "$1" "$T/out" || { cat "$T/out" >&2; fail "no '$1'"; }; }

"$TOP/bench/demo.sh" --quick >"$T/out" 2>&1 ||
	{ cat "$T/out" >&2; fail "the demonstration failed: $?"; }
says '^metad1 .* ok$'
says '^logd3 .* ok$'
says '^tps = [1-9]'
says '^number of failed transactions: 0 '
says '^sum of accounts (-?[0-9]+), sum of history \1$'
# Appends in three places, SQLite in two.
for d in wal plain app; do says "^$d +[1-9][0-9]* a second$"; done
[ "$(grep -cE '^ext4 +[1-9][0-9]* a second$' "$T/out")" = 2 ] ||
	{ cat "$T/out" >&2; fail "not twice beside ext4"; }
says '^of 1000 rows 1000 are there$'
[ "$(tail -n 1 "$T/out")" = "The demonstration ended as it should." ] ||
	{ cat "$T/out" >&2; fail "another end"; }
nothing_left "after its end"

"$TOP/bench/demo.sh" --quick >"$T/out" 2>&1 &
demo=$!
said $demo "$T/out" '^== pgbench'
kill $demo
code=0
wait $demo || code=$?
demo=
[ $code = 130 ] || { cat "$T/out" >&2; fail "ended in the middle: $code"; }
nothing_left "ended in the middle"

"$TOP/bench/demo.sh" --nonsense >"$T/out" 2>&1 && fail "taken: --nonsense"
says '^usage: '
