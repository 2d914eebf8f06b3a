#!/usr/bin/env bash
# The real binary against a real Apache Kafka: topics, two workers, kill -9, a broker that goes away and comes back.
cd "$(dirname "$0")/../.." || exit 1
source tests/integration/lib.sh

real_kafka 19392

options=(--config config/local.cfg --bootstrap "$servers" --set http.port=0 --set kafka.session_timeout_ms=6000)
submit() { "$WORKER" submit --bootstrap "$servers" --format tsv "$@" 2>>"$WORK/submit.log"; }
results() { "$WORKER" results --bootstrap "$servers" --output tsv --timeout 90 "$@"; }
all_seen() { results --ids "$1" >"${1%.ids}.out"; }
jobs_named() { cut -f1-3 "$WORK/evaluation.tsv" | sed "s/^eval/$1/"; } # 250 jobs
"$BUILD/evaluation_tsv" tests/golden/demo/evaluation.json >"$WORK/evaluation.tsv"

# --- topics that are not there ---
check_exit 5 "check names a missing topic" worker_check "${options[@]}"
check_exit 5 "run stops on a missing topic" timeout 60 "$WORKER" run "${options[@]}"
worker_start a "${options[@]}" --set kafka.create_topics=true --set kafka.partitions=4 || exit 1
check "topics are made where that is configured" \
    grep -q 'ok .*translate.requests.*4 partitions' <("$WORKER" check "${options[@]}")

# --- results, and the group as Kafka's own tool sees it ---
jobs_named eval | submit --ids >"$WORK/ids"
results --ids "$WORK/ids" >"$WORK/out"
check "99% of the translations are the reference implementation's" awk -F'\t' '
    NR == FNR { want[$1] = $4; next }
    { n++; if ($2 == "OK" && $7 == want[$1]) same++ }
    END { print "# " same " of " n; exit !(n >= 250 && same >= 0.99 * n) }' "$WORK/evaluation.tsv" "$WORK/out"
lag() { # of the group, as Kafka's own tool adds it up; "-" where it does not know
    kafka groups | awk '$2 == "translate.requests" { n++; if ($6 == "-") bad = 1; sum += $6 }
        END { print n == 0 || bad ? "-" : sum }'
}
lag_is_0() { [ "$(lag)" = 0 ]; }
check "Kafka's own tool sees no lag" within 30 lag_is_0

# --- a second member joins and leaves ---
worker_start b "${options[@]}" || exit 1
shares() { [ "$(metric a partitions)" = 2 ] && [ "$(metric b partitions)" = 2 ]; }
check "two workers share the partitions" within 30 shares
jobs_named pair | submit --ids >"$WORK/pair.ids"
kill -TERM "${worker_pid[b]}"
check_exit 0 "one of two stops under load" worker_wait b
check "and nothing is lost" all_seen "$WORK/pair.ids"

# --- kill -9 in the middle ---
jobs_named kill | submit --ids >"$WORK/kill.ids"
some_done() { [ "$(metric a 'jobs_total{outcome="result"}')" -gt "$done_before" ]; }
done_before=$(metric a 'jobs_total{outcome="result"}')
within 30 some_done
kill -KILL "${worker_pid[a]}"
worker_wait a 2>/dev/null
worker_start c "${options[@]}" || exit 1
check "after kill -9 every job has its result" all_seen "$WORK/kill.ids"

# --- the broker goes away and comes back ---
jobs_named away | submit --ids >"$WORK/away.ids"
kafka broker 1 stop
not_ready() { ! curl -fs "http://127.0.0.1:${worker_http[c]}/ready" >/dev/null; }
check "without its broker the worker is not ready" within 40 not_ready
check "but it lives" curl -fsS -o /dev/null "http://127.0.0.1:${worker_http[c]}/live"
kafka broker 1 start
check "and once the broker is back every job has its result" all_seen "$WORK/away.ids"
check "no transient fault made a dead letter" test "$(results --dead-letters | grep -c DEAD_LETTER)" = 0
check "at the end there is no lag" within 30 lag_is_0
kill -TERM "${worker_pid[c]}"
check_exit 0 "SIGTERM ends it well" worker_wait c

# --- a result that the broker refuses for its size ---
kafka topic small.results 1 max.message.bytes=600 >/dev/null
small=(--set kafka.request_topic=small.requests --set kafka.result_topic=small.results)
worker_start d "${options[@]}" "${small[@]}" --set kafka.group_id=small --set kafka.create_topics=true || exit 1
printf 'small\tde\tOK\nbig\tde\t%s\nafter\tde\tCancel\n' "$(cut -f3 "$WORK/evaluation.tsv" | head -6 | tr '\n' ' ')" |
    submit "${small[@]}" --ids >"$WORK/small.ids"
results "${small[@]}" --ids "$WORK/small.ids" >"$WORK/small.out"
check "a result that is too large becomes a dead letter" grep -q '^big.DEAD_LETTER.*RESULT_TOO_LARGE' "$WORK/small.out"
check "and its neighbours their results" test "$(grep -c '^[sa].*OK' "$WORK/small.out")" = 2
kill -TERM "${worker_pid[d]}"
check_exit 0 "and the worker goes on to a clean end" worker_wait d

# --- a result that it calls invalid: a compacted topic takes none without a key ---
kafka topic compact.results 1 cleanup.policy=compact >/dev/null
for mode in at_least_once exactly_once; do
    compact=(--set kafka.request_topic="compact.$mode" --set kafka.result_topic=compact.results)
    worker_start "$mode" "${options[@]}" "${compact[@]}" --set kafka.group_id="$mode" --set kafka.create_topics=true \
        --set delivery.mode="$mode" --set delivery.transactional_id="$mode" || exit 1
    { # around one job without a key
        printf '%s-1\tde\tOK\n%s-2\tde\tCancel\n' $mode $mode | submit "${compact[@]}" --ids
        printf '%s-bare\tde\tOK\n' $mode | submit "${compact[@]}" --ids --no-key
        printf '%s-3\tde\tOpen\n' $mode | submit "${compact[@]}" --ids
    } >"$WORK/$mode.ids"
    results "${compact[@]}" --ids "$WORK/$mode.ids" >"$WORK/$mode.out"
    check "an invalid result becomes a dead letter ($mode)" grep -q "^$mode-bare.DEAD_LETTER.*RESULT_REFUSED" "$WORK/$mode.out"
    check "and its neighbours their results" test "$(grep -c "^$mode-[123].OK" "$WORK/$mode.out")" = 3
    kill -TERM "${worker_pid[$mode]}"
    check_exit 0 "and the worker goes on to a clean end" worker_wait "$mode"
done

finish
