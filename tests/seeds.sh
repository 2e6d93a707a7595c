#!/bin/sh
# The random tests on more seeds than `make check` gives them, ten to thirty
# times. SEEDS scales it (default 100); FUZZ_SEED=N is another series of inputs
# for the decoders.
set -u

cd "$(dirname "$0")/.." || exit 1
seeds=${SEEDS:-100}
tests=build/${FLAVOUR:-release}/tests
HAIL_SEEDS=$((seeds * 5))
HAILFS_SEEDS=$((seeds * 2))
SHORT_SEEDS=$seeds
SM_STEPS=$((seeds * 100))
FUZZ_TIMES=$((seeds / 5))
LOG_SEEDS=$((seeds * 1000))
export HAIL_SEEDS HAILFS_SEEDS SHORT_SEEDS SM_STEPS FUZZ_TIMES LOG_SEEDS
export TEST_TIMEOUT="${TEST_TIMEOUT:-3600}"
exec tests/run.sh "$tests"/sim/sim_cluster "$tests"/sim/sim_log \
	"$tests"/unit/test_store_random "$tests"/unit/test_core_short \
	"$tests"/unit/test_sm_model "$tests"/fuzz/fuzz_*
