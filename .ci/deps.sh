#!/bin/sh
# Installs what building and testing needs on Debian 12 or later, builds a
# static libfuse of our own where the packaged one is too old, and unpacks a
# kernel for the guest of tests/vm.
#
#	.ci/deps.sh [PREFIX]	PREFIX: default .deps
#
# Nothing is done twice: with everything there it takes less than a second.
# Packages need root. Services that packages bring are not started.
set -eu

cd "$(dirname "$0")/.."
prefix=${1:-.deps}
fuse_min=3.18

build_packages="
	gcc g++ make pkg-config libc6-dev
	libuv1-dev libraft-dev liblmdb-dev liburing-dev
	libisal-dev libxxhash-dev libmicrohttpd-dev libjansson-dev
	libnuma-dev libssl-dev liblz4-dev libibverbs-dev librdmacm-dev
	ca-certificates dpkg-dev meson ninja-build xz-utils"
run_packages="fuse3 ibverbs-providers"
test_packages="
	libcmocka-dev libacl1-dev mandoc attr acl e2fsprogs strace iproute2
	procps util-linux python3 git clang-format-14 gnuplot-nox fio
	sqlite3 redis-server mariadb-server postgresql
	postgresql-contrib rocksdb-tools"
# For tests/vm alone, which is skipped where they cannot be had.
vm_packages="
	qemu-system-x86 busybox-static cpio kmod rdma-core ibverbs-utils
	rdmacm-utils perftest"

say() { echo "deps: $*"; }
die() { echo "deps: $*" >&2; exit 1; }

# ---- packages ----

installed() {
	dpkg-query -W -f='${db:Status-Status} ${Package}\n' 2>/dev/null |
		sed -n 's/^installed //p'
}

missing() { # PACKAGE...
	have=$(installed)
	for p; do
		echo "$have" | grep -qx -- "$p" || echo "$p"
	done
}

# Packages ask this program before they start a service; an administrator's
# own one is left alone.
policy=/usr/sbin/policy-rc.d
policy_ours=
no_services() {
	[ -e $policy ] && return
	printf '#!/bin/sh\nexit 101\n' > $policy
	chmod 755 $policy
	policy_ours=1
}

work=
clean_up() {
	[ -z "$policy_ours" ] || rm -f $policy
	[ -z "$work" ] || rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

# Fails where they cannot be had.
install_packages() { # PACKAGE...
	want=$(missing "$@")
	[ -n "$want" ] || return 0
	[ "$(id -u)" = 0 ] || {
		echo "deps: root is needed to install:" $want >&2
		return 1
	}
	say "installing" $want
	no_services
	apt-get -q -o Acquire::Retries=3 update &&
	DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 \
		--no-install-recommends install $want || :
	want=$(missing "$@")
	[ -z "$want" ] ||
		{ echo "deps: not installed:" $want >&2; return 1; }
}

# ---- libfuse ----

# Our own counts when mend_fuse has seen it.
fuse_ok() {
	own=$prefix/lib/pkgconfig/fuse3.pc
	[ ! -e "$own" ] || grep -q '^mended=2$' "$own" || return 1
	PKG_CONFIG_PATH=$prefix/lib/pkgconfig \
		pkg-config --atleast-version=$fuse_min fuse3
}

# The machine's own Debian archive as a deb-src entry for sid: URI and key are
# taken from its first source that is not a security or third-party one.
sid_source() {
	for f in /etc/apt/sources.list.d/*.sources; do
		[ -e "$f" ] || continue
		awk '
		function flush() {
			if (types ~ /deb/ && comps ~ /main/ && !off &&
			    uri !~ /security/ && uri ~ /debian\/?$/ && !done) {
				print uri; print key; done = 1
			}
			types = uri = comps = key = ""; off = 0
		}
		/^[ \t]*$/ { flush(); next }
		tolower($1) == "types:" { types = $0 }
		tolower($1) == "uris:" { uri = $2 }
		tolower($1) == "components:" { comps = $0 }
		tolower($1) == "enabled:" { off = tolower($2) == "no" }
		tolower($1) == "signed-by:" { key = $2 }
		END { flush() }' "$f"
	done
	for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[ -e "$f" ] || continue
		awk '
		$1 != "deb" && $1 != "deb-src" { next }
		{
			key = ""; i = 2
			if ($2 ~ /^\[/) {
				while ($i !~ /\]$/ && i < NF) i++
				i++
				if (match($0, /signed-by=[^] ]*/))
					key = substr($0, RSTART + 10,
						     RLENGTH - 10)
			}
		}
		$i !~ /security/ && $i ~ /debian\/?$/ && / main( |$)/ {
			print $i; print key; exit
		}' "$f"
	done
}

fetch_fuse() {
	sid_source > "$work/sid"
	uri=$(sed -n 1p "$work/sid")
	key=$(sed -n 2p "$work/sid")
	[ -n "$uri" ] || die "no Debian archive found in /etc/apt"
	case $key in
	/*)	;;
	*)	key=/usr/share/keyrings/debian-archive-keyring.gpg ;;
	esac
	mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
	cat > "$work/sid.sources" <<-END
	Types: deb-src
	URIs: $uri
	Suites: sid
	Components: main
	Signed-By: $key
	END
	# A mirror may be frozen at a date; the signatures are checked all the
	# same.
	set -- -q -o Acquire::Check-Valid-Until=false \
		-o Dir::Etc::sourcelist="$work/sid.sources" \
		-o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$work/lists" \
		-o Dir::Cache="$work/cache" \
		-o APT::Sandbox::User= -o Acquire::Retries=3 \
		-o Acquire::Languages=none
	apt-get "$@" update
	(cd "$work" && apt-get "$@" source --download-only fuse3)
	(cd "$work" && dpkg-source --no-check -x fuse3_*.dsc fuse)
}

# A reply that another thread than the ring's sends is submitted under a lock,
# but the ring's thread submits without it: now and then they meet, replies are
# lost and the mount hangs (libfuse issue 1443). Here it submits under the lock
# and waits without. $uring_locked: 1, or 0 where this is not the source we know
# and hailfs had better not use io_uring.
mend_fuse() {
	uring_locked=1
	sed -i 's/^\(\t*\)io_uring_submit_and_wait(&queue->ring, 1);$/'\
'\1struct io_uring_cqe *first;\n'\
'\1pthread_mutex_lock(\&queue->ring_lock);\n'\
'\1err = io_uring_submit(\&queue->ring);\n'\
'\1pthread_mutex_unlock(\&queue->ring_lock);\n'\
'\1if (err >= 0)\n'\
'\1\tio_uring_wait_cqe(\&queue->ring, \&first);/' \
		"$work/fuse/lib/fuse_uring.c"
	! grep -q io_uring_submit_and_wait "$work/fuse/lib/fuse_uring.c" ||
		uring_locked=0
	# Over io_uring no interrupt finds its request, and each was kept for
	# one that would come yet.
	sed -i 's/if (find_interrupted(se, req)) {$/'\
'if (find_interrupted(se, req) || se->uring.pool) {/' \
		"$work/fuse/lib/fuse_lowlevel.c"
}

build_fuse() {
	# /usr is where libfuse looks for fusermount3; nothing is installed.
	meson setup "$work/build" "$work/fuse" --prefix=/usr \
		--buildtype=release -Ddefault_library=static \
		-Denable-io-uring=true -Dtests=false -Dexamples=false \
		-Dutils=false
	ninja -C "$work/build"
	version=$(sed -n "s/^project('libfuse3'.*version: '\([0-9.]*\)'.*/\1/p" \
		"$work/fuse/meson.build")
	[ -n "$version" ] || version=$(meson introspect --projectinfo \
		"$work/build" | sed 's/.*"version": "\([0-9.]*\).*/\1/')

	out=$work/out
	mkdir -p "$out/include/fuse3" "$out/lib/pkgconfig"
	for h in cuse_lowlevel fuse fuse_common fuse_log fuse_lowlevel \
		fuse_mount_compat fuse_opt; do
		[ ! -e "$work/fuse/include/$h.h" ] ||
			cp "$work/fuse/include/$h.h" "$out/include/fuse3/"
	done
	find "$work/build" -name libfuse_config.h \
		-exec cp {} "$out/include/fuse3/" \;
	cp "$work/build/lib/libfuse3.a" "$out/lib/"
	cat > "$out/lib/pkgconfig/fuse3.pc" <<-END
	prefix=\${pcfiledir}/../..
	mended=2
	Name: fuse3
	Description: Filesystem in Userspace (static)
	Version: $version
	Cflags: -I\${prefix}/include/fuse3 -D_FILE_OFFSET_BITS=64 -DFUSE_URING_LOCKED=$uring_locked
	Libs: -L\${prefix}/lib -l:libfuse3.a -luring -lnuma -ldl -lpthread
	END
}

# The version apt would install, when it is new enough.
packaged_fuse_ok() {
	v=$(apt-cache policy libfuse3-dev | sed -n 's/^ *Candidate: //p')
	[ -n "$v" ] && dpkg --compare-versions "$v" ge $fuse_min
}

install_fuse() {
	! fuse_ok || return 0
	if packaged_fuse_ok; then
		install_packages libfuse3-dev
		return
	fi
	say "building libfuse (there is none of $fuse_min, or an old one of ours)"
	mkdir -p "$prefix"
	prefix=$(cd "$prefix" && pwd)
	# Beside its place, so that the moves at the end are renames.
	work=$(mktemp -d "$prefix/tmp.XXXXXX")
	fetch_fuse > "$work/log" 2>&1 || { cat "$work/log" >&2
		die "libfuse's source could not be fetched"; }
	mend_fuse
	build_fuse > "$work/log" 2>&1 || { cat "$work/log" >&2
		die "libfuse could not be built"; }
	mkdir -p "$prefix/include" "$prefix/lib/pkgconfig"
	rm -rf "$prefix/include/fuse3"
	mv "$work/out/include/fuse3" "$prefix/include/fuse3"
	mv "$work/out/lib/libfuse3.a" "$prefix/lib/"
	# Last: with this file the prefix counts as complete.
	mv "$work/out/lib/pkgconfig/fuse3.pc" "$prefix/lib/pkgconfig/"
	fuse_ok || die "libfuse was built but pkg-config does not see it"
}

# ---- the guest of tests/vm ----

vm_key() { cat tests/vm/init tests/vm/modules | cksum; }

# The kernel that linux-image-amd64 stands for, unpacked and not installed.
fetch_kernel() {
	for try in first second; do
		kernel=$(LC_ALL=C apt-cache depends linux-image-amd64 |
			sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p')
		[ -n "$kernel" ] && (cd "$work" && apt-get -q \
			-o APT::Sandbox::User= -o Acquire::Retries=3 \
			download "$kernel") && break
		[ $try = second ] || apt-get -q update
	done
	dpkg-deb --fsys-tarfile "$work"/linux-image-*.deb |
		tar -x -C "$work" --wildcards './boot/vmlinuz-*' \
			'*/modules/*/kernel/*' '*/modules/*/modules.*'
}

# What tests/vm/modules lists, and what that needs, below $1.
copy_modules() {
	from=$(find "$work" -path '*/modules/*' -name kernel | head -n 1)
	from=${from%/kernel}
	release=${from##*/}
	from=${from%/lib/modules/*}
	list=$(grep -v '^#' tests/vm/modules)
	mkdir -p "$1/lib/modules/$release"
	depmod -b "$from" "$release"
	for m in $list; do
		modprobe -d "$from" -S "$release" --show-depends "$m"
	done | sed -n 's,^insmod .*/lib/modules/\([^ ]*\).*,\1,p' | sort -u |
	(cd "$from/lib/modules" && xargs cp --parents -t "$1/lib/modules")
	cp "$from/lib/modules/$release"/modules.builtin* \
		"$from/lib/modules/$release/modules.order" \
		"$1/lib/modules/$release/"
	find "$1" -name '*.ko.xz' -exec unxz {} +
	depmod -b "$1" "$release"
	for m in $list; do
		modprobe -d "$1" -S "$release" -n "$m" || return 1
	done
}

build_vm() {
	fetch_kernel || return 1
	root=$work/root
	mkdir -p "$root/bin" "$work/vm"
	copy_modules "$root" || return 1
	install -m 755 tests/vm/init "$root/init" &&
	install -m 755 /bin/busybox "$root/bin/" &&
	(cd "$root" && find . | cpio -o -H newc --quiet) > "$work/vm/initrd" &&
	cp "$work"/boot/vmlinuz-* "$work/vm/vmlinuz" &&
	vm_key > "$work/vm/key"
}

install_vm() {
	[ "$(dpkg --print-architecture)" = amd64 ] || return 0
	# shellcheck disable=SC2086
	install_packages $vm_packages || {
		say "no QEMU: tests/vm will be skipped"
		return 0
	}
	vm_key | cmp -s - "$prefix/vm/key" && return
	say "unpacking a kernel for tests/vm"
	mkdir -p "$prefix"
	prefix=$(cd "$prefix" && pwd)
	work=$(mktemp -d "$prefix/tmp.XXXXXX")
	build_vm > "$work/log" 2>&1 || { cat "$work/log" >&2
		die "the guest of tests/vm could not be made"; }
	rm -rf "$prefix/vm"
	mv "$work/vm" "$prefix/vm"
	rm -rf "$work"
}

# shellcheck disable=SC2086
install_packages $build_packages $run_packages $test_packages
install_fuse
install_vm
