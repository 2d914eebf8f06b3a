/* config_value.h -- one value into its place in struct config, in its range.
 * at is where it was found, for messages: "worker.cfg:12: kafka.partitions".
 * Owns:   nothing; strings are copied into a, which the configuration owns.
 * Errors: ERR_CONFIG, act ERR_STOP: what was found and what is allowed. */
#ifndef CONFIG_CONFIG_VALUE_H
#define CONFIG_CONFIG_VALUE_H

#include "base/arena.h"
#include "base/err.h"
#include "config/config.h"
#include "config/config_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

MUST_CHECK enum err_code config_value_bool(struct config *c, const struct config_key *k, bool v, const char *at,
                                           struct err *e);
MUST_CHECK enum err_code config_value_int(struct config *c, const struct config_key *k, int64_t v, const char *at,
                                          struct err *e);
MUST_CHECK enum err_code config_value_real(struct config *c, const struct config_key *k, double v, const char *at,
                                           struct err *e);
MUST_CHECK enum err_code config_value_string(struct config *c, const struct config_key *k, const char *v,
                                             struct arena *a, const char *at, struct err *e);
/* Adds "name=value", in place of an earlier one of that name.  No message repeats the value. */
MUST_CHECK enum err_code config_value_property(struct config *c, const struct config_key *k, const char *v,
                                               struct arena *a, const char *at, struct err *e);
/* As the environment and --set spell it: text for every kind. */
MUST_CHECK enum err_code config_value_text(struct config *c, const struct config_key *k, const char *text,
                                           struct arena *a, const char *at, struct err *e);

/* "an integer from 1 to 10000", for messages and the reference; returns buf. */
const char *config_value_allowed(const struct config_key *k, char *buf, size_t cap);
/* "AT: expected ALLOWED, found WHAT". */
enum err_code config_value_mistyped(const struct config_key *k, const char *found, const char *at, struct err *e);

#endif
