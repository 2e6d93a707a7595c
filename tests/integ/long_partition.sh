#!/bin/bash
# t_partition with every direction of every pair, for shorter and for much
# longer than the leases.
CUTS=
for seconds in 3 9 30; do
	for pair in 'm>b' 'b>m' 'c>m' 'm>c' 'c>b' 'b>c'; do
		CUTS+=" $pair:$seconds"
	done
done
export CUTS
exec bash "$(dirname "$0")/t_partition.sh"
