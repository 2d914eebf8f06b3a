/* generation_json.c -- generation_config.json: how the checkpoint wants to be sampled.  Absent keys have the defaults of
 * the reference implementation.  Declared in model.h. */
#include "model/model.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "model/eos.h"

/* What would change the output and is not implemented: said once at start, with the value that counts as off. */
static const struct {
    const char *key;
    double off;
} ignored[] = {
    {"num_beams", 1},      {"num_beam_groups", 1}, {"no_repeat_ngram_size", 0},
    {"min_p", 0},          {"typical_p", 1},       {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},     {"penalty_alpha", 0},   {"encoder_repetition_penalty", 1},
    {"length_penalty", 1}, {"min_length", 0},      {"min_new_tokens", 0},
};

static void report_ignored(const json_t *o)
{
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        const json_t *v = json_object_get(o, ignored[i].key);

        if (json_is_number(v) && json_number_value(v) != ignored[i].off)
            log_event(LOG_WARN, "generation_setting_ignored", "key=%s value=%g", ignored[i].key, json_number_value(v));
    }
}

static enum err_code read_numbers(struct generation *g, const json_t *o, const char *where, struct err *e)
{
    double temperature = g->temperature, top_p = g->top_p, penalty = g->repetition_penalty;
    int64_t top_k = g->top_k;
    bool found;
    enum err_code rc;

    if ((rc = json_get_bool(o, where, "do_sample", &g->do_sample, &found, e)) != ERR_OK ||
        (rc = json_get_double(o, where, "temperature", 0.0, 100.0, &temperature, &found, e)) != ERR_OK ||
        (rc = json_get_double(o, where, "top_p", 1e-6, 1.0, &top_p, &found, e)) != ERR_OK ||
        (rc = json_get_double(o, where, "repetition_penalty", 0.01, 100.0, &penalty, &found, e)) != ERR_OK ||
        (rc = json_get_int(o, where, "top_k", 0, 1 << 22, &top_k, &found, e)) != ERR_OK)
        return rc;
    if (json_is_null(json_object_get(o, "top_k"))) /* a written null switches it off; absent is the default */
        top_k = 0;
    if (temperature == 0.0)
        g->do_sample = false;
    g->temperature = (float)temperature;
    g->top_p = (float)top_p;
    g->repetition_penalty = (float)penalty;
    g->top_k = (int)top_k;
    return ERR_OK;
}

enum err_code model_parse_generation(struct generation *g, const char *json, size_t n, const char *where, struct err *e)
{
    json_error_t je;
    enum err_code rc;

    *g = (struct generation){.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f, .top_k = 50};
    if (!json)
        return ERR_OK;
    json_t *o = json_loadb(json, n, JSON_REJECT_DUPLICATES, &je);
    if (!o)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: line %d: not valid JSON: %s", where, je.line, je.text);
    if (!json_is_object(o))
        rc = err_set(e, ERR_MODEL, ERR_STOP, "%s: expected an object, found %s", where, json_kind(o));
    else if ((rc = read_numbers(g, o, where, e)) == ERR_OK)
        rc = eos_read(g->eos, &g->n_eos, o, INT_MAX, where, e); /* the vocabulary is checked by model_open() */
    if (rc == ERR_OK)
        report_ignored(o);
    json_decref(o);
    return rc;
}
