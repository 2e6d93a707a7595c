#!/bin/bash
# Logs that are written on and on, with peers that have plenty of memory: they are
# destaged by their size, and at any time what the mount keeps of all of them is at
# most half of wb_size and some regions, and a peer lends hardly more. Nothing is
# lost.
. "$(dirname "$0")/lib.sh"
need_root
need python3
cluster_up --no-mount
"$CTL" local down "$C" >"$T/out" 2>&1
read -r -a ports < <(python3 -c 'import socket
s = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*[x.getsockname()[1] for x in s])')
for n in 1 2 3; do
	sed -i "/^logd  *$n /s/\$/ metrics-port=${ports[$n]}/" "$C/cluster.conf"
done
up() { cluster_up -o "wb_size=4m,flush_age=1h,metrics_port=${ports[0]}"; }
up
mkdir "$MNT/l"
"$CTL" log enable "$MNT/l" --destage close --region 64k >/dev/null ||
	fail "enable"
# Two files, of which each write may need two regions, and one more is got ahead.
cat >"$T/write.py" <<'P'
import os, sys, time, urllib.request
where, local, size, mount = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
ports = sys.argv[5:]
REGION = 65536
BOUND = (4 << 20) // 2 + REGION + 2 * 3 * REGION
def write(name):
    f = os.open(where + "/" + name, os.O_CREAT | os.O_WRONLY, 0o600)
    data = os.urandom(1 << 16)
    done = b""
    for i in range(size >> 16):
        data = data[1:] + bytes([i & 255])
        os.write(f, data)
        os.fdatasync(f)
        done += data
    open(local + "/" + name, "wb").write(done)
    os.kill(os.getpid(), 19) # it stays open
def sample(port, name):
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return [int(float(l.split()[1])) for l in page.split("\n") if l.split(" ")[0] == name][0]
pids = []
for name in "ab":
    pid = os.fork()
    if pid == 0:
        write(name)
        os._exit(1)
    pids.append(pid)
left, looks, most, lent = set(pids), 0, 0, 0
while left:
    for pid in list(left):
        got, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if got:
            assert os.WIFSTOPPED(status), "a writer failed"
            left.discard(pid)
    most = max(most, sample(ports[0], "hailfs_logs_mirror_bytes"))
    lent = max([lent] + [sample(p, "hail_logd_lent_bytes") for p in ports[1:]])
    looks += 1
print(f"# {looks} looks, at most {most} bytes of {BOUND} here, {lent} lent by a peer")
destages = sample(ports[0], "hailfs_logs_destages")
opened = sample(ports[0], "hailfs_logs_opened")
print(f"# {destages} destagings", flush=True)
assert opened == 2 and looks > 10
assert 2 * size // BOUND <= destages, "not by size"
assert most <= BOUND, "the mount's"
assert lent <= 2 * BOUND, "a peer's"
for pid in [mount] + pids: # in this order: nothing is destaged for a close
    os.kill(pid, 9)
P
python3 "$T/write.py" "$MNT/l" "$T" $((${MIB:-12} << 20)) "$(pid_of mount)" \
	"${ports[@]}" &
writer=$!
# While nothing is destaged they wait.
mirror() { python3 -c 'import sys, urllib.request
print(urllib.request.urlopen("http://127.0.0.1:%s/metrics" % sys.argv[1],
                             timeout=10).read().decode())' "${ports[0]}" |
	sed -n 's/^hailfs_logs_mirror_bytes //p'; }
mirror_over() { [ "$(mirror)" -gt "$1" ]; }
within 20 mirror_over $((1 << 19)) || fail "it does not write"
stop blockd1 blockd2 blockd3
within 20 mirror_over $((1 << 21)) || fail "they wait too early: $(mirror)"
sleep 1
mirror_over $((1 << 21)) || fail "destaged: $(mirror)"
go_on
wait $writer || fail "bounds"
within 10 gone "$(pid_of mount)" || fail "the mount does not end"
up
within 5 eval '[ "$(log_counter recovered)" = 2 ]' || fail "not recovered"
for f in a b; do cmp "$MNT/l/$f" "$T/$f" || fail "lost: $f"; done
fsck_clean
