#!/bin/bash
# Access times: as the mount option says, and kept by an unmount. (That they
# move at all is a fact of posix/.)
. "$(dirname "$0")/lib.sh"
need_root
at() { stat -c %x "$MNT/$1"; }
# reads NAME: prints yes if reading it moves its access time
reads() {
	local before
	before=$(at "$1")
	sleep 0.02
	cat "$MNT/$1" >/dev/null
	[ "$before" = "$(at "$1")" ] && echo no || echo yes
}
cluster_up -o strictatime
echo text >"$MNT/f"
[ "$(reads f) $(reads f) $(reads f)" = "yes yes yes" ] || fail "strictatime"
was=$(at f)
cluster_down
cluster_up -o noatime
[ "$(at f)" = "$was" ] || fail "the access time did not survive: $was, $(at f)"
echo more >>"$MNT/f"
[ "$(reads f)" = no ] || fail "noatime"
cluster_down
cluster_up -o nodiratime
mkdir "$MNT/d"
was=$(at d)
sleep 0.02
ls "$MNT/d"
[ "$(at d)" = "$was" ] || fail "nodiratime: of a directory"
[ "$(reads f) $(reads f)" = "yes no" ] || fail "nodiratime is relatime of files"
fsck_clean
