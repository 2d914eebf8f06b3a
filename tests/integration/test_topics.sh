#!/usr/bin/env bash
# The request topic under the real binary and a real Kafka: deleted and made anew while the worker runs, in both modes.
cd "$(dirname "$0")/../.." || exit 1
source tests/integration/lib.sh

real_kafka 19692
for topic in requests results dead; do kafka topic translate.$topic 4 >/dev/null; done

options=(--config config/local.cfg --bootstrap "$servers" --set http.port=0 --set kafka.session_timeout_ms=6000
    --set kafka.offset_wait_ms=2000)
submit() { "$WORKER" submit --bootstrap "$servers" --format tsv "$@" 2>>"$WORK/submit.log"; }
results() { "$WORKER" results --bootstrap "$servers" --output tsv --timeout 60 "$@"; }
"$BUILD/evaluation_tsv" tests/golden/demo/evaluation.json >"$WORK/evaluation.tsv"
work() { # PREFIX [TIMES]: 250 jobs, or so many times more
    for i in $(seq "${2:-1}"); do cut -f1-3 "$WORK/evaluation.tsv" | sed "s/^eval/$1-$i/"; done | submit --ids >"$WORK/$1.ids"
}
all_seen() { results --ids "$WORK/$1.ids" >"$WORK/$1.out"; }
start() { # MODE
    worker_start "$1" "${options[@]}" --set kafka.group_id="$1" --set delivery.mode="$1" \
        --set delivery.transactional_id="$1" || exit 1
}
delete_slowly() {
    kafka tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$servers" --delete --topic translate.requests \
        >/dev/null 2>&1
}
has_no_lag() { # that it tells of, from its committed offsets on
    curl -fsS "http://127.0.0.1:${worker_http[$1]}/metrics" |
        awk '/^translate_worker_lag\{/ { n++; sum += $2 } END { exit n != 4 || sum != 0 }'
}
has_begun_again() { # at its beginning, as at its start and after the first deletion
    [ "$(grep -c 'event=no_offset' "$WORK/$1.log")" -ge 12 ]
}
is_noticed() { grep -q 'event=topic_unknown' "$WORK/$1.log"; }
make_anew() { kafka topic translate.requests 4 >/dev/null; }

for mode in at_least_once exactly_once; do
    start $mode
    work $mode-calm
    all_seen $mode-calm
    delete_slowly
    check "$mode: a topic that is gone is noticed" within 30 is_noticed $mode
    check "$mode: it can be made anew" within 30 make_anew
    work $mode-anew
    check "$mode: the worker goes on with the new one, from its beginning" all_seen $mode-anew

    # Faster than the library asks for the topic again: offsets mean other records now, and all of the old ones are there.
    # Nothing is in flight: the brokers know topics by name in commits, so a late one would be taken for the new topic's.
    check "$mode: it has committed what it did" within 30 has_no_lag $mode
    "$BUILD/chaos" recreate --bootstrap "$servers" --requests translate.requests --partitions 4
    check "$mode: a topic is replaced under the worker" test $? = 0
    work $mode-replaced 4 # the new log is longer than the old one was
    check "$mode: the worker notices" within 60 has_begun_again $mode
    check "$mode: every job of the new topic has its result" all_seen $mode-replaced
    [ -s "$WORK/$mode-replaced.out" ] && echo "# $(grep -c OK "$WORK/$mode-replaced.out") of 1000"
    [ $mode = at_least_once ] || # what it published before it noticed is done again there
        check "$mode: and one only" awk -F'\t' '{ n[$1]++ } END { for (id in n) if (n[id] > 1) exit 1 }' "$WORK/$mode-replaced.out"
    kill -TERM "${worker_pid[$mode]}"
    check_exit 0 "$mode: SIGTERM ends it well" worker_wait $mode
done
check "no job became a dead letter" test "$(results --dead-letters | grep -c DEAD_LETTER)" = 0
finish
