/* config.c -- prints the configuration reference. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>

#include "config/config.h"

static void print_help(void)
{
    printf("usage: translate-worker config [--file | --markdown]\n\n"
           "Prints every setting with its default, what is allowed and what it does.\n\n"
           "  -f, --file      as a configuration file with comments (this is config/worker.cfg); the default\n"
           "  -m, --markdown  as Markdown tables (this is the reference in README.md)\n"
           "  -h, --help      this text\n\n"
           "Where the same key is set more than once, a --set on the command line comes before the environment\n"
           "(kafka.group_id is TRANSLATE_WORKER_KAFKA_GROUP_ID), and that before the file.\n\n"
           "Exit codes: 0 printed, 1 the output could not be written, 2 wrong usage.\n");
}

int cli_config(int argc, char **argv)
{
    static const struct option options[] = {
        {"file", no_argument, NULL, 'f'},
        {"markdown", no_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    void (*print)(FILE *) = config_print_file;

    for (int o; (o = getopt_long(argc, argv, "fmh", options, NULL)) != -1;) {
        switch (o) {
        case 'f': print = config_print_file; break;
        case 'm': print = config_print_markdown; break;
        case 'h': print_help(); return EXIT_OK;
        default: return EXIT_USAGE; /* getopt has said why */
        }
    }
    if (optind < argc) {
        fprintf(stderr, "translate-worker: config takes no argument '%s' (try config --help)\n", argv[optind]);
        return EXIT_USAGE;
    }
    print(stdout);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("translate-worker: config: output");
        return EXIT_FAILED;
    }
    return EXIT_OK;
}
