#!/bin/bash
# t_stopped with every process and every length.
STOPS=
for seconds in 2 8 15 30; do
	for name in mount metad1 blockd1 blockd2 blockd3; do
		STOPS+=" $name:$seconds"
	done
done
export STOPS
exec bash "$(dirname "$0")/t_stopped.sh"
