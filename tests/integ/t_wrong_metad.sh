#!/bin/bash
# hail-metad is started with an empty directory (its disk was not mounted): the
# block daemons do not give it what belongs to other metadata, and nothing is
# lost when the right directory is back.
. "$(dirname "$0")/lib.sh"
need_root
K=(-c "$C/cluster.conf")

cluster_up
mkdir "$MNT"/{a,b,c,d} # inodes that the other metadata give out again
dd if=/dev/urandom of="$MNT/f" bs=1M count=9 conv=fsync status=none
sum=$(sha256sum <"$MNT/f")
cluster_down
mv "$C/metad1" "$T/metad1"
cluster_up
[ -z "$(ls "$MNT")" ] || fail "the other metadata are here"
for n in 1 2 3; do
	for i in $(seq 100); do
		grep -q "what=refused.*data directory it had" \
			"$C/run/blockd$n.log" && break
		[ "$i" != 100 ] || fail "blockd $n gives its blocks away"
		sleep 0.1
	done
done
code=0
"$CTL" "${K[@]}" status >"$T/out" 2>&1 || code=$?
{ [ $code = 3 ] && grep -q refused "$T/out"; } ||
	{ cat "$T/out" >&2; fail "status: $code"; }
grep -q "never had; is this the data directory" "$C/run/metad1.log" ||
	fail "hail-metad does not say it"
# After a mount that died, what is of no inode is purged.
: >"$MNT/new"
crash mount
cluster_up
: >"$MNT/again"
cluster_down
mv "$C/metad1" "$T/other"
mv "$T/metad1" "$C/metad1"
cluster_up
[ "$(sha256sum <"$MNT/f")" = "$sum" ] || fail "data is lost"
fsck_clean
