# Sourced first by every test of this folder: the test is run in the guest of
# run.sh, for at most $VM_LIMIT seconds, and there like one of tests/integ, with
# what its lib.sh offers; $T is on the guest's disk. What it prints after
# "# figure: " is shown even when it passes.
VM_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -n "${VM_GUEST:-}" ] ||
	exec "$VM_DIR/run.sh" -t "${VM_LIMIT:-300}" bash "$0" "$@"
. "$VM_DIR/../integ/lib.sh"
# write_lat: of 128 bytes between two devices, by ib_write_lat: typical and mean
# microseconds.
write_lat() {
	local server
	ib_write_lat -d rxe2 -x 1 -s 128 -n 2000 -F >"$T/server" 2>&1 &
	server=$!
	within 20 write_lat_listens ||
		{ cat "$T/server"; fail "ib_write_lat does not listen"; }
	timeout -k 1 60 ib_write_lat -d rxe1 -x 1 -s 128 -n 2000 -F 10.9.0.2 \
		>"$T/lat" 2>&1 || { cat "$T/lat"; fail "ib_write_lat"; }
	wait $server || { cat "$T/server"; fail "ib_write_lat's server"; }
	# bytes, iterations, least, greatest, typical, mean, ...
	awk '$1 == 128 && $2 == 2000 && $6 > 0 { print $5, $6; found = 1 }
		END { exit !found }' "$T/lat" ||
		{ cat "$T/lat"; fail "no figure"; }
}
write_lat_listens() { ss -Hltn 'sport = 18515' | grep -q .; }
