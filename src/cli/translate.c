/* translate: lines from standard input to lines on standard output, in order, through the worker's own engine. */
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "cli/print.h"
#include "worker/task.h"
#include "worker/translator.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 4096, WINDOW_MAX = 4096, PROGRESS_MS = 200 };

/* A line on its way, in a ring in input order: printed once it and all before it are done. */
struct translate {
    struct cli_options common;
    const char *model, *backend, *from, *to;

    struct translator translator;
    struct task_pool *tasks;
    struct lines lines;
    struct task **ring; /* [window] */
    bool *done;         /* [window], beside it */
    struct request **requests;
    int window;
    long long read, printed, failed; /* lines; ring slot of line i is i % window */
    bool shows_progress;
    int64_t began_ns, progress_ns;
};

static const char help_text[] =
    "usage: translate-worker translate --model DIR --to LANG [--from LANG] < LINES > TRANSLATIONS\n"
    "\n"
    "Translates each line of standard input, many at once, and prints them in order, one line each.\n"
    "\n"
    "  -m, --model DIR          checkpoint folder (the same as --set model.path=DIR)\n"
    "      --to LANG            target language, code or English name\n"
    "      --from LANG          source language\n"
    "      --backend NAME       auto, cpu or cuda (the same as --set engine.backend=NAME)\n" CLI_COMMON_HELP "\n"
    "A line that cannot be translated is reported on standard error and leaves an empty line.\n"
    "Exit codes: 0 all translated, 1 some not, 2 usage, 3 configuration, 4 model, 6 device\n";

static void show_progress(struct translate *t, bool last)
{
    int64_t now = clock_mono_ns();

    if (!t->shows_progress || (!last && now - t->progress_ns < PROGRESS_MS * NS_PER_MS))
        return;
    t->progress_ns = now;
    fprintf(stderr, "\r%lld lines, %.1f lines/s%s", t->printed,
            (double)t->printed * NS_PER_S / (double)(now - t->began_ns + 1), last ? "\n" : "");
}

static void fail_line(struct translate *t, long long line, const char *why)
{
    fprintf(stderr, "%stranslate-worker: line %lld: %s\n", t->shows_progress ? "\r" : "", line + 1, why);
    t->failed++;
}

static void print_translation(struct translate *t, const struct request *r)
{
    char piece[PIECE_BYTES];
    struct decoder d;

    decoder_init(&d, t->translator.tokenizer);
    for (int i = 0; i <= r->n_output; i++) {
        int n = i < r->n_output ? decoder_push(&d, r->output[i], piece, sizeof piece)
                                : decoder_finish(&d, piece, sizeof piece);
        print_on_line(piece, n > 0 ? (size_t)n : 0);
    }
}

/* Prints what is done at the front of the ring. */
static void print_ready(struct translate *t)
{
    while (t->printed < t->read && t->done[t->printed % t->window]) {
        struct task *task = t->ring[t->printed % t->window];
        if (task && task->request.finish == FINISH_ERROR)
            fail_line(t, t->printed, task->request.error.msg);
        else if (task)
            print_translation(t, &task->request);
        putchar('\n');
        if (task)
            task_pool_give(t->tasks, task);
        t->ring[t->printed++ % t->window] = NULL;
    }
    if (t->printed == t->read)
        fflush(stdout);
    show_progress(t, false);
}

/* One line into the ring; *r is what the engine is to do, or NULL for a line that needs nothing. */
static enum err_code take_line(struct translate *t, const char *line, size_t n, struct request **r, struct err *e)
{
    struct task *task = task_pool_take(t->tasks, 0);
    int slot = (int)(t->read % t->window);
    enum err_code rc;
    char id[32];

    *r = NULL;
    if (!task)
        return err_set(e, ERR_BUSY, ERR_STOP, "translate: more lines than tasks");
    snprintf(id, sizeof id, "%lld", t->read); /* the seed comes from it: the same lines, the same translations */
    task->job = (struct job){.job_id = {arena_copy(&task->arena, id, strlen(id)), strlen(id)},
                             .text = {arena_copy(&task->arena, line, n), n},
                             .target_lang = {t->to, strlen(t->to)},
                             .source_lang = {t->from, t->from ? strlen(t->from) : 0}};
    rc = task->job.text.s ? planner_plan(t->translator.planner, task, clock_mono_ns(), clock_wall_ms(), e)
                          : err_set(e, ERR_TEXT_TOO_LONG, ERR_SKIP, "%zu bytes are too long", n);
    t->done[slot] = rc != ERR_OK;
    t->ring[slot] = task;
    if (rc == ERR_OK) {
        task->slot = slot;
        *r = &task->request;
    } else if (rc == ERR_EMPTY_TEXT) {
        task->request.n_output = 0; /* nothing in, nothing out */
    } else {
        task->request.finish = FINISH_ERROR;
        task->request.error = *e;
    }
    t->read++;
    return rc == ERR_OK || e->act == ERR_SKIP ? ERR_OK : rc;
}

/* A line that could not even be read takes its place in the ring. */
static enum err_code take_failure(struct translate *t, struct err *e)
{
    struct task *task = task_pool_take(t->tasks, 0);
    int slot = (int)(t->read++ % t->window);

    if (!task)
        return err_set(e, ERR_BUSY, ERR_STOP, "translate: more lines than tasks");
    task->request.finish = FINISH_ERROR;
    task->request.error = *e;
    t->ring[slot] = task;
    t->done[slot] = true;
    return ERR_OK;
}

/* Reads as many lines as there is room for, and waits for one only when nothing is on its way. */
static enum err_code feed(struct translate *t, struct err *e)
{
    enum err_code rc = ERR_OK;
    int n = 0;

    while (t->read - t->printed < t->window && !lines_are_over(&t->lines)) {
        const char *line;
        size_t size;
        bool idle = n == 0 && t->read == t->printed;
        t->requests[n] = NULL;
        rc = lines_next(&t->lines, idle, &line, &size, e);
        if (rc == ERR_OK && !line)
            break;
        rc = rc == ERR_TEXT_TOO_LONG ? take_failure(t, e)
             : rc == ERR_OK          ? take_line(t, line, size, &t->requests[n], e)
                                     : err_prefix(e, "standard input");
        if (rc != ERR_OK)
            return rc;
        n += t->requests[n] != NULL;
    }
    return n > 0 ? engine_submit(t->translator.engine, t->requests, n, e) : ERR_OK;
}

static enum err_code translate_all(struct translate *t, struct err *e)
{
    enum err_code rc;
    int n;

    while (!lines_are_over(&t->lines) || t->printed < t->read) {
        if ((rc = feed(t, e)) != ERR_OK)
            return rc;
        if (engine_is_busy(t->translator.engine)) {
            if ((rc = engine_step(t->translator.engine, t->requests, t->window, &n, e)) != ERR_OK)
                return rc;
            for (int i = 0; i < n; i++)
                t->done[((struct task *)t->requests[i]->owner)->slot] = true;
        }
        print_ready(t);
    }
    show_progress(t, true);
    return ferror(stdout) ? err_set(e, ERR_IO, ERR_STOP, "standard output cannot be written") : ERR_OK;
}

static enum err_code translate_open(struct translate *t, const struct config *cfg, struct err *e)
{
    size_t arena_limit = (size_t)cfg->limits.max_text_bytes * 2 + (1 << 16);
    enum err_code rc;

    if (!language_find(t->to))
        return err_set(e, ERR_USAGE, ERR_STOP, "--to: \"%.60s\" is no language of the model; " LANGUAGES_ALLOWED,
                       t->to);
    if (t->from && !language_find(t->from))
        return err_set(e, ERR_USAGE, ERR_STOP, "--from: \"%.60s\" is no language of the model; " LANGUAGES_ALLOWED,
                       t->from);
    if ((rc = translator_open(&t->translator, cfg, WINDOW_MAX, e)) != ERR_OK)
        return rc;
    t->window = t->translator.info.rows * 4 < WINDOW_MAX ? t->translator.info.rows * 4 : WINDOW_MAX;
    t->ring = calloc((size_t)t->window, sizeof *t->ring);
    t->done = calloc((size_t)t->window, sizeof *t->done);
    t->requests = calloc((size_t)t->window, sizeof *t->requests);
    if (!t->ring || !t->done || !t->requests)
        return err_set(e, ERR_NOMEM, ERR_STOP, "translate: no memory for %d lines", t->window);
    if ((rc = task_pool_open(&t->tasks, (size_t)t->window, arena_limit, e)) != ERR_OK)
        return rc;
    return lines_open(&t->lines, STDIN_FILENO, (size_t)cfg->limits.max_text_bytes, e);
}

static void translate_close(struct translate *t)
{
    lines_close(&t->lines);
    task_pool_close(t->tasks);
    free(t->requests);
    free(t->done);
    free(t->ring);
    translator_close(&t->translator);
}

enum { OPT_TO = 256, OPT_FROM, OPT_BACKEND };

/* "key=value" for config_load(), in buf. */
static const char * override(char *buf, size_t cap, const char *key, const char *value)
{
    snprintf(buf, cap, "%s=%s", key, value);
    return buf;
}

static enum err_code parse_options(struct translate *t, int argc, char **argv, struct err *e)
{
    static const struct option options[] = {{"model", required_argument, NULL, 'm'},
                                            {"to", required_argument, NULL, OPT_TO},
                                            {"from", required_argument, NULL, OPT_FROM},
                                            {"backend", required_argument, NULL, OPT_BACKEND},
                                            CLI_COMMON_OPTIONS,
                                            {NULL, 0, NULL, 0}};
    int option;

    e->code = ERR_OK;
    while ((option = getopt_long(argc, argv, "m:c:s:b:h", options, NULL)) != -1) {
        switch (option) {
        case 'm': t->model = optarg; break;
        case OPT_TO: t->to = optarg; break;
        case OPT_FROM: t->from = optarg; break;
        case OPT_BACKEND: t->backend = optarg; break;
        case 'h': fputs(help_text, stdout); return ERR_CLOSED;
        default:
            if (!cli_take_common(&t->common, option, optarg, e))
                return err_set(e, ERR_USAGE, ERR_STOP, "translate: see translate-worker translate --help");
            if (e->code != ERR_OK)
                return e->code;
        }
    }
    if (optind < argc)
        return err_set(e, ERR_USAGE, ERR_STOP, "translate: unexpected argument \"%s\"; lines come from standard input",
                       argv[optind]);
    if (!t->to)
        return err_set(e, ERR_USAGE, ERR_STOP, "translate: --to LANG is missing");
    return ERR_OK;
}

int cli_translate(int argc, char **argv)
{
    struct translate t = {.shows_progress = isatty(STDERR_FILENO), .began_ns = clock_mono_ns()};
    char model[4200], backend[128];
    struct config cfg;
    struct err e = {0};
    enum err_code rc;
    int code = EXIT_OK;

    rc = parse_options(&t, argc, argv, &e);
    if (rc == ERR_CLOSED)
        return EXIT_OK;
    if (!t.common.log_level)
        t.common.log_level = "warn"; /* progress and the plan are not what somebody with a pipe wants to read */
    if (rc == ERR_OK && t.model && t.common.n_overrides < CLI_MAX_OVERRIDES)
        t.common.overrides[t.common.n_overrides++] = override(model, sizeof model, "model.path", t.model);
    if (rc == ERR_OK && t.backend && t.common.n_overrides < CLI_MAX_OVERRIDES)
        t.common.overrides[t.common.n_overrides++] = override(backend, sizeof backend, "engine.backend", t.backend);
    if (rc == ERR_OK)
        rc = cli_load_config(&cfg, &t.common, &e);
    if (rc != ERR_OK)
        return cli_fail(&e);
    rc = translate_open(&t, &cfg, &e);
    if (rc == ERR_OK)
        rc = translate_all(&t, &e);
    if (rc != ERR_OK)
        code = cli_fail(&e);
    else if (t.failed > 0)
        code = EXIT_FAILED;
    translate_close(&t);
    config_free(&cfg);
    return code;
}
