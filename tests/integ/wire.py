# What scripts in Python need to talk as a daemon does (common/wire.h).
def crc32c(b, c=0):
    c ^= 0xffffffff
    for x in b:
        c ^= x
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    return c ^ 0xffffffff
