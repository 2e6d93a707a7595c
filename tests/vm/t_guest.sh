#!/bin/bash
# The guest itself (this test runs outside): output and exit status come
# through, guests run beside each other, what one writes is forgotten, one that
# hangs or crashes is ended and told of, and nothing is left behind.
. "$(dirname "$0")/../integ/lib.sh"
# start NAME SECONDS SCRIPT: in a guest of its own.
export TEST_DIR=$T/guests VM_TEST=$$
mkdir "$TEST_DIR"
declare -A pids
start() {
	"$TOP/tests/vm/run.sh" -t "$2" bash -c "$3" \
		>"$T/$1.out" 2>"$T/$1.err" &
	pids[$1]=$!
}
# ended NAME STATUS TEXT...: so it ends, and these are lines of its output.
ended() {
	local name=$1 want=$2 code=0
	shift 2
	wait "${pids[$name]}" || code=$?
	[ $code != 77 ] || skip "$(sed 's/^# skipped: //' "$T/$name.out")"
	[ $code = "$want" ] ||
		{ cat "$T/$name".*; fail "$name: $code instead of $want"; }
	for text; do
		grep -q -e "$text" "$T/$name.out" ||
			{ cat "$T/$name".*; fail "$name: no '$text'"; }
	done
	[ ! -s "$T/$name.err" ] || { cat "$T/$name.err"; fail "$name: errors"; }
}

cd "$T"
echo kept >"$T/file"
start status 60 "
	pwd; echo to stderr >&2; echo forgotten >'$T/file'
	[ -z \"\$(ls -A \$VM_DISK | grep -v lost+found)\" ] || echo not empty
	dd if=/dev/zero of=\$VM_DISK/x bs=4096 count=1 oflag=direct || exit 1
	sleep 1000 & # holds its output open
	exit 7"
start late 3 'sleep 1000.5'
VM_GRACE=25 start hangs 5 'kill -STOP $PPID; sleep 1000'
start crashes 60 'echo c >/proc/sysrq-trigger'
start stopped 600 'echo up; sleep 1000'

ended hangs 124 'the guest hung'
ended late 124 'no end after 3 s' 'sleep 1000.5'
ended crashes 125 'the guest crashed' '^# console: .*Kernel panic'
ended status 7 "^$T\$" '^to stderr$'
grep -q 'not empty' "$T/status.out" && fail "the disk is not empty"
[ "$(cat "$T/file")" = kept ] || fail "the guest wrote to the host"
said "${pids[stopped]}" "$T/stopped.out" up
kill "${pids[stopped]}"
ended stopped 130 up

[ -z "$(ls "$TEST_DIR")" ] || { ls "$TEST_DIR"; fail "left behind"; }
# All that came from here have this in their environment; so does this script.
left=$(grep -lsz "^VM_TEST=$$\$" /proc/[0-9]*/environ |
	grep -vx "/proc/$$/environ" || true)
for f in $left; do
	[ ! -e "$f" ] || { tr '\0' ' ' <"${f%environ}cmdline"
		fail "a process is left behind"; }
done
