#!/usr/bin/env bash
# Format check, cppcheck and clang-tidy over the tracked sources; ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 skipped=0

check() { # check NAME COMMAND...
    local name=$1 log
    shift
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "lint: $name: ok"
    else
        failed=$((failed + 1))
        echo "lint: $name: failed"
        head -60 "$log"
    fi
    rm -f "$log"
}

mapfile -t sources < <(git ls-files 'src/*.c')
mapfile -t all_files < <(git ls-files '*.c' '*.h')
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)

# Versions of clang-format differ in what they write; the sources are in the form of this one.
format_major=14
formatter=$(command -v "clang-format-$format_major" || command -v clang-format)
found=$("$formatter" --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
if [ "$found" = "$format_major" ]; then
    check "clang-format" "$formatter" --dry-run -Werror "${all_files[@]}"
else
    echo "lint: clang-format: skipped, it needs version $format_major and this is $found"
    skipped=1
fi
check "cppcheck" cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 -j "$(nproc)" -I src \
    --enable=warning,performance,portability --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches \
    --suppress=checkersReport --suppress=arrayIndexThenCheck "${sources[@]}"
tidy() { # what it says of system headers is not asked for
    printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 8 clang-tidy --quiet --extra-arg=-std=gnu17 \
        --extra-arg=-Isrc --extra-arg=-I. --extra-arg=-DUTF8PROC_EXPORTS 2>/dev/null
}
check "clang-tidy" tidy
check "shellcheck" shellcheck -x -S warning "${scripts[@]}"
check "no trailing blanks" bash -c '! git grep -nIE "[[:blank:]]+$" -- "*.c" "*.h" "*.cu" "*.cuh" "*.sh" Makefile'

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
