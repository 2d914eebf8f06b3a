/* results: reads the result topic (and the dead letters), prints what it finds, matches job ids. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/print.h"
#include "kafka/reader.h"
#include "wire/codec.h"
#include "wire/schema_store.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum output_format { OUTPUT_PRETTY, OUTPUT_TSV, OUTPUT_JSONL };

/* The job ids that are waited for: an open-addressed table over one block of text. */
struct id_set {
    char **slots;
    size_t size, count, seen; /* size: a power of two */
    bool *found;
};

struct results {
    struct cli_options common;
    enum output_format format;
    bool dead_letters, follow, from_end, color;
    long long count; /* stop after so many; 0 = no limit */
    int timeout_s;
    const char *ids_path;

    struct reader *readers[2]; /* results, dead letters (NULL: not wanted) */
    struct codec *codec;
    struct arena arena;
    struct id_set ids;
    long long printed, undecodable;
};

static const char help_text[] =
    "usage: translate-worker results [options]\n"
    "\n"
    "Reads the result topic from its beginning and prints each result; stops at its end.\n"
    "\n"
    "  -f, --follow             go on at the end and wait for more\n"
    "      --from-end           only what comes from now on (implies --follow)\n"
    "  -i, --ids FILE           only these job ids (one a line, - is standard input), results and dead letters alike;\n"
    "                           waits until each has been seen\n"
    "  -d, --dead-letters       the dead-letter topic too\n"
    "  -n, --count N            stop after N\n"
    "  -o, --output FORMAT      pretty (default), tsv or jsonl\n"
    "                           tsv: job id, status, target language, milliseconds, tokens, finish reason, "
    "translation\n"
    "      --timeout SECONDS    give up when nothing came for so long (--follow: never; --ids: 60)\n" CLI_COMMON_HELP
    "\n"
    "Exit codes: 0 all that was asked for was seen, 1 some job ids were not, 2 usage, 3 configuration, 5 Kafka\n";

static size_t id_slot(const struct id_set *s, const char *id, size_t n)
{
    size_t i = hash_bytes(id, n, 0) & (s->size - 1);

    while (s->slots[i] && (strlen(s->slots[i]) != n || memcmp(s->slots[i], id, n) != 0))
        i = (i + 1) & (s->size - 1);
    return i;
}

static enum err_code id_set_read(struct id_set *s, const char *path, struct err *e)
{
    enum err_code rc = ERR_OK;
    char *line = NULL;
    FILE *in;
    size_t cap = 0;
    ssize_t n;

    s->size = (size_t)1 << 20; /* at most half full: 524,288 ids */
    s->slots = calloc(s->size, sizeof *s->slots);
    s->found = calloc(s->size, sizeof *s->found);
    if (!s->slots || !s->found)
        return err_set(e, ERR_NOMEM, ERR_STOP, "results: no memory for job ids");
    in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (!in)
        return err_set(e, ERR_USAGE, ERR_STOP, "%s: cannot be opened: %m", path);
    while (rc == ERR_OK && (n = getline(&line, &cap, in)) >= 0) {
        if (n > 0 && line[n - 1] == '\n')
            line[--n] = '\0';
        if (n == 0)
            continue;
        size_t i = id_slot(s, line, (size_t)n);
        if (s->slots[i])
            continue;
        if (s->count >= s->size / 2 || !(s->slots[i] = strdup(line)))
            rc = err_set(e, ERR_USAGE, ERR_STOP, "%s: more than %zu job ids", path, s->size / 2);
        else
            s->count++;
    }
    free(line);
    if (rc == ERR_OK && ferror(in))
        rc = err_set(e, ERR_USAGE, ERR_STOP, "%s: cannot be read: %m", path);
    if (in != stdin)
        fclose(in);
    return rc;
}

static void id_set_free(struct id_set *s)
{
    for (size_t i = 0; s->slots && i < s->size; i++)
        free(s->slots[i]);
    free(s->slots);
    free(s->found);
}

/* Is it asked for?  Marks it as seen. */
static bool id_set_take(struct id_set *s, const struct text *id)
{
    if (!s->slots)
        return true;
    if (!id->s)
        return false;
    size_t i = id_slot(s, id->s, id->n);
    if (!s->slots[i])
        return false;
    if (!s->found[i]) {
        s->found[i] = true;
        s->seen++;
    }
    return true;
}

static void put_line(const struct text *t)
{
    print_on_line(t->s, t->n);
}

static double total_ms(const struct result *res)
{
    return res->queue_ms + res->batch_wait_ms + res->decode_ms;
}

static void print_pretty(const struct results *r, const struct result *res)
{
    bool good = res->status == RESULT_OK;
    const char *on = !r->color ? "" : good ? "\033[32m" : "\033[31m", *off = r->color ? "\033[0m" : "";

    put_line(&res->job_id);
    printf("  %s%s%s  ", on, result_status_name(res->status), off);
    put_line(&res->target_lang);
    printf("  %.0f ms  %d tokens, ", total_ms(res), res->output_tokens);
    put_line(&res->finish_reason);
    printf("\n    ");
    put_line(res->error_message.s ? &res->error_message : &res->translation);
    putchar('\n');
}

static void print_tsv(const struct result *res)
{
    put_line(&res->job_id);
    printf("\t%s\t", result_status_name(res->status));
    put_line(&res->target_lang);
    printf("\t%.1f\t%d\t", total_ms(res), res->output_tokens);
    put_line(&res->finish_reason);
    putchar('\t');
    put_line(res->error_message.s ? &res->error_message : &res->translation);
    putchar('\n');
}

static enum err_code take_result(struct results *r, const struct record *rec, struct err *e)
{
    struct result res;
    struct text json;
    enum err_code rc;

    arena_reset(&r->arena);
    rc = codec_decode_result(r->codec, rec, &res, &r->arena, e);
    if (rc != ERR_OK && e->act == ERR_SKIP) {
        fprintf(stderr, "translate-worker: %s partition %d offset %lld: %s\n", rec->topic, rec->at.partition,
                (long long)rec->at.offset, e->msg);
        r->undecodable++;
        return ERR_OK;
    }
    if (rc != ERR_OK)
        return rc;
    if (!id_set_take(&r->ids, &res.job_id))
        return ERR_OK;
    r->printed++;
    if (r->format == OUTPUT_PRETTY) {
        print_pretty(r, &res);
    } else if (r->format == OUTPUT_TSV) {
        print_tsv(&res);
    } else {
        rc = codec_encode_result(r->codec, &res, ENCODING_JSON, -1, &r->arena, &json, e);
        if (rc == ERR_OK)
            printf("%.*s\n", (int)json.n, json.s);
    }
    return rc;
}

static struct text header_text(const struct record *rec, const char *name)
{
    const struct header *h = record_find_header(rec, name);

    return h ? (struct text){h->value, h->size} : (struct text){NULL, 0};
}

/* A key or a message may be any bytes, JSON is UTF-8: U+FFFD stands for what is not.  NULL: no memory. */
static json_t *json_of(const struct text *t)
{
    char *s = malloc(3 * t->n + 1);
    size_t n = 0;
    json_t *v = NULL;

    for (size_t i = 0; s && i < t->n;) {
        int k = utf8_next(t->s + i, t->n - i, NULL);
        memcpy(s + n, k ? t->s + i : "\xef\xbf\xbd", k ? (size_t)k : 3);
        n += k ? (size_t)k : 3;
        i += (size_t)(k ? k : utf8_invalid(t->s + i, t->n - i));
    }
    if (s)
        v = json_stringn(s, n);
    free(s);
    return v;
}

static enum err_code print_dead_json(const struct text *id, const struct text *code, const struct text *message,
                                     const struct record *rec, struct err *e)
{
    json_t *o = json_pack("{s:o, s:s, s:o, s:o, s:i, s:I}", "job_id", json_of(id), "status", "DEAD_LETTER",
                          "error_code", json_of(code), "error_message", json_of(message), "partition",
                          (int)rec->at.partition, "offset", (json_int_t)rec->at.offset);
    char *s = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (!s)
        return err_set(e, ERR_NOMEM, ERR_STOP, "results: a dead letter could not be printed");
    puts(s);
    free(s);
    return ERR_OK;
}

static enum err_code take_dead_letter(struct results *r, const struct record *rec, struct err *e)
{
    struct text code = header_text(rec, "kafka_dlt-exception-fqcn"),
                message = header_text(rec, "kafka_dlt-exception-message");
    struct job j = {0};
    enum encoding enc;
    struct err ignored; /* a dead letter is often no request: its id is then its key, or unknown */

    arena_reset(&r->arena);
    if (codec_decode_request(r->codec, rec, &j, &enc, &r->arena, &ignored) != ERR_OK && !j.job_id.s)
        j.job_id = rec->key ? (struct text){rec->key, rec->key_size} : (struct text){"-", 1};
    if (!id_set_take(&r->ids, &j.job_id))
        return ERR_OK;
    r->printed++;
    if (r->format == OUTPUT_JSONL)
        return print_dead_json(&j.job_id, &code, &message, rec, e);
    put_line(&j.job_id);
    if (r->format == OUTPUT_PRETTY)
        printf("  %sDEAD LETTER%s  ", r->color ? "\033[31m" : "", r->color ? "\033[0m" : "");
    else
        printf("\tDEAD_LETTER\t-\t-\t-\t");
    put_line(&code);
    fputs(r->format == OUTPUT_PRETTY ? "\n    " : "\t", stdout);
    put_line(&message);
    putchar('\n');
    return ERR_OK;
}

static bool is_complete(const struct results *r)
{
    return (r->count > 0 && r->printed >= r->count) || (r->ids.slots && r->ids.seen == r->ids.count);
}

static enum err_code read_all(struct results *r, struct err *e)
{
    bool at_end[2] = {false, r->readers[1] == NULL}, waits = r->follow || r->ids.slots || r->count > 0;
    int64_t last_ns = clock_mono_ns();
    enum err_code rc = ERR_OK;
    bool idle = true;

    while (rc == ERR_OK && !is_complete(r)) {
        int wait_ms = idle ? 20 : 0; /* a topic at its end must not hold up the other */
        idle = true;
        for (int i = 0; i < 2 && rc == ERR_OK && !is_complete(r); i++) {
            const struct record *rec;
            if (!r->readers[i])
                continue;
            if ((rc = reader_next(r->readers[i], &rec, &at_end[i], wait_ms, e)) != ERR_OK || !rec)
                continue;
            idle = false;
            rc = i == 0 ? take_result(r, rec, e) : take_dead_letter(r, rec, e);
        }
        if (!idle) {
            last_ns = clock_mono_ns();
            continue;
        }
        if (fflush(stdout) != 0 || ferror(stdout))
            break;
        if (at_end[0] && at_end[1] && !waits)
            break;
        if (r->timeout_s > 0 && clock_mono_ns() - last_ns > r->timeout_s * NS_PER_S)
            break;
    }
    if (rc == ERR_OK && (fflush(stdout) != 0 || ferror(stdout)))
        rc = err_set(e, ERR_IO, ERR_STOP, "standard output cannot be written");
    return rc;
}

enum { OPT_FROM_END = 256, OPT_TIMEOUT };

static enum err_code parse_options(struct results *r, int argc, char **argv, struct err *e)
{
    static const struct option options[] = {{"follow", no_argument, NULL, 'f'},
                                            {"from-end", no_argument, NULL, OPT_FROM_END},
                                            {"ids", required_argument, NULL, 'i'},
                                            {"dead-letters", no_argument, NULL, 'd'},
                                            {"count", required_argument, NULL, 'n'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"timeout", required_argument, NULL, OPT_TIMEOUT},
                                            CLI_COMMON_OPTIONS,
                                            {NULL, 0, NULL, 0}};
    enum err_code rc = ERR_OK;
    long long n = 0;
    int option;

    e->code = ERR_OK;
    while (rc == ERR_OK && (option = getopt_long(argc, argv, "fi:dn:o:c:s:b:h", options, NULL)) != -1) {
        switch (option) {
        case 'f': r->follow = true; break;
        case OPT_FROM_END: r->from_end = r->follow = true; break;
        case 'i': r->ids_path = optarg; break;
        case 'd': r->dead_letters = true; break;
        case 'n':
            rc = cli_parse_int("--count", optarg, 1, INT64_MAX, &n, e);
            r->count = n;
            break;
        case OPT_TIMEOUT:
            rc = cli_parse_int("--timeout", optarg, 1, 86400, &n, e);
            r->timeout_s = (int)n;
            break;
        case 'o':
            if (strcmp(optarg, "pretty") == 0)
                r->format = OUTPUT_PRETTY;
            else if (strcmp(optarg, "tsv") == 0)
                r->format = OUTPUT_TSV;
            else if (strcmp(optarg, "jsonl") == 0)
                r->format = OUTPUT_JSONL;
            else
                rc = err_set(e, ERR_USAGE, ERR_STOP, "--output: found \"%s\", allowed are pretty, tsv, jsonl", optarg);
            break;
        case 'h': fputs(help_text, stdout); return ERR_CLOSED;
        default:
            if (!cli_take_common(&r->common, option, optarg, e))
                rc = err_set(e, ERR_USAGE, ERR_STOP, "results: see translate-worker results --help");
            else
                rc = e->code;
        }
    }
    if (rc == ERR_OK && optind < argc)
        rc = err_set(e, ERR_USAGE, ERR_STOP, "results: unexpected argument \"%s\"", argv[optind]);
    if (r->timeout_s == 0 && !r->follow && (r->ids_path || r->count > 0))
        r->timeout_s = 60;
    return rc;
}

static enum err_code results_run(struct results *r, const struct config *cfg, struct err *e)
{
    const char *topics[2] = {cfg->kafka.result_topic,
                             r->dead_letters || r->ids_path ? cfg->kafka.dead_letter_topic : NULL};
    struct codec_limits limits = codec_default_limits();
    struct schema_store *store = NULL;
    enum err_code rc;

    if (r->ids_path && (rc = id_set_read(&r->ids, r->ids_path, e)) != ERR_OK)
        return rc;
    rc =
        schema_store_open(&store, cfg->wire.registry_url, cfg->wire.registry_schemas, cfg->wire.registry_timeout_ms, e);
    if (rc == ERR_OK)
        rc = codec_open(&r->codec, store, &limits, e);
    for (int i = 0; i < 2 && rc == ERR_OK; i++)
        if (topics[i])
            rc = reader_open(&r->readers[i], &cfg->kafka, NULL, topics[i], !r->from_end, e);
    if (rc == ERR_OK)
        rc = read_all(r, e);
    for (int i = 0; i < 2; i++)
        reader_close(r->readers[i]);
    codec_close(r->codec);
    schema_store_close(store);
    return rc;
}

int cli_results(int argc, char **argv)
{
    struct results r = {.color = isatty(STDOUT_FILENO)};
    struct config cfg;
    struct err e = {0};
    enum err_code rc;
    int code = EXIT_OK;

    rc = parse_options(&r, argc, argv, &e);
    if (rc == ERR_CLOSED)
        return EXIT_OK;
    if (rc == ERR_OK)
        rc = cli_load_config(&cfg, &r.common, &e);
    if (rc != ERR_OK)
        return cli_fail(&e);
    arena_init(&r.arena, 1 << 16, (size_t)1 << 28);
    if (cfg.kafka.embedded)
        rc = err_set(&e, ERR_USAGE, ERR_STOP,
                     "kafka.embedded: that cluster lives in the worker; give --bootstrap with the address it logged");
    else
        rc = results_run(&r, &cfg, &e);
    if (rc != ERR_OK)
        code = cli_fail(&e);
    else if (r.ids.slots && r.ids.seen < r.ids.count) {
        fprintf(stderr, "translate-worker: %zu of %zu job ids were not seen\n", r.ids.count - r.ids.seen, r.ids.count);
        code = EXIT_FAILED;
    } else if (r.count > 0 && r.printed < r.count) {
        fprintf(stderr, "translate-worker: %lld of %lld records came\n", r.printed, r.count);
        code = EXIT_FAILED;
    }
    id_set_free(&r.ids);
    arena_free(&r.arena);
    config_free(&cfg);
    return code;
}
