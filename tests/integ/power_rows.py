# Rows that a database was told of beside a disk whose power is cut
# (power.sh): which of them have to be there.
#
# usage: power_rows.py note COUNTER FILE
#		row numbers from standard input, each with the disk's clock
#	power_rows.py check FILE AT HAVE
#		HAVE is the last row after a cut at AT: prints how many were
#		acknowledged until then, and the milliseconds that are missing
import mmap, os, struct, sys, time
if sys.argv[1] == "note":
    clock = mmap.mmap(os.open(sys.argv[2], os.O_RDONLY), 8, prot=mmap.PROT_READ)
    out = open(sys.argv[3], "w")
    for line in sys.stdin:
        if line.strip().isdigit():
            out.write("%s %d %d\n" % (line.strip(), struct.unpack("<Q", clock[:8])[0],
                                      time.monotonic() * 1000))
    out.close()
else:
    at, have = map(int, sys.argv[3:])
    rows = [tuple(map(int, l.split())) for l in open(sys.argv[2])]
    assert [r[0] for r in rows] == list(range(1, len(rows) + 1)), "rows"
    acked = [ms for i, clock, ms in rows if clock <= at]
    missing = acked[-1] - rows[have - 1][2] if have and have < len(acked) else 0
    if not have and acked:
        missing = acked[-1] - rows[0][2]
    print(len(acked), missing)
