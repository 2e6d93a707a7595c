#!/bin/bash
# -o sync and -o dirsync: what a program has done is durable without its asking,
# names with both, bytes (direct and not) with sync.
. "$(dirname "$0")/lib.sh"
need_root
need python3
# Waits for durability that metad was asked for.
syncs() { "$CTL" -c "$C/cluster.conf" stats --json | python3 -c \
	'import json, sys; print(json.load(sys.stdin)["metad1"]["syncs"])'; }
# Requests of block daemons that end with what was written durable: a kill does
# not show that one was missing.
durable_writes() { "$CTL" -c "$C/cluster.conf" stats --json | python3 -c \
	'import json, sys; print(sum(d["ops"][k]["count"]
	for n, d in json.load(sys.stdin).items() if n.startswith("blockd")
	for k in ("write_sync", "sync")))'; }
names() {
	for i in $(seq 10); do
		mkdir "$MNT/d$i"
		: >"$MNT/d$i/f"
		ln "$MNT/d$i/f" "$MNT/d$i/g"
		mv "$MNT/d$i/g" "$MNT/d$i/h"
		ln -s x "$MNT/d$i/l"
		mkfifo "$MNT/d$i/p"
		rm "$MNT/d$i"/[flp]
		mv "$MNT/d$i/h" "$MNT/h$i"
		rmdir "$MNT/d$i"
	done
}
ALL="mount metad1 blockd1 blockd2 blockd3"
head -c 200000 /dev/urandom >"$T/in"
for o in nowriteback writeback; do
	cluster_up -o $o
	was=$(syncs)
	names
	[ $(($(syncs) - was)) -lt 50 ] || fail "nobody asked for $o,dirsync"
	rm "$MNT"/h*
	cluster_down
	cluster_up -o $o,dirsync
	was=$(syncs)
	names
	did=$(($(syncs) - was))
	# 110 changes; some were durable before metad was asked.
	[ $did -ge 80 ] || fail "$o,dirsync: $did of 110 changes waited for"
	rm "$MNT"/h*
	crash $ALL
	cluster_up -o $o,sync
	[ -z "$(ls "$MNT")" ] || fail "$o,dirsync: $(ls "$MNT")"
	for f in direct cached; do
		flag=
		[ $f = cached ] || flag=oflag=direct
		was=$(durable_writes)
		dd if="$T/in" of="$MNT/$f" bs=4k count=40 $flag 2>"$T/dd"
		did=$(($(durable_writes) - was))
		[ $did -ge 40 ] || fail "$o,sync: $f: $did of 40 writes"
	done
	crash $ALL
	cluster_up -o $o
	for f in direct cached; do
		cmp -n $((40 * 4096)) "$T/in" "$MNT/$f" >&2 ||
			fail "$o,sync: $f: lost"
		rm "$MNT/$f"
	done
	fsck_clean
	cluster_down
done
