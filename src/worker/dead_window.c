#include "worker/dead_window.h"

enum err_code dead_window_count(struct dead_window *w, const struct dead_letter_config *c, bool is_dead, struct err *e)
{
    uint64_t at = w->jobs % DEAD_WINDOW, bit = 1ull << (at % 64), *word = &w->bits[at / 64];

    if (*word & bit)
        w->dead--;
    *word = is_dead ? *word | bit : *word & ~bit;
    w->dead += is_dead;
    w->run = is_dead ? w->run + 1 : 0;
    w->jobs++;
    if (!is_dead)
        return ERR_OK;
    if (w->run > c->max_run)
        return err_set(e, ERR_POISON, ERR_STOP,
                       "%d dead letters in a row (dead_letter.max_run is %d): stopped before more are set aside",
                       w->run, c->max_run);
    uint64_t seen = w->jobs < DEAD_WINDOW ? w->jobs : DEAD_WINDOW;
    if (seen >= DEAD_WINDOW_MIN && w->dead > c->max_share * (double)seen)
        return err_set(e, ERR_POISON, ERR_STOP,
                       "%d of the last %llu jobs were dead letters (dead_letter.max_share is %g): stopped before more "
                       "are set aside",
                       w->dead, (unsigned long long)seen, c->max_share);
    return ERR_OK;
}
