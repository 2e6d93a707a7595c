#!/bin/sh
# make check: builds everything and runs every test that is quick; with
# "long" also those that take minutes. Closes with "N passed, N failed".
set -u

cd "$(dirname "$0")/.." || exit 1
. tests/steps.sh

long=${1:-}
[ -z "$long" ] || export HAIL_LONG=1
jobs=-j$(nproc)

step build make -s "$jobs" all
step hdr-check make -s "$jobs" hdr-check
step build-tests make -s "$jobs" tests
step tidy make -s tidy
step man-check make -s man-check
step unit make -s unit
step sim make -s sim
step fuzz make -s fuzz
[ ! -x tests/integ/run.sh ] || step integ make -s integ
if [ -n "$long" ]; then
	[ ! -x tests/power/run.sh ] || step power tests/power/run.sh
	step mutants tests/mutants.sh
	step integ-long env TEST_TIMEOUT=7200 tests/integ/run.sh -l long_
	for flavour in asan tsan; do
		step "unit-$flavour" \
			make -s "$jobs" FLAVOUR=$flavour unit
		step "sim-$flavour" make -s "$jobs" FLAVOUR=$flavour sim
		step "integ-$flavour" tests/sanitized.sh $flavour
	done
fi
finish
