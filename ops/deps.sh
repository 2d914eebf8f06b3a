#!/bin/sh
# Installs what a goal needs, without questions: deps.sh [build|test|lint].  Debian 12 and 13, Ubuntu 24.04.
# Does nothing, quickly, where everything is there.  Not root: uses sudo.
set -eu

build="gcc g++ make pkg-config curl ca-certificates librdkafka-dev libavro-dev libconfig-dev libpcre2-dev libutf8proc-dev \
    libjansson-dev libmicrohttpd-dev libcurl4-openssl-dev libopenblas-dev"
test="$build libcriterion-dev"
lint="$test clang clang-tidy clang-format cppcheck"
packages=$(eval "echo \$${1:-lint}")

missing=
for p in $packages; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "deps: no apt-get here; please install:$missing" >&2
    exit 1
fi
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
echo "deps: installing$missing"
log=$(mktemp)
if ! { $as_root apt-get update -qq && $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -20 "$log" >&2
    echo "deps: apt-get failed (log: $log)" >&2
    exit 1
fi
rm -f "$log"
