#!/usr/bin/env bash
# Format check, cppcheck and clang-tidy over the tracked sources; ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0

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

check "clang-format" clang-format --dry-run -Werror "${all_files[@]}"
check "cppcheck" cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 -j "$(nproc)" -I src \
    --enable=warning,performance,portability --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches \
    --suppress=checkersReport "${sources[@]}"
tidy() { # what it says of system headers is not asked for
    printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 8 clang-tidy --quiet --extra-arg=-std=gnu17 \
        --extra-arg=-Isrc --extra-arg=-I. --extra-arg=-DUTF8PROC_EXPORTS 2>/dev/null
}
check "clang-tidy" tidy
check "shellcheck" shellcheck -x -S warning "${scripts[@]}"
check "no trailing blanks" bash -c '! git grep -nIE "[[:blank:]]+$" -- "*.c" "*.h" "*.cu" "*.cuh" "*.sh" Makefile'

echo "$passed passed, $failed failed"
[ $failed = 0 ]
