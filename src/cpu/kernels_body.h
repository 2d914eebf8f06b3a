/* kernels_body.h -- the loops themselves, compiled once an instruction set by the file that includes this.
 * Before it stand LANES, TILE_ROWS, WIDE_STRIPS, SET_NAME, INLINE, vec, ivec and v_fma, v_max, v_load_bf16, v_load_f16, v_sum4.
 * A multiply that feeds a sum is always v_fma: what the compiler contracts by itself could differ between two
 * copies of one loop. */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

enum { TILE_COLS = 4 };

INLINE vec v_set(float a)
{
    return a - (vec){0};
}

INLINE vec v_load(const float *p)
{
    vec v;

    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void v_store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

/* LANES elements of type t from element i of p */
INLINE vec load_as(enum dtype t, const void *p, size_t i)
{
    if (t == DTYPE_BF16)
        return v_load_bf16((const uint16_t *)p + i);
    if (t == DTYPE_F16)
        return v_load_f16((const uint16_t *)p + i);
    return v_load((const float *)p + i);
}

/* n < LANES elements, zeros behind them */
INLINE vec load_tail(enum dtype t, const void *p, size_t i, int n)
{
    size_t size = t == DTYPE_F32 ? 4 : 2;
    unsigned char lanes[LANES * 4] = {0};

    memcpy(lanes, (const unsigned char *)p + i * size, (size_t)n * size);
    return load_as(t, lanes, 0);
}

INLINE float v_sum(vec a)
{
    float s[4];

    v_sum4(s, a, a, a, a);
    return s[0];
}

INLINE float v_largest(vec a)
{
    float m = a[0];

    for (int i = 1; i < LANES; i++)
        m = a[i] > m ? a[i] : m;
    return m;
}

/* exp to about 1 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor to r^7 (5e-9), times 2^n.  0 below the smallest normal
 * number, the largest power that fits above 88.3; not a number stays so. */
INLINE vec v_exp(vec x)
{
    const vec magic = v_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    const float low = -87.3f;
    vec y, n, r, p;
    ivec tiny = (ivec)(x < v_set(low));

    y = v_max(v_set(low), x);
    y = -v_max(v_set(-88.3f), -y);
    n = v_fma(y, v_set(1.44269504f), magic);
    r = n - magic;
    p = v_fma(r, v_set(-0.693359375f), y);
    r = v_fma(r, v_set(2.12194440e-4f), p); /* ln 2 in two parts */
    p = v_fma(r, v_set(1.0f / 5040), v_set(1.0f / 720));
    p = v_fma(p, r, v_set(1.0f / 120));
    p = v_fma(p, r, v_set(1.0f / 24));
    p = v_fma(p, r, v_set(1.0f / 6));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, r, v_set(1.0f));
    p = v_fma(p, r, v_set(1.0f));
    p = p * (vec)(((ivec)n - 0x4b400000 + 127) << 23);
    return (vec)((ivec)p & ~tiny);
}

/* --- products --- */

/* A tile of rows x TILE_COLS outputs; rows and t are constants at every call.  Columns past cols repeat the last. */
INLINE void tile(int rows, enum dtype t, float *out, size_t out_stride, const float *x, size_t x_stride, const void *w,
                 int cols, int k, bool add)
{
    size_t size = t == DTYPE_F32 ? 4 : 2;
    const unsigned char *col[TILE_COLS];
    vec sum[TILE_ROWS][TILE_COLS];
    int i = 0;

    UNROLL for (int c = 0; c < TILE_COLS; c++) col[c] =
        (const unsigned char *)w + (size_t)(c < cols ? c : cols - 1) * (size_t)k * size;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < TILE_COLS; c++) sum[r][c] = (vec){0};
    for (; i + LANES <= k; i += LANES) {
        vec b[TILE_COLS];

        UNROLL for (int c = 0; c < TILE_COLS; c++) b[c] = load_as(t, col[c], (size_t)i);
        UNROLL for (int r = 0; r < rows; r++)
        {
            vec a = v_load(x + (size_t)r * x_stride + i);
            UNROLL for (int c = 0; c < TILE_COLS; c++) sum[r][c] = v_fma(a, b[c], sum[r][c]);
        }
    }
    if (i < k) {
        vec b[TILE_COLS];

        UNROLL for (int c = 0; c < TILE_COLS; c++) b[c] = load_tail(t, col[c], (size_t)i, k - i);
        UNROLL for (int r = 0; r < rows; r++)
        {
            vec a = load_tail(DTYPE_F32, x + (size_t)r * x_stride, (size_t)i, k - i);
            UNROLL for (int c = 0; c < TILE_COLS; c++) sum[r][c] = v_fma(a, b[c], sum[r][c]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        float s[TILE_COLS], *o = out + (size_t)r * out_stride;

        v_sum4(s, sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        for (int c = 0; c < TILE_COLS && c < cols; c++)
            o[c] = add ? o[c] + s[c] : s[c];
    }
}

/* Memory that will be read soon, fetched a little at a time beside the work of the moment. */
struct ahead {
    const unsigned char *at;
    int lines; /* of 64 bytes, a tile */
};

INLINE void fetch(struct ahead *a)
{
    for (int i = 0; i < a->lines; i++, a->at += 64)
        __builtin_prefetch(a->at);
}

/* rows <= TILE_ROWS, any number of columns */
#define STRIP(NAME, TYPE)                                                                                              \
    static void NAME(float *out, size_t out_stride, const float *x, size_t x_stride, int rows, const void *w,          \
                     int cols, int k, bool add, struct ahead *ahead)                                                   \
    {                                                                                                                  \
        size_t step = (size_t)k * TILE_COLS * (TYPE == DTYPE_F32 ? 4 : 2);                                             \
        const unsigned char *b = w;                                                                                    \
        for (int c = 0; c < cols; c += TILE_COLS, b += step) {                                                         \
            float *o = out + c;                                                                                        \
            int n = cols - c;                                                                                          \
            fetch(ahead);                                                                                              \
            switch (rows) {                                                                                            \
            case 1: tile(1, TYPE, o, out_stride, x, x_stride, b, n, k, add); break;                                    \
            case 2: tile(2 < TILE_ROWS ? 2 : TILE_ROWS, TYPE, o, out_stride, x, x_stride, b, n, k, add); break;        \
            case 3: tile(3 < TILE_ROWS ? 3 : TILE_ROWS, TYPE, o, out_stride, x, x_stride, b, n, k, add); break;        \
            case 4: tile(4 < TILE_ROWS ? 4 : TILE_ROWS, TYPE, o, out_stride, x, x_stride, b, n, k, add); break;        \
            case 5: tile(5 < TILE_ROWS ? 5 : TILE_ROWS, TYPE, o, out_stride, x, x_stride, b, n, k, add); break;        \
            default: tile(TILE_ROWS, TYPE, o, out_stride, x, x_stride, b, n, k, add); break;                           \
            }                                                                                                          \
        }                                                                                                              \
    }

STRIP(strip_bf16, DTYPE_BF16)
STRIP(strip_f16, DTYPE_F16)
STRIP(strip_f32, DTYPE_F32)

static void widen(float *out, const void *w, enum dtype t, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        v_store(out + i, load_as(t, w, i));
    if (i < n) {
        vec v = load_tail(t, w, i, (int)(n - i));
        memcpy(out + i, &v, (n - i) * sizeof *out);
    }
}

typedef void strip_fn(float *out, size_t out_stride, const float *x, size_t x_stride, int rows, const void *w, int cols,
                      int k, bool add, struct ahead *ahead);

static strip_fn *strip_of(enum dtype t)
{
    return t == DTYPE_BF16 ? strip_bf16 : t == DTYPE_F16 ? strip_f16 : strip_f32;
}

/* One strip reads the weights once, straight from where they lie.  More of them share a panel of columns that stays in
 * a near cache, and from WIDE_STRIPS on it pays to widen it once for all. */
static void product(float *out, size_t out_stride, const float *x, size_t x_stride, int rows, const void *w,
                    enum dtype t, int cols, int k, bool add, float *scratch)
{
    size_t row_bytes = (size_t)k * (t == DTYPE_F32 ? 4 : 2);
    int strips = (rows + TILE_ROWS - 1) / TILE_ROWS; /* of nearly equal height */
    bool wide = t != DTYPE_F32 && strips >= WIDE_STRIPS;
    int panel_cols = strips == 1 ? cols : KERNEL_COLS;

    for (int c = 0; c < cols; c += panel_cols) {
        int n = cols - c < panel_cols ? cols - c : panel_cols;
        const unsigned char *panel = (const unsigned char *)w + (size_t)c * row_bytes;
        /* columns are too short for the hardware to see a stream: what comes next is fetched line by line */
        struct ahead next = {panel + (strips == 1 ? 2 * TILE_COLS : KERNEL_COLS) * row_bytes,
                             (int)(TILE_COLS * row_bytes / 64 / (size_t)strips) + 1};

        if (wide)
            widen(scratch, panel, t, (size_t)n * (size_t)k);
        for (int s = 0; s < strips; s++) {
            int from = (int)((int64_t)rows * s / strips), to = (int)((int64_t)rows * (s + 1) / strips);

            strip_of(wide ? DTYPE_F32 : t)(out + (size_t)from * out_stride + c, out_stride, x + (size_t)from * x_stride,
                                           x_stride, to - from, wide ? (const void *)scratch : panel, n, k, add, &next);
        }
    }
}

/* --- attention --- */

/* rows x (width vectors) of sums kept in registers; rows and width are constants at every call */
INLINE void weigh_tile(int rows, int width, float *out, size_t out_stride, const float *p, size_t p_stride,
                       const float *v, int n, int d)
{
    vec sum[2][4];

    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < width; c++) sum[r][c] =
        v_load(out + (size_t)r * out_stride + c * LANES);
    for (int j = 0; j < n; j++, v += d) {
        vec b[4];

        UNROLL for (int c = 0; c < width; c++) b[c] = v_load(v + c * LANES);
        UNROLL for (int r = 0; r < rows; r++)
        {
            vec a = v_set(p[(size_t)r * p_stride + j]);
            UNROLL for (int c = 0; c < width; c++) sum[r][c] = v_fma(a, b[c], sum[r][c]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < width; c++)
        v_store(out + (size_t)r * out_stride + c * LANES, sum[r][c]);
}

static void weigh(float *out, size_t out_stride, const float *p, size_t p_stride, int rows, const float *v, int n,
                  int d)
{
    for (int r = 0; r < rows; r += 2, out += 2 * out_stride, p += 2 * p_stride) {
        int c = 0;

        for (; c + 4 * LANES <= d; c += 4 * LANES)
            if (r + 1 < rows)
                weigh_tile(2, 4, out + c, out_stride, p, p_stride, v + c, n, d);
            else
                weigh_tile(1, 4, out + c, out_stride, p, p_stride, v + c, n, d);
        for (; c < d; c += LANES)
            if (r + 1 < rows)
                weigh_tile(2, 1, out + c, out_stride, p, p_stride, v + c, n, d);
            else
                weigh_tile(1, 1, out + c, out_stride, p, p_stride, v + c, n, d);
    }
}

static float softmax(float *s, int n, float scale)
{
    vec top = v_set(-INFINITY), sum = (vec){0};
    float max;
    int i;

    for (i = n; i % LANES; i++)
        s[i] = -INFINITY;
    for (i = 0; i < n; i += LANES)
        top = v_max(v_load(s + i), top);
    max = v_largest(top);
    for (i = 0; i < n; i += LANES) {
        vec e = v_exp((v_load(s + i) - max) * scale);
        v_store(s + i, e);
        sum = sum + e;
    }
    return v_sum(sum);
}

/* --- rows --- */

static void rmsnorm(float *y, const float *x, const float *w, int n, float eps)
{
    vec sum = (vec){0};
    float scale;
    int i = 0;

    for (; i + LANES <= n; i += LANES) {
        vec a = v_load(x + i);
        sum = v_fma(a, a, sum);
    }
    if (i < n) {
        vec a = load_tail(DTYPE_F32, x, (size_t)i, n - i);
        sum = v_fma(a, a, sum);
    }
    scale = 1.0f / sqrtf(v_sum(sum) / (float)n + eps);
    for (i = 0; i + LANES <= n; i += LANES)
        v_store(y + i, v_load(x + i) * scale * v_load(w + i));
    for (; i < n; i++)
        y[i] = x[i] * scale * w[i];
}

static void rotate(float *x, const float *cos, const float *sin, int d)
{
    int half = d / 2, step = half % LANES ? 1 : LANES;

    for (int i = 0; step == LANES && i < half; i += LANES) {
        vec a = v_load(x + i), b = v_load(x + half + i), c = v_load(cos + i), s = v_load(sin + i);
        v_store(x + i, v_fma(a, c, -(b * s)));
        v_store(x + half + i, v_fma(b, c, a * s));
    }
    for (int i = 0; step == 1 && i < half; i++) {
        float a = x[i], b = x[half + i];
        x[i] = a * cos[i] - b * sin[i];
        x[half + i] = b * cos[i] + a * sin[i];
    }
}

static void swiglu(float *gate, size_t gate_stride, const float *up, size_t up_stride, int rows, int cols)
{
    for (int r = 0; r < rows; r++, gate += gate_stride, up += up_stride)
        for (int c = 0; c < cols; c += LANES) {
            int n = cols - c < LANES ? cols - c : LANES;
            vec g = n == LANES ? v_load(gate + c) : load_tail(DTYPE_F32, gate, (size_t)c, n);
            vec u = n == LANES ? v_load(up + c) : load_tail(DTYPE_F32, up, (size_t)c, n);

            g = g / (v_set(1.0f) + v_exp(-g)) * u;
            memcpy(gate + c, &g, (size_t)n * sizeof *gate);
        }
}

/* x * 0 is 0 for what is finite and not a number for the rest, and a sum keeps that */
static bool log_sum(const float *x, int n, float *max, float *sum)
{
    vec top = v_set(-INFINITY), bad = (vec){0}, total = (vec){0};
    int i = 0, whole = n - n % LANES;
    float m, s;

    for (i = 0; i < whole; i += LANES) {
        vec a = v_load(x + i);
        top = v_max(a, top);
        bad = bad + a * 0.0f;
    }
    m = v_largest(top);
    s = v_sum(bad);
    for (i = whole; i < n; i++) {
        m = x[i] > m ? x[i] : m;
        s += x[i] * 0.0f;
    }
    if (s != 0.0f)
        return false;
    for (i = 0; i < whole; i += LANES)
        total = total + v_exp(v_load(x + i) - m);
    *max = m;
    *sum = v_sum(total);
    if (whole < n) {
        vec e = v_exp(load_tail(DTYPE_F32, x, (size_t)whole, n - whole) - m);
        for (i = whole; i < n; i++)
            *sum += e[i - whole];
    }
    return true;
}

static const struct kernels set = {
    .name = SET_NAME,
    .lanes = LANES,
    .product = product,
    .weigh = weigh,
    .softmax = softmax,
    .rmsnorm = rmsnorm,
    .rotate = rotate,
    .swiglu = swiglu,
    .log_sum = log_sum,
    .widen = widen,
};
