#!/usr/bin/env bash
# Runs the built tests and ends with "N passed, N failed[, N skipped]": run.sh [unit] [golden] [integration]
# (default: all).  BUILD names the build folder (build).  Exit code 1 when anything failed.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
kinds=${*:-unit golden integration}
logs=$BUILD/test-logs
passed=0 failed=0 skipped=0
failures=
mkdir -p "$logs"

count() { # count PASSED FAILED SKIPPED
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

note_failure() { # note_failure NAME LOG
    failures="$failures $1"
    echo "--- $1 failed; the end of $2:"
    tail -40 "$2"
}

# leaks_ours LOG: did the leak sanitizer, which speaks at a test's exit and fails nothing, see memory of ours?
# (Criterion's own runner leaks a few bytes.)
leaks_ours() {
    grep -aq 'ERROR: LeakSanitizer' "$1" && grep -aqE '^ +#[0-9]+ .* (src|tests)/[a-z_/]+\.c:[0-9]+' "$1"
}

unit() {
    local program name log line tested passing
    for program in "$BUILD"/tests/unit/*/test_*; do
        [ -x "$program" ] && [ -f "tests/unit/${program#"$BUILD"/tests/unit/}.c" ] || continue
        name=${program#"$BUILD"/tests/}
        log=$logs/${name//\//-}.log
        timeout -k 5 "${TEST_TIMEOUT:-300}" "$program" --jobs "$(nproc)" >"$log" 2>&1
        local rc=$?
        grep -a '^SKIP' "$log"
        line=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -a 'Synthesis: Tested: ' | tail -1)
        tested=$(sed -n 's/.*Tested: \([0-9]*\).*/\1/p' <<<"$line")
        passing=$(sed -n 's/.*Passing: \([0-9]*\).*/\1/p' <<<"$line")
        if [ -z "$tested" ]; then
            count 0 1 0
            note_failure "$name (exit code $rc)" "$log"
        else
            count "$passing" $((tested - passing)) "$(grep -ac '^SKIP' "$log")"
            printf '%-44s %3d of %d passed\n' "$name" "$passing" "$tested"
            if [ "$passing" != "$tested" ]; then note_failure "$name" "$log"; fi
            if leaks_ours "$log"; then
                count 0 1 0
                note_failure "$name (leaks)" "$log"
            fi
        fi
    done
}

golden() {
    local dir log
    for dir in tests/golden/*/; do
        [ -f "$dir/expected.json" ] || continue
        log=$logs/golden-$(basename "$dir").log
        if timeout -k 5 300 "$BUILD/golden" "$dir" >"$log" 2>&1; then
            count 1 0 0
            printf '%-44s passed\n' "golden $(basename "$dir")"
        else
            count 0 1 0
            note_failure "golden $dir" "$log"
        fi
    done
}

# A script prints what it checks; exit code 77: skipped, its last line says why.
integration() {
    local script name log
    for script in tests/integration/test_*.sh; do
        [ -e "$script" ] || continue
        name=$(basename "$script" .sh)
        log=$logs/integration-$name.log
        BUILD=$BUILD timeout -k 5 900 bash "$script" >"$log" 2>&1
        local rc=$?
        local ok
        ok=$(grep -ac '^ok ' "$log")
        if [ $rc = 77 ]; then
            count 0 0 1
            printf '%-44s skipped: %s\n' "$name" "$(tail -1 "$log")"
        elif [ $rc = 0 ] && [ "$ok" -gt 0 ]; then
            count "$ok" 0 0
            printf '%-44s %3d of %d passed\n' "$name" "$ok" "$ok"
        else
            count "$ok" "$(grep -ac '^not ok ' "$log" | sed 's/^0$/1/')" 0
            note_failure "$name (exit code $rc)" "$log"
        fi
    done
}

for kind in $kinds; do
    case $kind in
    unit | golden | integration) $kind ;;
    *)
        echo "run.sh: unknown kind '$kind' (unit, golden, integration)" >&2
        exit 2
        ;;
    esac
done

[ -z "$failures" ] || printf 'failed:%s\n' "$failures"
echo "$passed passed, $failed failed, $skipped skipped"
[ $((passed + failed)) -gt 0 ] && [ $failed = 0 ]
