/* The command line: finds the subcommand and hands over. */
#include "cli/cli.h"
#include "cpu/cpu_backend.h"
#include "engine/backend.h"
#include "version.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
};

static const struct command commands[] = {
    {"run", cli_run, "the worker: translate what comes in on the request topic"},
    {"check", cli_check, "look at everything that run needs, and change nothing"},
    {"submit", cli_submit, "lines, TSV or JSONL to the request topic"},
    {"results", cli_results, "read the result topic, match job ids"},
    {"languages", cli_languages, "the languages by code and name"},
    {"config", cli_config, "every setting: key, default, range, what it does"},
    {"translate", cli_translate, "lines on standard input to lines on standard output, without Kafka"},
    {"tokenize", cli_tokenize, "lines to token ids, and back"},
    {"bench", cli_bench, "what this machine can do, and what the worker does of it"},
    {NULL, NULL, NULL},
};

static void usage(FILE *out)
{
    fprintf(out, "usage: translate-worker COMMAND [options]      (COMMAND --help for each)\n\n");
    for (const struct command *c = commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->help);
    fprintf(out, "\n  --version  version and the backends that are here\n");
}

static void version(void)
{
    static const char *const names[] = {"cpu", "cuda"};
    const struct backend_ops *ops;
    struct err e;

    printf("translate-worker %s\n", TRANSLATE_WORKER_VERSION);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[256] = "";
        if (backend_find(&ops, names[i], &e) != ERR_OK)
            printf("backend %s: not here: %s\n", names[i], e.msg);
        else if (ops->probe && ops->probe(0, text, sizeof text, &e) != ERR_OK)
            printf("backend %s: here, no device: %s\n", names[i], e.msg);
        else
            printf("backend %s: %s\n", names[i], text);
    }
}

int main(int argc, char **argv)
{
    backend_register(&backend_cpu_ops);
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        version();
        return EXIT_OK;
    }
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, argv[1]) == 0)
            return c->run(argc - 1, argv + 1);
    fprintf(stderr, "translate-worker: unknown command '%s' (try translate-worker --help)\n", argv[1]);
    return EXIT_USAGE;
}
