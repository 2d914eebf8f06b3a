/* translate-worker check: everything that `run` needs, looked at one after the other, nothing changed. */
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "engine/backend.h"
#include "kafka/admin.h"
#include "kafka/embedded.h"
#include "model/model.h"
#include "text/language.h"
#include "text/prompt.h"
#include "text/tokenizer.h"
#include "wire/schema_store.h"
#include "worker/plan.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BROKER_MS = 5000 };

static const char help[] =
    "usage: translate-worker check [--config FILE] [--set KEY=VALUE]... [--offline]\n\n"
    "Looks at the configuration, model, tokenizer, backend, schemas, brokers and topics, and says what `run` would "
    "do.\n"
    "On a card the model is loaded as `run` would, and the speed that the card allows is measured.\n"
    "Changes nothing.  One line each, \"ok\" or \"FAIL\"; exits by the first that fails.  To see it at work on live "
    "jobs\n"
    "without being noticed: translate-worker run --shadow.\n\n" CLI_COMMON_HELP
    "      --offline            leave the brokers out\n"
    "\nExit codes: 0 all well; 2 command line; 3 configuration; 4 model; 5 Kafka; 6 device.\n";

/* The parts that are opened on the way; closed together. */
struct subject {
    struct config cfg;
    struct model *model;
    struct plan_limits limits;
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct prompt *prompt;
    struct schema_store *schemas;
    struct embedded *embedded;
    int exit_code; /* of the first failure */
};

static void good(const char *what, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void good(const char *what, const char *fmt, ...)
{
    va_list ap;

    printf("ok    %-10s ", what);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

static void bad(struct subject *s, const char *what, const struct err *e)
{
    printf("FAIL  %-10s %s\n", what, e->msg);
    fflush(stdout);
    if (s->exit_code == EXIT_OK)
        s->exit_code = cli_exit_code(e);
}

static bool check_model(struct subject *s)
{
    const struct model_config *c = &s->cfg.model;
    const struct plan_limits *l = &s->limits;
    struct err e;

    if (model_open(&s->model, c->path, &e) != ERR_OK ||
        plan_limits(&s->limits, &s->cfg.limits, &s->model->dims, NULL, &e) != ERR_OK) {
        bad(s, "model", &e);
        return false;
    }
    if (*c->name)
        snprintf(s->model->name, sizeof s->model->name, "%s", c->name);
    const struct dims *d = &s->model->dims;
    good("model", "%s, digest %s: %d layers, hidden %d, vocabulary %d, %.1f MiB of weights", s->model->name,
         s->model->digest, d->layers, d->hidden, d->vocab, (double)s->model->weight_bytes / (1024 * 1024));
    good("limits", "sequences of %d tokens: prompts up to %d, answers up to %d", l->max_sequence, l->max_input,
         l->max_output);
    return true;
}

/* One prompt is built, so that what `run` would do with a job is seen to work. */
static bool check_text(struct subject *s)
{
    static const char sample[] = "Good morning.";
    const struct model_config *c = &s->cfg.model;
    enum prompt_generation g = PROMPT_AUTO;
    size_t n = 0, n_prefix = 0;
    char path[4096];
    int32_t ids[512];
    struct err e;

    snprintf(path, sizeof path, "%s/tokenizer.json", c->path);
    if (tokenizer_open(&s->tokenizer, path, &e) != ERR_OK || encoder_open(&s->encoder, s->tokenizer, &e) != ERR_OK) {
        bad(s, "tokenizer", &e);
        return false;
    }
    good("tokenizer", "%d ids", tokenizer_size(s->tokenizer));
    if (!prompt_generation_parse(c->prompt, &g))
        err_set(&e, ERR_CONFIG, ERR_STOP, "model.prompt: found \"%s\", allowed are auto, mt, mt1.5, mt2", c->prompt);
    else if (prompt_open(&s->prompt, s->tokenizer, c->path, s->model->name, g, c->force_template, &e) == ERR_OK &&
             prompt_build(s->prompt, s->encoder, NULL, language_find("de"), sample, strlen(sample), ids, 512, &n,
                          &n_prefix, &e) == ERR_OK) {
        good("prompt", "%s: \"%s\" into German is %zu tokens", prompt_describe(s->prompt), sample, n);
        return true;
    }
    bad(s, "prompt", &e);
    return false;
}

/* The floor of a step of decoding: it reads all weights once (of an embedding that is not the head too, a few rows),
 * and multiplies them with every row.  Keys and values come on top, so nothing is faster than this. */
static double step_floor(const struct dims *d, const struct backend_info *i, int rows, double copy, double matrix)
{
    const double bytes = (double)i->weight_bytes - (d->tied ? 0 : 2.0 * d->vocab * d->hidden);
    const double move = bytes / copy, multiply = bytes * rows / matrix; /* two bytes and two operations a weight */

    return move > multiply ? move : multiply;
}

/* Loads the model as `run` would, which shows that it fits, and measures the device for a moment.  Only backends that can
 * measure: the others would take long to load for nothing. */
static void check_speed(struct subject *s, const struct backend_ops *ops)
{
    const struct backend_options o = plan_backend(&s->cfg.engine, &s->limits);
    const double gib = 1 << 30;
    struct backend *b = NULL;
    struct backend_info i;
    double copy, matrix;
    struct err e;

    if (ops->open(&b, s->model, &o, &e) != ERR_OK) {
        bad(s, "memory", &e);
        return;
    }
    ops->info(b, &i);
    good("memory", "weights %.2f GiB, KV %.2f (%lld tokens, %d rows), workspace %.2f; %.2f of %.2f GiB were free",
         (double)i.weight_bytes / gib, (double)i.kv_bytes / gib, (long long)i.blocks * i.block_tokens, i.rows,
         (double)i.workspace_bytes / gib, (double)i.free_bytes / gib, (double)i.total_bytes / gib);
    if (ops->ceilings(b, &copy, &matrix, &e) != ERR_OK) {
        bad(s, "speed", &e);
    } else {
        const double one = step_floor(&s->model->dims, &i, 1, copy, matrix);
        const double all = step_floor(&s->model->dims, &i, i.rows, copy, matrix);
        good("speed",
             "at most %.0f tokens/s for one row (a step reads the weights: %.3f ms at %.2f TB/s), %.0f for %d rows "
             "(%.3f ms at %.0f TFLOP/s)",
             1 / one, one * 1e3, copy * 1e-12, i.rows / all, i.rows, all * 1e3, matrix * 1e-12);
    }
    ops->close(b);
}

static void check_backend(struct subject *s)
{
    const struct backend_ops *ops;
    char text[256] = "";
    struct err e;

    if (backend_find(&ops, s->cfg.engine.backend, &e) != ERR_OK ||
        (ops->probe && ops->probe(s->cfg.engine.device, text, sizeof text, &e) != ERR_OK)) {
        bad(s, "backend", &e);
        return;
    }
    good("backend", "%s: %s", ops->name, text);
    if (s->model && ops->ceilings)
        check_speed(s, ops);
}

static void check_schemas(struct subject *s)
{
    const struct wire_config *c = &s->cfg.wire;
    struct err e;

    if (schema_store_open(&s->schemas, c->registry_url, c->registry_schemas, c->registry_timeout_ms, &e) != ERR_OK)
        bad(s, "schemas", &e);
    else
        good("schemas", "registry %s, folder %s", *c->registry_url ? c->registry_url : "none",
             *c->registry_schemas ? c->registry_schemas : "none");
}

static void check_topic(struct subject *s, const struct admin_topic *t)
{
    struct err e = t->problem;

    if (t->partitions > 0) {
        good("topic", "%s, %d partitions", t->name, t->partitions);
    } else if (t->partitions == 0 && s->cfg.kafka.create_topics) {
        good("topic", "%s does not exist; run would create it with %d partitions, %d replicas", t->name,
             s->cfg.kafka.partitions, s->cfg.kafka.replication_factor);
    } else {
        if (e.code == ERR_OK || t->partitions == 0)
            err_set(&e, ERR_KAFKA, ERR_STOP, "%s does not exist (create it, or set kafka.create_topics = true)",
                    t->name);
        bad(s, "topic", &e);
    }
}

static void check_brokers(struct subject *s)
{
    const struct kafka_config *k = &s->cfg.kafka;
    const char *bootstrap = k->bootstrap_servers;
    struct admin_report r;
    struct err e;

    memset(&r, 0, sizeof r);
    if (k->embedded) {
        if (embedded_open(&s->embedded, k, &e) != ERR_OK) {
            bad(s, "brokers", &e);
            return;
        }
        bootstrap = embedded_bootstrap(s->embedded);
    }
    if (admin_ask(&r, k, bootstrap, BROKER_MS, &e) != ERR_OK) {
        if (e.code == ERR_TIMEOUT)
            e.code = ERR_KAFKA;
        bad(s, "brokers", &e);
        return;
    }
    good("brokers", "%s%s: %d broker%s, cluster %s", bootstrap, k->embedded ? " (embedded)" : "", r.brokers,
         r.brokers == 1 ? "" : "s", *r.cluster_id ? r.cluster_id : "unknown");
    check_topic(s, &r.request);
    check_topic(s, &r.result);
    check_topic(s, &r.dead_letter);
}

static void tell(const struct subject *s)
{
    const struct config *c = &s->cfg;

    printf("run would read %s as group %s, translate with %s, publish to %s and set aside to %s;\n"
           "micro-batches of up to %d jobs or %d tokens after at most %d ms; up to %d jobs in flight; delivery %s%s.\n",
           c->kafka.request_topic, c->kafka.group_id, s->model ? s->model->name : "the model", c->kafka.result_topic,
           c->kafka.dead_letter_topic, c->batch.max_jobs, c->batch.max_tokens, c->batch.linger_ms,
           c->delivery.max_in_flight_jobs, c->delivery.mode == DELIVERY_EXACTLY_ONCE ? "exactly once" : "at least once",
           c->http.enabled ? "; HTTP on" : "");
}

static void close_subject(struct subject *s)
{
    embedded_close(s->embedded);
    schema_store_close(s->schemas);
    prompt_close(s->prompt);
    encoder_close(s->encoder);
    tokenizer_close(s->tokenizer);
    model_close(s->model);
    config_free(&s->cfg);
}

static enum err_code parse(struct cli_options *o, int argc, char **argv, bool *offline, bool *wants_help, struct err *e)
{
    static const struct option options[] = {CLI_COMMON_OPTIONS,
                                            {"offline", no_argument, NULL, 'o'},
                                            {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "c:s:b:h", options, NULL)) != -1) {
        e->code = ERR_OK;
        if (option == 'h')
            *wants_help = true;
        else if (option == 'o')
            *offline = true;
        else if (!cli_take_common(o, option, optarg, e))
            return err_set(e, ERR_USAGE, ERR_STOP, "check: see translate-worker check --help");
        if (e->code != ERR_OK)
            return e->code;
    }
    if (optind < argc)
        return err_set(e, ERR_USAGE, ERR_STOP, "check: unexpected argument \"%s\"", argv[optind]);
    return ERR_OK;
}

int cli_check(int argc, char **argv)
{
    struct cli_options o = {.config_path = NULL};
    bool offline = false, wants_help = false;
    struct subject s;
    struct err e = {.code = ERR_OK};

    memset(&s, 0, sizeof s);
    if (parse(&o, argc, argv, &offline, &wants_help, &e) != ERR_OK)
        return cli_fail(&e);
    if (wants_help) {
        fputs(help, stdout);
        return EXIT_OK;
    }
    if (cli_load_config(&s.cfg, &o, &e) != ERR_OK) {
        bad(&s, "config", &e);
        return s.exit_code;
    }
    if (config_check_library(&s.cfg, admin_library_version(), &e) != ERR_OK)
        bad(&s, "config", &e);
    else
        good("config", "%s", o.config_path ? o.config_path : "defaults");
    if (check_model(&s))
        check_text(&s);
    check_backend(&s);
    check_schemas(&s);
    if (!offline)
        check_brokers(&s);
    if (s.exit_code == EXIT_OK)
        tell(&s);
    close_subject(&s);
    return s.exit_code;
}
