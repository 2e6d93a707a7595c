#!/bin/bash
# Daemons known by name, under a name server that is late, silent or of another
# opinion: metad goes on serving, the mount waits for what it cannot find
# instead of failing, and a daemon that moved is found without a remount.
# The server is real to all programs: resolv.conf of a mount namespace of our
# own, loopback of a network namespace of our own.
if [ -z "${OWN_NS:-}" ]; then
	OWN_NS=1 exec unshare --mount --net "$BASH" "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
need_root
need python3 ip
# Copies of mounts that others may want to unmount.
while read -r dir; do umount -l "$dir"; done < <(
	findmnt -rnt fuse.hailfs -o TARGET)
test_cleanup() { [ -z "${server:-}" ] || kill "$server" 2>/dev/null; }

ip link set lo up
cat >"$T/dns.py" <<'P'
# Answers A queries with what the file says of the name now: NAME ADDRESS.
# A name that has no line gets no answer; AAAA: there is none.
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 53))
print("ready", flush=True)
while True:
    q, who = s.recvfrom(512)
    at, name = 12, []
    while q[at]:
        name.append(q[at + 1:at + 1 + q[at]].decode())
        at += 1 + q[at]
    kind, = struct.unpack("!H", q[at + 1:at + 3])
    with open(sys.argv[1]) as f:
        known = dict(l.split() for l in f)
    addr = known.get(".".join(name))
    print(".".join(name), kind, addr, flush=True)
    if not addr:
        continue
    found = kind == 1
    s.sendto(q[:2] + b"\x85\x80\0\1" + struct.pack("!H", found) + b"\0\0\0\0" +
             q[12:at + 5] + (b"\xc0\x0c" + q[at + 1:at + 5] + b"\0\0\0\0\0\4" +
                             socket.inet_aton(addr) if found else b""), who)
P
# known NAME ADDRESS...: what the server knows from now on
known() {
	printf '%s.test %s\n' "$@" >"$T/known.new"
	mv "$T/known.new" "$T/known"
}
known m 127.0.0.1 b1 127.0.0.1 b2 127.0.0.1 b3 127.0.0.1
python3 "$T/dns.py" "$T/known" >"$T/asked" 2>&1 &
server=$!
within 10 grep -q ready "$T/asked" || fail "no name server: $(cat "$T/asked")"
# resolves SECONDS: how long who asks waits before he asks again, once
resolves() {
	printf 'nameserver 127.0.0.1\noptions timeout:%s attempts:2\n' "$1" \
		>"$T/resolv.conf"
}
resolves 15
echo "hosts: dns" >"$T/nsswitch.conf"
for f in resolv.conf nsswitch.conf; do
	mount --bind "$T/$f" "/etc/$f"
done
python3 -c 'import socket; socket.getaddrinfo("b1.test", 1)' ||
	fail "the name server is not asked"

cluster_up
cluster_down
sed -i 's/^\(metad.*\) 127.0.0.1:/\1 m.test:/
	s/^blockd\( *\)\([0-9]*\) 127.0.0.1:/blockd\1\2 b\2.test:/' \
	"$C/cluster.conf"
[ "$(grep -c '\.test:' "$C/cluster.conf")" = 4 ] || fail "no names"
cluster_up
dd if=/dev/urandom of="$MNT/f" bs=1M count=48 conv=fsync status=none
sum=$(sha256sum <"$MNT/f")

# started_as NAME: how a daemon or the mount was started, to $cmd
started_as() {
	mapfile -d '' -t cmd <"/proc/$(pid_of "$1")/cmdline"
	cmd[0]=$BIN/${cmd[0]##*/}
}
again() {
	started_as "$1"
	crash "$1"
	timeout 20 "${cmd[@]}" || fail "$1 does not start"
}
# metad comes back and cannot find one of them: nobody waits but who needs it.
known m 127.0.0.1 b1 127.0.0.1 b3 127.0.0.1
: >"$T/asked"
again metad1
for i in $(seq 20); do
	timeout 5 mkdir "$MNT/d$i" || fail "metad waits for a name"
done
grep -q '^b2.test .* None' "$T/asked" || fail "nobody asked for the name"

# So does a new mount; what is on that daemon, is waited for.
resolves 1
started_as mount
pid=$(pid_of mount)
umount "$MNT"
within 10 gone "$pid" || fail "the old mount does not end"
timeout 10 "${cmd[@]}" || fail "the mount waits for a name"
: >"$T/asked"
timeout 5 ls "$MNT" >"$T/ls" || fail "ls waits for a name"
sha256sum <"$MNT/f" >"$T/sum" &
reader=$!
within 10 grep -q '^b2.test .* None' "$T/asked" || fail "the mount did not ask"
sleep 3
gone $reader && fail "what was not there was read: $(cat "$T/sum")"
known m 127.0.0.1 b1 127.0.0.1 b2 127.0.0.1 b3 127.0.0.1
wait $reader || fail "read error"
[ "$(cat "$T/sum")" = "$sum" ] || fail "other data"

# It moves to another address; what knew the old one finds it.
known m 127.0.0.1 b1 127.0.0.1 b2 127.0.0.2 b3 127.0.0.1
again blockd2
drop_caches
[ "$(timeout 60 sha256sum <"$MNT/f")" = "$sum" ] || fail "it was not found"
dd if=/dev/urandom of="$MNT/f" bs=1M count=9 conv=fsync status=none ||
	fail "no write after the move"
fsck_clean
