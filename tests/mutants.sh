#!/bin/bash
# Takes one rule at a time out of the product; the test named in the patch
# must then fail. Prints TAP and "N passed, N failed".
#
#	tests/mutants.sh [NAME...]	of tests/mutants/NAME.patch; default all
#
# MUTANT_FLAVOUR, MUTANT_CFLAGS: how they are built (release, -O0).
set -u

cd "$(dirname "$0")/.." || exit 1
top=$PWD
flavour=${MUTANT_FLAVOUR:-release}
scratch=$(mktemp -d) || exit 1
chmod 755 "$scratch" # tests run programs as other users
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

[ $# -gt 0 ] || set -- $(cd tests/mutants && ls *.patch | sed 's/\.patch$//')
git ls-files -z | tar -c --null -T - --ignore-failed-read |
	tar -x -C "$scratch" || exit 1
cd "$scratch" || exit 1

# Builds what one test needs, with what make says on failure. Objects stay
# from one mutant to the next: only what a patch touches is built again.
build() {
	local targets=(build/"$flavour"/tests/"${1%% *}")
	case $1 in
	*.sh) targets=(all tests) ;;
	integ/*)
		targets+=("$bin/hail-blockd" "$bin/hail-logd"
			"$bin/hail-metad")
		for so in tests/integ/preload/*.c; do
			so=build/$flavour/${so%.c}.so
			targets+=("$so")
		done
		;;
	esac
	make -j2 FLAVOUR="$flavour" CFLAGS="${MUTANT_CFLAGS--O0}" \
		DEPS_PREFIX="$top/.deps" "${targets[@]}" > "$scratch/log" 2>&1
}

bin=build/bin
[ "$flavour" = release ] || bin=build/$flavour/bin

run() {
	if [ "${1%.sh}" != "$1" ]; then
		FLAVOUR=$flavour tests/timed.sh 300 bash "tests/$1" \
			> "$scratch/out" 2>&1
		return
	fi
	# In a subshell: bash tells of programs that abort. Split into words:
	# a program and its tests.
	# shellcheck disable=SC2086
	(BIN=$bin exec timeout -k 5 120 "build/$flavour/tests/"$1) \
		> "$scratch/out" 2>&1
}

passed=0 failed=0
verdict() { # ok|not TEXT
	if [ "$1" = ok ]; then
		passed=$((passed + 1))
		echo "ok - $2"
	else
		failed=$((failed + 1))
		echo "not ok - $2"
	fi
}

declare -A sound
# A test that fails anyway shows nothing.
is_sound() {
	if [ -z "${sound[$1]:-}" ]; then
		sound[$1]=no
		build "$1" && run "$1" && sound[$1]=yes
		[ $? != 77 ] || sound[$1]=skip
	fi
	[ "${sound[$1]}" != no ]
}

echo "1..$#"
for name in "$@"; do
	patch=$top/tests/mutants/$name.patch
	test=$(sed -n 's/^Test: //p' "$patch")
	if ! is_sound "$test"; then
		verdict not "$name: $test does not pass as it is"
		tail -n 5 "$scratch/log" "$scratch/out" | sed 's/^/# /'
		continue
	fi
	if [ "${sound[$test]}" = skip ]; then
		verdict ok "$name: $test # SKIP"
		continue
	fi
	if ! patch -p1 -s --no-backup-if-mismatch < "$patch" \
		> "$scratch/log" 2>&1; then
		verdict not "$name: the patch does not apply"
		sed 's/^/# /' "$scratch/log"
		git -C "$top" ls-files -z '*.c' | tar -c -C "$top" --null -T - |
			tar -x -C "$scratch"
		continue
	fi
	if ! build "$test"; then
		verdict not "$name: does not build"
		tail -n 5 "$scratch/log" | sed 's/^/# /'
	elif run "$test" || [ $? = 77 ]; then
		verdict not "$name: $test passes without the rule"
	else
		verdict ok "$name: seen by $test"
	fi
	patch -R -p1 -s --no-backup-if-mismatch < "$patch"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
