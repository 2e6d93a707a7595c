#!/bin/sh
# make check: builds everything and runs every test that is quick; with
# "long" also those that take minutes, or would on many seeds: some hours on
# two cores. Closes with "N passed, N failed".
set -u

cd "$(dirname "$0")/.." || exit 1
. tests/steps.sh

long=${1:-}
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
step check-rdma make -s check-rdma
if [ -n "$long" ]; then
	step mutants tests/mutants.sh
	step seeds tests/seeds.sh
	step integ-long env TEST_TIMEOUT=7200 tests/integ/run.sh -l long_
	# What ends within 300 s may take ten times as long there.
	export TEST_TIMEOUT=3000
	for flavour in asan tsan; do
		step "unit-$flavour" \
			make -s "$jobs" FLAVOUR=$flavour unit
		step "sim-$flavour" make -s "$jobs" FLAVOUR=$flavour sim
		step "integ-$flavour" tests/sanitized.sh $flavour
	done
	step fuzz-asan make -s "$jobs" FLAVOUR=asan fuzz
fi
finish
