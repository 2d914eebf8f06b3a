#!/usr/bin/env bash
# Exactly-once delivery of the real binary, against a real Apache Kafka: what a read_committed reader sees over kill -9,
# a broker that restarts, members that come and go, and two workers of one transactional id.
cd "$(dirname "$0")/../.." || exit 1
source tests/integration/lib.sh

port=${KAFKA_PORT:-19592}
late=$((port + 40)) # a proxy that holds requests back
real_kafka "$port" --proxy "$late"
for topic in requests results dead; do kafka topic translate.$topic 4 >/dev/null; done

once=(--config config/local.cfg --bootstrap "$servers" --set http.port=0 --set kafka.session_timeout_ms=6000
    --set delivery.mode=exactly_once --set delivery.commit_interval_ms=100)
start() { worker_start "$1" "${once[@]}" --set delivery.transactional_id="$2"; }
submit() { "$WORKER" submit --bootstrap "$servers" --format tsv "$@" 2>>"$WORK/submit.log"; }
results() { "$WORKER" results --bootstrap "$servers" --output tsv --timeout 90 "$@"; }
"$BUILD/evaluation_tsv" tests/golden/demo/evaluation.json >"$WORK/evaluation.tsv"
jobs_named() { cut -f1-3 "$WORK/evaluation.tsv" | sed "s/^eval/$1/"; } # 250 jobs
work() { jobs_named "$1" | submit --ids >"$WORK/$1.ids"; }
done_by() { metric "$1" 'jobs_total{outcome="result"}'; }
is_under_way() { [ "$(done_by "$1")" -gt "$2" ]; }
begin() { # WORKER PREFIX: jobs, until it has published one of them
    local before
    before=$(done_by "$1")
    work "$2"
    within 30 is_under_way "$1" "$before"
}

# Each job named PREFIX... has one outcome, as a read_committed reader sees it; then nothing is to come any more.
lag() {
    kafka groups | awk '$2 == "translate.requests" { n++; if ($6 == "-") bad = 1; sum += $6 }
        END { print n == 0 || bad ? "-" : sum }'
}
lag_is_0() { [ "$(lag)" = 0 ]; }
once_each() {
    results --ids "$WORK/$1.ids" >"$WORK/$1.out" || return 1
    within 60 lag_is_0 || return 1
    results --dead-letters >"$WORK/all.out"
    awk -F'\t' -v prefix="$1" 'index($1, prefix "-") == 1 { n[$1]++; all++ }
        END { for (id in n) if (n[id] > 1) { print "# " id ": " n[id] " outcomes"; bad = 1 }
              print "# " all " outcomes of " prefix; exit bad || all != 250 }' "$WORK/all.out"
}

check_exit 3 "a transactional id is asked for" worker_check "${once[@]}" --offline
check_exit 3 "the embedded broker is refused" worker_check --config config/local.cfg --set delivery.mode=exactly_once
check "check tells the mode" grep -q "delivery exactly once" <("$WORKER" check "${once[@]}" --set delivery.transactional_id=a)

start a one || exit 1
work calm
check "each job has one outcome" once_each calm

# --- kill -9 in the middle ---
for round in 1 2 3; do
    begin a "kill$round"
    kill -KILL "${worker_pid[a]}"
    worker_wait a 2>/dev/null
    start a one || exit 1
    check "after kill -9 each job has one outcome ($round)" once_each "kill$round"
done

# --- members come and go ---
start b two || exit 1
begin b pair
kill -TERM "${worker_pid[b]}"
check_exit 0 "one of two stops under load" worker_wait b
check "and each job has one outcome" once_each pair

# --- the broker goes away and comes back ---
begin a away
kafka broker 1 kill
kafka broker 1 start
check "after a broker's death each job has one outcome" once_each away

# --- requests that arrive late, when the client has long given up and gone on ---
proxy=
stop_proxy() { kill "$proxy"; }
at_exit+=(stop_proxy)
"$BUILD/kafka_hold" "$late" "$((port + 20))" "$WORK" >"$WORK/held.log" &
proxy=$!
is_held() { [ "$(grep -c "held api=$1" "$WORK/held.log")" = "$2" ]; }
is_delivered() { [ "$(grep -c "delivered api=$1" "$WORK/held.log")" = "$2" ]; }
kill -TERM "${worker_pid[a]}"
worker_wait a
once+=(--bootstrap "127.0.0.1:$late" --set kafka.properties=socket.timeout.ms=1500)
start late one || exit 1
hold() { # API TIMES PREFIX: the next such request waits, new jobs make one
    : >"$WORK/hold-$1-4000"
    work "$3"
    within 20 is_held "$1" "$2" && within 20 is_delivered "$1" "$2"
}
check "a commit is held" hold 26 1 late1 # EndTxn
check "and another one" hold 26 2 late2
check "and offsets are" hold 28 1 late3 # TxnOffsetCommit
was_replaced() { [ "$(metric late producer_rebuilds_total)" -ge 2 ]; }
check "the producer was replaced each time" within 20 was_replaced
for round in 1 2 3; do
    check "after requests that came late each job has one outcome ($round)" once_each "late$round"
done
kill -TERM "${worker_pid[late]}"
check_exit 0 "it stops well" worker_wait late
once+=(--bootstrap "$servers" --set kafka.properties=socket.timeout.ms=10000)
start a one || exit 1

# --- a second worker of the same name ---
begin a twin
start c one || exit 1
check_exit 8 "the older of two workers of one transactional id is fenced" worker_wait a
check "it says so in one line" grep -q 'event=fenced.*transactional id' "$WORK/a.log"
check "and each job has one outcome" once_each twin

check "no transient fault made a dead letter" test "$(results --dead-letters | grep -c DEAD_LETTER)" = 0
kill -TERM "${worker_pid[c]}"
check_exit 0 "SIGTERM ends it well" worker_wait c
finish
