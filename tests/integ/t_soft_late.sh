#!/bin/bash
# On a soft mount a change that metad does not answer in time fails, and is made
# when metad is back: then it is seen by those who had looked before.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/seen.sh"
need_root
need setfacl
late() {
	stat "$D" "$D/f" >/dev/null
	stop metad1
	(cd "$D" && exec "$@") 2>/dev/null && fail "not waited for: $*"
	timeout 1 stat "$D/f" >/dev/null || true # what is known meanwhile
	go_on
}

# With dirsync each change is asked of metad, else it need not wait.
cluster_up -o soft,timeo=1s,dirsync
change late 'is %a 600' chmod 600 f
change late 'is %a 664' setfacl -m u:nobody:rw f
change late 'cat "$D/new"' mv -T f new
[ ! -e "$D/f" ] || fail "both names"
change late '[ -d "$D/new" ]' mkdir new
# Of "content", what the kernel has cached.
change late '[ "$(tr -d "\0" <"$D/f")" = cont ]' \
	fallocate --punch-hole --offset 2 --length 3 f
# With its write-back cache the kernel keeps the size that it has.
umount "$MNT"
cluster_up -o soft,timeo=1s,nowriteback
change late 'is %s 100000' fallocate --zero-range --length 100000 f
fsck_clean
