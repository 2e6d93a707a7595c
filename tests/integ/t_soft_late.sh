#!/bin/bash
# On a soft mount a change that metad does not answer in time fails, and is made
# when metad is back: then it is seen by those who had looked before.
. "$(dirname "$0")/lib.sh"
need_root
need setfacl
stopped=
test_cleanup() { [ -z "$stopped" ] || kill -CONT "$stopped"; }
soon() {
	for _ in $(seq 50); do
		"$@" 2>/dev/null && return
		sleep 0.1
	done
	drop_caches
	"$@" && fail "seen only without the kernel's caches: $*"
	fail "not done: $*"
}
is() { [ "$(stat -c "$1" "$D/f")" = "$2" ]; }
gone() { ! [ -e "$1" ]; }
# As in t_killed_names.sh.
number=0
fresh() {
	D=$MNT/$((++number))
	mkdir "$D"
	echo content >"$D/f"
	sync "$D/f"
	[ ! -e "$D/new" ]
}
late() {
	stat "$D" "$D/f" >/dev/null
	stopped=$(pid_of metad1)
	kill -STOP "$stopped"
	"$@" 2>/dev/null && fail "not waited for: $*"
	timeout 1 stat "$D/f" >/dev/null || true # what is known meanwhile
	kill -CONT "$stopped"
	stopped=
}

cluster_up -o soft,timeo=1s
fresh
late chmod 600 "$D/f"
soon is %a 600
fresh
late setfacl -m u:nobody:rw "$D/f"
soon is %a 664
fresh
late mv -T "$D/f" "$D/new"
soon cat "$D/new"
gone "$D/f" || fail "both names"
fresh
late mkdir "$D/new"
soon test -d "$D/new"
fsck_clean
