/* submit: lines, TSV or JSONL from a file or stdin to the request topic, in any encoding. */
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "kafka/publisher.h"
#include "wire/codec.h"
#include "wire/schema_store.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINE_BYTES = 64 << 20 };

enum input_format { INPUT_LINES, INPUT_TSV, INPUT_JSONL, INPUT_RAW };

struct submit {
    struct cli_options common;
    enum input_format format;
    enum encoding encoding;
    int32_t schema_id;
    const char *from, *to, *id_prefix;
    bool print_ids, keyed;
    int64_t deadline_ms; /* from now; 0 = none */
    int timeout_s;

    struct publisher *publisher;
    struct codec *codec;
    struct arena arena;
    char prefix[32];
    long long line, sent, acknowledged, refused, failed;
    struct err last_error;
};

static const char help_text[] =
    "usage: translate-worker submit [options] [FILE]\n"
    "\n"
    "Puts one job a line on the request topic, from FILE or standard input, and waits for the broker's "
    "acknowledgement.\n"
    "\n"
    "  -f, --format FORMAT      lines   TEXT                               (needs --to)\n"
    "                           tsv     TEXT | LANG<TAB>TEXT | ID<TAB>LANG<TAB>TEXT\n"
    "                           jsonl   a request object as in schemas/translation_request.avsc\n"
    "                           raw     each line as it is, unchecked\n"
    "                           default: lines\n"
    "      --to LANG            target language, code or English name\n"
    "      --from LANG          source language\n"
    "  -e, --encoding ENC       json (default), avro (single object) or registry\n"
    "      --schema-id N        registry: the id of the request schema\n"
    "      --id-prefix TEXT     job ids are TEXT-1, TEXT-2, ... (default: the time, in hex)\n"
    "      --no-key             null keys; else the job id is the record's key\n"
    "      --deadline-ms N      jobs expire N ms from now\n"
    "  -i, --ids                print each job's id on standard output\n"
    "      --timeout SECONDS    give up when the broker has not answered for so long (30)\n" CLI_COMMON_HELP "\n"
    "Exit codes: 0 all acknowledged, 1 some lines refused or not acknowledged, 2 usage, 3 configuration, 5 Kafka\n";

static void on_report(void *ctx, void *opaque, enum err_code rc, const struct err *e)
{
    struct submit *s = ctx;

    (void)opaque; /* the jobs are counted, not told apart */
    if (rc == ERR_OK) {
        s->acknowledged++;
        return;
    }
    s->failed++;
    s->last_error = *e;
}

static struct text text_of(const char *s)
{
    return (struct text){s, s ? strlen(s) : 0};
}

/* Fills *j from one line. */
static enum err_code parse_line(struct submit *s, const char *line, size_t n, struct job *j, struct err *e)
{
    struct text column[3] = {{line, n}};
    const char *tab;
    int last = 0;

    *j = (struct job){.target_lang = text_of(s->to), .source_lang = text_of(s->from)};
    while (s->format == INPUT_TSV && last < 2 && (tab = memchr(column[last].s, '\t', column[last].n)) != NULL) {
        struct text rest = {tab + 1, column[last].n - (size_t)(tab + 1 - column[last].s)};
        column[last].n -= rest.n + 1;
        column[++last] = rest;
    }
    j->text = column[last];
    if (last >= 1)
        j->target_lang = column[last - 1];
    if (last == 2)
        j->job_id = column[0];
    if (!j->target_lang.s)
        return err_set(e, ERR_MISSING_FIELD, ERR_SKIP, "no target language (give --to LANG)");
    return ERR_OK;
}

static enum err_code parse_json(struct submit *s, const char *line, size_t n, struct job *j, struct err *e)
{
    struct record r = {.value = line, .value_size = n, .timestamp_ms = -1};
    enum encoding enc;

    if (n == 0 || line[0] != '{')
        return err_set(e, ERR_UNDECODABLE, ERR_SKIP, "not a JSON object");
    return codec_decode_request(s->codec, &r, j, &enc, &s->arena, e);
}

/* Sends, waiting for room in the producer's queue at most timeout_s. */
static enum err_code send(struct submit *s, const struct outgoing *o, struct err *e)
{
    int64_t limit = clock_mono_ns() + s->timeout_s * NS_PER_S;
    enum err_code rc;

    while ((rc = publisher_send(s->publisher, o, e)) == ERR_BUSY && clock_mono_ns() < limit)
        publisher_turn(s->publisher, 100);
    return rc;
}

static enum err_code submit_line(struct submit *s, const char *line, size_t n, struct err *e)
{
    struct outgoing o = {.to = PUBLISH_REQUEST, .partition = -1, .value = line, .value_size = n};
    char id[96] = "";
    struct text value;
    struct job j = {0};
    enum err_code rc;

    arena_reset(&s->arena);
    if (s->format != INPUT_RAW) {
        rc = s->format == INPUT_JSONL ? parse_json(s, line, n, &j, e) : parse_line(s, line, n, &j, e);
        if (rc != ERR_OK)
            return rc;
        if (!j.job_id.s) {
            snprintf(id, sizeof id, "%s-%lld", s->id_prefix, s->line);
            j.job_id = text_of(id);
        }
        if (s->deadline_ms > 0 && !j.has_deadline) {
            j.has_deadline = true;
            j.deadline_ms = clock_wall_ms() + s->deadline_ms;
        }
        if ((rc = codec_encode_request(s->codec, &j, s->encoding, s->schema_id, &s->arena, &value, e)) != ERR_OK)
            return rc;
        o.value = value.s;
        o.value_size = value.n;
        if (s->keyed) {
            o.key = j.job_id.s;
            o.key_size = j.job_id.n;
        }
    }
    if ((rc = send(s, &o, e)) != ERR_OK)
        return rc;
    s->sent++;
    if (s->print_ids && j.job_id.s)
        printf("%.*s\n", (int)j.job_id.n, j.job_id.s);
    return ERR_OK;
}

/* Every line of in; those that are refused are named on stderr. */
static enum err_code submit_all(struct submit *s, int fd, const char *name, struct err *e)
{
    struct lines lines;
    const char *line;
    enum err_code rc;
    size_t n;

    rc = lines_open(&lines, fd, MAX_LINE_BYTES, e);
    lines.keeps_cr = s->format == INPUT_RAW;
    while (rc == ERR_OK && !lines_are_over(&lines)) {
        rc = lines_next(&lines, true, &line, &n, e);
        if (rc != ERR_OK && e->act != ERR_SKIP)
            err_prefix(e, "%s", name);
        else if (rc == ERR_OK && !line)
            break;
        else
            s->line++;
        if (rc == ERR_OK && (n > 0 || s->format == INPUT_RAW))
            rc = submit_line(s, line, n, e);
        if (rc != ERR_OK && e->act == ERR_SKIP) {
            fprintf(stderr, "translate-worker: %s:%lld: %s\n", name, s->line, e->msg);
            s->refused++;
            rc = ERR_OK;
        }
        publisher_turn(s->publisher, 0);
    }
    lines_close(&lines);
    return rc;
}

/* Waits until every sent job has been reported, at most timeout_s without any progress. */
static void await_reports(struct submit *s)
{
    int64_t limit = clock_mono_ns() + s->timeout_s * NS_PER_S;
    long long seen = -1;

    while (s->acknowledged + s->failed < s->sent && clock_mono_ns() < limit) {
        publisher_turn(s->publisher, 100);
        if (s->acknowledged + s->failed != seen) {
            seen = s->acknowledged + s->failed;
            limit = clock_mono_ns() + s->timeout_s * NS_PER_S;
        }
    }
}

static bool parse_format(const char *name, enum input_format *out)
{
    static const char *const names[] = {"lines", "tsv", "jsonl", "raw"};

    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum input_format)i;
            return true;
        }
    return false;
}

static bool parse_encoding(const char *name, enum encoding *out)
{
    for (int i = ENCODING_JSON; i <= ENCODING_REGISTRY; i++)
        if (strcmp(name, encoding_name((enum encoding)i)) == 0) {
            *out = (enum encoding)i;
            return true;
        }
    return false;
}

enum { OPT_TO = 256, OPT_FROM, OPT_SCHEMA_ID, OPT_ID_PREFIX, OPT_NO_KEY, OPT_DEADLINE, OPT_TIMEOUT };

static enum err_code parse_options(struct submit *s, int argc, char **argv, struct err *e)
{
    static const struct option options[] = {{"format", required_argument, NULL, 'f'},
                                            {"encoding", required_argument, NULL, 'e'},
                                            {"ids", no_argument, NULL, 'i'},
                                            {"to", required_argument, NULL, OPT_TO},
                                            {"from", required_argument, NULL, OPT_FROM},
                                            {"schema-id", required_argument, NULL, OPT_SCHEMA_ID},
                                            {"id-prefix", required_argument, NULL, OPT_ID_PREFIX},
                                            {"no-key", no_argument, NULL, OPT_NO_KEY},
                                            {"deadline-ms", required_argument, NULL, OPT_DEADLINE},
                                            {"timeout", required_argument, NULL, OPT_TIMEOUT},
                                            CLI_COMMON_OPTIONS,
                                            {NULL, 0, NULL, 0}};
    enum err_code rc = ERR_OK;
    long long n = 0;
    int option;

    e->code = ERR_OK;
    while (rc == ERR_OK && (option = getopt_long(argc, argv, "f:e:ic:s:b:h", options, NULL)) != -1) {
        switch (option) {
        case 'f':
            if (!parse_format(optarg, &s->format))
                rc = err_set(e, ERR_USAGE, ERR_STOP, "--format: found \"%s\", allowed are lines, tsv, jsonl, raw",
                             optarg);
            break;
        case 'e':
            if (!parse_encoding(optarg, &s->encoding))
                rc = err_set(e, ERR_USAGE, ERR_STOP, "--encoding: found \"%s\", allowed are json, avro, registry",
                             optarg);
            break;
        case 'i': s->print_ids = true; break;
        case OPT_TO: s->to = optarg; break;
        case OPT_FROM: s->from = optarg; break;
        case OPT_ID_PREFIX: s->id_prefix = optarg; break;
        case OPT_NO_KEY: s->keyed = false; break;
        case OPT_SCHEMA_ID:
            rc = cli_parse_int("--schema-id", optarg, 0, INT32_MAX, &n, e);
            s->schema_id = (int32_t)n;
            break;
        case OPT_DEADLINE:
            rc = cli_parse_int("--deadline-ms", optarg, 1, 1LL << 40, &n, e);
            s->deadline_ms = n;
            break;
        case OPT_TIMEOUT:
            rc = cli_parse_int("--timeout", optarg, 1, 86400, &n, e);
            s->timeout_s = (int)n;
            break;
        case 'h': fputs(help_text, stdout); return ERR_CLOSED;
        default:
            if (!cli_take_common(&s->common, option, optarg, e))
                rc = err_set(e, ERR_USAGE, ERR_STOP, "submit: see translate-worker submit --help");
            else
                rc = e->code;
        }
    }
    if (rc == ERR_OK && optind + 1 < argc)
        rc = err_set(e, ERR_USAGE, ERR_STOP, "submit: one FILE at most, found \"%s\" too", argv[optind + 1]);
    if (rc == ERR_OK && s->encoding == ENCODING_REGISTRY && s->schema_id < 0)
        rc = err_set(e, ERR_USAGE, ERR_STOP, "--encoding registry needs --schema-id N");
    return rc;
}

static enum err_code submit_run(struct submit *s, const struct config *cfg, const char *path, struct err *e)
{
    struct schema_store *store = NULL;
    int in = STDIN_FILENO;
    enum err_code rc;

    if (path && strcmp(path, "-") != 0 && (in = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return err_set(e, ERR_USAGE, ERR_STOP, "%s: cannot be opened: %m", path);
    if ((rc = schema_store_open(&store, NULL, cfg->wire.registry_schemas, cfg->wire.registry_timeout_ms, e)) != ERR_OK)
        goto out;
    struct codec_limits limits = codec_default_limits();
    if ((rc = codec_open(&s->codec, store, &limits, e)) != ERR_OK)
        goto out;
    if ((rc = publisher_open(&s->publisher, &cfg->kafka, NULL, &cfg->delivery, on_report, s, e)) != ERR_OK)
        goto out;
    rc = submit_all(s, in, path ? path : "stdin", e);
    await_reports(s);
    if (rc == ERR_OK && (fflush(stdout) != 0 || ferror(stdout)))
        rc = err_set(e, ERR_IO, ERR_STOP, "standard output cannot be written");
out:
    publisher_close(s->publisher, 1000);
    codec_close(s->codec);
    schema_store_close(store);
    if (in != STDIN_FILENO)
        close(in);
    return rc;
}

int cli_submit(int argc, char **argv)
{
    struct submit s = {.schema_id = -1, .timeout_s = 30, .keyed = true};
    struct config cfg;
    struct err e = {0};
    enum err_code rc;

    rc = parse_options(&s, argc, argv, &e);
    if (rc == ERR_CLOSED)
        return EXIT_OK;
    if (rc == ERR_OK)
        rc = cli_load_config(&cfg, &s.common, &e);
    if (rc != ERR_OK)
        return cli_fail(&e);
    if (!s.id_prefix) {
        snprintf(s.prefix, sizeof s.prefix, "%llx", (unsigned long long)clock_wall_ms());
        s.id_prefix = s.prefix;
    }
    arena_init(&s.arena, 1 << 16, (size_t)1 << 28);
    if (cfg.kafka.embedded)
        rc = err_set(&e, ERR_USAGE, ERR_STOP,
                     "kafka.embedded: that cluster lives in the worker; give --bootstrap with the address it logged");
    else
        rc = submit_run(&s, &cfg, optind < argc ? argv[optind] : NULL, &e);
    arena_free(&s.arena);
    fprintf(stderr, "submitted %lld jobs to %s: %lld acknowledged, %lld refused here, %lld not acknowledged\n", s.sent,
            cfg.kafka.request_topic, s.acknowledged, s.refused, s.sent - s.acknowledged);
    config_free(&cfg);
    if (rc != ERR_OK)
        return cli_fail(&e);
    if (s.failed > 0)
        return cli_fail(&s.last_error);
    return s.acknowledged < s.sent ? EXIT_KAFKA : s.refused > 0 ? EXIT_FAILED : EXIT_OK;
}
