#!/bin/bash
# A program is killed while metad does not answer it: what it asked for is done
# nevertheless, and is seen then by those who had looked before.
. "$(dirname "$0")/lib.sh"
need_root
need setfacl
stopped=
test_cleanup() { [ -z "$stopped" ] || kill -CONT "$stopped"; }
is() { [ "$(stat -c "$1" "$D/f")" = "$2" ]; }
soon() {
	for _ in $(seq 50); do
		"$@" 2>/dev/null && return
		sleep 0.1
	done
	drop_caches
	"$@" && fail "seen only without the kernel's caches: $*"
	fail "not done: $*"
}
# A directory that this mount has made: what is not there is known without
# asking metad, so that it is the change that waits for it.
number=0
fresh() {
	D=$MNT/$((++number))
	mkdir "$D"
	echo content >"$D/f"
	sync "$D/f"
	[ ! -e "$D/new" ]
}
# killed COMMAND...: while metad is stopped
killed() {
	stat "$D" "$D/f" >/dev/null # needs not be asked for
	stopped=$(pid_of metad1)
	kill -STOP "$stopped"
	"$@" &
	victim=$!
	sleep 1.5 # who waits for less is not looked after
	kill -KILL $victim
	for _ in $(seq 30); do
		kill -0 $victim 2>/dev/null || break
		sleep 0.1
	done
	kill -0 $victim 2>/dev/null && fail "a killed process still waits"
	# Looked at meanwhile; what the kernel has dropped waits for metad.
	timeout 2 stat -c %a "$D/f" || true
	kill -CONT "$stopped"
	stopped=
}

cluster_up
fresh
killed setfacl -m u:nobody:rw "$D/f"
soon is %a 664
fresh
killed mv -T "$D/f" "$D/new"
soon cat "$D/new"
[ ! -e "$D/f" ] || fail "both names"
fresh
killed mkdir "$D/new"
soon test -d "$D/new"
fresh
killed ln "$D/f" "$D/new"
soon test -f "$D/new"
soon is %h 2
fresh
killed ln -s f "$D/new"
soon test -L "$D/new"
fresh
killed touch "$D/new"
soon test -f "$D/new"
fsck_clean
