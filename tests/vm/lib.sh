# Sourced first by every test of this folder: the test is run in the guest of
# run.sh, for at most $VM_LIMIT seconds, and there like one of tests/integ, with
# what its lib.sh offers; $T is on the guest's disk. What it prints after
# "# figure: " is shown even when it passes.
VM_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -n "${VM_GUEST:-}" ] ||
	exec "$VM_DIR/run.sh" -t "${VM_LIMIT:-300}" bash "$0" "$@"
. "$VM_DIR/../integ/lib.sh"
