# shellcheck shell=bash
# What the integration tests share; sourced from the repository's root.  Each check prints "ok NAME" or "not ok NAME".

set -u
BUILD=${BUILD:-build}
WORKER=$BUILD/translate-worker
WORK=$BUILD/integration/$(basename "$0" .sh)
rm -rf "$WORK"
mkdir -p "$WORK"
failures=0
source ops/demo/worker.sh

# check NAME COMMAND...: the command's success is the claim.
check() {
    local name=$1
    shift
    if "$@"; then
        echo "ok $name"
    else
        echo "not ok $name"
        failures=$((failures + 1))
    fi
}

# check_exit CODE NAME COMMAND...: its exit code is.
check_exit() {
    local want=$1 name=$2
    shift 2
    "$@"
    local rc=$?
    [ $rc = "$want" ] || echo "# exit code $rc, expected $want"
    check "$name" test $rc = "$want"
}

# worker_check ARGS...: translate-worker check, its report kept in check.log.
worker_check() {
    "$WORKER" check "$@" >>"$WORK/check.log" 2>&1
}

# within SECONDS COMMAND...: repeats it until it succeeds.  For states of another process that announce themselves by
# nothing; a tenth of a second between the looks.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

metric() { # metric WORKER NAME[{label}]: its value
    curl -fsS "http://127.0.0.1:${worker_http[$1]}/metrics" | awk -v name="translate_worker_$2" '$1 == name { print $2 }'
}

finish() {
    [ $failures = 0 ]
    exit
}

kill_workers() {
    local pid
    for pid in "${worker_pid[@]}"; do
        kill -KILL "$pid" 2>/dev/null
    done
}
at_exit=(kill_workers) # what ends with the script, in this order
run_at_exit() {
    local it
    for it in "${at_exit[@]}"; do "$it"; done
}
trap run_at_exit EXIT

kafka() { ops/kafka-local/kafka.sh "$@" 2>>"$WORK/kafka.log"; }
stop_kafka() { kafka stop >/dev/null; }

# real_kafka PORT [OPTION...]: one broker of the script's own, $servers; without Java the script ends here as skipped.
# KAFKA_PORT goes before PORT.
real_kafka() {
    local rc port=${KAFKA_PORT:-$1}
    shift
    export KAFKA_LOCAL_DIR=$PWD/$WORK/kafka
    # shellcheck disable=SC2034 # of the scripts
    servers=$(kafka start --brokers 1 --port "$port" "$@")
    rc=$?
    if [ $rc = 77 ]; then
        tail -1 "$WORK/kafka.log"
        exit 77
    fi
    at_exit+=(stop_kafka)
    check "a real Kafka starts" test $rc = 0
    [ $rc = 0 ] || exit 1
}
