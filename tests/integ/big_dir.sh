# One directory of $COUNT files, sourced by t_big_dir.sh and long_dir.sh: made,
# listed, looked up, listed while names go, saved, restored, removed. Names
# that must be there are there once; rates are printed and do not fall;
# memory keeps to its bounds.
. "$(dirname "$0")/lib.sh"
need_root
B=$TST/integ/bigdir
D=$MNT/d
kib() { sed -n "s/^$2:[^0-9]*\([0-9]*\) kB/\1/p" "/proc/$(pid_of "$1")/status"; }
# rates WHAT: the fastest of the last three tenths is not five times slower
# than the slowest of the first three; a machine that is busy for some seconds
# does not show.
rates() {
	cat "$T/rates"
	sed -n "s/.*: \([0-9]*\)\/s/\1/p" "$T/rates" | awk '
		NR <= 3 && (NR == 1 || $1 < first) { first = $1 }
		NR >= 8 && $1 > last { last = $1 }
		END { exit NR != 10 || last * 5 < first }' ||
		fail "$1 slows down"
}
# A snapshot each few seconds.
cluster_up --no-mount
cluster_down
sed -i '/^metad /s/$/ snapshot-bytes=16m/' "$C/cluster.conf"
cluster_up
base_kib=$(kib mount VmHWM)
mkdir "$D" "$MNT/w"
mkfifo "$T/stop"
"$B" watch "$MNT/w" <"$T/stop" >"$T/watch" &
watch=$!
exec 9>"$T/stop"
"$B" create "$D" "$COUNT" >"$T/rates" || { cat "$T/rates"; fail "create"; }
rates create
exec 9>&-
wait "$watch" || { cat "$T/watch"; fail "watch"; }
cat "$T/watch"
"$B" list "$D" "$COUNT" || fail "list"
"$B" stat "$D" "$COUNT" || fail "stat"
"$B" drain "$D" "$COUNT" || fail "drain"
echo "# KiB: metad $(kib metad1 VmHWM), mount $(kib mount VmHWM) ($base_kib)"
# 400 bytes an inode, 64 MiB of the client beside its buffers.
[ $((COUNT * 400 / 1024 + 32768)) -gt "$(kib metad1 VmHWM)" ] ||
	! memory_counts ||
	fail "metad needs too much memory"
[ $((base_kib + 65536)) -gt "$(kib mount VmHWM)" ] || ! memory_counts ||
	fail "the mount needs too much memory"
from=$(date +%s%N)
"$CTL" -c "$C/cluster.conf" metad backup "$T/backup" >/dev/null
echo "# backup: $((($(date +%s%N) - from) / 1000000)) ms"
crash metad1
from=$(date +%s%N)
cluster_up
stat "$D/none" 2>/dev/null && fail "none is there"
echo "# metad restarts in $((($(date +%s%N) - from) / 1000000)) ms"
cluster_down
mv "$C/metad1" "$T/old"
"$CTL" -c "$C/cluster.conf" metad restore "$T/backup" "$C/metad1" >"$T/restore" 2>&1 ||
	{ cat "$T/restore"; fail "restore"; }
cluster_up
"$B" list "$D" "$COUNT" || fail "list after a restore"
"$B" unlink "$D" "$COUNT" >"$T/rates" || { cat "$T/rates"; fail "unlink"; }
rates unlink
rmdir "$D" || fail "the directory is not empty"
fsck_clean
