#include "cli/options.h"

#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

bool cli_take_common(struct cli_options *o, int option, const char *value, struct err *e)
{
    switch (option) {
    case 'c': o->config_path = value; return true;
    case 'b': o->bootstrap = value; return true;
    case 'L': o->log_level = value; return true;
    case 's':
        if (o->n_overrides < CLI_MAX_OVERRIDES)
            o->overrides[o->n_overrides++] = value;
        else
            err_set(e, ERR_USAGE, ERR_STOP, "--set: at most %d of them", CLI_MAX_OVERRIDES);
        return true;
    default: return false;
    }
}

enum err_code cli_load_config(struct config *c, const struct cli_options *o, struct err *e)
{
    enum log_level level = LOG_INFO;
    enum err_code rc;
    char servers[4096];
    const char *all[CLI_MAX_OVERRIDES + 2];
    int n = 0;

    if (o->log_level && !log_level_parse(o->log_level, &level))
        return err_set(e, ERR_USAGE, ERR_STOP, "--log-level: found \"%s\", allowed are error, warn, info, debug",
                       o->log_level);
    for (; n < o->n_overrides; n++)
        all[n] = o->overrides[n];
    if (o->bootstrap) {
        if (snprintf(servers, sizeof servers, "kafka.bootstrap_servers=%s", o->bootstrap) >= (int)sizeof servers)
            return err_set(e, ERR_USAGE, ERR_STOP, "--bootstrap: longer than %zu bytes", sizeof servers - 32);
        all[n++] = servers;
        all[n++] = "kafka.embedded=false";
    }
    rc = config_load(c, o->config_path, all, n, e);
    if (rc == ERR_OK)
        log_set_level(o->log_level ? level : c->log.level);
    return rc;
}

enum err_code cli_parse_int(const char *option, const char *s, long long min, long long max, long long *out,
                            struct err *e)
{
    char *end;
    long long n;

    errno = 0;
    n = strtoll(s, &end, 10);
    if (errno || end == s || *end || n < min || n > max)
        return err_set(e, ERR_USAGE, ERR_STOP, "%s: found \"%s\", allowed are whole numbers from %lld to %lld", option,
                       s, min, max);
    *out = n;
    return ERR_OK;
}

int cli_fail(const struct err *e)
{
    fprintf(stderr, "translate-worker: %s\n", e->msg);
    return cli_exit_code(e);
}

int cli_exit_code(const struct err *e)
{
    switch (e->code) {
    case ERR_OK: return EXIT_OK;
    case ERR_USAGE: return EXIT_USAGE;
    case ERR_CONFIG: return EXIT_CONFIG;
    case ERR_MODEL:
    case ERR_UNSUPPORTED: return EXIT_MODEL;
    case ERR_KAFKA:
    case ERR_REGISTRY: return EXIT_KAFKA;
    case ERR_DEVICE: return EXIT_DEVICE;
    case ERR_POISON: return EXIT_POISON;
    case ERR_FENCED: return EXIT_FENCED;
    default: return EXIT_FAILED;
    }
}
