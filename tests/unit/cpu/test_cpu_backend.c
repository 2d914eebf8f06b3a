#include "cpu/cpu_backend.h"
#include "tests/support/cpu_model.h"
#include "tests/support/decode.h"
#include "tests/support/evaluation.h"
#include "tests/support/st_writer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT = 12 };

static const struct backend_options small = {.rows = 8, .max_positions = 256, .kv_bytes = 32 << 20, .threads = 1};

static const char *open_error(const struct model *m, struct backend_options o, enum err_code want)
{
    static struct err e;
    struct backend *b;

    e = (struct err){0};
    cr_assert(backend_cpu_ops.open(&b, m, &o, &e) == want, "%s", e.msg);
    cr_assert(b == NULL && e.act == ERR_STOP);
    return e.msg;
}

Test(cpu_backend, open_refuses_what_cannot_be_and_says_why)
{
    struct st_checkpoint odd = st_small();
    const char *folder = st_folder("cpu");
    struct model *m;
    struct err e = {0};

    odd.dims.head_dim = 24;
    st_write_checkpoint(folder, &odd);
    cr_assert(model_open(&m, folder, &e) == ERR_OK, "%s", e.msg);
    cr_assert(strstr(open_error(m, small, ERR_UNSUPPORTED), "head_dim 24"));
    model_close(m);
    st_remove(folder);

    cr_assert(model_open(&m, "tests/golden/tiny-a", &e) == ERR_OK, "%s", e.msg);
    cr_assert(strstr(open_error(m, (struct backend_options){.block_tokens = 24}, ERR_CONFIG), "24"));
    cr_assert(strstr(open_error(m, (struct backend_options){.kv_bytes = 1 << 20}, ERR_CONFIG), "1 MiB"));
    model_close(m);
    cr_assert(model_open_shape(&m, "tests/golden/tiny-a", &e) == ERR_OK, "%s", e.msg);
    cr_assert(strstr(open_error(m, small, ERR_MODEL), "no weights"));
    model_close(m);
}

Test(cpu_backend, info_tells_the_plan)
{
    struct cpu_model c = cpu_model_open(DEMO_MODEL, &(struct backend_options){.kv_bytes = 64 << 20});
    char text[128];
    struct err e;

    cr_assert(c.info.rows == 64 && c.info.step_tokens == 256 && c.info.block_tokens == 16 && c.info.run_ahead == 1);
    cr_assert(c.info.max_positions == 512);                         /* the model's, though more would be the default */
    cr_assert(c.info.blocks == 512 && c.info.kv_bytes == 64 << 20); /* 8 KiB a token */
    cr_assert(c.info.weight_bytes > 36000000 && c.info.workspace_bytes > 0);
    cr_assert(c.ops->probe(0, text, sizeof text, &e) == ERR_OK && strstr(text, "core"));
    cpu_model_close(&c);
}

/* Runs one greedy job after the other through rows 0..n-1. */
struct row_result {
    int32_t output[OUTPUT];
    float logprobs[OUTPUT];
    int n;
    enum backend_end end;
};

static void run(struct cpu_model *c, struct decode_job *jobs, struct row_result *r, int n)
{
    struct err e = {0};

    for (int i = 0; i < n; i++) {
        jobs[i].max_output = OUTPUT;
        jobs[i].output = r[i].output;
        jobs[i].logprobs = r[i].logprobs;
    }
    cr_assert(decode_jobs(c->ops, c->b, jobs, n, &e) == ERR_OK, "%s", e.msg);
    for (int i = 0; i < n; i++) {
        r[i].n = jobs[i].n_output;
        r[i].end = jobs[i].end;
    }
}

static bool equal(const struct row_result *a, const struct row_result *b)
{
    return a->n == b->n && a->end == b->end && memcmp(a->output, b->output, (size_t)a->n * sizeof *a->output) == 0 &&
           memcmp(a->logprobs, b->logprobs, (size_t)a->n * sizeof *a->logprobs) == 0;
}

Test(cpu_backend, a_row_ends_at_its_first_end_token_of_any_or_at_its_length)
{
    static const int32_t prompt[] = {1, 194};
    struct cpu_model c = cpu_model_open("tests/golden/tiny-a", &small);
    struct decode_job j = {.prompt = prompt, .n_prompt = 2, .sampling = decode_greedy()};
    struct row_result free_run, r;

    run(&c, &j, &free_run, 1);
    cr_assert(free_run.n == OUTPUT && free_run.end == BACKEND_END_LENGTH);
    for (int at = 0; at < OUTPUT; at++) {
        int32_t eos[] = {511, free_run.output[at], 510};
        int first = 0;

        while (free_run.output[first] != eos[1])
            first++;

        j.eos = eos;
        j.n_eos = 3;
        run(&c, &j, &r, 1);
        cr_assert(r.n == first + 1 && r.end == BACKEND_END_EOS, "end token at %d, ended at %d", first, r.n - 1);
    }
    cpu_model_close(&c);
}

Test(cpu_backend, a_row_that_ended_does_nothing_and_answers_minus_one)
{
    static const int32_t prompt[] = {1, 194}, blocks[] = {3};
    struct cpu_model c = cpu_model_open("tests/golden/tiny-a", &small);
    struct row_join j = {.row = 5,
                         .tokens = prompt,
                         .n_tokens = 2,
                         .blocks = blocks,
                         .n_blocks = 1,
                         .sampling = decode_greedy(),
                         .max_length = 3};
    struct step_token t;
    struct err e = {0};
    bool ready;

    cr_assert(c.ops->join(c.b, &j, &e) == ERR_OK, "%s", e.msg);
    cr_assert(c.ops->step(c.b, &(struct step_row){.row = 5, .n_tokens = 1}, 1, &e) == ERR_OK, "%s", e.msg);
    cr_assert(c.ops->collect(c.b, &t, 1, true, &ready, &e) == ERR_OK && ready);
    cr_assert(t.token == -1 && t.end == BACKEND_END_NONE); /* prompt not at its end */
    cr_assert(c.ops->step(c.b, &(struct step_row){.row = 5, .n_tokens = 1}, 1, &e) == ERR_OK);
    cr_assert(c.ops->collect(c.b, &t, 1, true, &ready, &e) == ERR_OK && ready);
    cr_assert(t.token >= 0 && t.end == BACKEND_END_LENGTH);
    cr_assert(c.ops->step(c.b, &(struct step_row){.row = 5}, 1, &e) == ERR_OK);
    cr_assert(c.ops->collect(c.b, &t, 1, true, &ready, &e) == ERR_OK && ready);
    cr_assert(t.token == -1 && t.end == BACKEND_END_NONE);
    cpu_model_close(&c);
}

Test(cpu_backend, a_row_whose_logits_are_not_finite_fails_alone)
{
    enum { POISON = 77, ROWS = 4 };
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct cpu_model c = cpu_model_open(DEMO_MODEL, &small);
    struct model sick = *c.m;
    size_t bytes = (size_t)(sick.embed.rows * sick.embed.cols) * 2;
    uint16_t *embed = malloc(bytes);
    struct decode_job jobs[ROWS];
    struct row_result good[ROWS], mixed[ROWS];
    int32_t poisoned[64];
    struct cpu_model s = {.ops = c.ops, .m = &sick};
    struct err e = {0};

    cr_assert(embed && sick.embed.dtype == DTYPE_BF16);
    memcpy(embed, sick.embed.data, bytes);
    for (int i = 0; i < sick.dims.hidden; i++)
        embed[POISON * sick.dims.hidden + i] = 0x7f80; /* infinite */
    sick.embed.data = embed;
    cr_assert(s.ops->open(&s.b, &sick, &small, &e) == ERR_OK, "%s", e.msg);
    s.ops->info(s.b, &s.info);
    for (int i = 0; i < ROWS; i++)
        jobs[i] = (struct decode_job){.prompt = v.cases[i].prompt,
                                      .n_prompt = v.cases[i].n_prompt,
                                      .sampling = decode_greedy()};
    run(&c, jobs, good, ROWS);
    memcpy(poisoned, jobs[2].prompt, (size_t)jobs[2].n_prompt * sizeof *poisoned);
    poisoned[3] = POISON;
    jobs[2].prompt = poisoned;
    for (int round = 0; round < 2; round++) { /* the second time in blocks that hold what is not a number */
        run(&s, jobs, mixed, ROWS);
        cr_assert(mixed[2].n == 0 && mixed[2].end == BACKEND_END_BAD);
        for (int i = 0; i < ROWS; i++)
            cr_assert(i == 2 || equal(&mixed[i], &good[i]), "row %d suffers from its neighbour", i);
    }
    jobs[2].prompt = v.cases[2].prompt;
    run(&s, jobs, mixed, ROWS);
    cr_assert(equal(&mixed[2], &good[2]), "what an earlier request left in the blocks is read");
    s.ops->close(s.b);
    free(embed);
    cpu_model_close(&c);
    evaluation_free(&v);
}

Test(cpu_backend, padding_rows_of_the_vocabulary_are_never_drawn_nor_counted)
{
    enum { USED = 600 };
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct cpu_model c = cpu_model_open(DEMO_MODEL, &small);
    struct model padded = *c.m;
    struct cpu_model p = {.ops = c.ops, .m = &padded};
    struct sampling s = {.temperature = 5, .top_p = 1, .repetition_penalty = 1, .seed = 4};
    float *logits = malloc((size_t)padded.dims.vocab * sizeof *logits);
    float *distribution = malloc((size_t)padded.dims.vocab * sizeof *distribution);
    struct err e = {0};
    double sum = 0, exps = 0;

    padded.dims.vocab_used = USED;
    cr_assert(logits && distribution && p.ops->open(&p.b, &padded, &small, &e) == ERR_OK, "%s", e.msg);
    p.ops->info(p.b, &p.info);
    for (int i = 0; i < 20; i++) {
        const struct evaluation_case *k = &v.cases[i];
        struct decode_job j = {.prompt = k->prompt, .n_prompt = k->n_prompt, .sampling = i % 2 ? s : decode_greedy()};
        struct row_result r;

        run(&p, &j, &r, 1);
        cr_assert(r.n == OUTPUT);
        for (int t = 0; t < r.n; t++)
            cr_assert(r.output[t] < USED);
        cr_assert(p.ops->logits(p.b, k->prompt, k->n_prompt, 1, 0, logits, &e) == ERR_OK);
        cr_assert(isfinite(logits[padded.dims.vocab - 1])); /* the check shows them all */
        exps = 0;
        for (int id = 0; id < USED; id++)
            exps += exp(logits[id]);
        cr_assert(fabs(logits[r.output[0]] - log(exps) - r.logprobs[0]) < 1e-4);
    }
    cr_assert(p.ops->distribution(p.b, v.cases[0].prompt, v.cases[0].n_prompt, &s, distribution, &e) == ERR_OK);
    for (int id = 0; id < padded.dims.vocab; id++) {
        cr_assert(id < USED || distribution[id] == 0);
        sum += distribution[id];
    }
    cr_assert(fabs(sum - 1) < 1e-4);
    p.ops->close(p.b);
    free(logits);
    free(distribution);
    cpu_model_close(&c);
    evaluation_free(&v);
}

Test(cpu_backend, a_row_inherits_nothing_from_the_request_before_it)
{
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct cpu_model c = cpu_model_open(DEMO_MODEL, &small);
    struct row_result first[6], again[6];
    int32_t eos = 3;

    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 6; i++) { /* all in row 0, in two orders; each differs in all it asks for */
            int k = round ? 5 - i : i;
            struct decode_job j = {.prompt = v.cases[k].prompt,
                                   .n_prompt = v.cases[k].n_prompt,
                                   .eos = k % 2 ? &eos : c.m->generation.eos,
                                   .n_eos = 1,
                                   .sampling = {.temperature = k % 3 ? 0.8f : 0,
                                                .top_p = 0.9f,
                                                .repetition_penalty = 1 + 0.1f * (float)k,
                                                .top_k = 10 * k,
                                                .seed = (uint64_t)k}};
            run(&c, &j, round ? &again[k] : &first[k], 1);
        }
    for (int k = 0; k < 6; k++)
        cr_assert(equal(&first[k], &again[k]), "request %d", k);
    cpu_model_close(&c);
    evaluation_free(&v);
}

/* --- a mistake of the engine is an error, never a wrong translation --- */

static void refuse(enum err_code rc, const struct err *e, const char *what)
{
    cr_assert(rc == ERR_DEVICE && e->act == ERR_STOP && strstr(e->msg, what), "%s: %s", what, e->msg);
}

Test(cpu_backend, misuse_is_refused)
{
    static const int32_t prompt[40] = {1, 2, 3}, blocks[] = {0, 1}, far[] = {1 << 20}, strange[] = {1, 99999};
    struct cpu_model c = cpu_model_open("tests/golden/tiny-a", &small);
    const struct row_join good = {.row = 1,
                                  .tokens = prompt,
                                  .n_tokens = 20,
                                  .blocks = blocks,
                                  .n_blocks = 1,
                                  .sampling = decode_greedy(),
                                  .max_length = 60};
    struct row_join j = good;
    struct step_token t[8];
    struct err e = {0};
    bool ready;

    refuse(c.ops->collect(c.b, t, 8, true, &ready, &e), &e, "no step");
    refuse(c.ops->leave(c.b, 1, &e), &e, "not joined");
    refuse(c.ops->step(c.b, &(struct step_row){.row = 1, .n_tokens = 1}, 1, &e), &e, "not joined");
    j.row = 8;
    refuse(c.ops->join(c.b, &j, &e), &e, "no such row");
    j = good, j.n_cached = 20;
    refuse(c.ops->join(c.b, &j, &e), &e, "cached");
    j = good, j.n_cached = 17;
    refuse(c.ops->join(c.b, &j, &e), &e, "cached");
    j = good, j.max_length = 257;
    refuse(c.ops->join(c.b, &j, &e), &e, "lengths");
    j = good, j.blocks = far;
    refuse(c.ops->join(c.b, &j, &e), &e, "block");
    j = good, j.tokens = strange, j.n_tokens = 2;
    refuse(c.ops->join(c.b, &j, &e), &e, "vocabulary");
    j = good, j.sampling.repetition_penalty = NAN;
    cr_assert(c.ops->join(c.b, &j, &e) == ERR_INVALID_FIELD && e.act == ERR_SKIP);
    cr_assert(c.ops->join(c.b, &good, &e) == ERR_OK, "%s", e.msg); /* none of the above left a trace */
    refuse(c.ops->join(c.b, &good, &e), &e, "joined twice");
    refuse(c.ops->step(c.b, &(struct step_row){.row = 1}, 1, &e), &e, "before its prompt");
    refuse(c.ops->step(c.b, &(struct step_row){.row = 1, .n_tokens = 21}, 1, &e), &e, "past the end");
    refuse(c.ops->step(c.b, &(struct step_row){.row = 1, .n_tokens = 20}, 1, &e), &e, "no block");
    cr_assert(c.ops->grow(c.b, 1, blocks + 1, 1, &e) == ERR_OK, "%s", e.msg);
    refuse(c.ops->grow(c.b, 2, blocks, 1, &e), &e, "not joined");
    refuse(c.ops->copy_block(c.b, 0, 0, 3, &e), &e, "copy");
    refuse(c.ops->copy_block(c.b, 0, 1, 17, &e), &e, "copy");
    cr_assert(c.ops->step(c.b, &(struct step_row){.row = 1, .n_tokens = 20}, 1, &e) == ERR_OK, "%s", e.msg);
    refuse(c.ops->step(c.b, &(struct step_row){.row = 1}, 1, &e), &e, "not yet collected");
    refuse(c.ops->collect(c.b, t, 0, true, &ready, &e), &e, "room for 0");
    cr_assert(c.ops->collect(c.b, t, 8, true, &ready, &e) == ERR_OK && ready && t[0].token >= 0);
    cpu_model_close(&c);
}

Test(cpu_backend, random_weights_give_a_model_of_the_shape_the_same_each_time)
{
    static const int32_t prompt[] = {1, 5, 9};
    struct backend_options o = small;
    struct row_result r[2];
    struct err e = {0};
    struct model *m;

    o.random_weights = true;
    cr_assert(model_open_shape(&m, "tests/golden/tiny-b", &e) == ERR_OK, "%s", e.msg);
    for (int i = 0; i < 2; i++) {
        struct cpu_model c = {.m = m, .ops = &backend_cpu_ops};
        struct decode_job j = {.prompt = prompt, .n_prompt = 3, .sampling = decode_greedy()};

        o.threads = i + 1;
        cr_assert(c.ops->open(&c.b, m, &o, &e) == ERR_OK, "%s", e.msg);
        c.ops->info(c.b, &c.info);
        run(&c, &j, &r[i], 1);
        cr_assert(r[i].n == OUTPUT && r[i].end == BACKEND_END_LENGTH);
        c.ops->close(c.b);
    }
    cr_assert(equal(&r[0], &r[1]));
    model_close(m);
}
