#!/bin/bash
# The directory of hail-metad is set back to an older copy (a rolled back virtual
# machine, files copied by hand), after an orderly stop or a crash. The stores
# know of newer mounts: nothing of what is newer is purged, it is said, fsck
# names the blocks without a file, and all is there with the newer directory.
. "$(dirname "$0")/lib.sh"
need_root
need python3
K=(-c "$C/cluster.conf")

data() { dd if=/dev/urandom of="$1" bs=1M count="$2" conv=fsync status=none; }
# extras: how many inodes have blocks and no file
extras() {
	"$CTL" "${K[@]}" fsck --json >"$T/fsck" || true
	python3 - "$T/fsck" <<-'PY'
		import json, sys
		d = json.load(open(sys.argv[1]))
		assert all(f["kind"] == "extra" for f in d["findings"]), d
		print(len({f["inode"] for f in d["findings"]}))
	PY
}
said() {
	local code=0
	"$CTL" "${K[@]}" status >"$T/out" 2>"$T/err" || code=$?
	{ [ $code = 3 ] && grep -q "metad 1 .*is older: " "$T/err"; } ||
		{ cat "$T/out" "$T/err" >&2; fail "status of $1: $code"; }
	grep -q "event=older-metadata blockd=" "$C/run/metad1.log" ||
		fail "hail-metad does not say it of $1"
}
swap() { # from the newer directory to the older copy, or back
	mv "$C/metad1" "$T/$1"
	mv "$T/$2" "$C/metad1"
	: >"$C/run/metad1.log"
}

for how in stop crash; do
	cluster_up
	data "$MNT/f" 3
	if [ $how = stop ]; then cluster_down; else crash mount metad1; fi
	cp -a "$C/metad1" "$T/older"
	cluster_up
	mkdir "$MNT/d"
	for i in 1 2 3; do data "$MNT/d/$i" 4; done
	sums=$(cd "$MNT" && sha256sum f d/*)
	cluster_down

	swap newer older
	cluster_up
	[ "$(ls "$MNT")" = f ] || fail "it is not the older copy"
	[ "$(cd "$MNT" && sha256sum f)" = "${sums%%$'\n'*}" ] ||
		fail "f is not as it was"
	said "the older copy"
	data "$MNT/new" 2
	sum=$(sha256sum <"$MNT/new")
	# After a mount that died, what is of no inode is purged.
	crash mount
	cluster_up
	[ "$(sha256sum <"$MNT/new")" = "$sum" ] || fail "new data is lost"
	[ "$(extras)" = 3 ] || fail "what is newer was purged: $(extras)"
	# Not again: the numbers go on after what the stores have seen.
	cluster_down
	cluster_up
	"$CTL" "${K[@]}" status >"$T/out" 2>&1 || fail "status afterwards"
	[ "$(extras)" = 3 ] || fail "what is newer was purged later"
	cluster_down

	swap older newer
	cluster_up
	said "the newer directory"
	[ "$(cd "$MNT" && sha256sum f d/*)" = "$sums" ] || fail "data is lost"
	: >"$MNT/more"
	crash mount
	cluster_up
	[ "$(extras)" = 1 ] || fail "blocks of the other time: $(extras)"
	"$CTL" "${K[@]}" fsck --repair >"$T/fsck" 2>&1 ||
		{ cat "$T/fsck" >&2; fail "repair"; }
	fsck_clean
	[ "$(cd "$MNT" && sha256sum f d/*)" = "$sums" ] || fail "repaired away"
	rm -r "$MNT"/* "$T/older"
	cluster_down
done
