/* translate-worker run: the worker itself, and what signals do to it.
 *
 *   TERM, INT       first: drain and exit 0; second: exit at once, 130, nothing unpublished is committed
 *   USR1, USR2      more and fewer log lines
 *   BUS             one line, 4: a file of the model was cut while it is mapped
 *   HUP, PIPE       ignored: a worker outlives its terminal, and a closed connection is an error code */
#include "cli/cli.h"
#include "cli/options.h"
#include "worker/worker.h"

#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char help[] =
    "usage: translate-worker run [--config FILE] [--set KEY=VALUE]... [--shadow]\n\n"
    "Reads jobs from the request topic, translates them, publishes results and dead letters.\n\n" CLI_COMMON_HELP
    "      --shadow[=GROUP]     translate what comes from now on beside the workers in service: in another group\n"
    "                           (kafka.group_id with -shadow), commit nothing, publish nothing, print a line a job: "
    "id,\n"
    "                           status, language, prompt and output tokens, ms; a summary at the end\n"
    "      --from-beginning     shadow: begin with the oldest job instead\n"
    "  -n, --count N            shadow: stop after N jobs\n"
    "\nSignals: TERM or INT finishes what is in flight (at most delivery.drain_timeout_ms) and exits 0; a second one\n"
    "exits at once.  USR1 logs more, USR2 less.\n"
    "Exit codes: 0 drained; 1 failed; 2 command line; 3 configuration; 4 model; 5 Kafka; 6 device (nothing\n"
    "unpublished was committed); 7 too many dead letters; 8 another worker has the same transactional id;\n"
    "130 second signal, or the drain took too long.\n";

enum { LEAST_FILES = 64, WANTED_FILES = 1024 };

/* The signal handlers' only view of the world. */
static struct worker *_Atomic running;
static _Atomic int stops_asked;

static void on_stop(int sig)
{
    struct worker *w = atomic_load(&running);

    (void)sig; /* both mean the same */
    if (atomic_fetch_add(&stops_asked, 1) > 0)
        _exit(EXIT_ABORTED);
    if (w)
        worker_stop(w);
}

static void on_level(int sig)
{
    int level = (int)log_get_level() + (sig == SIGUSR1 ? 1 : -1);

    if (level >= 0 && level < LOG_LEVELS)
        log_set_level((enum log_level)level);
}

/* The weights are mapped: a file of the model that somebody cut short in place ends the process, but not in silence. */
static void on_bus_error(int sig)
{
    static const char text[] =
        "translate-worker: SIGBUS: a mapped file of the model is shorter than it was, or cannot be read any more\n";

    (void)sig;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(EXIT_FAILED); /* nobody to tell */
    _exit(EXIT_MODEL);
}

static void handle(int sig, void (*handler)(int))
{
    struct sigaction a;

    memset(&a, 0, sizeof a);
    a.sa_handler = handler;
    a.sa_flags = SA_RESTART;
    sigemptyset(&a.sa_mask);
    sigaction(sig, &a, NULL);
}

static void handle_signals(void)
{
    handle(SIGBUS, on_bus_error);
    handle(SIGTERM, on_stop);
    handle(SIGINT, on_stop);
    handle(SIGUSR1, on_level);
    handle(SIGUSR2, on_level);
    handle(SIGHUP, SIG_IGN);
    handle(SIGPIPE, SIG_IGN);
}

/* Sockets of three Kafka clients, the HTTP port's and the model's files.  With too few of them librdkafka retries for ever
 * what cannot succeed, or ends the process. */
static enum err_code check_open_files(struct err *e)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= WANTED_FILES)
        return ERR_OK;
    r.rlim_cur = r.rlim_max < WANTED_FILES ? r.rlim_max : WANTED_FILES;
    if (setrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur >= LEAST_FILES)
        return ERR_OK;
    return err_set(e, ERR_IO, ERR_STOP, "only %llu files may be open here (ulimit -n): at least %d are needed",
                   (unsigned long long)r.rlim_cur, LEAST_FILES);
}

static int end(enum err_code rc, const struct err *e)
{
    if (rc == ERR_OK)
        return EXIT_OK;
    int code = cli_fail(e);
    return rc == ERR_TIMEOUT ? EXIT_ABORTED : code;
}

struct shadow_options {
    bool on, from_beginning;
    const char *group; /* NULL = derived */
    long long count;
};

enum { OPT_SHADOW = 256, OPT_FROM_BEGINNING };

static enum err_code parse(struct cli_options *o, struct shadow_options *s, int argc, char **argv, bool *wants_help,
                           struct err *e)
{
    static const struct option options[] = {CLI_COMMON_OPTIONS,
                                            {"shadow", optional_argument, NULL, OPT_SHADOW},
                                            {"from-beginning", no_argument, NULL, OPT_FROM_BEGINNING},
                                            {"count", required_argument, NULL, 'n'},
                                            {NULL, 0, NULL, 0}};
    int option;

    *wants_help = false;
    while ((option = getopt_long(argc, argv, "c:s:b:n:h", options, NULL)) != -1) {
        e->code = ERR_OK;
        if (option == 'h') {
            *wants_help = true;
            return ERR_OK;
        }
        if (option == OPT_SHADOW) {
            s->on = true;
            s->group = optarg;
        } else if (option == OPT_FROM_BEGINNING) {
            s->from_beginning = true;
        } else if (option == 'n') {
            if (cli_parse_int("--count", optarg, 1, INT64_MAX, &s->count, e) != ERR_OK)
                return e->code;
        } else if (!cli_take_common(o, option, optarg, e))
            return err_set(e, ERR_USAGE, ERR_STOP, "run: see translate-worker run --help");
        if (e->code != ERR_OK)
            return e->code;
    }
    if (!s->on && (s->from_beginning || s->count > 0))
        return err_set(e, ERR_USAGE, ERR_STOP, "run: --from-beginning and --count go with --shadow");
    if (optind < argc)
        return err_set(e, ERR_USAGE, ERR_STOP, "run: unexpected argument \"%s\"", argv[optind]);
    return ERR_OK;
}

/* Nothing that the workers in service could notice: another group, no topic made, no port of theirs. */
static enum err_code make_shadow(struct config *c, const struct shadow_options *s, char *group, size_t cap,
                                 struct err *e)
{
    int n = s->group ? snprintf(group, cap, "%s", s->group) : snprintf(group, cap, "%s-shadow", c->kafka.group_id);

    if (n <= 0 || (size_t)n >= cap || strcmp(group, c->kafka.group_id) == 0)
        return err_set(e, ERR_USAGE, ERR_STOP,
                       "--shadow: the group \"%.40s\" cannot be had: allowed are 1 to %zu bytes, not kafka.group_id",
                       group, cap - 1);
    c->kafka.group_id = group;
    c->kafka.instance_id = "";
    c->kafka.offset_reset = s->from_beginning ? "earliest" : "latest";
    c->kafka.create_topics = false;
    c->delivery.mode = DELIVERY_SHADOW;
    c->shadow_count = s->count;
    c->http.port = 0;
    if (s->count > 0 && s->count < c->delivery.max_in_flight_jobs) { /* no more than is asked for is begun */
        c->delivery.max_in_flight_jobs = (int)s->count;
        if (c->batch.max_jobs > s->count)
            c->batch.max_jobs = (int)s->count;
    }
    return ERR_OK;
}

int cli_run(int argc, char **argv)
{
    struct shadow_options shadow = {.on = false};
    char group[250];
    struct cli_options o = {.config_path = NULL};
    struct err e = {.code = ERR_OK};
    struct worker *w = NULL;
    struct config cfg;
    bool wants_help;
    enum err_code rc;

    if (parse(&o, &shadow, argc, argv, &wants_help, &e) != ERR_OK)
        return cli_fail(&e);
    if (wants_help) {
        fputs(help, stdout);
        return EXIT_OK;
    }
    handle_signals();
    if (check_open_files(&e) != ERR_OK || cli_load_config(&cfg, &o, &e) != ERR_OK)
        return cli_fail(&e);
    if (shadow.on && make_shadow(&cfg, &shadow, group, sizeof group, &e) != ERR_OK) {
        config_free(&cfg);
        return cli_fail(&e);
    }
    rc = worker_open(&w, &cfg, &e);
    if (rc == ERR_OK) {
        atomic_store(&running, w);
        if (atomic_load(&stops_asked) > 0)
            worker_stop(w); /* asked while the model was loading */
        rc = worker_run(w, &e);
        atomic_store(&running, NULL);
    }
    worker_close(w);
    config_free(&cfg);
    return end(rc, &e);
}
