#!/usr/bin/env bash
# Runs every fuzz target for SECONDS: tests/fuzz/run.sh SECONDS [NAME...].  New inputs and crashes go to build/.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build/fuzz-build}
seconds=$1
shift
passed=0 failed=0
for target in "$BUILD"/fuzz/fuzz_*; do
    name=$(basename "$target")
    name=${name#fuzz_}
    [ -f "tests/fuzz/fuzz_$name.c" ] || continue
    [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
    corpus=$BUILD/corpus/$name
    mkdir -p "$corpus" "$BUILD/crashes" "$BUILD/no-seeds"
    seeds=tests/fuzz/seeds/$name
    [ -d "$seeds" ] || seeds=$BUILD/no-seeds
    echo "fuzz: $name, $seconds s"
    if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$BUILD/crashes/$name-" "$corpus" "$seeds" >"$BUILD/$name.log" 2>&1; then
        passed=$((passed + 1))
        grep -a 'stat::number_of_executed_units' "$BUILD/$name.log"
    else
        failed=$((failed + 1))
        tail -30 "$BUILD/$name.log"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
