#!/bin/bash
# A program is killed while metad does not answer it: what it asked for is done
# nevertheless, and is seen then by those who had looked before.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/seen.sh"
need_root
need setfacl
killed() {
	stat "$D" "$D/f" >/dev/null # needs not be asked for
	stop metad1
	(cd "$D" && exec "$@") &
	kill_waiting $!
	# Looked at meanwhile; what the kernel has dropped waits for metad.
	timeout 2 stat -c %a "$D/f" || true
	go_on
}

# With dirsync each change of names is asked of metad, else it need not wait.
cluster_up -o dirsync
change killed 'is %a 600' chmod 600 f
change killed 'is %a 664' setfacl -m u:nobody:rw f
change killed 'cat "$D/new"' mv -T f new
[ ! -e "$D/f" ] || fail "both names"
change killed '[ -d "$D/new" ]' mkdir new
change killed '[ -f "$D/new" ] && is %h 2' ln f new
change killed '[ -L "$D/new" ]' ln -s f new
change killed '[ -f "$D/new" ]' touch new
fsck_clean
