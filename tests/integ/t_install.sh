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
