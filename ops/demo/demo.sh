#!/usr/bin/env bash
# The main job on real input: an embedded broker, a worker with the demonstration model, a few dozen sentences in five
# languages, one poisoned job.  Shows what came out; exit code 0 when everything did.
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build}
WORKER=$BUILD/translate-worker
WORK=$BUILD/demo
rm -rf "$WORK"
mkdir -p "$WORK"
source ops/demo/worker.sh
trap '[ -z "${worker_pid[demo]:-}" ] || kill -KILL "${worker_pid[demo]}" 2>/dev/null || true' EXIT

echo "Starting a worker with an embedded broker and the model in ops/demo/model ..."
worker_start demo --config config/local.cfg --set http.port=0
sed -n 's/.* event=ready /  ready: /p' "$WORK/demo.log"

awk -F'\t' '{printf "job-%02d\t%s\t%s\n", NR, $1, $2}' ops/demo/sentences.tsv >"$WORK/jobs.tsv"
echo
began_ms=$(date +%s%3N)
echo "Submitting $(wc -l <"$WORK/jobs.tsv") jobs and one value that is no job ..."
"$WORKER" submit --bootstrap "${worker_bootstrap[demo]}" --format tsv --ids "$WORK/jobs.tsv" >"$WORK/ids" 2>"$WORK/submit.log"
echo 'this is not a translation request' |
    "$WORKER" submit --bootstrap "${worker_bootstrap[demo]}" --format raw 2>>"$WORK/submit.log"
"$WORKER" results --bootstrap "${worker_bootstrap[demo]}" --ids "$WORK/ids" --output tsv --timeout 60 >"$WORK/results.tsv"
ended_ms=$(date +%s%3N)

echo
awk -F'\t' '
    NR == FNR { source[$1] = $3; next }
    { printf "%s  %-7s %6.1f ms  %s\n%24s%s\n", $1, $3, $4, source[$1], "", $7; if ($2 != "OK") bad++ }
    END { exit bad > 0 }' "$WORK/jobs.tsv" <(sort "$WORK/results.tsv")

echo
echo "Dead letters:"
"$WORKER" results --bootstrap "${worker_bootstrap[demo]}" --dead-letters --count $(($(wc -l <"$WORK/ids") + 1)) --output tsv --timeout 60 |
    awk -F'\t' '$2 == "DEAD_LETTER" { printf "  %s: %s\n", $6, $7; n++ } END { exit n != 1 }'

echo
curl -fsS "http://127.0.0.1:${worker_http[demo]}/metrics" >"$WORK/metrics"
awk -v took_ms="$((ended_ms - began_ms))" '
    { split($1, part, /[{}"]/); name = part[1]; sub(/^translate_worker_/, "", name) }
    name == "jobs_total" { jobs[part[3]] = $2 }
    name == "tokens_total" { tokens[part[3]] = $2 }
    name == "committed_offset" { offsets = offsets sprintf("  partition %s: %d", part[3], $2) }
    { value[name] = $2 }
    END {
        printf "Throughput: %d results in %.2f s from submit to the last one read: %.0f jobs/s, %.0f output tokens/s\n",
            jobs["result"], took_ms / 1000, jobs["result"] * 1000 / took_ms, tokens["output"] * 1000 / took_ms
        printf "Batches:    %d of %.1f jobs on average; %.1f rows in a decoding step on average\n",
            value["batch_jobs_count"], value["batch_jobs_sum"] / value["batch_jobs_count"],
            value["engine_rows_in_steps_total"] / value["engine_steps_total"]
        printf "Prefixes:   %d of %d prompt tokens were found in the KV cache\n",
            tokens["cached"], tokens["prompt"]
        printf "Committed: %s\n", offsets
    }' "$WORK/metrics"

kill -TERM "${worker_pid[demo]}"
if worker_wait demo; then
    echo "Stopped by SIGTERM: drained, committed, exit code 0.  Log: $WORK/demo.log"
else
    echo "The worker ended with exit code $?; its log:"
    tail -20 "$WORK/demo.log"
    exit 1
fi
worker_pid[demo]=
