#!/bin/sh
# Line coverage by file, from what a FLAVOUR=cov build has left.
#
#	tests/cov.sh OBJDIR
set -u

cd "$(dirname "$0")/.." || exit 1
# gcov -n writes nothing; it prints "File 'x'" and "Lines executed:N% of M".
find "$1" -name '*.gcda' -not -path '*/tests/*' -print0 |
	xargs -0 -r gcov -n 2>/dev/null |
awk '
/^File / { file = $2; gsub(/\047/, "", file) }
/^Lines executed:/ && file ~ /\.c$/ && file !~ /^(\/|tests\/)/ {
	split($0, part, /[:% ]+/)
	share[file] = part[3]
	lines[file] = part[5]
	file = ""
}
END {
	sort = "sort -k4"
	for (f in lines) {
		printf "%6.1f%% of %5d  %s\n", share[f], lines[f], f | sort
		all += lines[f]
		hit += share[f] * lines[f] / 100
	}
	close(sort)
	if (all > 0)
		printf "%6.1f%% of %5d  all\n", 100 * hit / all, all
}'
