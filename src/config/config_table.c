#include "config/config_table.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "config/config.h"

static const char *const prompt_names[] = {"auto", "mt", "mt1.5", "mt2", NULL};
static const char *const strategy_names[] = {"roundrobin", "range", "cooperative-sticky", NULL};
static const char *const reset_names[] = {"earliest", "latest", "error", NULL};
static const char *const past_end_names[] = {"error", "earliest", "latest", NULL};
static const char *const mode_names[] = {
    [DELIVERY_AT_LEAST_ONCE] = "at_least_once", [DELIVERY_EXACTLY_ONCE] = "exactly_once", NULL};
static const char *const order_names[] = {[ORDER_NONE] = "none", [ORDER_KEY] = "key", NULL};
static const char *const encoding_names[] = {
    [WIRE_SAME] = "same", [WIRE_JSON] = "json", [WIRE_AVRO] = "avro", [WIRE_REGISTRY] = "registry", NULL};
static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug", NULL};

const struct config_group config_groups[] = {
    {"model", "The checkpoint."},
    {"engine", "Decoding: the device, its rows and its KV cache."},
    {"batch", "A micro-batch closes at whichever comes first."},
    {"limits", "What one job may be; a job past a limit is a dead letter."},
    {"kafka", "Brokers, group and topics."},
    {"delivery", "What is in flight, and how long things may take."},
    {"wire", "How results are encoded, and where schemas come from."},
    {"retry", "Failures that may pass, of one job."},
    {"dead_letter", "Too many dead letters stop the worker: something else is wrong then."},
    {"http", "Metrics, health and the status page."},
    {"log", "One key=value line an event, on stderr."},
};
const size_t config_n_groups = sizeof config_groups / sizeof *config_groups;

/* Short forms, so that a setting is one line of the table beside its help. */
#define AT(field)     offsetof(struct config, field)
#define BOOL(f)       CONFIG_BOOL, AT(f)
#define INT(f)        CONFIG_INT, AT(f)
#define INT64(f)      CONFIG_INT64, AT(f)
#define REAL(f)       CONFIG_REAL, AT(f)
#define STRING(f)     CONFIG_STRING, AT(f)
#define CHOICE(f)     CONFIG_CHOICE, AT(f)
#define ENUM(f)       CONFIG_ENUM, AT(f)
#define PROPERTIES(f) CONFIG_PROPERTIES, AT(f)
#define NONE          NULL, NULL

/* clang-format off */
const struct config_key config_keys[] = {
    {"model.path", STRING(model.path), "", 0, 4000, NONE,
     "Checkpoint folder as published: config.json, safetensors, tokenizer.json. The worker needs it."},
    {"model.name", STRING(model.name), "", 0, 100, NONE,
     "Name of the model as results carry it; empty: the folder's name."},
    {"model.prompt", CHOICE(model.prompt), "auto", 0, 0, prompt_names, NULL,
     "Prompt generation; auto looks at the chat template and the name of the folder."},
    {"model.force_template", BOOL(model.force_template), "false", 0, 0, NONE,
     "Serve a checkpoint whose chat template is unknown, with the prompt set above."},

    {"engine.backend", STRING(engine.backend), "auto", 1, 32, NONE,
     "Device: cpu, cuda, or auto, which is cuda where a card is found, else cpu. Another name is that of a backend "
     "library, translate-worker-NAME.so beside the binary."},
    {"engine.rows", INT(engine.rows), "0", 0, 4096, NULL, "requests",
     "Most requests decoded at once; 0: the backend's choice."},
    {"engine.block_tokens", INT(engine.block_tokens), "16", 8, 256, NULL, "tokens",
     "Size of a KV block; a power of two."},
    {"engine.step_tokens", INT(engine.step_tokens), "0", 0, 65536, NULL, "tokens",
     "Most prompt tokens fed in one step beside the running rows; 0: the backend's choice."},
    {"engine.step_latency_ms", INT(engine.step_latency_ms), "0", 0, 60000, NULL, "ms",
     "Prompts are fed in such pieces that a step with running rows takes about so long at most; 0: step_tokens alone "
     "bounds them."},
    {"engine.kv_memory_mb", INT(engine.kv_memory_mb), "0", 0, 4194304, NULL, "MiB",
     "Memory of the KV cache; 0: on a card what gpu_memory_fraction leaves, on the CPU 1024 and at most a quarter "
     "of the memory."},
    {"engine.gpu_memory_fraction", REAL(engine.gpu_memory_fraction), "0.9", 0.05, 0.99, NONE,
     "Share of the card's free memory for weights, workspace and KV cache together."},
    {"engine.device", INT(engine.device), "0", 0, 63, NULL, NULL, "Number of the card."},
    {"engine.threads", INT(engine.threads), "0", 0, 1024, NULL, "threads", "CPU backend; 0: one a core."},
    {"engine.prefix_cache", BOOL(engine.prefix_cache), "true", 0, 0, NONE,
     "Keep the KV cache of prompt beginnings and find it again."},
    {"engine.deterministic", BOOL(engine.deterministic), "true", 0, 0, NONE,
     "Same job, same parameters, same seed: the same output whatever else is decoded beside it (on a card, but for "
     "jobs that were put back because the KV cache was full: their values differ by rounding)."},

    {"batch.linger_ms", INT(batch.linger_ms), "5", 0, 10000, NULL, "ms",
     "How long the first job of a micro-batch waits for others."},
    {"batch.max_jobs", INT(batch.max_jobs), "64", 1, 65536, NULL, "jobs",
     "Jobs in a micro-batch; at most delivery.max_in_flight_jobs."},
    {"batch.max_tokens", INT(batch.max_tokens), "16384", 1, 16777216, NULL, "tokens",
     "Prompt tokens in a micro-batch; a single longer job is a batch of its own."},

    {"limits.max_record_bytes", INT(limits.max_record_bytes), "10485760", 1024, 1000000000, NULL, "bytes",
     "Size of a record's value."},
    {"limits.max_text_bytes", INT(limits.max_text_bytes), "1048576", 1, 1000000000, NULL, "bytes",
     "Size of a job's source text in UTF-8."},
    {"limits.max_input_tokens", INT(limits.max_input_tokens), "0", 0, 1048576, NULL, "tokens",
     "Length of the whole prompt; 0: half of the longest sequence."},
    {"limits.max_output_tokens", INT(limits.max_output_tokens), "4096", 1, 1048576, NULL, "tokens",
     "Cap of what a job may ask for, and of the length derived from its source."},
    {"limits.max_sequence_tokens", INT(limits.max_sequence_tokens), "0", 0, 1048576, NULL, "tokens",
     "Prompt and output together; 0: what config.json says, at most 8192."},

    {"kafka.bootstrap_servers", STRING(kafka.bootstrap_servers), "localhost:9092", 0, 4000, NONE,
     "host:port, comma-separated; not read where embedded is true."},
    {"kafka.embedded", BOOL(kafka.embedded), "false", 0, 0, NONE,
     "Start an in-process broker (nothing on disk): for trying out and for tests."},
    {"kafka.group_id", STRING(kafka.group_id), "translate-worker", 1, 249, NONE,
     "Consumer group; workers of one group share the partitions."},
    {"kafka.instance_id", STRING(kafka.instance_id), "", 0, 249, NONE,
     "group.instance.id: a name that survives restarts, so that a restart moves no partition; empty: dynamic member."},
    {"kafka.client_id", STRING(kafka.client_id), "translate-worker", 1, 64, NONE,
     "Name in the broker's logs and quotas."},
    {"kafka.request_topic", STRING(kafka.request_topic), "translate.requests", 1, 249, NONE, "Jobs."},
    {"kafka.result_topic", STRING(kafka.result_topic), "translate.results", 1, 249, NONE, "Translations."},
    {"kafka.dead_letter_topic", STRING(kafka.dead_letter_topic), "translate.dead", 1, 249, NONE,
     "Jobs that can never succeed, with the reason in their headers."},
    {"kafka.create_topics", BOOL(kafka.create_topics), "false", 0, 0, NONE,
     "Create the topics that are missing at start."},
    {"kafka.partitions", INT(kafka.partitions), "6", 1, 10000, NULL, "partitions", "Of topics that are created."},
    {"kafka.replication_factor", INT(kafka.replication_factor), "1", 1, 32, NULL, "replicas",
     "Of topics that are created."},
    {"kafka.assignment_strategy", CHOICE(kafka.assignment_strategy), "roundrobin", 0, 0, strategy_names, NULL,
     "How partitions are dealt out; cooperative-sticky needs librdkafka 2.3."},
    {"kafka.offset_reset", CHOICE(kafka.offset_reset), "earliest", 0, 0, reset_names, NULL,
     "Where a partition without a committed offset begins; error stops the worker instead. Where retention has deleted what "
     "comes next, earliest and latest go on with the first record that is left."},
    {"kafka.offset_past_end", CHOICE(kafka.offset_past_end), "error", 0, 0, past_end_names, NULL,
     "An offset past the end of its partition (a leader that lost records, a topic made anew), after offset_wait_ms: error "
     "stops the worker; earliest begins at the first record, which may repeat the whole topic; latest begins at the end "
     "as it was first seen, which may pass over records."},
    {"kafka.offset_wait_ms", INT(kafka.offset_wait_ms), "30000", 0, 3600000, NULL, "ms",
     "How long an offset past the end is tried again: after an election the end may come back. The worker is not ready "
     "meanwhile."},
    {"kafka.session_timeout_ms", INT(kafka.session_timeout_ms), "45000", 1000, 3600000, NULL, "ms",
     "A worker that is silent for so long loses its partitions; less than max_poll_interval_ms."},
    {"kafka.max_poll_interval_ms", INT(kafka.max_poll_interval_ms), "300000", 2000, 86400000, NULL, "ms",
     "A worker whose loop stands still for so long loses its partitions."},
    {"kafka.properties", PROPERTIES(kafka.properties), "", 0, 64, NONE,
     "Further librdkafka properties, each \"name=value\": security.protocol, sasl.username, ... Not those that have a key "
     "of their own here or that delivery depends on."},

    {"delivery.mode", ENUM(delivery.mode), "at_least_once", 0, 0, mode_names, NULL,
     "at_least_once: an offset is committed once its result is acknowledged by all in-sync replicas. exactly_once: "
     "results and offsets in one transaction; readers set isolation.level=read_committed."},
    {"delivery.order", ENUM(delivery.order), "none", 0, 0, order_names, NULL,
     "key: results of one record key appear in the order of its jobs, one at a time; jobs without a key never wait. none: "
     "results appear as they are finished."},
    {"delivery.transactional_id", STRING(delivery.transactional_id), "", 0, 200, NONE,
     "exactly_once: a name of this one worker that survives restarts; empty: kafka.group_id and kafka.instance_id."},
    {"delivery.transaction_results", INT(delivery.transaction_results), "0", 0, 100000, NULL, "results",
     "exactly_once: most in one transaction, which is also at most commit_interval_ms old; 0: half of "
     "max_in_flight_jobs."},
    {"delivery.max_in_flight_jobs", INT(delivery.max_in_flight_jobs), "1024", 1, 1000000, NULL, "jobs",
     "Read and not yet published; at the limit reading waits."},
    {"delivery.max_in_flight_mb", INT(delivery.max_in_flight_mb), "256", 1, 65536, NULL, "MiB",
     "Bytes of the jobs in flight; at the limit reading waits."},
    {"delivery.commit_interval_ms", INT(delivery.commit_interval_ms), "200", 1, 60000, NULL, "ms",
     "Time between commits."},
    {"delivery.drain_timeout_ms", INT(delivery.drain_timeout_ms), "30000", 0, 3600000, NULL, "ms",
     "At SIGTERM: how long what is in flight may finish. Let the grace period of the supervisor be longer."},
    {"delivery.revoke_timeout_ms", INT(delivery.revoke_timeout_ms), "20000", 0, 3600000, NULL, "ms",
     "How long a partition that is given up may finish what is in flight; less than kafka.max_poll_interval_ms."},
    {"delivery.publish_timeout_ms", INT(delivery.publish_timeout_ms), "30000", 100, 3600000, NULL, "ms",
     "Of one attempt to publish a result; it is tried again after that."},

    {"wire.result_encoding", ENUM(wire.result_encoding), "same", 0, 0, encoding_names, NULL,
     "same: as the request was; registry needs result_schema_id."},
    {"wire.result_schema_id", INT64(wire.result_schema_id), "-1", -1, 4294967295.0, NONE,
     "Id of translation_result.avsc in the registry; -1: unknown."},
    {"wire.registry_url", STRING(wire.registry_url), "", 0, 2000, NONE,
     "Schema registry, http:// or https://; empty: none."},
    {"wire.registry_schemas", STRING(wire.registry_schemas), "", 0, 4000, NONE,
     "Folder with ID.avsc files, read at start, instead of or before the registry; empty: none."},
    {"wire.registry_timeout_ms", INT(wire.registry_timeout_ms), "2000", 10, 60000, NULL, "ms",
     "Of one question to the registry."},

    {"retry.max_attempts", INT(retry.max_attempts), "5", 1, 100, NULL, "attempts", "Of one job; then it is a dead letter."},
    {"retry.backoff_ms", INT(retry.backoff_ms), "200", 1, 60000, NULL, "ms", "Before the second attempt; doubles."},
    {"retry.backoff_max_ms", INT(retry.backoff_max_ms), "10000", 1, 3600000, NULL, "ms", "Longest wait between attempts."},
    {"retry.max_crashes", INT(retry.max_crashes), "2", 0, 100, NULL, "crashes",
     "Ends of the process (or its device) with one job alone in work; then it is a dead letter. 0: jobs that end the "
     "process are not looked for."},

    {"dead_letter.max_share", REAL(dead_letter.max_share), "0.01", 0, 1, NONE,
     "Share of the last 10,000 jobs, counted from 1,000 jobs on; more stops the worker. 1 switches it off."},
    {"dead_letter.max_run", INT(dead_letter.max_run), "1000", 1, INT_MAX, NULL, "jobs",
     "In a row; more stops the worker."},

    {"http.enabled", BOOL(http.enabled), "true", 0, 0, NONE, "Serve /metrics, /live, /ready, /status and /."},
    {"http.address", STRING(http.address), "127.0.0.1", 1, 255, NONE,
     "Address to listen on; 0.0.0.0 for all, behind a firewall: there is no authentication."},
    {"http.port", INT(http.port), "9464", 0, 65535, NONE, "0: any free port."},

    {"log.level", ENUM(log.level), "info", 0, 0, level_names, NULL, "The least severe level that is written."},
};
/* clang-format on */
const size_t config_n_keys = sizeof config_keys / sizeof *config_keys;

const struct config_key *config_table_find(const char *path)
{
    for (size_t i = 0; i < config_n_keys; i++)
        if (strcmp(config_keys[i].path, path) == 0)
            return &config_keys[i];
    return NULL;
}

const struct config_group *config_table_group(const char *name)
{
    for (size_t i = 0; i < config_n_groups; i++)
        if (strcmp(config_groups[i].name, name) == 0)
            return &config_groups[i];
    return NULL;
}

enum { DISTANCE_CHARS = 63 };

/* Levenshtein, over the first DISTANCE_CHARS characters. */
static int edit_distance(const char *a, const char *b)
{
    size_t n = strnlen(a, DISTANCE_CHARS), m = strnlen(b, DISTANCE_CHARS);
    int row[DISTANCE_CHARS + 1];

    for (size_t k = 0; k <= m; k++)
        row[k] = (int)k;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];

        row[0] = (int)i;
        for (size_t k = 1; k <= m; k++) {
            int best = diagonal + (a[i - 1] != b[k - 1]);

            diagonal = row[k];
            if (row[k] + 1 < best)
                best = row[k] + 1;
            if (row[k - 1] + 1 < best)
                best = row[k - 1] + 1;
            row[k] = best;
        }
    }
    return row[m];
}

const char *config_table_nearest(const char *path)
{
    const char *dot = strchr(path, '.'), *best = config_keys[0].path;
    int least = INT_MAX;

    for (size_t i = 0; i < config_n_keys; i++) {
        const char *known = config_keys[i].path;
        int d = edit_distance(path, known), field = edit_distance(dot ? dot + 1 : path, strchr(known, '.') + 1) + 1;

        if (field < d)
            d = field;
        if (d < least) {
            least = d;
            best = known;
        }
    }
    return best;
}

const char *config_table_nearest_group(const char *name)
{
    const char *best = config_groups[0].name;
    int least = INT_MAX;

    for (size_t i = 0; i < config_n_groups; i++) {
        int d = edit_distance(name, config_groups[i].name);

        if (d < least) {
            least = d;
            best = config_groups[i].name;
        }
    }
    return best;
}
