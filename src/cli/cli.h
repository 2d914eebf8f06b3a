/* cli.h -- the subcommands.  argv[0] is the subcommand's name; each returns an exit code below, prints its own
 * --help, and writes errors to stderr as one line. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/err.h"

enum exit_code {
    EXIT_OK = 0,
    EXIT_FAILED = 1,   /* some part of the work could not be done */
    EXIT_USAGE = 2,    /* command line */
    EXIT_CONFIG = 3,   /* configuration file */
    EXIT_MODEL = 4,    /* checkpoint */
    EXIT_KAFKA = 5,    /* brokers, topics, permissions */
    EXIT_DEVICE = 6,   /* the backend failed; nothing unpublished was committed */
    EXIT_POISON = 7,   /* too many dead letters: stopped on purpose */
    EXIT_FENCED = 8,   /* another worker has this one's transactional id; nothing unpublished was committed */
    EXIT_ABORTED = 130 /* second signal, or drain_timeout_ms was not enough */
};

int cli_run(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_translate(int argc, char **argv);
int cli_submit(int argc, char **argv);
int cli_results(int argc, char **argv);
int cli_tokenize(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_languages(int argc, char **argv);
int cli_config(int argc, char **argv); /* prints the configuration reference */

/* "translate-worker: MESSAGE" to stderr; the exit code for e. */
int cli_fail(const struct err *e);
int cli_exit_code(const struct err *e); /* the same code, nothing printed */

#endif
