/* config.h -- everything that can be set, in one struct, checked as a whole, then const.
 * config.c alone knows libconfig and getenv.  Each field's path in the file is group.field as below
 * (struct config.kafka.group_id is kafka.group_id).  Strings are owned by the struct. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum delivery_mode {
    DELIVERY_AT_LEAST_ONCE,
    DELIVERY_EXACTLY_ONCE,
    DELIVERY_SHADOW /* no key: run --shadow.  Nothing is committed, nothing published */
};
enum delivery_order { ORDER_NONE, ORDER_KEY };
enum wire_encoding { WIRE_SAME, WIRE_JSON, WIRE_AVRO, WIRE_REGISTRY }; /* SAME: as the request was */

struct model_config {
    const char *path;    /* checkpoint folder */
    const char *name;    /* as results name it; "" = the folder's name */
    const char *prompt;  /* auto | mt | mt1.5 | mt2 */
    bool force_template; /* serve a checkpoint whose chat template is unknown */
};

struct engine_config {
    const char *backend; /* auto | cpu | cuda | a library's name */
    int rows;            /* most requests decoded at once; 0 = the backend's own choice */
    int block_tokens;    /* tokens in a KV block */
    int step_tokens;     /* most prompt tokens in a step; 0 = the backend's own choice */
    int step_latency_ms; /* most that rows which decode wait for prompts in the same step, about; 0 = no limit */
    int kv_memory_mb;    /* 0: cpu 1,024 MiB at most a quarter of memory; cuda gpu_memory_fraction of what is free */
    double gpu_memory_fraction;
    int device;  /* CUDA ordinal */
    int threads; /* cpu: 0 = one a core */
    bool prefix_cache;
    bool deterministic;
};

struct batch_config {
    int linger_ms;
    int max_jobs;
    int max_tokens; /* prompt tokens in a micro-batch */
};

struct limits_config {
    int max_record_bytes; /* a larger record value is a dead letter */
    int max_text_bytes;
    int max_input_tokens;    /* whole prompt; 0 = half of the longest sequence */
    int max_output_tokens;   /* cap of what a job may ask for and of the derived default */
    int max_sequence_tokens; /* prompt and output; 0 = min(config.json's max_position_embeddings, 8192) */
};

struct kafka_config {
    const char *bootstrap_servers;
    bool embedded; /* librdkafka's own in-process cluster; bootstrap_servers is then not read */
    const char *group_id;
    const char *instance_id; /* group.instance.id; "" = dynamic member */
    const char *client_id;
    const char *request_topic, *result_topic, *dead_letter_topic;
    bool create_topics;
    int partitions;                  /* of topics that are created, the embedded ones too */
    int replication_factor;          /* of topics that are created */
    const char *assignment_strategy; /* roundrobin | range | cooperative-sticky */
    const char *offset_reset;        /* earliest | latest | error */
    const char *offset_past_end;     /* error | earliest | latest, after */
    int offset_wait_ms;
    int session_timeout_ms, max_poll_interval_ms;
    const char *const *properties; /* further librdkafka "name=value", NULL-terminated */
};

struct delivery_config {
    enum delivery_mode mode;
    enum delivery_order order; /* of results */
    int max_in_flight_jobs;
    int max_in_flight_mb;
    int commit_interval_ms;
    int drain_timeout_ms;  /* at SIGTERM */
    int revoke_timeout_ms; /* how long a revoked partition may finish what is in flight */
    const char
        *transactional_id;   /* exactly_once: one a worker, the same after a restart; "" = from group and instance id */
    int transaction_results; /* exactly_once: most in a transaction; 0 = half of max_in_flight_jobs */
    int publish_timeout_ms;  /* librdkafka's message timeout of one attempt; a job is retried after it */
};

struct wire_config {
    enum wire_encoding result_encoding;
    int64_t result_schema_id;     /* registry framing: id of translation_result.avsc; -1 = unknown */
    const char *registry_url;     /* "" = none */
    const char *registry_schemas; /* folder with ID.avsc files, read at start; "" = none */
    int registry_timeout_ms;
};

struct retry_config {
    int max_attempts; /* of one job, for failures of its own row */
    int backoff_ms, backoff_max_ms;
    int max_crashes; /* of the process, with this job alone in work; 0 = nobody counts */
};

struct dead_letter_config {
    double max_share; /* of the last 10,000 jobs; more stops the worker.  Counted from 1,000 jobs on */
    int max_run;      /* in a row */
};

struct http_config {
    bool enabled;
    const char *address;
    int port; /* 0 = any free one */
};

struct log_config {
    enum log_level level;
};

struct config {
    struct model_config model;
    struct engine_config engine;
    struct batch_config batch;
    struct limits_config limits;
    struct kafka_config kafka;
    struct delivery_config delivery;
    struct wire_config wire;
    struct retry_config retry;
    struct dead_letter_config dead_letter;
    struct http_config http;
    struct log_config log;
    long long shadow_count; /* no key: run --shadow --count; 0 = no limit */
    void *owned;            /* strings */
};

/* Reads path (libconfig syntax), then the environment (kafka.group_id is TRANSLATE_WORKER_KAFKA_GROUP_ID), then overrides
 * ("kafka.group_id=mt", n of them; each later one wins), and fills *c; absent keys have their defaults.  path NULL = no
 * file.  kafka.properties of environment (one a line) and overrides (one each) are added to the file's, and replace
 * those of the same name.  ERR_CONFIG names file, line, key, what was found and what is allowed; an unknown key is an
 * error that names the nearest known one; combinations are checked last.  Values of kafka.properties may be secrets: no
 * message repeats one.  After a failure *c needs no config_free(). */
MUST_CHECK enum err_code config_load(struct config *c, const char *path, const char *const *overrides, int n,
                                     struct err *e);
/* The same for the text of a file, without the environment: for tests and fuzzing.  where is the name for messages. */
MUST_CHECK enum err_code config_parse_string(struct config *c, const char *text, const char *where, struct err *e);
void config_free(struct config *c);

/* Is the librdkafka property name[0..n) one that the worker sets itself?  What to do instead, or why not; NULL: it is
 * free. */
const char *config_property_taken(const char *name, size_t n);

/* Settings that this librdkafka (rd_kafka_version(): 0x020002ff is 2.0.2) cannot do safely. */
MUST_CHECK enum err_code config_check_library(const struct config *c, int librdkafka_version, struct err *e);

/* The table as documentation: key, type, default, range, unit, help.  As Markdown (README's reference) or as a
 * commented configuration file with every default (config/worker.cfg is exactly this output). */
void config_print_markdown(FILE *out);
void config_print_file(FILE *out);

#endif
