#!/bin/bash
# ext4 and hailfs run the same random operations and agree in all a program can
# see, with and without the kernel's write-back cache.
. "$(dirname "$0")/lib.sh"
need_root
for opts in nowriteback writeback; do
	cluster_up -o "$opts"
	mkdir "$T/local" "$MNT/r"
	"$TST/integ/randops" "$T/local" "$MNT/r" "${OPS:-6000}" || fail "$opts"
	rm -rf "$T/local" "$MNT/r"
	fsck_clean
	cluster_down
done
