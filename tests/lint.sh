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
check "clang-tidy" bash -c 'printf "%s\n" "$@" | xargs -P "$(nproc)" -n 8 clang-tidy --quiet --warnings-as-errors="*" \
    --checks="-*,bugprone-*,-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions,-bugprone-implicit-widening-of-multiplication-result,-bugprone-reserved-identifier,-bugprone-assignment-in-if-condition,-bugprone-suspicious-include,-bugprone-branch-clone,clang-analyzer-core.*,clang-analyzer-unix.*,-clang-analyzer-unix.Stream" \
    --extra-arg=-std=gnu17 --extra-arg=-Isrc --extra-arg=-I. 2>/dev/null -- ' _ "${sources[@]}"
check "shellcheck" shellcheck -S warning "${scripts[@]}"
check "no trailing blanks" bash -c '! git grep -nIE "[[:blank:]]+$" -- "*.c" "*.h" "*.cu" "*.cuh" "*.sh" Makefile'

echo "$passed passed, $failed failed"
[ $failed = 0 ]
