#!/bin/sh
# Mechanical style: what a reader should not have to look for. Prints what is
# wrong as FILE:LINE: text and a count at the end.
set -u
export LC_ALL=C

cd "$(dirname "$0")/.." || exit 1
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
passed=0 failed=0

sources=$(find common blockd logd metad fuse tools tests bench \
	-name '*.[ch]' 2>/dev/null | sort)
headers=$(echo "$sources" | grep '\.h$')
c_files=$(echo "$sources" | grep '\.c$')

# A check writes what is wrong to stdout; nothing means passed.
check() {
	name=$1
	shift
	"$@" > "$out"
	if [ -s "$out" ]; then
		failed=$((failed + 1))
		echo "not ok - $name"
		sed 's/^/  /' "$out"
	else
		passed=$((passed + 1))
		echo "ok - $name"
	fi
}

# Columns with tabs of 8; a byte that continues a UTF-8 character has none. A
# line of one word cannot be broken.
widths() {
	# shellcheck disable=SC2086
	awk '{
		col = 0
		line = $0
		gsub(/[\200-\277]/, "", line)
		while ((i = index(line, "\t")) > 0) {
			col += i - 1
			col += 8 - col % 8
			line = substr(line, i + 1)
		}
		col += length(line)
		if (col > 80 && NF > 1)
			print FILENAME ":" FNR ": " col " columns"
	}' $sources
}

blanks() {
	# shellcheck disable=SC2086
	grep -nE '[ 	]+$' $sources | sed 's/:[^:]*$/: blanks at the end/'
	# shellcheck disable=SC2086
	grep -nE '^ +	' $sources | sed 's/:[^:]*$/: blanks before a tab/'
}

# Functions: from "{" to "}" in the first column. More than 60 lines are told,
# more than 120 are refused; main() of a test is a list.
lengths() {
	# shellcheck disable=SC2086
	awk -v limit="$1" '
	FNR == 1 { start = 0 }
	/^[a-zA-Z_].*\(/ { name = $0; sub(/\(.*/, "", name)
			   sub(/.*[ *]/, "", name) }
	/^{/ { start = FNR }
	/^}/ {
		if (start && FNR - start - 1 > limit && name != "main")
			print FILENAME ":" start ": " name "() has " \
				FNR - start - 1 " lines"
		start = 0
	}' $c_files
}

file_lengths() {
	# shellcheck disable=SC2086
	awk 'FNR == 1001 { print FILENAME ": more than 1000 lines" }' $sources
}

# One purpose, said in the first comment: of the file, or of the header that is
# read before it.
purposes() {
	for f in $sources; do
		case $(head -n 1 "$f") in
		"/*"*) continue ;;
		esac
		h=${f%.c}.h
		[ "$f" != "$h" ] && [ -e "$h" ] || echo "$f:1: says no purpose"
	done
}

# The first include of x.c is x.h, where there is one beside it, or a private
# header of its module, which includes that.
own_header_first() {
	for c in $c_files; do
		h=${c%.c}.h
		[ -e "$h" ] || continue
		first=$(grep -n -m 1 '^#include' "$c")
		case $first in
		*"\"$h\""* | *"\"${c%/*}/"*"_priv.h\""*) ;;
		*) echo "$c:${first%%:*}: does not include \"$h\" first" ;;
		esac
	done
}

# By path from the root, so that a name says where it lies; a program of its
# own below tests/integ may use its folder's.
include_paths() {
	# shellcheck disable=SC2086
	grep -n '^#include "' $sources | while IFS= read -r line; do
		path=${line#*\"}
		path=${path%%\"*}
		case $line in
		tests/integ/*/*) [ ! -e "$(dirname "${line%%:*}")/$path" ] ||
			continue ;;
		esac
		[ -e "$path" ] ||
			echo "${line%%#*} \"$path\" is not a path in the tree"
	done
}

guards() {
	for h in $headers; do
		want=$(basename "$h" | tr 'a-z.-' 'A-Z__')
		grep -qE "^#ifndef ([A-Z_]+_)?$want\$" "$h" ||
			echo "$h:1: the guard does not end in $want"
	done
}

# The makefile takes these folders' files by pattern.
all_built() {
	for c in $c_files; do
		case $c in
		common/*/* | blockd/*/* | logd/*/* | metad/*/*) ;;
		common/*.c | blockd/*.c | logd/*.c | metad/*.c) continue ;;
		fuse/core/*/*) ;;
		fuse/core/*.c) continue ;;
		fuse/*/*) ;;
		fuse/*.c | tools/hailctl/*.c | bench/*.c) continue ;;
		tests/unit/test_*.c | tests/sim/*.c) continue ;;
		tests/fuzz/fuzz_*.c) continue ;;
		tests/lib/*.c | tests/integ/*.c | tests/power/*.c) continue ;;
		tests/vm/*.c) continue ;;
		esac
		echo "$c:1: no rule of the makefile builds it"
	done
}

# The makefile makes headers' checks by pattern, too.
headers_checked() {
	for h in $headers; do
		case $h in
		tests/integ/posix/* | tests/integ/preload/*) continue ;;
		tools/hailctl/*/* | tests/*/*/* | fuse/core/*/*) ;;
		tools/hailctl/* | tests/*/* | fuse/core/*) continue ;;
		common/*/* | blockd/*/* | logd/*/* | metad/*/* | fuse/*/*) ;;
		common/* | blockd/* | logd/* | metad/* | fuse/*) continue ;;
		esac
		echo "$h:1: make hdr-check does not look at it"
	done
}

# What a script of tests/integ does not run is never run: make takes the other
# kinds by pattern. (blockd_x.c: t_blockd.sh, which names x.)
programs_run() {
	for c in tests/integ/*.c tests/integ/preload/*.c tests/power/*.c; do
		program=$(basename "$c" .c)
		by=tests/integ/t_${program%%_*}.sh
		# shellcheck disable=SC2046
		grep -qw -e "$program" \
			$(ls tests/integ/*.sh tests/integ/*.c | grep -vx "$c") ||
			grep -sv '^#' "$by" | grep -qw "${program#*_}" ||
			echo "$c:1: nothing runs it"
	done
	for s in tests/integ/*.sh; do
		case ${s##*/} in
		t_* | long_* | run.sh) continue ;;
		esac
		# shellcheck disable=SC2046
		grep -qF "${s##*/}" $(ls tests/integ/*.sh | grep -vx "$s") ||
			echo "$s:1: nothing runs it"
	done
}

# Handles that an exec() would give away. (FILEs: "e".)
cloexec() {
	for c in $(echo "$c_files" | grep -v '^tests/\|^bench/'); do
		awk '
		/(^|[^a-z_>.])(open|openat|socket|accept4|pipe2|eventfd|timerfd_create|memfd_create|epoll_create1)\([^)]/ {
			text = $0; at = FNR
			while (text !~ /;/ && (getline line) > 0)
				text = text line
			if (text !~ /CLOEXEC|flags/ && text !~ /^ ?\*/)
				print FILENAME ":" at ": without CLOEXEC"
		}
		/[^a-z_](accept|pipe|dup|epoll_create)\(/ {
			print FILENAME ":" FNR ": a call without CLOEXEC"
		}
		/fopen\(/ && !/, "[rwa]+e"\)/ {
			print FILENAME ":" FNR ": fopen() without e"
		}' "$c"
	done
}

# Assertions are there in every build, but nothing hangs on them.
assertions() {
	# shellcheck disable=SC2086
	grep -nE '(^|[^_a-z])assert\([^;]*(\+\+|--|[^=!<>]=[^=])' $c_files |
		sed 's/:[^:]*$/: an assertion that changes something/'
}

# test_a_b.c tests module a_b, or a part of module a.
unit_tests_have_modules() {
	for t in tests/unit/*.c; do
		[ -e "$t" ] || continue
		module=$(basename "$t" .c)
		module=${module#test_}
		while :; do
			found=$(find common blockd logd metad fuse tools tests/lib \
				-name "$module.[ch]" | head -n 1)
			[ -z "$found" ] || break
			case $module in
			*_*) module=${module%_*} ;;
			*) break ;;
			esac
		done
		[ -n "$found" ] || echo "$t:1: tests no module of that name"
	done
}

# All folders' libraries are linked into one test, so their global names must
# differ. Looks at what was built last; nothing built, nothing found.
names_differ() {
	for lib in common blockd logd metad hailfs; do
		nm -g --defined-only build/release/lib/lib$lib.a 2>/dev/null |
			awk -v lib=$lib 'NF == 3 { print $3, lib }'
	done | sort -u | awk '
	{ count[$1]++; where[$1] = where[$1] " " $2 }
	END {
		for (name in count)
			if (count[name] > 1)
				print name "() is global in" where[name]
	}'
}

messages_listed() {
	grep -ho 'WIRE_MESSAGE([a-z_]*, [A-Z_]*_FIELDS)' common/wire_[ablm]*.h \
		metad/sm.h | sed 's/WIRE_MESSAGE(\([a-z_]*\),.*/\1/' |
	while read -r name; do
		grep -q "M($name, " tests/lib/wire_list.h ||
			echo "tests/lib/wire_list.h:1: lacks $name"
	done
}

# tests/mutants.sh takes long; that its patches fit can be seen at once.
mutants_apply() {
	command -v patch >/dev/null || return 0
	for p in tests/mutants/*.patch; do
		patch -p1 -s -f --dry-run < "$p" >/dev/null 2>&1 ||
			echo "$p:1: does not apply"
	done
}

# Paths of the machines this was written on, and marks of unfinished work.
no_leftovers() {
	files=$(find . -type f -not -path './.git/*' -not -path './build/*' \
		-not -path './.deps/*')
	# shellcheck disable=SC2086
	grep -nIE '/work/[m]ain|/work/[s]hared|/tmp/[w]/' $files |
		sed 's/:[^:]*$/: a path of a development machine/'
	# shellcheck disable=SC2086
	grep -nwE 'TO[D]O|FIX[M]E|X[X]X' $sources |
		sed 's/:[^:]*$/: unfinished/'
}

check "lines have at most 80 columns" widths
check "no stray blanks" blanks
check "functions have at most 120 lines" lengths 120
check "files have at most 1000 lines" file_lengths
check "files say their purpose" purposes
check "a file includes its own header first" own_header_first
check "includes are paths from the root" include_paths
check "headers are guarded by their name" guards
check "every .c file is built" all_built
check "every header is checked by itself" headers_checked
check "every program of the tests is run" programs_run
check "every unit test names a module" unit_tests_have_modules
check "handles are not inherited" cloexec
check "assertions change nothing" assertions
check "global names differ" names_differ
check "every message is in the tests' list" messages_listed
check "every mutant applies" mutants_apply
check "nothing is left over" no_leftovers

lengths 60 > "$out"
if [ -s "$out" ]; then
	echo "# longer than 60 lines:"
	sed 's/^/#   /' "$out"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
