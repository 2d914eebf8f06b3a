/* config.json and generation_config.json from outside: what is accepted is in its ranges. */
#include "base/log.h"
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(int claim)
{
    if (!claim)
        abort();
}

static void check_dims(const struct dims *d, const int *eos, int n_eos)
{
    must(d->heads % d->kv_heads == 0 && d->head_dim % 2 == 0 && d->head_dim >= 16 && d->head_dim <= 256);
    must((long long)d->heads * d->head_dim <= 1 << 20 && d->vocab > 0 && d->vocab_used <= d->vocab);
    must(isfinite(d->rope_base) && d->rope_base > 0 && d->norm_eps > 0 && n_eos <= MODEL_MAX_EOS);
    for (int i = 0; i < n_eos; i++)
        must(eos[i] >= 0 && eos[i] < d->vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct generation g;
    struct dims d;
    struct err e;
    int eos[MODEL_MAX_EOS], n_eos;

    log_set_level(LOG_ERROR);
    if (model_parse_config(&d, eos, &n_eos, (const char *)data, n, "config.json", &e) == ERR_OK)
        check_dims(&d, eos, n_eos);
    else
        must(e.msg[0] && !strchr(e.msg, '\n'));
    if (model_parse_generation(&g, (const char *)data, n, "generation_config.json", &e) == ERR_OK)
        must(isfinite(g.temperature) && g.top_p > 0 && g.top_p <= 1 && g.repetition_penalty > 0 && g.top_k >= 0 &&
             g.n_eos <= MODEL_MAX_EOS);
    else
        must(e.msg[0] && !strchr(e.msg, '\n'));
    return 0;
}
