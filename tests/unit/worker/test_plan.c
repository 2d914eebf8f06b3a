#include "base/clock.h"
#include "tests/support/cpu_model.h"
#include "worker/plan.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct plan_limits limits = {.max_sequence = 512, .max_input = 256, .max_output = 300};
static const struct generation greedy = {
    .do_sample = false, .temperature = 0.7f, .top_p = 0.8f, .repetition_penalty = 1, .top_k = 20};
static const struct generation sampled = {
    .do_sample = true, .temperature = 0.7f, .top_p = 0.8f, .repetition_penalty = 1.05f, .top_k = 20};

Test(plan, limits_fill_their_zeros_from_model_and_pool)
{
    struct limits_config c = {.max_output_tokens = 4096};
    struct dims dims = {.max_positions = 262144};
    struct backend_info info = {.blocks = 64, .block_tokens = 16, .max_positions = 8192};
    struct plan_limits l;

    cr_assert_eq(plan_limits(&l, &c, &dims, NULL, NULL), ERR_OK);
    cr_assert(l.max_sequence == 8192 && l.max_input == 4096 && l.max_output == 4096);
    cr_assert_eq(plan_limits(&l, &c, &dims, &info, NULL), ERR_OK);
    cr_assert(l.max_sequence == 1024 && l.max_input == 512, "a job larger than the KV pool is refused, not stuck");
    cr_assert_eq(l.max_output, 1023);
    c.max_input_tokens = 2000;
    cr_assert_eq(plan_limits(&l, &c, &dims, &info, NULL), ERR_OK);
    cr_assert_eq(l.max_input, 1023, "room for one token at least");
}

Test(plan, limits_refuse_more_than_the_model_has)
{
    struct limits_config c = {.max_output_tokens = 10, .max_sequence_tokens = 1000};
    struct dims dims = {.max_positions = 512};
    struct plan_limits l;
    struct err e;

    cr_assert_eq(plan_limits(&l, &c, &dims, NULL, &e), ERR_CONFIG);
    cr_assert(strstr(e.msg, "limits.max_sequence_tokens") && strstr(e.msg, "1000") && strstr(e.msg, "512"));
}

Test(plan, longest_output_follows_the_source_and_its_caps)
{
    struct job j = {.priority = 0};

    cr_assert_eq(plan_max_output(&limits, &j, 30, 10), PLAN_OUTPUT_BASE + 10 * PLAN_OUTPUT_RATIO);
    cr_assert_eq(plan_max_output(&limits, &j, 200, 180), 300, "limits.max_output_tokens");
    cr_assert_eq(plan_max_output(&limits, &j, 256, 250), 256, "what the sequence leaves");
    j.has_max_output_tokens = true;
    j.max_output_tokens = 7;
    cr_assert_eq(plan_max_output(&limits, &j, 30, 10), 7);
    j.max_output_tokens = INT32_MAX;
    cr_assert_eq(plan_max_output(&limits, &j, 30, 10), 300);
}

Test(plan, sampling_is_the_jobs_else_the_models)
{
    struct job j = {.job_id = {"a", 1}};
    struct sampling s, again;

    cr_assert_eq(plan_sampling(&s, &j, &greedy, NULL), ERR_OK);
    cr_assert_eq(s.temperature, 0, "do_sample false is greedy");
    cr_assert_eq(plan_sampling(&s, &j, &sampled, NULL), ERR_OK);
    cr_assert(s.temperature == 0.7f && s.top_p == 0.8f && s.top_k == 20 && s.repetition_penalty == 1.05f);
    cr_assert_eq(plan_sampling(&again, &j, &sampled, NULL), ERR_OK);
    cr_assert_eq(s.seed, again.seed, "a repeated job gives the same text");
    cr_assert_geq((int64_t)s.seed, 0);
    j.job_id = (struct text){"b", 1};
    cr_assert_eq(plan_sampling(&again, &j, &sampled, NULL), ERR_OK);
    cr_assert_neq(s.seed, again.seed);
    j.has_temperature = j.has_seed = j.has_top_k = j.has_repetition_penalty = true;
    j.temperature = 1.5;
    j.seed = 42;
    j.top_k = 0;
    j.repetition_penalty = 1.0;
    cr_assert_eq(plan_sampling(&s, &j, &greedy, NULL), ERR_OK);
    cr_assert(s.temperature == 1.5f && s.seed == 42 && s.top_k == 0 && s.repetition_penalty == 1);
}

Test(plan, sampling_out_of_range_is_the_jobs_fault)
{
    static const double penalties[] = {0, -1, NAN, INFINITY, 1e9}, temperatures[] = {-0.1, NAN, INFINITY},
                        shares[] = {0, -1, 1.1, NAN};
    struct sampling s;
    struct err e;

    for (size_t i = 0; i < sizeof penalties / sizeof penalties[0]; i++) {
        struct job j = {.has_repetition_penalty = true, .repetition_penalty = penalties[i]};
        cr_assert_eq(plan_sampling(&s, &j, &greedy, &e), ERR_INVALID_FIELD, "penalty %g", penalties[i]);
        cr_assert_eq(e.act, ERR_SKIP);
    }
    for (size_t i = 0; i < sizeof temperatures / sizeof temperatures[0]; i++) {
        struct job j = {.has_temperature = true, .temperature = temperatures[i]};
        cr_assert_eq(plan_sampling(&s, &j, &greedy, &e), ERR_INVALID_FIELD, "temperature %g", temperatures[i]);
    }
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        struct job j = {.has_top_p = true, .top_p = shares[i]};
        cr_assert_eq(plan_sampling(&s, &j, &greedy, &e), ERR_INVALID_FIELD, "top_p %g", shares[i]);
    }
}

/* --- with the demo model's tokenizer --- */

static struct tokenizer *tokenizer;
static struct prompt *prompt;
static struct planner *planner;
static struct task_pool *pool;
static struct task *task;
static struct err e;

static void open_planner(void)
{
    cr_assert_eq(tokenizer_open(&tokenizer, DEMO_MODEL "/tokenizer.json", &e), ERR_OK, "%s", e.msg);
    cr_assert_eq(prompt_open(&prompt, tokenizer, DEMO_MODEL, "demo", PROMPT_AUTO, false, &e), ERR_OK, "%s", e.msg);
    cr_assert_eq(planner_open(&planner, prompt, tokenizer, &greedy, &limits, &e), ERR_OK, "%s", e.msg);
    cr_assert_eq(task_pool_open(&pool, 1, 1 << 20, &e), ERR_OK);
    task = task_pool_take(pool, 0);
}

static void close_planner(void)
{
    task_pool_close(pool);
    planner_close(planner);
    prompt_close(prompt);
    tokenizer_close(tokenizer);
}

static struct text text_of(const char *s)
{
    return (struct text){s, strlen(s)};
}

static struct job good(void)
{
    return (struct job){.job_id = text_of("1"), .text = text_of("Good morning."), .target_lang = text_of("de")};
}

static enum err_code plan(const struct job *j)
{
    task->job = *j;
    return planner_plan(planner, task, 1000 * NS_PER_S, 5000000, &e);
}

TestSuite(planner, .init = open_planner, .fini = close_planner);

Test(planner, fills_the_request)
{
    struct job j = good();

    cr_assert_eq(plan(&j), ERR_OK, "%s", e.msg);
    cr_assert_str_eq(task->to->english, "German");
    cr_assert_null(task->from);
    cr_assert_gt(task->request.n_prompt, 5);
    cr_assert_gt(task->request.max_output, PLAN_OUTPUT_BASE);
    cr_assert_eq(task->request.output, task->request.prompt + task->request.n_prompt);
    cr_assert_eq(task->request.owner, task);
    cr_assert_eq(task->request.deadline_ns, 0);
}

Test(planner, takes_languages_by_code_and_name_and_names_what_it_does_not_know)
{
    static const char *const known[] = {"German", "de", "zh-Hant", "French"};
    struct job j = good();
    char longest[300];

    for (int i = 0; i < 4; i++) {
        j.target_lang = text_of(known[i]);
        cr_assert_eq(plan(&j), ERR_OK, "%s", known[i]);
    }
    j.target_lang = text_of("Klingon");
    cr_assert_eq(plan(&j), ERR_UNKNOWN_LANGUAGE);
    cr_assert(strstr(e.msg, "target_lang") && strstr(e.msg, "Klingon"));
    memset(longest, 'x', sizeof longest);
    j.target_lang = (struct text){longest, sizeof longest};
    cr_assert_eq(plan(&j), ERR_UNKNOWN_LANGUAGE);
    j.target_lang = (struct text){"de\0x", 4};
    cr_assert_eq(plan(&j), ERR_UNKNOWN_LANGUAGE, "not cut at an embedded NUL");
    j = good();
    j.source_lang = text_of("xx");
    cr_assert_eq(plan(&j), ERR_UNKNOWN_LANGUAGE);
    cr_assert(strstr(e.msg, "source_lang"));
}

Test(planner, refuses_what_it_would_have_to_ignore)
{
    struct term term = {text_of("a"), text_of("b")};
    struct job j = good();

    j.context = text_of("A talk.");
    cr_assert_eq(plan(&j), ERR_UNSUPPORTED);
    cr_assert(strstr(e.msg, "context"));
    j = good();
    j.glossary = &term;
    j.n_glossary = 1;
    cr_assert_eq(plan(&j), ERR_UNSUPPORTED);
    cr_assert(strstr(e.msg, "glossary"));
    j = good();
    j.format = JOB_TAGGED;
    cr_assert_eq(plan(&j), ERR_UNSUPPORTED);
    cr_assert(strstr(e.msg, "TAGGED"));
    cr_assert_eq(e.act, ERR_SKIP);
}

Test(planner, refuses_a_prompt_over_the_limit_with_the_limit_in_the_message)
{
    static char text[8000];
    struct job j = good();

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "word "[i % 5];
    j.text = (struct text){text, sizeof text};
    cr_assert_eq(plan(&j), ERR_TEXT_TOO_LONG);
    cr_assert_eq(e.act, ERR_SKIP);
    cr_assert(strstr(e.msg, "256") && strstr(e.msg, "limits.max_input_tokens"), "%s", e.msg);
    j.text = text_of("  \n\t");
    cr_assert_eq(plan(&j), ERR_EMPTY_TEXT);
}

Test(planner, turns_deadlines_from_wall_to_monotonic_and_refuses_past_ones)
{
    static const int64_t past[] = {INT64_MIN, -1, 0, 1, 4999999, 5000000};
    struct job j = good();

    j.has_deadline = true;
    for (size_t i = 0; i < sizeof past / sizeof past[0]; i++) {
        j.deadline_ms = past[i];
        cr_assert_eq(plan(&j), ERR_DEADLINE_PASSED, "%lld", (long long)past[i]);
    }
    j.deadline_ms = 5000000 + 250;
    cr_assert_eq(plan(&j), ERR_OK);
    cr_assert_eq(task->request.deadline_ns, 1000 * NS_PER_S + 250 * NS_PER_MS);
    j.deadline_ms = INT64_MAX;
    cr_assert_eq(plan(&j), ERR_OK);
    cr_assert_eq(task->request.deadline_ns, 0, "so far away that it is none");
}

static enum err_code plan_header(struct job *j, const void *value, size_t n)
{
    struct header h[] = {{PLAN_DEADLINE_HEADER, "1", 1}, {PLAN_DEADLINE_HEADER, value, n}};
    struct record r = {.headers = h, .n_headers = 2};

    return plan_header_deadline(j, &r, &e);
}

Test(plan, deadline_may_be_a_header_and_the_earlier_of_both_holds)
{
    struct job j = good();

    cr_assert_eq(plan_header_deadline(&j, &(struct record){.n_headers = 0}, &e), ERR_OK);
    cr_assert_not(j.has_deadline);
    cr_assert_eq(plan_header(&j, "5000250", 7), ERR_OK, "%s", e.msg);
    cr_assert(j.has_deadline && j.deadline_ms == 5000250);
    j.deadline_ms = 4000;
    cr_assert_eq(plan_header(&j, "5000", 4), ERR_OK);
    cr_assert_eq(j.deadline_ms, 4000);
    cr_assert_eq(plan_header(&j, "-1", 2), ERR_OK);
    cr_assert_eq(j.deadline_ms, -1);
}

Test(plan, deadline_header_that_is_no_time_is_refused)
{
    static const struct text bad[] = {{NULL, 0},
                                      {"", 0},
                                      {" 1", 2},
                                      {"1 ", 2},
                                      {"1.5", 3},
                                      {"soon", 4},
                                      {"1\0", 2},
                                      {"0x10", 4},
                                      {"1e9", 3},
                                      {"--1", 3},
                                      {"99999999999999999999", 20},
                                      {"1111111111111111111111111111111", 31}};
    struct job j = good();

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(plan_header(&j, bad[i].s, bad[i].n), ERR_INVALID_FIELD, "%zu: %s", i, bad[i].s);
        cr_assert_eq(e.act, ERR_SKIP);
        cr_assert(strstr(e.msg, PLAN_DEADLINE_HEADER), "%s", e.msg);
    }
    cr_assert_not(j.has_deadline);
}

Test(planner, gives_a_long_job_ids_of_its_own)
{
    const struct plan_limits wide = {.max_sequence = 8192, .max_input = 4096, .max_output = 4096};
    static char text[8000];
    struct job j = good();

    planner_close(planner);
    cr_assert_eq(planner_open(&planner, prompt, tokenizer, &greedy, &wide, &e), ERR_OK);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "word "[i % 5];
    j.text = (struct text){text, sizeof text};
    cr_assert_eq(plan(&j), ERR_OK, "%s", e.msg);
    cr_assert_not_null(task->large_ids);
    cr_assert_leq(task->request.n_prompt + task->request.max_output, 8192);
}
