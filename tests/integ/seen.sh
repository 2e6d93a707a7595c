# Sourced by tests of changes that are made behind the back of those who had
# looked before.

is() { [ "$(stat -c "$1" "$D/f")" = "$2" ]; }
# A directory $D that this mount has made, with a file f: what is not there is
# known without asking metad, so that it is the change that waits for it.
number=0
fresh() {
	D=$MNT/$((++number))
	mkdir "$D"
	echo content >"$D/f"
	sync "$D/f"
	[ ! -e "$D/new" ]
}
# change HOW CHECK COMMAND...: function HOW runs COMMAND in such a directory
# while metad is stopped. CHECK is true soon after that, and not only for who
# asks metad. On a busy machine a command may not have come to its change, which
# is not made then: it is tried again.
change() {
	local how=$1 check=$2
	shift 2
	for _ in 1 2 3 4 5; do
		fresh
		"$how" "$@"
		within 5 eval "$check" 2>/dev/null && return
		drop_caches
		eval "$check" 2>/dev/null &&
			fail "seen only without the kernel's caches: $*"
	done
	fail "not done: $*"
}
