#!/bin/bash
# t_open_files with a million.
COUNT=1000000 exec bash "$(dirname "$0")/t_open_files.sh"
