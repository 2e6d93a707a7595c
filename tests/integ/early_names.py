"""Changes of names, one after the other, and what of them is there later.

usage: early_names.py run DIR LOG [nosync] until LOG.stop exists, or an error
       early_names.py check DIR LOG [all]

run creates, renames and unlinks files of DIR in an order that is always the
same, writes a little into each, and fsyncs DIR now and then (nosync: never); LOG says how many
changes were answered and how many were when the last fsync began. check: the
names are those after some number of changes, not fewer than were synced and one
more than were answered at most; all: not fewer than were answered, either.
"""
import os
import sys


def changes():
    """Yields (names that come, names that go) without end."""
    i = 0
    while True:
        yield ("create", "f%d" % i, None)
        if i % 3 == 0:
            yield ("rename", "f%d" % i, "r%d" % i)
        if i % 4 == 3:
            yield ("unlink", "f%d" % (i - 1) if (i - 1) % 3 else
                   "r%d" % (i - 1), None)
        if i % 50 == 0:
            yield ("mkdir", "d%d" % i, None)
        if i % 100 == 50:
            yield ("rmdir", "d%d" % i, None)
        i += 1


def do(what, a, b):
    if what == "create":
        fd = os.open(a, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        os.write(fd, a.encode())
        os.close(fd)
    elif what == "rename":
        os.rename(a, b)
    else:
        {"unlink": os.unlink, "mkdir": os.mkdir, "rmdir": os.rmdir}[what](a)


def run(where, log, sync):
    dirfd = os.open(where, os.O_RDONLY)
    os.fchdir(dirfd)
    out = os.open(log, os.O_CREAT | os.O_WRONLY, 0o644)
    synced, done = 0, 0
    for c in changes():
        if done % 16 == 0 and os.path.exists(log + ".stop"):
            return
        if sync and done % 500 == 499:
            begun = done
            os.fsync(dirfd)
            synced = begun
        do(*c)
        done += 1
        os.pwrite(out, b"%12d %12d\n" % (done, synced), 0)


def check(where, log, every):
    done, synced = (int(x) for x in open(log).read().split())
    there = set(os.listdir(where))
    wrong, n = set(there), 0  # what differs after n changes
    ok = not wrong and synced == 0
    best = 0 if ok else None
    for what, a, b in changes():
        if n > done:
            break
        gone = {"rename": [a], "unlink": [a], "rmdir": [a]}.get(what, [])
        new = {"rename": [b], "create": [a], "mkdir": [a]}.get(what, [])
        for name in gone + new:
            wrong ^= {name}
        n += 1
        if not wrong and n >= (done if every else synced):
            best = n
    print("# %d answered, %d synced, %s there" % (done, synced, best))
    if best is None:
        print("# not the names after any of them; %d names" % len(there))
        return 1
    return 0


if sys.argv[1] == "run":
    run(sys.argv[2], sys.argv[3], len(sys.argv) < 5)
else:
    sys.exit(check(sys.argv[2], sys.argv[3], len(sys.argv) > 4))
