#!/bin/bash
# A directory of some ten thousand files, see big_dir.sh.
COUNT=${COUNT:-30000}
. "$(dirname "$0")/big_dir.sh"
