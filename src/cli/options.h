/* options.h -- what the subcommands' command lines have in common: the configuration and where Kafka is. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "base/err.h"
#include "config/config.h"

#include <stdbool.h>

enum { CLI_MAX_OVERRIDES = 64 };

/* --config FILE, --set KEY=VALUE, --bootstrap HOST:PORT,..., --log-level LEVEL */
struct cli_options {
    const char *config_path;
    const char *overrides[CLI_MAX_OVERRIDES];
    int n_overrides;
    const char *bootstrap; /* NULL = as configured */
    const char *log_level; /* NULL = as configured */
};

/* The rows for getopt_long(); a subcommand puts its own beside them. */
#define CLI_COMMON_OPTIONS                                                                                             \
    {"config", required_argument, NULL, 'c'}, {"set", required_argument, NULL, 's'},                                   \
        {"bootstrap", required_argument, NULL, 'b'}, {"log-level", required_argument, NULL, 'L'},                      \
    {                                                                                                                  \
        "help", no_argument, NULL, 'h'                                                                                 \
    }
#define CLI_COMMON_HELP                                                                                                \
    "  -c, --config FILE        configuration file (without: every default)\n"                                         \
    "  -s, --set KEY=VALUE      override one key, e.g. --set kafka.group_id=mt; may be repeated\n"                     \
    "  -b, --bootstrap SERVERS  the same as --set kafka.bootstrap_servers=SERVERS\n"                                   \
    "      --log-level LEVEL    error, warn, info or debug\n"                                                          \
    "  -h, --help               this text\n"

/* Takes one option that getopt_long() returned; false when it is not a common one. */
bool cli_take_common(struct cli_options *o, int option, const char *value, struct err *e);

/* Loads the configuration that *o describes; the log level is set.  ERR_CONFIG or ERR_USAGE. */
MUST_CHECK enum err_code cli_load_config(struct config *c, const struct cli_options *o, struct err *e);

/* A whole number in [min, max] from the command line; ERR_USAGE names the option. */
MUST_CHECK enum err_code cli_parse_int(const char *option, const char *s, long long min, long long max, long long *out,
                                       struct err *e);

#endif
