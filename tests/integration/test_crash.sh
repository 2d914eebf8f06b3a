#!/usr/bin/env bash
# Jobs that end their worker, of the real binary against a real Apache Kafka: found, set aside, and nobody else with them.
# The fake engine kills its own process at such a job (tests/chaos/fake_engine.c); a keeper starts the worker again, as a
# supervisor would.
cd "$(dirname "$0")/../.." || exit 1
source tests/integration/lib.sh

declare -A keeper
stop_keepers() {
    local name
    for name in "${!keeper[@]}"; do
        kill -KILL "${keeper[$name]}" "$(cat "$WORK/$name.pid")" 2>/dev/null
    done
}
at_exit=(stop_keepers)
real_kafka 19692

export FAKE_DIR=$WORK
common=(--config config/local.cfg --bootstrap "$servers" --set http.enabled=false --set engine.backend=fake --set engine.rows=16
    --set kafka.session_timeout_ms=6000 --set delivery.max_in_flight_jobs=64 --set delivery.commit_interval_ms=100
    --set dead_letter.max_share=1)

# keep NAME ARGS...: a worker that is started again whenever it is killed; SIGTERM ends both, with the worker's code.
# NAME.log is of all its lives, NAME.deaths has a line for each death, NAME.pid the worker that lives.
keep_alive() {
    local name=$1 pid rc stop=
    shift
    trap 'stop=yes; kill -TERM "$pid"' TERM
    while :; do
        "$WORKER" run "$@" >>"$WORK/$name.log" 2>&1 &
        pid=$!
        echo $pid >"$WORK/$name.pid"
        wait $pid
        rc=$?
        if [ -n "$stop" ]; then # it was the wait that the signal ended
            wait $pid
            exit $?
        fi
        [ $rc = 137 ] || exit $rc
        echo dead >>"$WORK/$name.deaths"
    done
}
keep() {
    : >"$WORK/$1.log"
    : >"$WORK/$1.deaths"
    keep_alive "$@" 2>/dev/null & # the shell's own lines about each death
    keeper[$1]=$!
}
end() { # NAME: its exit code
    kill -TERM "${keeper[$1]}"
    wait "${keeper[$1]}"
    local rc=$?
    unset "keeper[$1]"
    return $rc
}
joined() { within 60 is_logged "$1" event=joined; }
deaths() { cat "${@/%/.deaths}" | wc -l; }
is_logged() { grep -q "$2" "$WORK/$1.log"; }
deaths_between() { # LEAST MOST NAME...
    local n least=$1 most=$2
    shift 2
    n=$(cd "$WORK" && deaths "$@")
    echo "# $n deaths"
    [ "$n" -ge "$least" ] && [ "$n" -le "$most" ]
}

# jobs PREFIX FIRST LAST [KILLER...]: as JSON lines.  A killer's number is 1 modulo 3: it kills whenever it is run.
jobs() {
    awk -v prefix="$1" -v first="$2" -v last="$3" -v killers=" ${*:4} " 'BEGIN {
        for (i = first; i <= last; i++)
            printf "{\"job_id\":\"%s-%d\",\"text\":\"the %d boats\",\"target_lang\":\"de\",\"options\":{\"seed\":%d}}\n", prefix, i,
                i, index(killers, " " i " ") ? (3 * i + 1) * 256 + 1 : i * 256 }'
}
submit() { "$WORKER" submit --bootstrap "$servers" --format jsonl "${topics[@]}" --ids 2>>"$WORK/submit.log"; }
results() { "$WORKER" results --bootstrap "$servers" --output tsv --timeout 120 "${topics[@]}" "$@"; }
lag() {
    kafka groups | awk -v topic="$prefix.requests" '$2 == topic { n++; if ($6 == "-") bad = 1; sum += $6 }
        END { print n == 0 || bad ? "-" : sum }'
}
lag_is_0() { [ "$(lag)" = 0 ]; }

# Topics and group of one case; the first worker makes the topics.
case_of() { # NAME PARTITIONS
    prefix=$mode.$1
    topics=(--set kafka.request_topic="$prefix.requests" --set kafka.result_topic="$prefix.results"
        --set kafka.dead_letter_topic="$prefix.dead")
    partitions=$2
}
worker() { # NAME [STEP_US]: kept, a static member, so that a new life need not wait for the end of the session
    FAKE_STEP_US=${2:-1000} keep "$1" "${common[@]}" "${topics[@]}" --set kafka.group_id="$prefix" \
        --set kafka.create_topics=true --set kafka.partitions="$partitions" --set kafka.instance_id="$1" --set delivery.mode="$mode" --set delivery.transactional_id="$prefix-$1"
}
# outcomes COUNT [KILLER...]: each job of $prefix has its outcome, once where that is promised, and only killers are dead.
outcomes() {
    local n=$1
    shift
    results --ids "$WORK/ids" >"$WORK/out" || return 1
    within 60 lag_is_0 || return 1
    results --dead-letters >"$WORK/all"
    awk -F'\t' -v n="$n" -v killers=" $* " -v once="$([ "$mode" = exactly_once ] && echo 1 || echo 0)" '
        { id = $1; sub(/.*-/, "", id); outcome[id]++
          dead = $2 == "DEAD_LETTER"
          if (dead != (index(killers, " " id " ") > 0) || (dead && !/CRASHED/)) { print "# " $0; bad = 1 } }
        END { for (id in outcome) { all++; if (once && outcome[id] > 1) { print "# " id ": " outcome[id] " outcomes"; bad = 1 } }
              print "# " NR " outcomes of " all " jobs"; exit bad || all != n }' "$WORK/all"
}

for mode in at_least_once exactly_once; do
    # --- one job kills its worker whenever it is run ---
    case_of one 2
    worker a
    joined a
    jobs one 1 60 5 | submit >"$WORK/ids"
    check "$mode: a job that kills its worker is set aside, and the others are done" outcomes 60 5
    check "$mode: after two deaths in a crowd, and two alone" deaths_between 4 6 a
    check "$mode: the log says which one was suspected" is_logged a 'event=owner_died.* crashes=2 '
    jobs after 61 300 | submit >"$WORK/ids"
    check "$mode: and then all flows again" outcomes 300 5
    check_exit 0 "$mode: SIGTERM ends it well" end a

    # --- killers in several partitions, two workers ---
    case_of some 6
    worker a
    joined a
    worker b
    jobs some 1 200 7 20 21 90 133 | submit >"$WORK/ids"
    check "$mode: several killers in several partitions are all set aside, and nobody else" outcomes 200 7 20 21 90 133
    check "$mode: it takes few deaths" deaths_between 10 40 a b
    check_exit 0 "$mode: SIGTERM ends the first" end a
    check_exit 0 "$mode: SIGTERM ends the second" end b

    # --- an operator's kill -9 with many innocent jobs in work ---
    case_of innocent 2
    worker a 300000
    joined a
    jobs innocent 1 300 | submit >"$WORK/ids"
    for life in 1 2 3; do
        in_work() { [ "$(grep -c 'event=joined' "$WORK/a.log")" = $life ]; }
        within 60 in_work
        sleep 1 # nothing tells from outside that jobs are in work now; they are for minutes, a step takes 0.3 s
        kill -KILL "$(cat "$WORK/a.pid")"
    done
    within 60 is_logged a 'event=owner_died.* careful=1'
    check "$mode: kill -9 makes careful in the end" is_logged a 'event=owner_died.* careful=1'
    kill -TERM "${keeper[a]}"
    wait "${keeper[a]}"
    worker a
    check "$mode: kill -9 sets no innocent job aside" outcomes 300
    check_exit 0 "$mode: and it ends well" end a

    # --- members that come and go ---
    case_of calm 4
    worker a
    joined a
    worker b
    jobs calm 1 200 | submit >"$WORK/ids"
    check "$mode: two workers do their jobs" outcomes 200
    check_exit 0 "$mode: one leaves" end b
    worker b
    jobs calm 201 400 | submit >"$WORK/ids"
    check "$mode: it comes back, they do theirs" outcomes 400
    check_exit 0 "$mode: it leaves again" end b
    check_exit 0 "$mode: and so does the other" end a
    worker a
    jobs calm 401 500 | submit >"$WORK/ids"
    check "$mode: the next one does the rest" outcomes 500
    check "$mode: an end in order and a revocation are no deaths" test "$(cat "$WORK"/[ab].log | grep -c owner_died)" = 0
    end a
done
finish
