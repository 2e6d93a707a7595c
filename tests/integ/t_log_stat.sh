#!/bin/bash
# What stat tells of log files, whatever was done to them last, is the same after
# kill -9 of the mount: size, mode, owner, links, blocks, and the times of that.
. "$(dirname "$0")/lib.sh"
need_root
need python3
cat >"$T/files.py" <<'P'
import ctypes, json, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(f, mode, off, n):
    assert libc.fallocate(f, mode, ctypes.c_long(off), ctypes.c_long(n)) == 0
def begin(name, size=10000):
    f = os.open(name, os.O_CREAT | os.O_RDWR, 0o640)
    os.write(f, b"x" * size)
    time.sleep(0.02)
    return f
def times(f, *at):
    os.utime(f, ns=at)
    time.sleep(0.02)
def make():
    begin("written")
    os.write(os.open("written", os.O_WRONLY | os.O_APPEND), b"more")
    os.pwrite(begin("sparse"), b"far", 5 << 20)
    os.pwrite(begin("overwritten"), b"y", 5)
    os.open("empty", os.O_CREAT | os.O_RDWR, 0o600)
    os.fchmod(begin("mode"), 0o604)
    os.fchown(begin("owner"), 1234, 4321)
    os.setxattr(begin("xattr"), "user.a", b"b")
    begin("linked"); os.link("linked", "link")
    begin("first"); os.rename("first", "renamed")
    begin("over"); begin("replaced"); os.rename("over", "replaced")
    times(begin("old"), 5, 10**18 + 7)
    f = begin("old, written"); times(f, 5, 10**18); os.write(f, b"again")
    f = begin("old, mode"); times(f, 5, 10**18); os.fchmod(f, 0o600)
    f = begin("old again"); times(f, 5, 10**18); os.write(f, b"again"); times(f, 5, 10**18 + 1)
    f = begin("old, cut"); times(f, 5, 10**18); os.ftruncate(f, 100); times(f, 5, 10**18)
    times(begin("future"), 5, time.time_ns() + 10**15)
    # The last change of these is told twice, some milliseconds apart.
    for name, fn in (("cut", lambda f: os.ftruncate(f, 100)),
                     ("longer", lambda f: os.ftruncate(f, 1 << 20)),
                     ("hole", lambda f: fallocate(f, 3, 4096, 4096)),
                     ("reserved", lambda f: fallocate(f, 0, 0, 1 << 20))):
        f = begin(name)
        began = time.time_ns() - 10**7 # the kernel's clock ticks
        fn(f)
        spans[name] = [began, time.time_ns()]
    f = begin("set-id"); os.fchmod(f, 0o6777)
    pid = os.fork()
    if pid == 0:
        os.setgroups([]); os.setgid(1001); os.setuid(1001)
        os.write(os.open("set-id", os.O_WRONLY), b"z")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
def look():
    have = {}
    for name in os.listdir("."):
        st = os.stat(name)
        have[name] = {k: getattr(st, "st_" + k) for k in ("ino", "size",
            "mode", "uid", "gid", "nlink", "blocks", "mtime_ns", "ctime_ns")}
        if name in spans:
            assert spans[name][0] <= st.st_mtime_ns <= spans[name][1], (name, spans[name], have[name])
        if name in spans or not_told(name):
            del have[name]["mtime_ns"], have[name]["ctime_ns"]
    return have
def not_told(name): # hailfs-log(7), CAVEATS
    return sys.argv[2] == "writeback" and name not in (
        "old", "old, mode", "old again", "old, cut", "future")
os.umask(0o022)
os.chdir(sys.argv[1])
spans = {}
if len(sys.argv) == 4:
    make()
    was = look()
    assert len(was) > 20 and was["set-id"]["mode"] & 0o7777 == 0o777
    json.dump([was, spans], open(sys.argv[3], "w"))
    print("done", flush=True)
    sys.stdin.read() # they stay open
else:
    was, spans = json.load(sys.stdin)
    now = look()
    bad = [(n, was.get(n), now.get(n)) for n in was.keys() | now.keys() if was.get(n) != now.get(n)]
    for b in bad:
        print(*b, sep="\n", file=sys.stderr)
    sys.exit(len(bad) > 0)
P
for opts in nowriteback writeback; do
	cluster_up -o "$opts,flush_age=1h"
	mkdir "$MNT/l"
	chmod 777 "$MNT/l"
	"$CTL" log enable "$MNT/l" --destage close >/dev/null || fail "enable"
	coproc FILES { exec python3 "$T/files.py" "$MNT/l" $opts "$T/was"; }
	pid=$FILES_PID
	read -r _ <&"${FILES[0]}" || fail "files"
	crash mount
	kill "$pid"
	wait "$pid" || true
	cluster_up
	python3 "$T/files.py" "$MNT/l" $opts <"$T/was" || fail "$opts: after the crash"
	rm -r "$MNT/l"
	fsck_clean
	cluster_down
done
