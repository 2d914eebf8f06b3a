#include "config/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libconfig.h>

#include "base/arena.h"
#include "config/config_check.h"
#include "config/config_table.h"
#include "config/config_value.h"
#include "config/config_widen.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_STRINGS_BYTES = 16 << 20, WHERE_BYTES = 80, AT_BYTES = 256 };
static const char environment_prefix[] = "TRANSLATE_WORKER_";

extern char **environ;

static struct arena *strings(struct config *c)
{
    return c->owned;
}

/* A long path must not push the finding out of the message. */
static const char *path_tail(const char *path)
{
    size_t n = strlen(path);

    return n <= WHERE_BYTES ? path : path + n - WHERE_BYTES;
}

/* --- defaults --- */

static enum err_code set_defaults(struct config *c, struct err *e)
{
    static const char *const no_properties[] = {NULL};
    enum err_code rc;

    memset(c, 0, sizeof *c);
    c->owned = calloc(1, sizeof(struct arena));
    if (!c->owned)
        return err_set(e, ERR_NOMEM, ERR_STOP, "config: out of memory");
    arena_init(strings(c), 4096, MAX_STRINGS_BYTES);
    c->kafka.properties = no_properties;
    for (size_t i = 0; i < config_n_keys; i++)
        if ((rc = config_value_text(c, &config_keys[i], config_keys[i].value, strings(c), config_keys[i].path, e)) !=
            ERR_OK)
            return rc;
    return ERR_OK;
}

/* --- the file --- */

static const char *type_name(const config_setting_t *s)
{
    switch (config_setting_type(s)) {
    case CONFIG_TYPE_GROUP: return "a group";
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64: return "an integer";
    case CONFIG_TYPE_FLOAT: return "a real number";
    case CONFIG_TYPE_STRING: return "a string";
    case CONFIG_TYPE_BOOL: return "a boolean";
    case CONFIG_TYPE_ARRAY: return "an array";
    case CONFIG_TYPE_LIST: return "a list";
    default: return "nothing";
    }
}

static enum err_code unknown_key(const char *where, unsigned line, const char *path, struct err *e)
{
    return err_set(e, ERR_CONFIG, ERR_STOP, "%s:%u: %.60s is unknown; the nearest known key is %s", where, line, path,
                   config_table_nearest(path));
}

static enum err_code take_properties(struct config *c, const struct config_key *k, const config_setting_t *s,
                                     const char *at, struct err *e)
{
    enum err_code rc;

    if (!config_setting_is_list(s) && !config_setting_is_array(s))
        return config_value_mistyped(k, type_name(s), at, e);
    for (int i = 0; i < config_setting_length(s); i++) {
        const char *text = config_setting_get_string_elem(s, i);
        char item[AT_BYTES + 16];

        snprintf(item, sizeof item, "%s[%d]", at, i);
        if (!text)
            return config_value_mistyped(k, type_name(config_setting_get_elem(s, (unsigned)i)), item, e);
        if ((rc = config_value_property(c, k, text, strings(c), item, e)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code take_setting(struct config *c, const char *group, const config_setting_t *s, const char *where,
                                  struct err *e)
{
    unsigned line = config_setting_source_line(s);
    char path[128], at[AT_BYTES];
    const struct config_key *k;

    snprintf(path, sizeof path, "%s.%s", group, config_setting_name(s));
    if (!(k = config_table_find(path)))
        return unknown_key(where, line, path, e);
    snprintf(at, sizeof at, "%s:%u: %s", where, line, path);
    if (k->kind == CONFIG_PROPERTIES)
        return take_properties(c, k, s, at, e);
    switch (config_setting_type(s)) {
    case CONFIG_TYPE_BOOL: return config_value_bool(c, k, config_setting_get_bool(s), at, e);
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64: return config_value_int(c, k, config_setting_get_int64(s), at, e);
    case CONFIG_TYPE_FLOAT: return config_value_real(c, k, config_setting_get_float(s), at, e);
    case CONFIG_TYPE_STRING: return config_value_string(c, k, config_setting_get_string(s), strings(c), at, e);
    default: return config_value_mistyped(k, type_name(s), at, e);
    }
}

static enum err_code take_group(struct config *c, const config_setting_t *g, const char *where, struct err *e)
{
    const char *name = config_setting_name(g);
    unsigned line = config_setting_source_line(g);
    enum err_code rc = ERR_OK;

    if (!config_table_group(name) && config_setting_is_group(g))
        return err_set(e, ERR_CONFIG, ERR_STOP, "%s:%u: group %.60s is unknown; the nearest known group is %s", where,
                       line, name, config_table_nearest_group(name));
    if (!config_table_group(name))
        return unknown_key(where, line, name, e);
    if (!config_setting_is_group(g))
        return err_set(e, ERR_CONFIG, ERR_STOP, "%s:%u: %s: expected a group { ... }, found %s", where, line, name,
                       type_name(g));
    for (int i = 0; i < config_setting_length(g) && rc == ERR_OK; i++)
        rc = take_setting(c, name, config_setting_get_elem(g, (unsigned)i), where, e);
    return rc;
}

/* One file holds everything: an include would escape the bound on size and the names in messages. */
static enum err_code refuse_includes(const char *text, const char *where, struct err *e)
{
    static const char word[] = "@include";

    for (unsigned line = 1; *text; line++) {
        const char *p = text + strspn(text, " \t");

        if (strncmp(p, word, sizeof word - 1) == 0)
            return err_set(e, ERR_CONFIG, ERR_STOP,
                           "%s:%u: @include is not supported; use the environment for what differs", where, line);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return ERR_OK;
}

static enum err_code take_text(struct config *c, const char *text, const char *where, struct err *e)
{
    enum err_code rc = refuse_includes(text, where, e);
    config_t file;

    char *widened;

    if (rc != ERR_OK)
        return rc;
    if (!(widened = config_widen(text)))
        return err_set(e, ERR_NOMEM, ERR_STOP, "config: out of memory");
    config_init(&file);
    if (!config_read_string(&file, widened)) {
        rc = err_set(e, ERR_CONFIG, ERR_STOP, "%s:%d: %s", where, config_error_line(&file), config_error_text(&file));
    } else {
        const config_setting_t *root = config_root_setting(&file);

        for (int i = 0; i < config_setting_length(root) && rc == ERR_OK; i++)
            rc = take_group(c, config_setting_get_elem(root, (unsigned)i), where, e);
    }
    config_destroy(&file);
    free(widened);
    return rc;
}

static enum err_code read_text(char **text, const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const char *where = path_tail(path);
    enum err_code rc = ERR_OK;
    struct stat st;
    ssize_t got;

    if (fd < 0)
        return err_set(e, ERR_CONFIG, ERR_STOP, "%s: %s", where, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = err_set(e, ERR_CONFIG, ERR_STOP, "%s: not a regular file", where);
    else if (st.st_size > MAX_FILE_BYTES)
        rc = err_set(e, ERR_CONFIG, ERR_STOP, "%s: %lld bytes, at most %d are allowed", where, (long long)st.st_size,
                     MAX_FILE_BYTES);
    else if (!(*text = calloc(1, (size_t)st.st_size + 1)))
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "config: out of memory");
    else if ((got = read(fd, *text, (size_t)st.st_size)) < 0)
        rc = err_set(e, ERR_CONFIG, ERR_STOP, "%s: %s", where, strerror(errno));
    else if (strlen(*text) != (size_t)got)
        rc = err_set(e, ERR_CONFIG, ERR_STOP, "%s: holds a zero byte: not a text file", where);
    close(fd);
    return rc;
}

static enum err_code take_file(struct config *c, const char *path, struct err *e)
{
    char *text = NULL;
    enum err_code rc = read_text(&text, path, e);

    if (rc == ERR_OK)
        rc = take_text(c, text, path_tail(path), e);
    free(text);
    return rc;
}

/* --- the environment and the command line --- */

static void environment_name(char *out, size_t cap, const struct config_key *k)
{
    size_t n = (size_t)snprintf(out, cap, "%s", environment_prefix);

    for (const char *p = k->path; *p && n + 1 < cap; p++)
        out[n++] = *p == '.' ? '_' : (char)toupper((unsigned char)*p);
    out[n] = '\0';
}

/* An unknown TRANSLATE_WORKER_ name is a warning only: orchestrators add names of their own (a service called
 * translate-worker gives TRANSLATE_WORKER_PORT). */
static void warn_unknown_environment(void)
{
    for (char **v = environ; *v; v++) {
        size_t n = strcspn(*v, "=");
        char name[128];
        bool known = strncmp(*v, environment_prefix, sizeof environment_prefix - 1) != 0;

        for (size_t i = 0; i < config_n_keys && !known; i++) {
            environment_name(name, sizeof name, &config_keys[i]);
            known = strlen(name) == n && strncmp(name, *v, n) == 0;
        }
        if (!known)
            log_event(LOG_WARN, "environment_variable_unknown", "name=%.*s", (int)(n < 100 ? n : 100), *v);
    }
}

static enum err_code take_environment(struct config *c, struct err *e)
{
    char name[128], at[AT_BYTES];
    enum err_code rc;

    for (size_t i = 0; i < config_n_keys; i++) {
        environment_name(name, sizeof name, &config_keys[i]);
        const char *text = getenv(name);

        if (!text)
            continue;
        snprintf(at, sizeof at, "environment %s: %s", name, config_keys[i].path);
        if ((rc = config_value_text(c, &config_keys[i], text, strings(c), at, e)) != ERR_OK)
            return rc;
    }
    warn_unknown_environment();
    return ERR_OK;
}

static enum err_code take_override(struct config *c, const char *text, struct err *e)
{
    const struct config_key *k;
    size_t n = strcspn(text, "=");
    char path[128], at[AT_BYTES];

    snprintf(path, sizeof path, "%.*s", (int)(n < 100 ? n : 100), text);
    if (text[n] != '=')
        return err_set(e, ERR_CONFIG, ERR_STOP, "--set %.60s: expected group.field=value", path);
    if (!(k = config_table_find(path)))
        return err_set(e, ERR_CONFIG, ERR_STOP, "--set: %.60s is unknown; the nearest known key is %s", path,
                       config_table_nearest(path));
    snprintf(at, sizeof at, "--set: %s", path);
    return config_value_text(c, k, text + n + 1, strings(c), at, e);
}

/* --- all of it --- */

enum err_code config_load(struct config *c, const char *path, const char *const *overrides, int n, struct err *e)
{
    enum err_code rc = set_defaults(c, e);

    if (rc == ERR_OK && path)
        rc = take_file(c, path, e);
    if (rc == ERR_OK)
        rc = take_environment(c, e);
    for (int i = 0; i < n && rc == ERR_OK; i++)
        rc = take_override(c, overrides[i], e);
    if (rc == ERR_OK && (rc = config_check_all(c, e)) != ERR_OK && path)
        err_prefix(e, "%s", path_tail(path));
    if (rc != ERR_OK)
        config_free(c);
    return rc;
}

enum err_code config_parse_string(struct config *c, const char *text, const char *where, struct err *e)
{
    enum err_code rc = set_defaults(c, e);

    if (rc == ERR_OK)
        rc = take_text(c, text, path_tail(where), e);
    if (rc == ERR_OK && (rc = config_check_all(c, e)) != ERR_OK)
        err_prefix(e, "%s", path_tail(where));
    if (rc != ERR_OK)
        config_free(c);
    return rc;
}

void config_free(struct config *c)
{
    if (c->owned) {
        arena_free(strings(c));
        free(c->owned);
    }
    memset(c, 0, sizeof *c);
}
