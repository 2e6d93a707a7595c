#!/bin/bash
# A directory of a million files, see big_dir.sh.
COUNT=${COUNT:-1000000}
. "$(dirname "$0")/big_dir.sh"
