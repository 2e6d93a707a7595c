#!/bin/bash
# Very many open files: the mount and hail-metad take a bounded amount of
# memory for each and give it back, nothing is mixed up, closing and removing
# work, also while open. COUNT: how many.
. "$(dirname "$0")/lib.sh"
need_root
COUNT=${COUNT:-100000}
# As few processes as the limit allows, which root may not always raise.
limit=$(ulimit -Hn)
[ "$limit" != unlimited ] || limit=$(cat /proc/sys/fs/nr_open)
PROCESSES=$((COUNT / (limit - 100) + 1))
[ $PROCESSES -ge 4 ] || PROCESSES=4
COUNT=$((COUNT / PROCESSES * PROCESSES))
# What one open file may cost, bytes of resident memory: of the mount, metad.
MOUNT_MAX=2500
METAD_MAX=1200
[ "$(cat /proc/sys/fs/file-max)" -gt $((COUNT * 2)) ] || skip "fs.file-max"
[ "$(cat /proc/sys/fs/nr_open)" -gt $((COUNT / PROCESSES + 64)) ] ||
	skip "fs.nr_open"
rss() { awk '/^VmRSS/ { print $2 * 1024 }' "/proc/$(pid_of "$1")/status"; }
cluster_up
mkdir "$MNT/o"
mkfifo "$T/in"
mount_before=$(rss mount) metad_before=$(rss metad1)
start=$(date +%s)
"$TST/integ/open_files" "$MNT/o" "$COUNT" $PROCESSES <"$T/in" >"$T/out" &
pid=$!
exec 7>"$T/in"
while ! grep -q open "$T/out"; do
	kill -0 $pid 2>/dev/null || break
	sleep 0.1
done
if ! grep -q "open $COUNT" "$T/out"; then
	code=0
	wait $pid || code=$?
	[ $code = 77 ] && skip "RLIMIT_NOFILE"
	fail "not all can be opened"
fi
opened=$(($(date +%s) - start))
mount_each=$((($(rss mount) - mount_before) / COUNT))
metad_each=$((($(rss metad1) - metad_before) / COUNT))
echo "# $COUNT open in $opened s: $mount_each bytes of the mount each," \
	"$metad_each of hail-metad"
[ $mount_each -le $MOUNT_MAX ] || ! memory_counts ||
	fail "the mount takes $mount_each a file"
[ $metad_each -le $METAD_MAX ] || ! memory_counts ||
	fail "hail-metad takes $metad_each a file"
# Everybody else goes on.
echo other >"$MNT/other"
sync "$MNT/other"
timeout 20 "$CTL" -c "$C/cluster.conf" status >/dev/null || fail "status"
echo go >&7
exec 7>&-
wait $pid || fail "something was wrong (status $?)"
grep -q '^done' "$T/out" || fail "not all was done"
[ -z "$(ls -A "$MNT/o")" ] || fail "something is left"
echo "# closed and removed after $(($(date +%s) - start)) s"
fsck_clean
cluster_down
cluster_up
[ -z "$(ls -A "$MNT/o")" ] || fail "something is left after a restart"
[ "$(cat "$MNT/other")" = other ] || fail "lost"
