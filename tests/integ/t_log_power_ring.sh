#!/bin/bash
# A power cut of everything, log peers too, under logs that are overwritten in a
# circle, as databases do: what is left of them is what they were after one write,
# of all logs the same one, to the byte, not half of a destaging. No write that was
# acknowledged longer ago than the destage interval is missing. The same of cuts in
# the middle of the recovery that follows the death of a mount.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/power.sh"
need python3
CUTS=${CUTS:-4}
power_begin
mkdir "$MNT/wal"
LOGS=1
wal_dir "$MNT/wal"
sync
first=$(power_now)
ring=$TOP/tests/integ/ring.py
# Twice the mount dies, and the next one recovers what the peers have.
died=()
served=()
for _ in 1 2; do
	python3 "$ring" run "$MNT" "$T/acks" 60 "$T/counter" 2>"$T/writer" &
	writer=$!
	sleep "${SECONDS_OF_LOAD:-3}.$((RANDOM % 10))"
	died+=("$(power_now)")
	crash mount
	wait "$writer" && fail "the writer outlives its mount"
	cluster_up
	served+=("$(power_now)")
done
python3 "$ring" run "$MNT" "$T/acks" "${SECONDS_OF_LOAD:-3}" "$T/counter"
last=$(power_now)
logs_used
power_end
kept=0
cut() { # AT SEED
	power_cut "$1" "$2"
	read -r have acked missing <<<"$(python3 "$ring" check "$MNT" "$T/acks" \
		"$1")"
	[ -n "$missing" ] || fail "not a state that it was in: cut at $1 seed $2"
	echo "# cut at $1: $have of $acked writes, $missing ms are missing"
	[ "$missing" -le 4000 ] || fail "$missing ms are missing: cut at $1 seed $2"
	kept=$((kept + have))
	power_disk_down
}
for i in $(seq "$CUTS"); do
	power_choose "$i"
	cut "$at" "$seed"
done
for k in 0 1; do
	echo "# recovery from ${died[k]} to ${served[k]}"
	for i in $(seq "$((CUTS / 2))"); do
		cut $((died[k] + RANDOM % (served[k] - died[k]))) \
			$((RANDOM % 3 * (RANDOM + 1)))
	done
done
[ $kept -gt 0 ] || fail "no cut left a write"
