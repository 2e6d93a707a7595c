#!/bin/bash
# The cluster's key: who does not have it gets nothing but a refusal and costs
# nobody anything; frames cannot be read (tls) or changed (tls, mac) on their
# way; keys are replaced while all goes on.
. "$(dirname "$0")/lib.sh"
need_root
need python3
K=$C/cluster.conf
status() { "$CTL" -c "$1" --timeout 5s status >"$T/out" 2>&1; }
# refused CONF TEXT
refused() {
	status "$1" && fail "$1: let in"
	grep -q "$2" "$T/out" || { cat "$T/out" >&2; fail "$1: not '$2'"; }
}
not_mounted() {
	mkdir -p "$T/m"
	"$BIN/hailfs" "$1" "$T/m" >"$T/out" 2>&1 && fail "$1: mounted"
	grep -q "$2" "$T/out" || { cat "$T/out" >&2; fail "mount: not '$2'"; }
}
mount_end() {
	local p
	p=$(cat "$T/b.pid")
	umount "$T/b"
	within 30 gone "$p" || fail "the mount does not end"
}
port() { sed -n "s/^$1  *1 [^ ]*:\([0-9]*\)\( .*\|\)$/\1/p" "$K"; }
conf() { # NAME SED: a cluster file that differs
	sed "$2" "$K" >"$T/$1.conf"
}

cluster_up -o shared
[ "$(stat -c %a "$C/cluster.key")" = 600 ] || fail "others may read the key"
echo before >"$MNT/f"
"$CTL" key new "$T/strange" >/dev/null || fail "key new"
conf strange "s|^key .*|key $T/strange|"
conf none '/^key /d; /^wire /d'
refused "$T/strange.conf" "does not take our key"
not_mounted "$T/strange.conf" "does not take our key"
refused "$T/none.conf" "does not take our key, or wants one"
conf gone "s|^key .*|key $T/gone|"
refused "$T/gone.conf" "$T/gone: "
cp "$C/cluster.key" "$T/open"
chmod 640 "$T/open"
conf open "s|^key .*|key $T/open|"
refused "$T/open.conf" "$T/open: "
for d in metad blockd logd; do
	grep -q "bad-frame .*\(reason=key\|error=129\)" "$C/run/${d}1.log" ||
		fail "$d does not say whom it refused"
done

# ---- strangers ----
cat >"$T/strangers.py" <<'PY'
import os, random, socket, sys, time
random.seed(7)
ports = [int(p) for p in sys.argv[2:]]
def connect(p):
    s = socket.create_connection(("127.0.0.1", p), 20)
    return s
# A ClientHello of TLS 1.3 without a key, as browsers have it, is what ssl says.
import ssl
class Mem: # no socket
    def hello():
        i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
        c = ssl.create_default_context()
        c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
        t = c.wrap_bio(i, o)
        try: t.do_handshake()
        except ssl.SSLWantReadError: pass
        return o.read()
hello = Mem.hello()
says = [b"GET / HTTP/1.0\r\n\r\n", b"\0" * 64, hello, hello[:40] + b"x" * 900,
        b"\x16\x03\x01\x40\x00" + b"y" * 16384, b"HAIL" + b"\1" * 60] + \
       [random.randbytes(random.randrange(1, 30000)) for _ in range(40)]
def whole(s, b):
    try:
        s.sendall(b)
        s.shutdown(socket.SHUT_WR)
        got = b""
        while d := s.recv(4096): got += d
    except ConnectionError:
        got = b""
    return got
if sys.argv[1] == "noise":
    for p in ports:
        for b in says:
            got = whole(connect(p), b)
            # an alert of TLS: 7 bytes
            assert got == b"" or (len(got) == 7 and got[0] == 21), got[:80]
elif sys.argv[1] == "flood": # beyond --connections, and metad's 4096
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (16384, 16384))
    held = {p: [] for p in ports}
    for i in range(1 << 30):
        for p in ports:
            held[p].append(connect(p))
            if len(held[p]) > 4500: held[p].pop().close()
        if i == 4500: print("full", flush=True)
else: # silent, slow and half: held open, until they are closed
    held = []
    for p in ports:
        for i in range(150):
            s = connect(p)
            if i % 3: s.sendall(hello[:1 + i])
            held.append(s)
    print("held", flush=True)
    begin = time.monotonic()
    drip = held[1::3] # a byte a second does not help
    for s in held: s.setblocking(False)
    while held:
        assert time.monotonic() - begin < 25, len(held)
        time.sleep(1)
        for s in list(held):
            try:
                if s in drip: s.send(b"\0")
                if s.recv(100) == b"": held.remove(s)
            except BlockingIOError: pass
            except ConnectionError: held.remove(s)
PY
ports=$(for d in metad blockd logd; do port $d; done)
# shellcheck disable=SC2086
HAILFS_TCP=1 python3 "$T/strangers.py" noise $ports || fail "noise"
status "$K" || fail "after noise"
# shellcheck disable=SC2086
python3 "$T/strangers.py" held $ports >"$T/held" &
held=$!
said $held "$T/held" held
for i in 1 2 3 4 5; do
	start=$(date +%s%N)
	status "$K" || fail "strangers keep others out"
	echo "$i" >"$MNT/g$i"
	sync "$MNT/g$i"
	[ $(($(date +%s%N) - start)) -lt 3000000000 ] ||
		fail "strangers cost others time"
done
wait $held || fail "who says nothing is kept"
# More of them than a daemon has room for, again and again.
# shellcheck disable=SC2086
python3 "$T/strangers.py" flood $ports >"$T/flood" &
flood=$!
test_cleanup() { kill $flood; }
said $flood "$T/flood" full
for i in 1 2 3 4 5; do
	status "$K" || fail "strangers take all room"
done
kill $flood
wait $flood 2>/dev/null || true
test_cleanup() { :; }

# ---- rotation: keys of two are valid, everything goes on ----
mkdir "$T/old" "$T/b"
cp "$C/cluster.key" "$T/old/cluster.key"
conf old "s|^key .*|key $T/old/cluster.key|"
"$BIN/hailfs" -o "shared,log=$T/b.log,pidfile=$T/b.pid" "$T/old.conf" \
	"$T/b" || fail "a second mount"
test_cleanup() { umount -l "$T/b" 2>/dev/null || true; }
"$CTL" key rotate "$C/cluster.key" >/dev/null || fail "rotate"
status "$K" || fail "with the new key"
status "$T/old.conf" || fail "with the one before"
restart_all() {
	crash blockd1 blockd2 blockd3 metad1 logd1
	"$CTL" local up "$C" >"$T/up2.log" 2>&1 || { cat "$T/up2.log"; fail up; }
}
restart_all
echo "with the key before" >"$T/b/h"
sync "$T/b/h"
[ "$(cat "$MNT/h")" = "with the key before" ] || fail "the first mount"
# Who has the new one first tries the one before: the daemons get it last.
cp "$C/cluster.key" "$T/now"
"$CTL" key rotate "$T/now" >/dev/null
conf now "s|^key .*|key $T/now|"
status "$T/now.conf" || fail "the second key was not tried"
# The oldest goes with the next one; that mount is given new keys as it runs.
cp "$T/now" "$C/cluster.key"
refused "$T/old.conf" "does not take our key"
cp "$T/now" "$T/old/cluster.key"
status "$T/old.conf" || fail "the key file is not read again"
restart_all
echo "with the newest" >"$T/b/i"
sync "$T/b/i"
[ "$(cat "$MNT/i")" = "with the newest" ] || fail "after two rotations"
# A key file that cannot be read any more costs nobody the keys from before.
echo nonsense >"$T/old/cluster.key"
restart_all
echo "still" >"$T/b/j"
sync "$T/b/j"
[ "$(cat "$MNT/j")" = still ] || fail "a broken key file"
grep -q "event=key-file-bad" "$T/b.log" || fail "the mount does not say it"
mount_end
cluster_down

# ---- on the way ----
# Between a mount and metad: writes down what comes by, and changes a byte of
# every connection when it is told to.
cat >"$T/between.py" <<'PY'
import os, socket, sys, threading
to, notes, flip = int(sys.argv[1]), open(sys.argv[2], "ab", 0), sys.argv[3]
def forward(a, b, back):
    seen = 0
    try:
        while d := bytearray(a.recv(65536)):
            notes.write(d)
            seen += len(d)
            # behind the handshake, HELLO and some frames
            if os.path.exists(flip) and seen > 3000 and len(d) > 90:
                d[len(d) - 20] ^= 16
                with open(flip, "a") as f: f.write("x")
                seen = -1 << 40
            b.sendall(d)
    except OSError: pass
    for s in a, b:
        try: s.shutdown(socket.SHUT_RDWR)
        except OSError: pass
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    d = socket.create_connection(("127.0.0.1", to))
    for x in (c, d, False), (d, c, True):
        threading.Thread(target=forward, args=x, daemon=True).start()
PY
for wire in plain mac tls; do
	sed -i "s/^wire .*/wire $wire/" "$K"
	cluster_up --no-mount
	: >"$T/notes"
	rm -f "$T/flip" "$T/at"
	python3 "$T/between.py" "$(port metad)" "$T/notes" "$T/flip" >"$T/at" &
	between=$!
	test_cleanup() { umount -l "$T/b" 2>/dev/null || true; kill $between; }
	within 10 test -s "$T/at" || fail "nobody between"
	conf between "s/^\(metad  *1 .*:\)$(port metad) /\1$(cat "$T/at") /"
	"$BIN/hailfs" -o "shared,log=$T/b.log,pidfile=$T/b.pid" \
		"$T/between.conf" "$T/b" || fail "mount in $wire"
	dd if=/dev/urandom of="$T/data" bs=1M count=20 status=none
	cp "$T/data" "$T/b/A-NAME-TO-BE-READ"
	sync "$T/b/A-NAME-TO-BE-READ"
	grep -aq A-NAME-TO-BE-READ "$T/notes" && seen=yes || seen=no
	case $wire in tls) want=no ;; *) want=yes ;; esac
	[ $seen = $want ] || fail "$wire: read on the way: $seen"
	# What is changed on the way ends a connection, and nothing else.
	: >"$T/flip"
	for i in $(seq 200); do echo "$i" >"$T/b/name-$i"; done
	sync "$T/b/name-200"
	[ -s "$T/flip" ] || fail "$wire: nothing was changed"
	rm "$T/flip"
	cmp "$T/data" "$T/b/A-NAME-TO-BE-READ" || fail "$wire: data"
	for i in $(seq 200); do
		[ "$(cat "$T/b/name-$i")" = "$i" ] || fail "$wire: name-$i"
	done
	mount_end
	kill $between
	wait $between 2>/dev/null || true
	test_cleanup() { :; }
	fsck_clean
	# Who asks for less is not let in, who asks for more is.
	conf less "s/^wire .*/wire plain/"
	conf more "s/^wire .*/wire tls/"
	status "$T/more.conf" || fail "$wire: not with tls"
	if [ $wire = plain ]; then
		status "$T/less.conf" || fail "plain"
	else
		status "$T/less.conf" && fail "$wire: let in without"
	fi
	cluster_down
done
