#!/usr/bin/env bash
# make bench-kafka: the worker with an engine that costs nothing, against a real Kafka, beside two bare loops of librdkafka:
# one copies the jobs, the other answers each with one of the worker's results, so that the broker carries the same bytes.
# All in the same run, since what the machine gives changes from one to the next.
#
#   JOBS      of a round of throughput (400000)
#   ROUNDS    of each, in turns; the best counts (3)
#   SINGLES   single jobs for the latency (1000)
#   SETTINGS  further options of the worker, e.g. SETTINGS="--set batch.linger_ms=20"
cd "$(dirname "$0")/../.." || exit 1
set -u
BUILD=${BUILD:-build}
WORKER=$BUILD/translate-worker
WORK=$BUILD/bench-kafka
FLOOR=$BUILD/kafka_floor
jobs=${JOBS:-400000} rounds=${ROUNDS:-3} singles=${SINGLES:-1000}
rm -rf "$WORK"
mkdir -p "$WORK"
source ops/demo/worker.sh

export KAFKA_LOCAL_DIR=$PWD/$WORK/kafka
kafka() { ops/kafka-local/kafka.sh "$@"; }
servers=$(kafka start --brokers 1 --port "${KAFKA_PORT:-19692}" 2>"$WORK/kafka.log") || {
    rc=$?
    tail -1 "$WORK/kafka.log"
    exit $rc
}
copier=
stop_all() {
    [ -z "$copier" ] || kill "$copier" 2>/dev/null
    kill "${worker_pid[@]}" 2>/dev/null
    kafka stop >/dev/null 2>&1
}
trap stop_all EXIT

linger_ms=5 interval_ms=200 # batch.linger_ms, delivery.commit_interval_ms: the defaults
export FAKE_TRUST=1         # the engine is to cost nothing

# worker NAME TOPIC MODE: reads TOPIC.in, writes TOPIC.out, in a group of its own.  The window is what this rate times the
# time of an acknowledgement or a commit needs, and more.
worker() {
    # shellcheck disable=SC2086 # SETTINGS are options
    worker_start "$1" --bootstrap "$servers" --set model.path=ops/demo/model --set engine.backend=fake \
        --set engine.rows=64 --set http.port=0 --set "kafka.group_id=$1" --set "kafka.request_topic=$2.in" \
        --set "kafka.result_topic=$2.out" --set kafka.dead_letter_topic=dead --set "delivery.mode=$3" \
        --set "delivery.transactional_id=$1" --set delivery.max_in_flight_jobs=16384 \
        --set "batch.linger_ms=$linger_ms" --set "delivery.commit_interval_ms=$interval_ms" ${SETTINGS:-}
}
cpu_us() { # cpu_us PID: processor time of a process until now, all threads
    awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) * 1000000 / hz }' "/proc/$1/stat"
}
best() { sort -n "$1" | tail -1; }
least_us() { # least_us FILE: the least processor time a job of the rounds in it
    grep -xE "[0-9]+" "$1" | sort -n | head -1 | awk -v jobs="$jobs" '{ printf "%.1f", $1 / jobs }'
}

bare_loop() { # bare_loop NAME PARTITIONS ROUND [RESULTS]
    local name=$1-$2-$3
    kafka topic "$name" "$2" 2>>"$WORK/kafka.log"
    "$FLOOR" copy "$servers" "in$2.in" "$name" "$jobs" ${4:+"$4"} 2>>"$WORK/$1-cpu-$2" >>"$WORK/$1-$2"
    kafka tool org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --bootstrap-server "$servers" --delete \
        --group floor >>"$WORK/kafka.log" 2>&1
}
worker_round() { # worker_round PARTITIONS ROUND MODE
    local name=$3-$1-$2 before
    kafka topic "$name" "$1" message.timestamp.type=LogAppendTime 2>>"$WORK/kafka.log"
    SETTINGS="${SETTINGS:-} --set kafka.result_topic=$name" worker "$name" "in$1" "$3"
    before=$(cpu_us "${worker_pid[$name]}")
    "$FLOOR" rate "$servers" "$name" "$jobs" >>"$WORK/$3-$1"
    echo $(($(cpu_us "${worker_pid[$name]}") - before)) >>"$WORK/$3-cpu-$1"
    kill -TERM "${worker_pid[$name]}"
    worker_wait "$name"
}

throughput() { # throughput PARTITIONS
    local p=$1 round copy answer exactly
    kafka topic "in$p.in" "$p" 2>>"$WORK/kafka.log"
    "$FLOOR" fill "$servers" "in$p.in" "$jobs"
    for round in $(seq "$rounds"); do
        bare_loop copy "$p" "$round"
        worker_round "$p" "$round" at_least_once
        bare_loop answer "$p" "$round" "at_least_once-$p-$round"
        worker_round "$p" "$round" exactly_once
    done
    copy=$(best "$WORK/copy-$p") answer=$(best "$WORK/answer-$p")
    own=$(best "$WORK/at_least_once-$p") exactly=$(best "$WORK/exactly_once-$p")
    printf '| %d | %d | %d | %d | %d%% | %d%% (70%%) | %d | %d%% (90%%) |' "$p" "$copy" "$answer" "$own" \
        $((own * 100 / copy)) $((own * 100 / answer)) "$exactly" $((exactly * 100 / own))
    printf ' %s |' "$(least_us "$WORK/copy-cpu-$p")" "$(least_us "$WORK/answer-cpu-$p")" \
        "$(least_us "$WORK/at_least_once-cpu-$p")" "$(least_us "$WORK/exactly_once-cpu-$p")"
    echo
}

kafka topic dead 1 2>>"$WORK/kafka.log"
echo "Jobs/s, and shares with their goals; processor time in us a job, all threads."
echo
echo "| partitions | copies | answers | at least once | of copies | of answers | exactly once | of at least once |" \
    "copies, us | answers | at least once | exactly once |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
throughput 1
one=$own
throughput 6

singles() { # singles NAME RATE GOAL
    local figures
    figures=$("$FLOOR" latency "$servers" single.in single.out "$2" "$singles")
    printf '| %s | %d | %s | %s | %s |\n' "$1" "$2" "${figures% *}" "${figures#* }" "$3"
}
worker_singles() { # worker_singles MODE RATE GOAL
    SETTINGS="${SETTINGS:-} --set kafka.offset_reset=latest" worker "single-$1" single "$1"
    singles "${1//_/ }" "$2" "$3"
    curl -fsS "http://127.0.0.1:${worker_http[single-$1]}/status" >"$WORK/status-$1.json"
    kill -TERM "${worker_pid[single-$1]}"
    worker_wait "single-$1"
}
at=$((one / 10 > 500 ? 500 : one / 10)) # a tenth of what one partition gives, and no more than is needed
kafka topic single.in 1 2>>"$WORK/kafka.log"
kafka topic single.out 1 2>>"$WORK/kafka.log"
echo
echo "| single jobs | a second | p50, ms | p99, ms | goal |"
echo "|---|---|---|---|---|"
"$FLOOR" copy "$servers" single.in single.out 0 &
copier=$!
singles "bare loop" "$at" ""
kill "$copier"
wait "$copier" 2>/dev/null
copier=
worker_singles at_least_once "$at" $((linger_ms + 20))
worker_singles exactly_once "$at" $((linger_ms + 20 + interval_ms))
