#include "engine/sampling.h"

/* Comparisons are written so that NaN fails them. */
enum err_code sampling_check(const struct sampling *s, struct err *e)
{
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return err_set(e, ERR_INVALID_FIELD, ERR_SKIP, "temperature is %g: allowed is 0 to 100",
                       (double)s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return err_set(e, ERR_INVALID_FIELD, ERR_SKIP, "top_p is %g: allowed is above 0 and at most 1",
                       (double)s->top_p);
    if (!(s->repetition_penalty >= 0.01f && s->repetition_penalty <= 100))
        return err_set(e, ERR_INVALID_FIELD, ERR_SKIP, "repetition_penalty is %g: allowed is 0.01 to 100",
                       (double)s->repetition_penalty);
    if (s->top_k < 0)
        return err_set(e, ERR_INVALID_FIELD, ERR_SKIP, "top_k is %d: allowed is 0 (off) and more", s->top_k);
    return ERR_OK;
}
