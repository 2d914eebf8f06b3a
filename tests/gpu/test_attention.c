#include "cuda/attention.h"
#include "tests/gpu/gpu_test.h"
#include "tests/ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 8, POSITIONS = 1200 };
static const double BASE = 11158839.925;

/* Rows whose q/k/v lie here for every position; the card gets the history as prompts and the last token as a step. */
struct scene {
    struct attention a;
    int heads, kv_heads, d, rows, length[MAX_ROWS];
    int splits, width, ld;
    float *qkv[MAX_ROWS]; /* [length, width], before RoPE */
    float *q_norm, *k_norm;
    int *tables;
};

static float *norm_weights(struct gpu_test_run *t, int d, const bf16 **card)
{
    float *w = gpu_host(t, (size_t)d * 4);
    bf16 *v = gpu_host(t, (size_t)d * 2);

    for (int i = 0; i < d; i++)
        w[i] = ref_from_bf16(v[i] = ref_to_bf16(0.5f + 1.5f * (float)(gpu_random(t) >> 8) / (1 << 24)));
    *card = gpu_upload(t, v, (size_t)d * 2);
    return w;
}

static void make_scene(struct gpu_test_run *t, struct scene *s, int heads, int kv_heads, int d, int block_tokens,
                       bool normed)
{
    const int per_row = (POSITIONS + block_tokens - 1) / block_tokens, blocks = per_row * MAX_ROWS;
    struct err e = {0};

    (void)gpu_ok(t, attention_prepare(&e), &e);
    s->heads = heads;
    s->kv_heads = kv_heads;
    s->d = d;
    s->width = (heads + 2 * kv_heads) * d;
    s->ld = (s->width + 127) / 128 * 128;
    s->splits = 3;
    s->tables = gpu_host(t, (size_t)blocks * sizeof(int));
    for (int i = 0; i < blocks; i++)
        s->tables[i] = i;
    for (int i = blocks - 1; i > 0; i--) { /* any order */
        const int j = (int)(gpu_random(t) % (uint32_t)(i + 1)), x = s->tables[i];
        s->tables[i] = s->tables[j];
        s->tables[j] = x;
    }
    s->a = (struct attention){.heads = heads,
                              .kv_heads = kv_heads,
                              .d = d,
                              .block_shift = __builtin_ctz((unsigned)block_tokens),
                              .max_blocks = per_row,
                              .eps = 1e-5f};
    s->a.tables = gpu_upload(t, s->tables, (size_t)blocks * sizeof(int));
    float *rope = gpu_poisoned(t, POSITIONS * (size_t)d * 4);
    (void)gpu_ok(t, rope_table(rope, POSITIONS, d, BASE, &t->gpu, &e), &e);
    s->a.rope = rope;
    s->q_norm = s->k_norm = NULL;
    if (normed) {
        s->q_norm = norm_weights(t, d, &s->a.q_norm);
        s->k_norm = norm_weights(t, d, &s->a.k_norm);
    }
    s->a.kv = gpu_poisoned(t, (size_t)blocks * (size_t)kv_heads * (size_t)block_tokens * 2 * (size_t)d * 2);
    for (int r = 0; r < s->rows; r++) {
        const size_t n = (size_t)s->length[r] * (size_t)s->width;
        s->qkv[r] = gpu_host(t, n * 4);
        for (size_t i = 0; i < n; i++) /* as the products of prompts leave them */
            s->qkv[r][i] = ref_from_bf16(ref_to_bf16(gpu_normal(t)));
    }
}

/* What the cache should hold of head h (q heads, then k, then v) of a token: rounded to bf16. */
static void head_of(const struct scene *s, int row, int pos, int h, float *out)
{
    const float *w = h < s->heads ? s->q_norm : s->k_norm;

    memcpy(out, s->qkv[row] + (size_t)pos * (size_t)s->width + (size_t)(h * s->d), (size_t)s->d * 4);
    if (h < s->heads + s->kv_heads) {
        ref_rope(out, s->d, pos, BASE);
        if (w)
            ref_norm(out, out, w, s->d, 1e-5f);
    }
    for (int i = 0; i < s->d; i++)
        out[i] = ref_from_bf16(ref_to_bf16(out[i]));
}

/* Splits of the product: shares that add up. */
static struct qkv_parts parts_of(struct gpu_test_run *t, const struct scene *s, const int *row, const int *pos,
                                 int slots)
{
    float *part = gpu_host(t, (size_t)s->splits * (size_t)slots * (size_t)s->ld * 4);

    for (int i = 0; i < slots; i++)
        for (int c = 0; c < s->width && row[i] >= 0; c++) {
            float left = s->qkv[row[i]][(size_t)pos[i] * (size_t)s->width + (size_t)c];
            for (int k = 0; k < s->splits; k++) {
                const float share = k + 1 < s->splits ? left * 0.5f : left;
                part[((size_t)k * (size_t)slots + (size_t)i) * (size_t)s->ld + (size_t)c] = share;
                left -= share;
            }
        }
    return (struct qkv_parts){gpu_upload(t, part, (size_t)s->splits * (size_t)slots * (size_t)s->ld * 4), s->splits,
                              slots, s->ld};
}

static void check_out(struct gpu_test_run *t, const struct scene *s, const char *what, const int *row, const int *pos,
                      int slots, const bf16 *out, int cap)
{
    const int group = s->heads / s->kv_heads;
    float q[128], want[128];
    double wrong = 0, norm = 0;

    for (int i = 0; i < slots; i++) {
        if (row[i] < 0)
            continue;
        const int n = pos[i] + 1;
        float *k = malloc((size_t)n * (size_t)s->d * 4), *v = malloc((size_t)n * (size_t)s->d * 4);
        for (int h = 0; h < s->heads; h++) {
            if (h % group == 0)
                for (int p = 0; p < n; p++) {
                    head_of(s, row[i], p, s->heads + h / group, k + (size_t)p * (size_t)s->d);
                    head_of(s, row[i], p, s->heads + s->kv_heads + h / group, v + (size_t)p * (size_t)s->d);
                }
            head_of(s, row[i], pos[i], h, q);
            ref_attention(want, q, k, v, n, s->d);
            for (int c = 0; c < s->d; c++) {
                const double g = ref_from_bf16(out[ref_act_at(i, h * s->d + c, cap)]);
                wrong += (g - want[c]) * (g - want[c]);
                norm += (double)want[c] * want[c];
            }
        }
        free(k);
        free(v);
    }
    (void)gpu_expect(t, sqrt(wrong / norm) < 8e-3, "%s, %d heads on %d of %d: relative error %.3g", what, s->heads,
                     s->kv_heads, s->d, sqrt(wrong / norm));
}

/* Feeds positions from..to of every row as one packed step. */
static void feed(struct gpu_test_run *t, const struct scene *s, const int *from, const int *to, bool check)
{
    int slots = 0, n_tiles = 0;
    const int each = attention_tile_tokens(&s->a);
    struct err e = {0};

    for (int r = 0; r < s->rows; r++)
        slots += to[r] - from[r];
    if (slots == 0)
        return;
    const int cap = (slots + 7) / 8 * 8;
    int *row = gpu_host(t, (size_t)slots * 4), *pos = gpu_host(t, (size_t)slots * 4);
    struct query_tile *tiles = gpu_host(t, (size_t)(slots + 4 * MAX_ROWS) * sizeof *tiles);
    slots = 0;
    for (int r = 0; r < s->rows; r++) {
        for (int p = from[r]; to[r] > from[r] && (p < to[r] || n_tiles % ATTENTION_TILES != 0); p += each) {
            const int left = p < to[r] ? to[r] - p : 0;
            tiles[n_tiles++] = (struct query_tile){left ? slots + p - from[r] : slots, left < each ? left : each, r,
                                                   left ? p : to[r] - 1};
        }
        for (int p = from[r]; p < to[r]; p++, slots++) {
            row[slots] = r;
            pos[slots] = p;
        }
    }
    bf16 *sums = gpu_host(t, (size_t)slots * (size_t)s->ld * 2);
    for (int i = 0; i < slots; i++)
        for (int c = 0; c < s->width; c++)
            sums[(size_t)i * (size_t)s->ld + (size_t)c] =
                ref_to_bf16(s->qkv[row[i]][(size_t)pos[i] * (size_t)s->width + (size_t)c]);
    const bf16 *card = gpu_upload(t, sums, (size_t)slots * (size_t)s->ld * 2);
    const size_t n = (size_t)cap * (size_t)(s->heads * s->d);
    bf16 *out = gpu_poisoned(t, n * 2), *got = gpu_host(t, n * 2);
    (void)gpu_ok(t,
                 attention_append(&s->a, card, s->ld, gpu_upload(t, row, (size_t)slots * 4),
                                  gpu_upload(t, pos, (size_t)slots * 4), slots, &t->gpu, &e),
                 &e);
    (void)gpu_ok(t,
                 attention_prompt(&s->a, card, s->ld, gpu_upload(t, tiles, (size_t)n_tiles * sizeof *tiles), n_tiles,
                                  out, cap, &t->gpu, &e),
                 &e);
    gpu_download(t, got, out, n * 2);
    if (check)
        check_out(t, s, "prompt", row, pos, slots, got, cap);
}

static bf16 *decode(struct gpu_test_run *t, const struct scene *s, const int *row, const int *pos, int slots, int cap)
{
    const struct qkv_parts parts = parts_of(t, s, row, pos, slots);
    const size_t n = (size_t)cap * (size_t)(s->heads * s->d);
    bf16 *out = gpu_poisoned(t, n * 2), *got = gpu_host(t, n * 2);
    struct err e = {0};

    (void)gpu_ok(t,
                 attention_decode(&s->a, &parts, gpu_upload(t, row, (size_t)slots * 4),
                                  gpu_upload(t, pos, (size_t)slots * 4), slots, out, cap, &t->gpu, &e),
                 &e);
    gpu_download(t, got, out, n * 2);
    return got;
}

static void check_shape(struct gpu_test_run *t, int heads, int kv_heads, int d, int block_tokens, bool normed)
{
    static const int lengths[MAX_ROWS] = {1, 2, 16, 17, 33, 129, 257, 300};
    struct scene s = {.rows = MAX_ROWS};
    int from[MAX_ROWS] = {0}, to[MAX_ROWS], row[MAX_ROWS + 1], pos[MAX_ROWS + 1];

    memcpy(s.length, lengths, sizeof lengths);
    make_scene(t, &s, heads, kv_heads, d, block_tokens, normed);
    for (int r = 0; r < s.rows; r++)
        to[r] = s.length[r] / 3;
    feed(t, &s, from, to, true);
    for (int r = 0; r < s.rows; r++) {
        from[r] = to[r];
        to[r] = s.length[r] - 1;
    }
    feed(t, &s, from, to, true);
    for (int r = 0; r < s.rows; r++) { /* a slot that has no row stands between */
        const int i = r < 3 ? r : r + 1;
        row[i] = r;
        pos[i] = s.length[r] - 1;
    }
    row[3] = -1;
    pos[3] = 0;
    const bf16 *all = decode(t, &s, row, pos, MAX_ROWS + 1, 16);
    check_out(t, &s, "decode", row, pos, MAX_ROWS + 1, all, 16);
    for (int r = 0; r < s.rows; r++) {
        const int i = r < 3 ? r : r + 1;
        const bf16 *one = decode(t, &s, &row[i], &pos[i], 1, 8);
        for (int c = 0; c < heads * d; c++)
            if (!gpu_expect(t, one[ref_act_at(0, c, 8)] == all[ref_act_at(i, c, 16)],
                            "row %d alone differs at column %d", r, c))
                break;
    }
}

/* So many slots that blocks take several in turn: each gives what it gives among few. */
static void many_slots(struct gpu_test_run *t)
{
    enum { TIMES = 45, SLOTS = TIMES * (MAX_ROWS + 1), CAP = (SLOTS + 7) / 8 * 8 };
    static const int lengths[MAX_ROWS] = {1, 16, 90, 17, 64, 129, 300, 610};
    struct scene s = {.rows = MAX_ROWS};
    int from[MAX_ROWS] = {0}, to[MAX_ROWS], row[SLOTS], pos[SLOTS];

    memcpy(s.length, lengths, sizeof lengths);
    make_scene(t, &s, 16, 4, 128, 16, true);
    for (int r = 0; r < s.rows; r++)
        to[r] = s.length[r] - 1;
    feed(t, &s, from, to, false);
    for (int i = 0; i < SLOTS; i++) {
        row[i] = i % (MAX_ROWS + 1) == 2 + i / 200 ? -1 : i % (MAX_ROWS + 1) % MAX_ROWS;
        pos[i] = row[i] < 0 ? 0 : s.length[row[i]] - 1;
    }
    const bf16 *all = decode(t, &s, row, pos, SLOTS, CAP);
    check_out(t, &s, "decode of many", row, pos, MAX_ROWS + 1, all, CAP);
    for (int r = 0; r < s.rows; r++) {
        const int at = s.length[r] - 1;
        const bf16 *one = decode(t, &s, &r, &at, 1, 8);
        for (int i = 0; i < SLOTS; i++)
            for (int c = 0; c < s.heads * s.d && row[i] == r; c++)
                if (!gpu_expect(t, one[ref_act_at(0, c, 8)] == all[ref_act_at(i, c, CAP)],
                                "row %d alone differs from slot %d at column %d", r, i, c))
                    break;
    }
}

static void shapes(struct gpu_test_run *t)
{
    check_shape(t, 16, 4, 128, 16, true);
    check_shape(t, 6, 2, 64, 16, true);
    check_shape(t, 4, 2, 64, 32, false);
    check_shape(t, 3, 3, 128, 64, true);
}

static void wide_groups(struct gpu_test_run *t)
{
    check_shape(t, 8, 1, 64, 16, true);
    check_shape(t, 12, 1, 128, 16, true);
    check_shape(t, 40, 2, 64, 16, true);
}

static void long_row(struct gpu_test_run *t)
{
    struct scene s = {.rows = 1, .length = {POSITIONS}};
    const int from = 0, to = POSITIONS - 1, row = 0, pos = POSITIONS - 1;

    make_scene(t, &s, 4, 1, 128, 16, true);
    feed(t, &s, &from, &to, false);
    check_out(t, &s, "long decode", &row, &pos, 1, decode(t, &s, &row, &pos, 1, 8), 8);
}

const struct gpu_test attention_tests[] = {{"attention/matches_the_reference", shapes},
                                           {"attention/wide_groups_of_heads", wide_groups},
                                           {"attention/long_rows", long_row},
                                           {"attention/many_slots_in_turn", many_slots},
                                           {NULL, NULL}};
