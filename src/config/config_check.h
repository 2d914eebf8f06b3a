/* config_check.h -- what no single value can tell: settings that do not go together.
 * Errors: ERR_CONFIG, act ERR_STOP, naming both keys and their values. */
#ifndef CONFIG_CONFIG_CHECK_H
#define CONFIG_CONFIG_CHECK_H

#include "base/err.h"
#include "config/config.h"

MUST_CHECK enum err_code config_check_all(const struct config *c, struct err *e);

#endif
