/* bench_tokenizer.h -- the tokenizer's speed on one core. */
#ifndef CLI_BENCH_TOKENIZER_H
#define CLI_BENCH_TOKENIZER_H

#include "base/err.h"
#include "cli/bench_report.h"

MUST_CHECK enum err_code bench_tokenizer(const char *model_dir, struct bench_report *r, struct err *e);

#endif
