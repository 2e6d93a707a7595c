#!/bin/bash
# RocksDB with its log in a log directory: t_rocksdb.sh, and more kills.
cd "$(dirname "$0")" || exit 1
LOGS=1 ROUNDS=${ROUNDS:-2} exec bash t_rocksdb.sh
