/* bench: what the machine can do, and what the worker does of it. */
#include "cli/bench_device.h"
#include "cli/bench_machine.h"
#include "cli/bench_report.h"
#include "cli/bench_steps.h"
#include "cli/bench_tokenizer.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cpu/cpu_backend.h"
#include "model/model.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* As the machine's rates are the best of some tries, so are these the best of ROUNDS medians: others may be busy too. */
enum { DECODE_PROMPT = 32, DECODE_STEPS = 32, PROMPTS = 5, ROUNDS = 6, MAX_ROWS = 32 };

static const char help[] =
    "usage: translate-worker bench [--model DIR] [--threads N] [--json]\n"
    "\n"
    "Measures this machine (OpenBLAS sgemm where it is installed, memory copies), then the CPU backend beside it:\n"
    "tokens a second at several batches with forced output lengths, prompts, the tokenizer.  A share is the time\n"
    "that the step's operations or bytes, whichever take longer, need at the machine's rates, over the time it took.\n"
    "\n"
    "  --model DIR   checkpoint folder (ops/demo/model)\n"
    "  --threads N   of the CPU backend and of what it is compared with (one a core)\n"
    "  --json        one JSON object at the end instead of lines\n"
    "  --help        this text\n"
    "\n"
    "bench --shape 1.8b|7b|FOLDER [...] measures a device backend instead: `bench --shape` alone prints its options.\n"
    "\n"
    "Exit codes: 0 measured; 1 something could not be; 2 command line; 4 no usable checkpoint.\n";

struct options {
    const char *model;
    int threads;
    bool json;
};

/* --- the CPU backend --- */

static size_t kv_token_bytes(const struct backend_info *i)
{
    return i->kv_bytes / ((size_t)i->blocks * (size_t)i->block_tokens);
}

static enum err_code decode(struct backend *b, const struct model *m, const struct bench_machine *machine,
                            const char *kind, const struct sampling *s, int rows, struct bench_report *r, struct err *e)
{
    struct backend_info info;
    struct bench_steps t = {.step_seconds = INFINITY}, round;
    struct bench_bound bound;
    enum err_code rc;

    for (int i = 0; i < ROUNDS; i++) {
        if ((rc = bench_decode(&backend_cpu_ops, b, m->dims.vocab_used, rows, DECODE_PROMPT, DECODE_STEPS, s, &round,
                               e)) != ERR_OK)
            return rc;
        if (round.step_seconds < t.step_seconds)
            t = round;
    }
    backend_cpu_ops.info(b, &info);
    bound = bench_bound(&m->dims, m->weight_bytes, kv_token_bytes(&info), machine, rows, 1, t.context, rows);
    bench_row(r, "decode",
              json_pack("{s:i, s:s, s:i, s:f, s:f, s:f, s:s, s:f}", "rows", rows, "sampling", kind, "output_tokens",
                        DECODE_STEPS, "tokens_per_s", rows / t.step_seconds, "step_ms", t.step_seconds * 1e3,
                        "bound_ms", bound.seconds * 1e3, "bound_by", bound.by, "bound_share",
                        bound.seconds / t.step_seconds),
              "decode    %2d rows, %-8s %7.0f tokens/s, %6.2f ms a step; bound %.2f ms by %s: %.0f%%", rows, kind,
              rows / t.step_seconds, t.step_seconds * 1e3, bound.seconds * 1e3, bound.by,
              100 * bound.seconds / t.step_seconds);
    return ERR_OK;
}

static enum err_code prompt(struct backend *b, const struct model *m, const struct bench_machine *machine,
                            struct bench_report *r, struct err *e)
{
    struct backend_info info;
    struct bench_steps t = {.step_seconds = INFINITY}, round;
    struct bench_bound bound;
    enum err_code rc;
    int n;

    backend_cpu_ops.info(b, &info);
    n = info.max_positions > 256 ? 256 : info.max_positions - 1;
    for (int i = 0; i < ROUNDS; i++) {
        if ((rc = bench_prompt(&backend_cpu_ops, b, m->dims.vocab_used, n, PROMPTS, &round, e)) != ERR_OK)
            return rc;
        if (round.step_seconds < t.step_seconds)
            t = round;
    }
    bound = bench_bound(&m->dims, m->weight_bytes, kv_token_bytes(&info), machine, 1, n, t.context, 1);
    bench_row(r, "prompt",
              json_pack("{s:i, s:f, s:f, s:f, s:s, s:f}", "tokens", n, "tokens_per_s", n / t.step_seconds, "step_ms",
                        t.step_seconds * 1e3, "bound_ms", bound.seconds * 1e3, "bound_by", bound.by, "bound_share",
                        bound.seconds / t.step_seconds),
              "prompt    %d tokens          %7.0f tokens/s, %6.2f ms;        bound %.2f ms by %s: %.0f%%", n,
              n / t.step_seconds, t.step_seconds * 1e3, bound.seconds * 1e3, bound.by,
              100 * bound.seconds / t.step_seconds);
    return ERR_OK;
}

static enum err_code bench_cpu(const struct options *o, const struct model *m, const struct bench_machine *machine,
                               struct bench_report *r, struct err *e)
{
    static const struct sampling greedy = {.top_p = 1, .repetition_penalty = 1};
    static const struct sampling usual = {.temperature = 0.7f, .top_p = 0.6f, .repetition_penalty = 1.05f, .top_k = 20};
    static const int rows[] = {1, 8, MAX_ROWS};
    struct backend_options bo = {.rows = MAX_ROWS, .max_positions = 512, .threads = o->threads, .deterministic = true};
    struct backend_info info;
    struct backend *b;
    enum err_code rc = backend_cpu_ops.open(&b, m, &bo, e);

    if (rc != ERR_OK)
        return rc;
    backend_cpu_ops.info(b, &info);
    bench_row(r, "model",
              json_pack("{s:s, s:s, s:f, s:f}", "name", m->name, "device", info.device, "weight_mbytes",
                        (double)m->weight_bytes / 1e6, "workspace_mbytes", (double)info.workspace_bytes / 1e6),
              "model     %s, %.1f MB of weights; %s", m->name, (double)m->weight_bytes / 1e6, info.device);
    for (int i = 0; rc == ERR_OK && i < 3; i++)
        rc = decode(b, m, machine, "greedy", &greedy, rows[i], r, e);
    if (rc == ERR_OK)
        rc = decode(b, m, machine, "sampled", &usual, MAX_ROWS, r, e);
    if (rc == ERR_OK)
        rc = prompt(b, m, machine, r, e);
    backend_cpu_ops.close(b);
    return rc;
}

/* --- the command --- */

static enum err_code run(const struct options *o, struct bench_report *r, struct err *e)
{
    struct bench_machine machine;
    struct bench_blas *blas = NULL;
    struct model *m;
    enum err_code rc = model_open(&m, o->model, e);

    if (rc != ERR_OK)
        return rc;
    blas = bench_blas_open();
    if ((rc = bench_machine_measure(&machine, blas, o->threads, r, e)) == ERR_OK &&
        (rc = bench_products(&m->dims, blas, r, e)) == ERR_OK && (rc = bench_cpu(o, m, &machine, r, e)) == ERR_OK)
        rc = bench_tokenizer(o->model, r, e);
    bench_blas_close(blas);
    model_close(m);
    return rc;
}

static enum err_code parse(int argc, char **argv, struct options *o, bool *help_wanted, struct err *e)
{
    static const struct option longs[] = {{"model", required_argument, NULL, 'm'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    long long n;
    enum err_code rc;

    *o = (struct options){.model = "ops/demo/model"};
    *help_wanted = false;
    opterr = 0; /* one line, ours */
    for (int c; (c = getopt_long(argc, argv, "m:t:h", longs, NULL)) != -1;)
        switch (c) {
        case 'm': o->model = optarg; break;
        case 'j': o->json = true; break;
        case 'h': *help_wanted = true; break;
        case 't':
            if ((rc = cli_parse_int("--threads", optarg, 1, 256, &n, e)) != ERR_OK)
                return rc;
            o->threads = (int)n;
            break;
        default:
            return err_set(e, ERR_USAGE, ERR_STOP, "bench: '%s' is unknown or lacks its value (see --help)",
                           argv[optind - 1]);
        }
    if (optind < argc)
        return err_set(e, ERR_USAGE, ERR_STOP, "bench: '%s' is too much (see --help)", argv[optind]);
    return ERR_OK;
}

int cli_bench(int argc, char **argv)
{
    struct bench_report r = {NULL};
    struct options o;
    struct err e = {0};
    bool help_wanted;

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--shape") == 0)
            return bench_device(argc, argv);
    if (parse(argc, argv, &o, &help_wanted, &e) != ERR_OK)
        return cli_fail(&e);
    if (help_wanted) {
        fputs(help, stdout);
        return EXIT_OK;
    }
    if (o.json && !(r.root = json_object()))
        return cli_fail(&(struct err){.code = ERR_NOMEM, .msg = "bench: out of memory"});
    if (run(&o, &r, &e) != ERR_OK) {
        json_decref(r.root);
        return cli_fail(&e);
    }
    if (r.root) {
        json_dumpf(r.root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        putchar('\n');
    }
    json_decref(r.root);
    return EXIT_OK;
}
