#!/bin/bash
# What an administrator gets wrong: options, cluster files, directories of
# another cluster, daemon or version, damaged files. Each program says which
# object and what to do next, with the exit status of its page, and changes
# nothing: the right command works afterwards.
. "$(dirname "$0")/lib.sh"
need_root
need python3
K=$C/cluster.conf

# bad STATUS PATTERN PROGRAM ARGUMENTS...: its exit status and what it says.
bad() {
	local want=$1 say=$2 got=0
	shift 2
	out=$T/out.$BASHPID
	timeout 60 "$BIN/$1" "${@:2}" >"$out" 2>&1 || got=$?
	{ [ $got = "$want" ] && grep -qE -e "$say" "$out"; } || {
		cat "$out" >&2
		fail "$*: status $got, not $want with '$say'"
	}
	# One sentence or two, not a dump.
	[ "$(wc -l <"$out")" -le 20 ] || fail "$*: says too much"
}

# ---- options ----
for p in hailctl hail-blockd hail-metad; do
	bad 2 "$p: there is no option '--nonsense'" $p --nonsense
	grep -q "Try '$p --help'" "$out" || fail "$p: no next step"
	bad 2 "no option '-Q'" $p -Q
done
for p in hail-blockd hail-metad; do
	bad 2 "'--id' needs a value" $p --id
	bad 2 'id: "x" is not a whole number' $p --id x
	bad 2 'cluster FILE and --id N are needed' $p
	bad 2 "unexpected argument 'more'" $p -c x --id 1 more
done
bad 1 "unknown option --nonsense; see 'hailfs --help'" hailfs --nonsense
bad 1 "unknown option -Q; see 'hailfs --help'" hailfs -Q
bad 1 "unknown mount option 'x'; 'hailfs --help'" hailfs -o x a b
bad 1 'usage: hailfs' hailfs onlyone

# ---- cluster files ----
wrong() { # LINE:COLUMN TEXT FILE
	printf "$3" >"$T/x.conf"
	bad 2 "x.conf:$1: .*$2" hail-blockd -c "$T/x.conf" --id 1 -f
	case $2 in *option*|*"not a size"*) return ;; esac
	bad 2 "x.conf:$1: .*$2" hail-metad -c "$T/x.conf" --id 1 -f
	bad 1 "x.conf:$1: .*$2" hailctl -c "$T/x.conf" status
	bad 32 "x.conf:$1: .*$2" hailfs "$T/x.conf" "$T"
}
M='metad 1 127.0.0.1:9000\n'
wrong 2:1 '"frobnicate" is unknown' 'id 5\nfrobnicate 7\n'
wrong 2:1 'id is given twice' "id 5\nid 6\n$M"
wrong 2:19 'port "99999"' 'id 5\nmetad 1 127.0.0.1:99999\n'
wrong 1:1 'no id line' "$M"
wrong 2:29 'quote is never closed' 'id 5\nmetad 1 127.0.0.1:9000 data="a\n'
wrong 2:1 'byte 0x01' 'id 5\n\001\n'
wrong 3:32 'no such option; see hail-blockd' \
	"id 5\n${M}blockd 1 127.0.0.1:9001 data=x foo=1\n"
wrong 3:25 'cache: "much" is not a size' \
	"id 5\n${M}blockd 1 127.0.0.1:9001 cache=much\n"
printf 'id 5\nmetad 1 127.0.0.1:9000 foo=1\n' >"$T/x.conf"
bad 2 'x.conf:2:24: foo: there is no such option; see hail-metad' \
	hail-metad -c "$T/x.conf" --id 1 -f
bad 1 "$T: .*Is a directory" hailctl -c "$T" status
bad 32 "$T/none: .*No such file" hailfs "$T/none" "$T"
head -c 1100000 /dev/zero | tr '\0' '\n' >"$T/x.conf"
bad 1 'x.conf: .*File too large' hailctl -c "$T/x.conf" status

# ---- names nobody knows, addresses nobody has ----
mkdir "$T/d"
(cd "$T" && "$CTL" key new key >/dev/null) || fail "no key"
for where in "no..name nobody.knows.that.name" \
	"192.0.2.1 machine.does.not.have.that.address"; do
	addr=${where% *}
	printf 'id 5\nkey key\nmetad 1 %s:9000\nblockd 1 %s:9001\n' "$addr" \
		"$addr" >"$T/x.conf"
	for p in metad blockd; do
		bad 3 "cannot listen at $addr:900.: .*${where#* }" \
			hail-$p -c "$T/x.conf" --id 1 --data "$T/d/$p" -f
	done
done
printf 'id 5\nmetad 1 no..name:9000\n' >"$T/x.conf"
bad 1 'its name is not known' hailctl -c "$T/x.conf" status
bad 32 'metad 1 .*its name is not known' hailfs "$T/x.conf" "$T/d" &
nameless=$!

# ---- mounts of another cluster, or of none ----
printf 'id 5\nmetad 1 127.0.0.1:1\n' >"$T/none.conf"
mkdir "$T/m2"
bad 32 'metad 1 .*does not run; start it' hailfs "$T/none.conf" "$T/m2" &
nobody=$!
cluster_up --no-mount
mkdir "$T/m"
sed 's/^id .*/id 0x99/' "$K" >"$T/other.conf"
bad 1 "metad 1 .*belongs to another cluster; compare 'id'" \
	hailctl -c "$T/other.conf" status
bad 32 "other.conf: metad 1 .*belongs to another cluster; compare 'id'" \
	hailfs "$T/other.conf" "$T/m" &
other=$!
cluster_up
echo kept >"$MNT/f"
# A metad of a later release: each answer is of the next version of the wire.
python3 - "$T/later.conf" <<'PY' &
import socket, struct, sys
from wire import crc32c
s = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1] + ".part", "w") as f:
    f.write("id 5\nmetad 1 127.0.0.1:%d\n" % s.getsockname()[1])
import os
os.rename(sys.argv[1] + ".part", sys.argv[1])
while True:
    c, _ = s.accept()
    h = bytearray(c.recv(64, socket.MSG_WAITALL))
    if len(h) == 64:
        h[4:6] = struct.pack("<H", struct.unpack("<H", h[4:6])[0] + 1)
        h[60:64] = struct.pack("<I", crc32c(h[:60]))
        c.sendall(h)
    c.close()
PY
later=$!
test_cleanup() { kill $later 2>/dev/null; }
within 10 test -s "$T/later.conf" || fail "no later metad"
bad 1 "metad 1 .*another version of the protocol; use the hailctl of its" \
	hailctl -c "$T/later.conf" --timeout 3s status
mkdir "$T/m3" "$T/m4"
bad 32 "later.conf: metad 1 .*of another release.*install the same one" \
	hailfs "$T/later.conf" "$T/m3" &
newer=$!
# One mount is let in; the second is told why not.
bad 32 "another mount is alive .*'hailctl sessions'" hailfs "$K" "$T/m4" &
second=$!
# ---- names, paths and sizes over the limits ----
python3 - "$MNT" <<'PY' || fail "limits"
import errno, os, sys
os.chdir(sys.argv[1])
def fails(want, f, *a):
    try:
        f(*a)
    except OSError as e:
        assert e.errno == want, (f, e)
    else:
        assert False, f
os.mkdir('d')
os.mkdir('n' * 255)
fails(errno.ENAMETOOLONG, os.mkdir, 'n' * 256)
fails(errno.ENAMETOOLONG, os.rename, 'd', 'n' * 256)
fails(errno.ENAMETOOLONG, os.link, 'f', 'n' * 256)
fails(errno.ENAMETOOLONG, os.stat, '/'.join(['n' * 255] * 17))
os.symlink('s' * 4095, 'l')
assert os.readlink('l') == 's' * 4095
fails(errno.ENAMETOOLONG, os.symlink, 's' * 4096, 'l2')
os.setxattr('d', 'user.' + 'x' * 250, b'v')
fails(errno.ERANGE, os.setxattr, 'd', 'user.' + 'x' * 251, b'v')
fails(errno.E2BIG, os.setxattr, 'd', 'user.y', b'v' * 65537)
f = os.open('big', os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 2**63 - 1)
assert os.pwrite(f, b'x', 2**62) == 1
os.fsync(f)
assert os.pread(f, 2, 2**62) == b'x\0'
os.close(f)
# Deeper than any path: the kernel's business, not the file system's.
for i in range(300):
    os.mkdir('n' * 255 if i else 'deep')
    os.chdir('n' * 255 if i else 'deep')
for i in range(300):
    os.chdir('..')
    os.rmdir('deep' if i == 299 else 'n' * 255)
PY
rm "$MNT/big"
fsck_clean
wait $other || fail "mount of another cluster"
wait $nobody || fail "mount without a cluster"
wait $newer || fail "mount of a later release"
wait $second || fail "second mount"
wait $nameless || fail "mount of a name nobody knows"
cluster_down

# ---- directories of another cluster, daemon, version ----
bad 3 'blockd1/super: .*belongs to cluster .*check the cluster file' \
	hail-blockd -c "$T/other.conf" --id 1 -f
bad 3 'blockd2/super: .*belongs to block daemon 2, not 1; check --id' \
	hail-blockd -c "$K" --id 1 --data "$C/blockd2" -f
bad 3 'metad1 belongs to metad 1 of cluster .*; check the cluster file' \
	hail-metad -c "$T/other.conf" --id 1 -f
bad 3 'blockd2 is not empty and holds no metadata' \
	hail-metad -c "$K" --id 1 --data "$C/blockd2" -f
bad 3 'metad1/super: no store here' \
	hail-blockd -c "$K" --id 1 --data "$C/metad1" -f
bad 2 "no line 'blockd 7'" hail-blockd -c "$K" --id 7 -f

# damage FILE PYTHON: changes bytes "b"; mend puts the file back.
damage() {
	cp "$1" "$T/saved"
	python3 - "$1" "$2" <<-'PY'
		import sys
		b = bytearray(open(sys.argv[1], 'rb').read())
		exec(sys.argv[2])
		open(sys.argv[1], 'wb').write(b)
	PY
	damaged=$1
}
mend() { cp "$T/saved" "$damaged"; }
check() { bad 1 "$1" hail-blockd -c "$K" --id 1 --check; }
S=$C/blockd1
damage "$S/super" 'b[30] ^= 1'
bad 3 'super: damaged' hail-blockd -c "$K" --id 1 -f
check 'super: damaged'
mend
damage "$S/journal" 'del b[len(b) // 2:]'
bad 3 'journal: wrong size' hail-blockd -c "$K" --id 1 -f
mend
damage "$S/index/data.mdb" 'del b[12000:]'
bad 3 'index: damaged' hail-blockd -c "$K" --id 1 -f
check 'index: damaged'
mend
damage "$S/index/data.mdb" 'del b[:]'
check 'index: damaged'
mend
damage "$C/metad1/metad.id" 'b[:] = b.replace(b"metad 1", b"metad 2", 1)'
bad 3 'metad1 was written by a later version' hail-metad -c "$K" --id 1 -f
mend
damage "$C/metad1/raft/metadata1" 'b[0] = 9'
bad 3 'metadata1: bad format version 9.*run the later hail-metad' \
	hail-metad -c "$K" --id 1 -f
mend
for f in "$C"/metad1/raft/0*; do
	damage "$f" 'b[0] = 9'
	bad 3 "${f##*/}.*format version 9.*run the later hail-metad" \
		hail-metad -c "$K" --id 1 -f
	mend
	damage "$f" 'b[:8] = bytes(8)' # not of a later version
	bad 3 "${f##*/}.*bring that file back, or restore a backup" \
		hail-metad -c "$K" --id 1 -f
	mend
	damage "$f" 'del b[-9:]'
	bad 3 "${f##*/}.*bring that file back, or restore a backup" \
		hail-metad -c "$K" --id 1 -f
	mend
done
cluster_up
[ "$(cat "$MNT/f")" = kept ] || fail "something was changed"

fsck_clean
