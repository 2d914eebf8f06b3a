#!/usr/bin/env bash
# make bench-kafka: the worker with an engine that costs nothing, against a real Kafka, beside the bare loop of librdkafka
# that only copies; both in the same run, since what the machine gives changes from one to the next.
#
#   JOBS      of a round of throughput (100000)
#   ROUNDS    of each, in turns; the best counts (3)
#   SINGLES   single jobs for the latency (1000)
#   SETTINGS  further options of the worker, e.g. SETTINGS="--set delivery.mode=exactly_once"
cd "$(dirname "$0")/../.." || exit 1
set -u
BUILD=${BUILD:-build}
WORKER=$BUILD/translate-worker
WORK=$BUILD/bench-kafka
FLOOR=$BUILD/kafka_floor
jobs=${JOBS:-100000} rounds=${ROUNDS:-3} singles=${SINGLES:-1000}
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

# worker NAME TOPIC: reads TOPIC.in, writes TOPIC.out, in a group of its own
worker() {
    # shellcheck disable=SC2086 # SETTINGS are options
    worker_start "$1" --bootstrap "$servers" --set model.path=ops/demo/model --set engine.backend=fake \
        --set engine.rows=64 --set http.port=0 --set "kafka.group_id=$1" --set "kafka.request_topic=$2.in" \
        --set "kafka.result_topic=$2.out" --set kafka.dead_letter_topic=dead ${SETTINGS:-}
}
cpu_us() { # cpu_us PID: processor time of a process until now, all threads
    awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) * 1000000 / hz }' "/proc/$1/stat"
}
best() { sort -n | tail -1; }

throughput() { # throughput PARTITIONS
    local p=$1 round
    kafka topic "in$p.in" "$p" 2>>"$WORK/kafka.log"
    "$FLOOR" fill "$servers" "in$p.in" "$jobs"
    for round in $(seq "$rounds"); do
        kafka topic "floor$p-$round" "$p" 2>>"$WORK/kafka.log"
        kafka topic "out$p-$round" "$p" message.timestamp.type=LogAppendTime 2>>"$WORK/kafka.log"
        "$FLOOR" copy "$servers" "in$p.in" "floor$p-$round" "$jobs" 2>>"$WORK/floor-cpu-$p" >>"$WORK/floor-$p"
        kafka tool org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --bootstrap-server "$servers" --delete \
            --group floor >>"$WORK/kafka.log" 2>&1
        SETTINGS="${SETTINGS:-} --set kafka.result_topic=out$p-$round" worker "w$p-$round" "in$p"
        before=$(cpu_us "${worker_pid[w$p-$round]}")
        "$FLOOR" rate "$servers" "out$p-$round" "$jobs" >>"$WORK/worker-$p"
        echo $(($(cpu_us "${worker_pid[w$p-$round]}") - before)) >>"$WORK/worker-cpu-$p"
        kill -TERM "${worker_pid[w$p-$round]}"
        worker_wait "w$p-$round"
    done
    floor=$(best <"$WORK/floor-$p") own=$(best <"$WORK/worker-$p")
    local floor_us own_us
    floor_us=$(grep -xE "[0-9]+" "$WORK/floor-cpu-$p" | sort -n | head -1) own_us=$(sort -n "$WORK/worker-cpu-$p" | head -1)
    printf '| %d | %d | %d | %d%% | %.1f | %.1f |\n' "$p" "$floor" "$own" $((own * 100 / floor)) \
        "$(awk "BEGIN { print $floor_us / $jobs }")" "$(awk "BEGIN { print $own_us / $jobs }")"
}

kafka topic dead 1 2>>"$WORK/kafka.log"
echo "| partitions | bare loop, jobs/s | worker, jobs/s | share | bare loop, processor us a job | worker's |"
echo "|---|---|---|---|---|---|"
throughput 1
one=$own
throughput 6

singles() { # singles NAME RATE
    local figures
    figures=$("$FLOOR" latency "$servers" single.in single.out "$2" "$singles")
    printf '| %s | %d | %s | %s |\n' "$1" "$2" "${figures% *}" "${figures#* }"
}
at=$((one / 10 > 500 ? 500 : one / 10)) # a tenth of what one partition gives, and no more than is needed
kafka topic single.in 1 2>>"$WORK/kafka.log"
kafka topic single.out 1 2>>"$WORK/kafka.log"
echo
echo "| single jobs | a second | p50, ms | p99, ms |"
echo "|---|---|---|---|"
"$FLOOR" copy "$servers" single.in single.out 0 &
copier=$!
singles "bare loop" "$at"
kill "$copier"
wait "$copier" 2>/dev/null
copier=
SETTINGS="${SETTINGS:-} --set kafka.offset_reset=latest" worker single single
singles "worker" "$at"
curl -fsS "http://127.0.0.1:${worker_http[single]}/status" >"$WORK/status.json"
