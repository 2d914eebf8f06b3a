#!/usr/bin/env bash
# The real binary with a fake engine against a real Apache Kafka: a large compressed backlog over many partitions, and a
# topic that is made anew under the worker.
cd "$(dirname "$0")/../.." || exit 1
source tests/integration/lib.sh

real_kafka 19792
topics() { # NAME PARTITIONS, its results and dead letters beside it
    kafka topic "$1" "$2" && kafka topic "$1.results" 4 && kafka topic "$1.dead" 1
}
options() { # TOPIC: a group of its own
    echo "--bootstrap $servers --set kafka.request_topic=$1 --set kafka.result_topic=$1.results
        --set kafka.dead_letter_topic=$1.dead --set kafka.group_id=$1"
}
worker() { # NAME TOPIC OPTIONS...
    local name=$1 topic=$2
    shift 2
    # shellcheck disable=SC2046 # options
    worker_start "$name" $(options "$topic") --set model.path=ops/demo/model --set engine.backend=fake \
        --set engine.rows=64 --set http.port=0 --set kafka.session_timeout_ms=6000 "$@"
}
submit() { # TOPIC PREFIX N: jobs PREFIX-1 ...
    # shellcheck disable=SC2046
    seq "$3" | sed "s/.*/$2-&\tde\tSentence & of many./" | "$WORKER" submit $(options "$1") --format tsv --ids \
        >"$WORK/$2.ids" 2>>"$WORK/submit.log"
}
all_seen() { # TOPIC PREFIX
    # shellcheck disable=SC2046
    "$WORKER" results $(options "$1") --ids "$WORK/$2.ids" --output tsv --timeout 60 >"$WORK/$2.out"
}

# --- 300 MB that lie there as some 9 MB, in 60 partitions; the engine hardly moves ---
topics big 60
awk 'BEGIN { srand(1); for (i = 0; i < 40; i++) { words = ""
        for (k = 0; k < 30; k++) words = words sprintf("%08x ", int(rand() * 4294967295))
        pad = ""; while (length(pad) < 20000) pad = pad words int(rand() * 1000) " "
        printf "{\"job_id\":\"j\",\"text\":\"Hello\",\"target_lang\":\"de\",\"pad\":\"%s\"}\n", pad } }' >"$WORK/jobs"
kafka tool org.apache.kafka.tools.ProducerPerformance --topic big --num-records 15000 --payload-file "$WORK/jobs" \
    --throughput -1 --producer-props "bootstrap.servers=$servers" compression.type=zstd linger.ms=50 >>"$WORK/kafka.log"
resident_kb() { awk -v what="$2:" '$1 == what { print $2 }' "/proc/${worker_pid[$1]}/status"; }
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=1 # else freed memory counts, of a sanitizer build
window=32
FAKE_STEP_US=1000000 worker big big --set delivery.max_in_flight_mb=$window --set kafka.offset_reset=latest || exit 1
before=$(resident_kb big VmRSS) # with an empty queue: it began at the end
kill -KILL "${worker_pid[big]}"
worker_wait big 2>/dev/null
FAKE_STEP_US=1000000 worker big big --set delivery.max_in_flight_mb=$window --set kafka.group_id=big2 || exit 1
has_read() { [ "$(metric big records_total)" -ge 1024 ]; }
check "the window fills" within 60 has_read
settled() { # what was fetched ahead has come once nothing more does for two seconds
    local was
    was=$(resident_kb big VmHWM)
    sleep 2
    [ "$(resident_kb big VmHWM)" = "$was" ]
}
within 60 settled
grown=$(($(resident_kb big VmHWM) - before))
echo "# $((before / 1024)) MB idle, $((grown / 1024)) MB more with the backlog and a window of $window MB"
check "the backlog stays on the broker: less than the window and 64 MB" test $grown -lt $(((window + 64) * 1024))
check "no more than the window is read" test "$(metric big records_total)" -le 1100
kill -KILL "${worker_pid[big]}"
worker_wait big 2>/dev/null

# --- a topic that is made anew while the worker runs: its offsets lie past the new end ---
topics anew 2
worker anew anew || exit 1
submit anew old 50
check "every job of the old topic has its result" all_seen anew old
no_lag() {
    curl -fsS "http://127.0.0.1:${worker_http[anew]}/metrics" |
        awk '/^translate_worker_lag[{]/ { n++; sum += $2 } END { exit !(n == 2 && sum == 0) }'
}
lag_by_tool() { kafka groups | awk '$2 == "anew" { n++; sum += $6 } END { print n ? sum : "-" }'; }
check "our lag is 0" within 20 no_lag
check "and so is the one of Kafka's own tool" test "$(lag_by_tool)" = 0
kafka tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$servers" --delete --topic anew
kafka topic anew 2
submit anew new 4
check "the worker goes on with the new one, from its beginning" all_seen anew new
kill -TERM "${worker_pid[anew]}"
check_exit 0 "SIGTERM ends it well" worker_wait anew
finish
