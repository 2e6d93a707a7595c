#!/bin/bash
# What is done to the directory of a local cluster: it is moved, copied, loses
# its cluster file, is taken away lazily under programs; and a cluster file
# that names no machine.
. "$(dirname "$0")/lib.sh"
need_root
test_cleanup() {
	for d in "$T/copy" "$T/moved"; do
		[ ! -e "$d/cluster.conf" ] || "$CTL" local down "$d"
	done >/dev/null 2>&1
}
# refused PATTERN ARGUMENTS...: fails, says so, starts nothing.
refused() {
	local text=$1
	shift
	! "$CTL" "$@" >"$T/out" 2>"$T/err" || fail "hailctl $*: done"
	grep -q -e "$text" "$T/err" || { cat "$T/err" >&2
		fail "hailctl $*: no '$text'"; }
}

# ---- moved, copied ----
cluster_up --blockds 2
echo first >"$MNT/f"
cluster_down
cp -a "$C" "$T/copy"
# The copy's cluster file names the data of the one it was copied from.
refused "copy/metad1 is there, but .*copy/cluster.conf says data=$C/metad1: .*moved or copied" \
	local up "$T/copy"
[ ! -e "$T/copy/run/metad1.pid" ] || fail "a daemon ran for the copy"
mv "$C" "$T/moved"
refused "moved/cluster.conf: .*cluster.key: .*moved or copied" local up "$T/moved"
sed -i "/^key /s,$C/,$T/moved/," "$T/moved/cluster.conf"
refused "moved/metad1 is there, but" local up "$T/moved"
mkdir "$C"
refused "moved/metad1 is there, but" local up "$T/moved"
[ -z "$(ls "$C")" ] || fail "a new store at the old place"
# As it says.
sed -i "s,$C/,$T/moved/," "$T/moved/cluster.conf"
"$CTL" local up "$T/moved" >"$T/out" 2>&1 || { cat "$T/out" >&2
	fail "moved and corrected"; }
UPS=("$T/moved")
f=$(cat "$T/moved/mnt/f")
"$CTL" local down "$T/moved" >"$T/out" 2>&1 || fail "down of the moved one"
UPS=()
[ "$f" = first ] || fail "moved: '$f'"
# Data elsewhere is nothing odd, nor is an empty directory.
mv "$T/moved/blockd2" "$T/disk2"
mkdir "$T/moved/blockd2"
sed -i "s,$T/moved/blockd2,$T/disk2," "$T/moved/cluster.conf"
"$CTL" local up "$T/moved" >"$T/out" 2>&1 || { cat "$T/out" >&2
	fail "data elsewhere"; }
"$CTL" local down "$T/moved" >"$T/out" 2>&1 || fail "down with data elsewhere"

# ---- no cluster file any more ----
rm "$T/copy/cluster.conf"
refused "copy/metad1 holds data, .*no cluster.conf" local up "$T/copy"
[ ! -e "$T/copy/cluster.conf" ] || fail "a new cluster over an old one"
ln -s gone "$T/dangling"
refused "dangling: No such file or directory$" local up "$T/dangling"

# ---- taken away under programs ----
rmdir "$C"
cluster_up --blockds 2
echo more >"$MNT/f"
exec 9<"$MNT/f"
umount -l "$MNT"
for what in up down; do
	"$CTL" local $what "$C" >"$T/out" 2>"$T/err" &
	pid=$!
	within 30 grep -q "has not ended" "$T/err" ||
		fail "$what does not wait: $(cat "$T/err")"
	grep -q "flushing, or programs or containers have it" "$T/err" ||
		fail "$what after umount -l: $(cat "$T/err")"
	kill $pid
	wait $pid || true
done
exec 9<&-
cluster_up
[ "$(cat "$MNT/f")" = more ] || fail "after umount -l"

# ---- no such daemon ----
printf 'id 5\nmetad 1 no.such.host.invalid:9000\n' >"$T/x.conf"
refused "metad 1 (no.such.host.invalid:9000): .*the address in the cluster file" \
	-c "$T/x.conf" sessions
