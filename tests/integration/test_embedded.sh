#!/usr/bin/env bash
# The real binary with the embedded cluster and the demonstration model: the whole path, the encodings, bad input, stops.
cd "$(dirname "$0")/../.." || exit 1
source tests/integration/lib.sh

mkdir -p "$WORK/schemas"
cp schemas/translation_request.avsc "$WORK/schemas/7.avsc"
cp schemas/translation_result.avsc "$WORK/schemas/8.avsc"
worker_start main --config config/local.cfg --set http.port=0 --set "wire.registry_schemas=$WORK/schemas" \
    --set wire.result_schema_id=8 || exit 1
servers=${worker_bootstrap[main]}

submit() { "$WORKER" submit --bootstrap "$servers" "$@" 2>>"$WORK/submit.log"; }
results() {
    "$WORKER" results --bootstrap "$servers" --output tsv --timeout 60 --set "wire.registry_schemas=$WORK/schemas" "$@"
}

# --- what comes out is what the reference implementation says ---
"$BUILD/evaluation_tsv" tests/golden/demo/evaluation.json >"$WORK/evaluation.tsv"
cut -f1-3 "$WORK/evaluation.tsv" | submit --format tsv --ids >"$WORK/ids"
results --ids "$WORK/ids" >"$WORK/evaluation.out"
check "every job of the evaluation has one result" test "$(cut -f1 "$WORK/evaluation.out" | sort -u | wc -l)" = \
    "$(wc -l <"$WORK/evaluation.tsv")"
check "99% of the translations are the reference implementation's" awk -F'\t' '
    NR == FNR { want[$1] = $4; next }
    { n++; if ($2 == "OK" && $7 == want[$1]) same++; else print "# " $1 ": " $7 " | " want[$1] }
    END { print "# " same " of " n; exit !(n > 0 && same >= 0.99 * n) }' "$WORK/evaluation.tsv" "$WORK/evaluation.out"

# --- three encodings, in and out ---
encodings_agree() {
    local enc
    for enc in json avro "registry --schema-id 7"; do
        # shellcheck disable=SC2086 # the encoding and its option
        echo 'The file could not be opened.' | submit --to de --id-prefix "enc-${enc%% *}" --ids --encoding $enc
    done >"$WORK/encodings.ids"
    results --ids "$WORK/encodings.ids" >"$WORK/encodings.out"
    test "$(cut -f7 "$WORK/encodings.out" | sort | uniq -c | awk '{print $1}')" = 3
}
check "JSON, Avro single object and registry framing give the same translation" encodings_agree
check "results of all encodings are readable as JSON lines" test \
    "$("$WORKER" results --bootstrap "$servers" --output jsonl --set "wire.registry_schemas=$WORK/schemas" |
        grep -c '^{.*"job_id":"[ae].*"translation":"')" = 253

# --- bad input: a dead letter with its reason, the next job goes on ---
{
    printf '\n' # a value of 0 bytes
    printf 'garbage\n'
    printf '{"job_id": "no-text", "target_lang": "de"}\n'
    printf '{"job_id": "no-lang", "text": "x"}\n'
    printf '{"job_id": "klingon", "text": "x", "target_lang": "tlh"}\n'
    printf '{"job_id": "blank", "text": "  ", "target_lang": "de"}\n'
    printf '{"job_id": "late", "text": "x", "target_lang": "de", "deadline": 1}\n'
    printf '{"job_id": "hot", "text": "x", "target_lang": "de", "options": {"temperature": -1}}\n'
    printf '{"job_id": "cut", "text": "x", \n'
    printf '{"job_id": "terms", "text": "x", "target_lang": "de", "glossary": [{"source": "a", "target": "b"}]}\n'
    printf '{"job_id": "long", "target_lang": "de", "text": "%s"}\n' "$(yes 'words and more words' | head -n 500 | tr '\n' ' ')"
    printf '{"job_id": "twice", "text": "Cancel", "target_lang": "de"}\n'
    printf '{"job_id": "twice", "text": "Cancel", "target_lang": "de"}\n'
} | submit --format raw
results --dead-letters --count 266 >"$WORK/bad.out"
dead() { grep -q "DEAD_LETTER.*$1" "$WORK/bad.out"; }
check "an empty value is a dead letter" dead 'UNDECODABLE.*0 bytes'
check "garbage is a dead letter" dead 'UNDECODABLE.*magic byte 0x67'
check "a missing text is named" dead 'MISSING_FIELD.*text'
check "a missing language is named" dead 'MISSING_FIELD.*target_lang'
check "an unknown language is named" dead 'UNKNOWN_LANGUAGE.*tlh'
check "a blank text is a dead letter" dead EMPTY_TEXT
check "a passed deadline is a result that says so" grep -q '^late.EXPIRED.*deadline' "$WORK/bad.out"
check "an option out of range is named" dead 'INVALID_FIELD.*temperature'
check "cut JSON is a dead letter" dead 'UNDECODABLE.*JSON'
check "a glossary is refused by name rather than ignored" dead 'UNSUPPORTED.*glossary'
check "a text that is too long is a dead letter" dead TEXT_TOO_LONG
results --dead-letters --output jsonl --count 266 >"$WORK/bad.jsonl"
check "dead letters are readable as JSON lines" test "$(grep -c '^{.*"status":"DEAD_LETTER".*"error_code":"[A-Z]' "$WORK/bad.jsonl")" = 10
check "the same job id twice gives two results" test "$(grep -c '^twice.OK' "$WORK/bad.out")" = 2
check "the dead letters are counted" test "$(metric main 'jobs_total{outcome="dead_letter"}')" = 10
check "and the expired one" test "$(metric main 'jobs_total{outcome="expired"}')" = 1

# --- a shadow beside it ---
shadow() { # its own group, from the oldest job on, twenty of them
    timeout 120 "$WORKER" run --config config/local.cfg --bootstrap "$servers" --shadow --from-beginning --count 20 \
        >"$WORK/shadow.out" 2>"$WORK/shadow.log"
}
ends() { "$WORKER" results --bootstrap "$servers" --dead-letters --output tsv --set "wire.registry_schemas=$WORK/schemas" | wc -l; }
before=$(ends)
check "run --shadow translates live jobs and ends" shadow
check "it prints a line a job and a summary" test "$(grep -vc '^#' "$WORK/shadow.out"):$(grep -c '^# 20 jobs' "$WORK/shadow.out")" = 20:1
check "and publishes nothing" test "$(ends)" = "$before"
check_exit 2 "--count without --shadow is a usage error" "$WORKER" run --count 3

# --- pages ---
page() { curl -fsS "http://127.0.0.1:${worker_http[main]}$1"; }
no_lag() { [ "$(page /status | grep -c '"lag": 0')" = 6 ]; }
check "live" page /live
check "ready" page /ready
check "status names the model" grep -q '"name": "demo"' <(page /status)
check "the page for people is HTML" grep -qi '<html' <(page /)
check "all committed: no lag" within 10 no_lag

# --- signals ---
kill -USR1 "${worker_pid[main]}"
begun=$(metric main record_age_seconds_count)
all_begun() { [ "$(metric main record_age_seconds_count)" = $((begun + $(wc -l <"$WORK/again.ids"))) ]; }
cut -f1-3 "$WORK/evaluation.tsv" | sed 's/^eval/again/' | submit --format tsv --ids >"$WORK/again.ids"
within 30 all_begun # what was only read is given back
kill -TERM "${worker_pid[main]}"
check_exit 0 "SIGTERM under load drains and exits with 0" worker_wait main
check "what was taken was finished" within 5 grep -q 'event=stopped .*given_back=0' "$WORK/main.log"

hear() { # hear WORD: the worker on $fd has said it
    local line
    while IFS= read -r -t 1 line <&"$fd"; do
        printf '%s\n' "$line" >>"$WORK/nobroker.log"
    done
    grep -qi "$1" "$WORK/nobroker.log"
}
start_and_stop() { # a worker whose broker is not there is told to stop
    exec {fd}< <(exec "$WORKER" run --config config/local.cfg --bootstrap 127.0.0.1:1 --set http.port=0 2>&1 >/dev/null)
    local pid=$!
    within 30 hear 'event=broker' || echo "# nothing was said about the broker"
    kill -TERM $pid
    timeout 20 tail --pid=$pid -f /dev/null
    wait $pid
}
check_exit 0 "a broker that is not there is waited for, and SIGTERM honoured" start_and_stop
check "the missing broker is named in the log" grep -q '127.0.0.1:1' "$WORK/nobroker.log"

# --- translate, tokenize, check ---
cut -f3 "$WORK/evaluation.tsv" | head -50 >"$WORK/lines"
"$WORKER" translate --model ops/demo/model --to de <"$WORK/lines" >"$WORK/lines.out"
check "translate keeps order and agrees with the worker" \
    cmp -s "$WORK/lines.out" <(sort -t- -k2n "$WORK/evaluation.out" | head -50 | cut -f7)
"$WORKER" tokenize --model ops/demo/model <"$WORK/lines" |
    "$WORKER" tokenize --model ops/demo/model --decode >"$WORK/lines.back"
check "tokenize and --decode go there and back" cmp -s "$WORK/lines" "$WORK/lines.back"
check_exit 0 "check --offline is content with the demonstration" worker_check --offline --config config/local.cfg
check_exit 4 "check says a missing model by exit code 4" worker_check --offline --config config/local.cfg \
    --set model.path=/nowhere
readme_reference() { sed -n '/<!-- config: begin -->/,/<!-- config: end -->/{/<!-- config: /!p}' README.md; }
check "the configuration reference in README.md is up to date (make docs)" \
    cmp -s <("$WORKER" config --markdown) <(readme_reference)
check_exit 3 "an unknown key is a configuration error" "$WORKER" run --set kafka.grup_id=x
check_exit 2 "an unknown command is a usage error" "$WORKER" frobnicate
check_exit 5 "check says a missing broker by exit code 5" worker_check --config config/local.cfg \
    --bootstrap 127.0.0.1:1

finish
