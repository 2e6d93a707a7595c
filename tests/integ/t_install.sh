#!/bin/bash
# make install: programs that run, every page, and the helpers where mount(8)
# looks for them, whatever the prefix.
. "$(dirname "$0")/lib.sh"
need make
D=$T/root
put() { make -s -C "$TOP" FLAVOUR="$FLAVOUR" DESTDIR="$D" "$@" install \
	>"$T/out" 2>&1 || { cat "$T/out"; fail "make install $*"; }; }
put PREFIX=/usr/local
for p in hailfs hailctl hail-blockd hail-metad; do
	"$D/usr/local/bin/$p" --version >"$T/out" || fail "$p does not run"
	grep -q hailfs "$T/out" || fail "$p: $(cat "$T/out")"
done
for h in mount.hailfs mount.fuse.hailfs; do
	[ "$(readlink "$D/sbin/$h")" = /usr/local/bin/hailfs ] || fail "no $h"
done
for page in "$TOP"/man/*.[1-8]; do
	cmp "$page" "$D/usr/local/share/man/man${page##*.}/${page##*/}" ||
		fail "no ${page##*/}"
done
rm -rf "$D"
put PREFIX=/opt/h MOUNTDIR=
[ -x "$D/opt/h/bin/hailctl" ] || fail "another prefix"
[ "$(ls "$D")" = opt ] || fail "something elsewhere: $(ls "$D")"

# Without a libfuse that is new enough it says what to do, before it compiles.
mkdir "$T/fuse"
printf 'Name: fuse3\nDescription: old\nVersion: 3.14.0\n' >"$T/fuse/fuse3.pc"
for dir in "$T/none" "$T/fuse"; do
	code=0
	env -u MAKEFLAGS PKG_CONFIG_PATH= PKG_CONFIG_LIBDIR="$dir" make -n -C \
		"$TOP" DEPS_PREFIX="$T/none" all >"$T/out" 2>&1 || code=$?
	[ $code = 2 ] || fail "without libfuse: exit $code"
	grep -q "libfuse 3.18 or later.*'make deps'" "$T/out" ||
		{ tail -n 5 "$T/out"; fail "without libfuse: no 'make deps'"; }
	! grep -q 'gcc.*-c -o.*/fuse/' "$T/out" || fail "it compiles all the same"
done
