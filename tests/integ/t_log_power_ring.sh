#!/bin/bash
# A power cut of everything, log peers too, under logs that are overwritten in a
# circle, as databases do: what is left of them is what they were after one write,
# of all logs the same one, to the byte, not half of a destaging. No write that was
# acknowledged longer ago than the destage interval is missing.
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
python3 "$ring" run "$MNT" "$T/acks" "${SECONDS_OF_LOAD:-4}" "$T/counter"
last=$(power_now)
logs_used
power_end
kept=0
for i in $(seq "$CUTS"); do
	at=$((first + (last - first) * i / CUTS - RANDOM % 50))
	seed=$((i % 3 == 0 ? 0 : RANDOM + 1))
	power_cut "$at" "$seed"
	read -r have acked missing <<<"$(python3 "$ring" check "$MNT" "$T/acks" \
		"$at")"
	[ -n "$missing" ] || fail "not a state that it was in: cut at $at seed $seed"
	echo "# cut at $at: $have of $acked writes, $missing ms are missing"
	[ "$missing" -le 4000 ] || fail "$missing ms are missing: cut at $at seed $seed"
	kept=$((kept + have))
	power_disk_down
done
[ $kept -gt 0 ] || fail "no cut left a write"
