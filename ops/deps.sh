#!/bin/sh
# Installs what a goal needs, without questions: deps.sh [build|test|lint] (lint: everything).  Debian 12 and 13,
# Ubuntu 24.04.  Does nothing, quickly, where all is there.  Not root: uses sudo.
set -eu

packages="gcc g++ make pkg-config curl ca-certificates librdkafka-dev libavro-dev libconfig-dev libpcre2-dev
    libutf8proc-dev libjansson-dev libmicrohttpd-dev libcurl4-openssl-dev libopenblas-dev"
case ${1:-lint} in
build) ;;
test) packages="$packages libcriterion-dev" ;;
lint) packages="$packages libcriterion-dev clang clang-tidy clang-format cppcheck shellcheck" ;;
*)
    echo "deps: unknown goal '$1' (build, test, lint)" >&2
    exit 2
    ;;
esac

missing() { # prints those of its arguments that are not installed
    for p in "$@"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || printf ' %s' "$p"
    done
}

install() { # install PACKAGE...: what is missing of them
    todo=$(missing "$@")
    [ -n "$todo" ] || return 0
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    echo "deps: installing$todo (a minute or more; nothing is printed meanwhile)"
    log=$(mktemp)
    # shellcheck disable=SC2086 # a list of words
    if ! { $as_root apt-get update -qq && $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $todo; } >"$log" 2>&1; then
        tail -20 "$log" >&2
        echo "deps: apt-get failed (log: $log)" >&2
        exit 1
    fi
    rm -f "$log"
}

if ! command -v apt-get >/dev/null; then
    echo "deps: no apt-get here; install these by hand:" $packages >&2
    exit 0
fi
# shellcheck disable=SC2086
install $packages
if [ "${1:-lint}" = lint ]; then # clang's sanitizer and fuzzer runtime is packaged by version
    install "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
fi
