#!/bin/sh
# Manual pages against programs: each option that --help shows is in the page,
# each that the page has is in --help, and mandoc has nothing to say.
#
#	tests/man.sh BINDIR
set -u
export LC_ALL=C

cd "$(dirname "$0")/.." || exit 1
bin=${1:-build/bin}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

verdict() { # NAME FILE: what is wrong; empty means passed
	if [ -s "$2" ]; then
		failed=$((failed + 1))
		echo "not ok - $1"
		sed 's/^/  /' "$2"
	else
		passed=$((passed + 1))
		echo "ok - $1"
	fi
}

# Long options, and words before "=" or blanks of a table of mount options.
help_options() {
	sed -n 's/^ *\(-[a-zA-Z], *\)\{0,1\}--\([a-z][a-z0-9-]*\).*/\2/p' "$1"
}

page_options() {
	grep '^\.It Fl' "$1" | grep -o 'Fl -[a-z][a-z0-9-]*' |
		sed 's/Fl -//'
}

short_options() {
	sed -n 's/^ *-\([a-zA-Z]\)[, ].*/\1/p' "$1"
}

page_short_options() {
	grep '^\.It Fl' "$1" | grep -o 'Fl [a-zA-Z]\b' | sed 's/Fl //'
}

# The last three lines of that table have several words and no text.
mount_options() {
	sed -n '/^Mount options/,/^$/p' "$1" |
		sed -n 's/^  \([a-z].*\)/\1/p' | sed 's/   .*//; s/=.*//' |
		tr ' ' '\n'
}

page_mount_options() {
	sed -n '/^\.Ss Mount options/,/^\.Sh/s/^\.It Cm \([^|]*\).*/\1/p' "$1" |
		sed 's/ Ns = .*//; s/,//g' | tr ' ' '\n'
}

# "name default" of what has one, in --help and in a page: numbers and words.
help_defaults() {
	sed '/^Mount options/,$d' "$1" | tr '\n' ' ' | sed 's/  */ /g
		s/ \(-[a-zA-Z], \)\{0,1\}--/\n--/g' |
		sed -n 's/^--\([a-z-]*\) .*(default \([^)]*\)).*/\1 \2/p'
	sed -n 's/^  \([a-z_]*\)=.*(default \([^)]*\))$/\1 \2/p' "$1"
}

for program in "$bin"/*; do
	name=$(basename "$program")
	page=$(ls man/"$name".[18] 2>/dev/null)
	"$program" --help > "$work/help" 2>&1
	: > "$work/bad"
	if [ -z "$page" ]; then
		echo "man/$name.8 does not exist" > "$work/bad"
		verdict "$name has a page" "$work/bad"
		continue
	fi
	for o in $(help_options "$work/help"); do
		grep -q -- "Fl -$o\b" "$page" || echo "$page: lacks --$o"
	done >> "$work/bad"
	for o in $(short_options "$work/help"); do
		page_short_options "$page" | grep -qx "$o" ||
			echo "$page: lacks -$o"
	done >> "$work/bad"
	for o in $(mount_options "$work/help"); do
		grep -qE -- "(Cm|,) $o\b" "$page" || echo "$page: lacks -o $o"
	done >> "$work/bad"
	verdict "options of $name are in its page" "$work/bad"
	: > "$work/bad"
	for o in $(page_options "$page"); do
		# --no-NAME exists for each flag; --help has NAME.
		grep -q -- "--${o#no-}\b" "$work/help" ||
			echo "$page: --$o does not exist"
	done >> "$work/bad"
	for o in $(page_short_options "$page"); do
		short_options "$work/help" | grep -qx "$o" ||
			[ "$name-$o" = hailfs-o ] || # "Mount options (-o):"
			echo "$page: -$o does not exist"
	done >> "$work/bad"
	for o in $(page_mount_options "$page"); do
		mount_options "$work/help" | grep -qx -- "$o" ||
			echo "$page: -o $o does not exist"
	done >> "$work/bad"
	verdict "options in $page exist" "$work/bad"
	# The text of an option, up to the next one, has its default.
	help_defaults "$work/help" | while read -r o value; do
		[ "$o" != id ] || continue # which must be given
		awk -v a="Fl -$o" -v b="Cm $o" '
		/^\.It / { on = index($0 " ", a " ") || index($0 " ", b " ") }
		on { print }' "$page" | tr '\n' ' ' | grep -Eq \
			"[Dd]efault:? $value\b|\b$value ?, the default" ||
			echo "$page: does not tell the default of $o, $value"
	done > "$work/bad"
	verdict "defaults of $name are in its page" "$work/bad"
done

# What each program's page has.
for page in man/*.[18]; do
	grep '^\.Sh ' "$page" | sed 's/^\.Sh //' > "$work/sections"
	for s in NAME SYNOPSIS DESCRIPTION FILES "EXIT STATUS" EXAMPLES \
		DIAGNOSTICS "SEE ALSO"; do
		grep -qx "$s" "$work/sections" || echo "$page: no $s"
	done
done > "$work/bad"
verdict "programs' pages have all sections" "$work/bad"

# Commands: their words are .Cm in the page, their arguments .Ar.
"$bin/hailctl" --help | sed -n '/^Commands/,/^$/s/^  \([a-z].*\)/\1/p' |
	sed 's/   *.*//' > "$work/commands"
while read -r command; do
	words=$(echo "$command" | sed 's/ [A-Z][A-Z ]*$//')
	grep -q "^\.It Cm $words\( \|\$\)" man/hailctl.8 ||
		echo "man/hailctl.8: lacks $command"
done < "$work/commands" > "$work/bad"
grep '^\.It Cm' man/hailctl.8 | sed 's/^\.It Cm //; s/ \(Ar\|Op\) .*//' |
while read -r words; do
	grep -q "^$words\( \|\$\)" "$work/commands" ||
		echo "man/hailctl.8: there is no $words"
done >> "$work/bad"
[ -s "$work/commands" ] || echo "hailctl --help lists none" >> "$work/bad"
verdict "commands of hailctl are in its page" "$work/bad"

# The cluster file: the words that its reader knows are those of its page.
page=man/hailfs.conf.5
sed -n 's/.*cmp(\(verb\|key\), "\([a-z]*\)".*/\2/p' common/conf.c |
	sort -u > "$work/words"
sed -n 's/^\.It Cm \([a-z]*\).*/\1/p' $page | sort -u > "$work/told"
comm -23 "$work/words" "$work/told" | sed "s|^|$page: lacks |" > "$work/bad"
comm -13 "$work/words" "$work/told" |
	sed "s|^|$page: there is no |" >> "$work/bad"
[ -s "$work/words" ] || echo "common/conf.c: no words found" >> "$work/bad"
verdict "words of the cluster file are in its page" "$work/bad"

for page in man/*.[1-8]; do
	mandoc -Tlint -Wwarning "$page" > "$work/bad" 2>&1
	verdict "mandoc reads $page" "$work/bad"
done

# Pages that are referred to as ours are there.
for page in man/*.[1-8]; do
	grep -o '^\.Xr hail[a-z.-]* [1-8]' "$page" |
	while read -r _ name section; do
		[ -e "man/$name.$section" ] ||
			echo "$page: refers to $name($section)"
	done
done | sort -u > "$work/bad"
verdict "pages referred to exist" "$work/bad"

# Each test that the guarantees name is there, and each mutant is named.
page=man/hailfs-guarantees.7
tests_named() {
	sed -n '/^\.Pq /,/[^\\]$/p' $page | tr -s ' ,;\\' '\n' |
		grep -E '^[a-z][a-z]*_[a-z_]*$|^excl$|^orphan$|^noreplace$' |
		sort -u
}
for name in $(tests_named); do
	[ -e tests/unit/"$name".c ] || [ -e tests/integ/"$name".sh ] ||
		[ -e tests/integ/"$name".c ] || [ -e tests/vm/"$name".sh ] ||
		[ -e tests/mutants/"$name".patch ] ||
		echo "$page: there is no $name"
done > "$work/bad"
for patch in tests/mutants/*.patch; do
	name=$(basename "$patch" .patch)
	grep -qw "$name" $page || echo "$page: does not name the mutant $name"
done >> "$work/bad"
for patch in tests/mutants/*.patch; do
	# shellcheck disable=SC2046
	set -- $(sed -n 's/^Test: //p' "$patch")
	[ -e "tests/${1:-}" ] || set -- "${1:-}.c" "$@"
	[ -f "tests/$1" ] || echo "$patch: there is no tests/$1"
	for name in "$@"; do
		case $name in
		*/*) ;;
		*) grep -qw "$name" "tests/$1" ||
			echo "$patch: there is no $name in tests/$1" ;;
		esac
	done
done >> "$work/bad"
verdict "tests that the guarantees and the mutants name exist" "$work/bad"

# Each promise names a test: each item of the table, up to "Not promised".
sed '/^\.Ss Not promised/,$d' $page | awk '
	function ends() { if (item && !named) print "no test: " item }
	/^\.It Sy/ { ends(); item = $0; named = 0 }
	/^\.Pq Pa / { named = 1 }
	END { ends(); if (!item) print "no guarantees" }' > "$work/bad"
verdict "each guarantee names a test" "$work/bad"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
