#!/bin/bash
# git and make of two mounts in one tree at the same time (-o shared).
. "$(dirname "$0")/lib.sh"
need_root
need git make gcc
B=$T/b
mkdir "$B"
test_cleanup() { umount -l "$B" 2>/dev/null; }
cluster_up -o shared
mount_at b "$B"

export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t
export GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
git -c init.defaultBranch=main init -q "$MNT/repo"
# Commits of both in one repository: who finds its index or branch locked comes
# again.
commits() { # MOUNT NAME COUNT
	for i in $(seq "$3"); do
		echo "$2 $i" >"$1/repo/$2$i"
		until git -C "$1/repo" add "$2$i" 2>>"$T/git$2" &&
			git -C "$1/repo" commit -qm "$2 $i" -- "$2$i" \
				>>"$T/git$2" 2>&1; do
			grep -v -e 'index.lock' -e 'cannot lock ref' \
				-e 'Another git process' "$T/git$2" |
				grep -e '^fatal' -e '^error' && return 1
			sleep 0.0"$((RANDOM % 9 + 1))"
		done
	done
}
commits "$MNT" a 25 &
wa=$!
commits "$B" b 25 &
wb=$!
wait $wa || { tail "$T/gita"; fail "git on one mount"; }
wait $wb || { tail "$T/gitb"; fail "git on the other mount"; }
for m in "$MNT" "$B"; do
	git -C "$m/repo" fsck --strict >"$T/fsck" 2>&1 ||
		{ cat "$T/fsck"; fail "git fsck"; }
	git -C "$m/repo" log --format=%s | sort >"$T/log"
	(for i in $(seq 25); do printf 'a %d\nb %d\n' "$i" "$i"; done) | sort |
		cmp - "$T/log" || fail "commits are missing or doubled"
	git -C "$m/repo" status --porcelain >"$T/status"
	[ ! -s "$T/status" ] || { cat "$T/status"; fail "git status"; }
done
git -C "$B/repo" gc -q || fail "gc"
git -C "$MNT/repo" fsck --strict >"$T/fsck" 2>&1 ||
	{ cat "$T/fsck"; fail "git fsck after gc"; }

# Each half of a program is built on one mount, with headers that the other one
# makes; then each mount links all.
mkdir "$MNT/src"
for i in $(seq 24); do
	echo "#include \"made$i.h\"
int f$i(void) { return N$i; }" >"$MNT/src/f$i.c"
done
cat >"$MNT/src/Makefile" <<'M'
a := $(shell seq 1 12)
b := $(shell seq 13 24)
all: $(foreach i,$(a) $(b),f$i.o)
half-a: $(foreach i,$(a),f$i.o)
half-b: $(foreach i,$(b),f$i.o)
$(foreach i,$(a) $(b),f$i.o): f%.o: f%.c made%.h
	gcc -O1 -c -o $@ $<
$(foreach i,$(a) $(b),made$i.h): made%.h:
	echo "#define N$* $*" >$@
M
for round in 1 2 3; do
	make -s -j2 -C "$MNT/src" half-a >"$T/ma" 2>&1 &
	wa=$!
	make -s -j2 -C "$B/src" half-b >"$T/mb" 2>&1 &
	wb=$!
	wait $wa || { cat "$T/ma"; fail "make on one mount"; }
	wait $wb || { cat "$T/mb"; fail "make on the other mount"; }
	# Neither has anything left to do: both see the other's times.
	for m in "$MNT" "$B"; do
		make -sq -C "$m/src" all || fail "make finds something to do"
	done
	(cd "$B/src" && {
		echo 'int main(void) { int n = 0;'
		for i in $(seq 24); do echo "extern int f$i(void); n += f$i();"
		done
		echo 'return n != 300; }'
	} >"$T/main.c" && gcc -o prog "$T/main.c" f*.o) || fail "link"
	"$MNT/src/prog" || fail "the program on the other mount"
	rm "$MNT"/src/*.o "$MNT"/src/made*.h "$B/src/prog"
done
p=$(cat "$T/b.pid")
umount "$B"
within 30 gone "$p" || fail "it did not end"
fsck_clean
