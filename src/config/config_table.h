/* config_table.h -- everything that can be set, as one table: where it goes, what it may be, what it is for.  Reading,
 * checking and printing all walk it, so that a setting is described in one place.
 * Thread: any; all of it is const. */
#ifndef CONFIG_CONFIG_TABLE_H
#define CONFIG_CONFIG_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum config_kind {
    CONFIG_BOOL,      /* bool */
    CONFIG_INT,       /* int */
    CONFIG_INT64,     /* int64_t */
    CONFIG_REAL,      /* double */
    CONFIG_STRING,    /* const char *; min and max are its length in bytes */
    CONFIG_CHOICE,    /* const char *, one of names */
    CONFIG_ENUM,      /* an enum whose values are the indices of names */
    CONFIG_PROPERTIES /* const char *const *, NULL-terminated; "name=value" */
};

struct config_key {
    const char *path; /* "group.field" */
    enum config_kind kind;
    size_t offset;     /* in struct config */
    const char *value; /* the default, as an override would spell it */
    double min, max;
    const char *const *names; /* NULL-terminated */
    const char *unit;         /* NULL: none */
    const char *help;
};

struct config_group {
    const char *name, *help;
};

extern const struct config_key config_keys[];
extern const size_t config_n_keys;
extern const struct config_group config_groups[];
extern const size_t config_n_groups;

/* NULL = unknown.  path need not end at n. */
const struct config_key *config_table_find(const char *path);
const struct config_group *config_table_group(const char *name);
/* The known path that is nearest to an unknown one by edit distance; also for a field that lost its group. */
const char *config_table_nearest(const char *path);
const char *config_table_nearest_group(const char *name);

#endif
