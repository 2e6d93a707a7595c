# Puts rows into a RocksDB through its interface for C, each synced: the key i, from
# FROM on, with the value vi. A line tells i when it is there.
#
# usage: rocks_rows.py DB WAL_DIR FROM
import os, sys
from ctypes import CDLL, byref, c_char_p, c_size_t, c_ubyte, c_void_p
from ctypes.util import find_library
rocks = CDLL(find_library("rocksdb"))
def made(name, *args):
    call = getattr(rocks, "rocksdb_" + name)
    call.restype = c_void_p
    return c_void_p(call(*args))
db, wal = sys.argv[1].encode(), sys.argv[2].encode()
error = c_char_p()
options = made("options_create")
rocks.rocksdb_options_set_create_if_missing(options, c_ubyte(1))
rocks.rocksdb_options_set_wal_dir(options, wal)
# Logs come to their end meanwhile.
rocks.rocksdb_options_set_write_buffer_size(options, c_size_t(1 << 16))
synced = made("writeoptions_create")
rocks.rocksdb_writeoptions_set_sync(synced, c_ubyte(1))
rows = made("open", options, db, byref(error))
i = int(sys.argv[3])
while not error.value:
    key, value = b"%d" % i, b"v%d" % i
    rocks.rocksdb_put(rows, synced, key, c_size_t(len(key)), value,
                      c_size_t(len(value)), byref(error))
    if not error.value:
        print(i, flush=True)
    i += 1
print(error.value.decode(), file=sys.stderr, flush=True)
os._exit(1) # its threads cannot end
