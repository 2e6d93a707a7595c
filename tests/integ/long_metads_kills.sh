#!/bin/bash
# t_metads_kills.sh for as long as 200 kills take, and a little more.
SECS=${SECS:-1120} exec bash "$(dirname "$0")/t_metads_kills.sh"
