#!/bin/bash
# The demonstration of several metads and mounts, in its quick form.
. "$(dirname "$0")/lib.sh"
need_root
need python3
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || skip "no PostgreSQL"
mkdir -m 755 "$T/demo"
says() { grep -qE -e "$1" "$T/out" || { cat "$T/out" >&2; fail "no '$1'"; }; }
DEMO_DIR=$T/demo "$TOP/bench/demo-metads.sh" --quick >"$T/out" 2>&1 ||
	{ cat "$T/out" >&2; fail "the demonstration failed: $?"; }
says '^metad [123] led and was killed; metad [123] leads after [0-9]+ ms$'
says '^number of failed transactions: 0 '
for what in '^sum of accounts (-?[0-9]+), sum of history \1$' \
	'^of [1-9][0-9]* rows all are there$'; do
	[ "$(grep -cE "$what" "$T/out")" = 2 ] ||
		{ cat "$T/out" >&2; fail "not on both mounts: $what"; }
done
[ "$(tail -n 1 "$T/out")" = "The demonstration ended as it should." ] ||
	{ cat "$T/out" >&2; fail "another end"; }
[ -z "$(ls -A "$T/demo")" ] || fail "something is left"
! grep -F "$T/demo" /proc/mounts || fail "a mount is left"
