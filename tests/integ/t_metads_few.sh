#!/bin/bash
# Three metads, of which too few are there: one alone serves nobody, and says
# why; what was acknowledged is there when a second one comes back. One whose
# disk was lost is not let in, and neither is one of another cluster.
. "$(dirname "$0")/lib.sh"
need_root
K=(-c "$C/cluster.conf")
cluster_up --metads 3
within 10 leads || fail "nobody leads"
echo kept >"$MNT/a"
sync "$MNT/a"

# ---- a minority ----
l=$(leader)
f=$((l % 3 + 1))
g=$((6 - l - f))
crash "metad$l" "metad$f"
timeout 1 "$CTL" "${K[@]}" --timeout 300ms sessions >"$T/out" 2>&1 &&
	fail "one of three serves"
grep -q "no metad leads" "$T/out" || { cat "$T/out" >&2; fail "not said"; }
[ "$(metad_json "$g" 'd["state"]')" = follower ] ||
	fail "it says to be $(metad_json "$g" 'd["state"]')"
mkdir "$MNT/late" &
waits=$!
sleep 3
gone $waits && fail "a directory was made by one of three"
metad_start "$f"
wait $waits || fail "mkdir failed"
[ "$(cat "$MNT/a")" = kept ] || fail "lost"
[ -d "$MNT/late" ] || fail "the directory is not there"

# ---- a lost disk ----
mv "$C/metad$l" "$T/lost"
mkdir "$C/metad$l"
metad_run() {
	timeout 20 "$BIN/hail-metad" --cluster "$C/cluster.conf" --id "$l" \
		--foreground "$@" >"$T/out" 2>&1
}
metad_run && fail "an empty directory takes part"
grep -q "is one of the group" "$T/out" || { cat "$T/out" >&2; fail "not said"; }
# Its directory comes back.
rm -r "$C/metad$l"
mv "$T/lost" "$C/metad$l"

# ---- another cluster's ----
sed 's/^id .*/id 0x77/' "$C/cluster.conf" >"$T/other.conf"
"$BIN/hail-metad" --cluster "$T/other.conf" --id "$l" --foreground \
	>"$T/out" 2>&1 && fail "it started with another cluster's directory"
grep -q "belongs to metad $l of cluster" "$T/out" || fail "not said"
# With an empty one it finds nobody of its own, and disturbs nobody.
"$BIN/hail-metad" --cluster "$T/other.conf" --id "$l" --data "$T/empty" \
	--foreground >"$T/out" 2>&1 &
stranger=$!
sleep 4
gone $stranger && fail "it ended: $(cat "$T/out")"
kill -TERM $stranger
wait $stranger || fail "told to stop it ended with $?"
touch "$MNT/b" || fail "disturbed"
[ "$(leader)" != 0 ] || fail "nobody leads"
metad_start "$l"
follows() { [ "$(metad_json "$l" 'd["state"]')" = follower ] &&
	[ "$(metad_json "$l" 'd["inodes"]')" = 4 ]; }
within 10 follows || fail "$("$CTL" "${K[@]}" status)"
cluster_down
cluster_up
[ "$(cat "$MNT/a")" = kept ] || fail "lost"
fsck_clean
