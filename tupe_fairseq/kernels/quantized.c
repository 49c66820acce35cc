/* What is around a product of integers whose factors have a scale for each row (quantized.py). */

/* x, M×I, in 8 bits: x is about low + step · out, with a step and a low for each row. The M steps,
   and then the M lows, are written to ranges. A row that is not finite becomes 0, both of it NaN. */
void quantize_rows(uint8_t *out, float *ranges, const float *x, long M, long I) {
#pragma omp parallel for schedule(static)
    for (long m = 0; m < M; m++) {
        const float *row = x + m * I;
        uint8_t *rounded = out + m * I;
        float low = row[0], high = row[0], invalid = 0.0f;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : invalid)
        for (long i = 0; i < I; i++) {
            low = row[i] < low ? row[i] : low;
            high = row[i] > high ? row[i] : high;
            invalid += row[i] * 0.0f;
        }
        float step = (high - low) / 255.0f + invalid;
        float inverse = step > 0.0f ? 1.0f / step : 0.0f;
        ranges[m] = step;
        ranges[M + m] = low + invalid;
        for (long i = 0; i < I; i++)
            rounded[i] = inverse > 0.0f ? (uint8_t)(int)nearbyintf((row[i] - low) * inverse) : 0;
    }
}

/* out, M×O := step · out + low · sums + bias; sums and bias have O numbers. */
void scale_rows(float *out, const float *ranges, const float *sums, const float *bias, long M,
                long O) {
#pragma omp parallel for schedule(static)
    for (long m = 0; m < M; m++)
        for (long o = 0; o < O; o++)
            out[m * O + o] = ranges[m] * out[m * O + o] + (ranges[M + m] * sums[o] + bias[o]);
}

#if defined(__AVX512VNNI__) && defined(__AVX512F__)
#include <immintrin.h>

enum { CHANNELS = 16, FOUR = 4 };
/* A tile of the result stays in registers: 6 rows of 4 vectors of channels. Most rows that are
   multiplied with a part of the weight while it is in the cache. */
enum { QUEUE = 6, BLOCKS = 4, PANEL = 48 * QUEUE };

/* Which numbers of a vector there are, if so many are left. */
static inline __mmask16 first_of_vector(long left) {
    return left < CHANNELS ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
}

/* Rows m, ..., m + 5 of the product below, as far as there are any, in outputs o, ..., of as many
   blocks. In place of missing rows, the first is computed again and not stored. */
static inline __attribute__((always_inline)) void integer_tile(
    float *out, const uint8_t *q, const float *ranges, const int8_t *weight, const float *scales,
    const float *sums, const float *bias, long M, long F, long O, long m, long o, int blocks,
    int first) {
    long count = M - m < QUEUE ? M - m : QUEUE;
    const int8_t *block = weight + o * FOUR * F;
    const uint8_t *rows[QUEUE];
    __m512i totals[QUEUE][BLOCKS], counted[QUEUE][BLOCKS];
    for (int r = 0; r < QUEUE; r++) {
        rows[r] = q + (m + (r < count ? r : 0)) * FOUR * F;
        for (int b = 0; b < blocks; b++) totals[r][b] = _mm512_setzero_si512();
    }
    for (long f = 0; f < F; f++) {
        __m512i numbers[BLOCKS];
        for (int b = 0; b < blocks; b++)
            numbers[b] = _mm512_loadu_si512(block + (b * F + f) * CHANNELS * FOUR);
        /* The next tile's, on first use of this one's: it comes from another level of the cache. */
        for (int b = 0; first && b < blocks; b++)
            __builtin_prefetch(block + ((b + blocks) * F + f) * CHANNELS * FOUR);
        for (int r = 0; r < QUEUE; r++) {
            int four;
            memcpy(&four, rows[r] + f * FOUR, FOUR);
            __m512i x = _mm512_set1_epi32(four);
            for (int b = 0; b < blocks; b++)
                totals[r][b] = _mm512_dpbusd_epi32(totals[r][b], x, numbers[b]);
        }
    }
    /* In a second array, because the compiler keeps the first one in registers only where it unrolls
       all loops over it. */
    for (int r = 0; r < QUEUE; r++)
        for (int b = 0; b < blocks; b++) counted[r][b] = totals[r][b];
    for (int b = 0; b < blocks; b++) {
        long first = o + b * CHANNELS;
        __mmask16 in = first_of_vector(O - first);
        __m512 scale = _mm512_maskz_loadu_ps(in, scales + first);
        __m512 sum = _mm512_maskz_loadu_ps(in, sums + first);
        __m512 offset = _mm512_maskz_loadu_ps(in, bias + first);
        for (int r = 0; r < QUEUE; r++) {
            long row = m + (r < count ? r : 0);
            __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(counted[r][b]), scale);
            __m512 low = _mm512_set1_ps(ranges[M + row]), step = _mm512_set1_ps(ranges[row]);
            __m512 result = _mm512_fmadd_ps(step, product, _mm512_fmadd_ps(low, sum, offset));
            _mm512_mask_storeu_ps(out + row * O + first, r < count ? in : 0, result);
        }
    }
}

/* out, M×O := x weightᵀ + bias, with the rows of x, M×4F, in 8 bits. The weight is in blocks: each has
   its numbers as F×16×4 for 16 outputs and 4F inputs. Each output has a scale, a sum of its weights
   and a bias, 3×O together. The room is for M pairs of floats and M×4F bytes. */
void quantized_product(float *out, const float *x, const int8_t *weight, const float *scales,
                       float *room, long M, long F, long O) {
    const float *sums = scales + O, *bias = sums + O, *ranges = room;
    uint8_t *q = (uint8_t *)(room + 2 * M);
    long width = BLOCKS * CHANNELS, parts = up_to(O, width) / width;
    /* All threads get a part of each panel, or of several panels. */
    long panels = up_to(M, PANEL) / PANEL, threads = omp_get_max_threads();
    if (panels * parts < threads) panels = up_to(threads, parts) / parts;
    long panel = up_to((M + panels - 1) / panels, QUEUE);
    quantize_rows(q, room, x, M, FOUR * F);
#define TILE(o, blocks) \
    integer_tile(out, q, ranges, weight, scales, sums, bias, M, F, O, m, o, blocks, m == start)
#pragma omp parallel for collapse(2) schedule(static)
    for (long start = 0; start < M; start += panel)
        for (long o = 0; o < O; o += width)
            for (long m = start; m < M && m < start + panel; m += QUEUE) {
                if (O - o > width - CHANNELS)
                    TILE(o, BLOCKS);
                else
                    for (long p = o; p < O; p += CHANNELS) TILE(p, 1);
            }
#undef TILE
}

/* 1 + erf(x / sqrt(2)): the rational function of x² that Eigen has, which is 1 beyond 4. */
static inline __m512 one_plus_erf(__m512 x) {
    static const float above[] = {-2.72614225801306e-10f, 2.77068142495902e-08f,
                                  -2.10102402082508e-06f, -5.69250639462346e-05f,
                                  -7.34990630326855e-04f, -2.95459980854025e-03f,
                                  -1.60960333262415e-02f};
    static const float below[] = {-1.45660718464996e-05f, -2.13374055278905e-04f,
                                  -1.68282697438203e-03f, -7.37332916720468e-03f,
                                  -1.42647390514189e-02f};
    __m512 least = _mm512_set1_ps(-4.0f), one = _mm512_set1_ps(1.0f);
    x = _mm512_mul_ps(x, _mm512_set1_ps(0.70710678f));
    __mmask16 is_inside = _mm512_cmp_ps_mask(x, least, _CMP_GT_OQ);
    x = _mm512_min_ps(_mm512_max_ps(x, least), _mm512_set1_ps(4.0f));
    __m512 square = _mm512_mul_ps(x, x);
    __m512 p = _mm512_set1_ps(above[0]), q = _mm512_set1_ps(below[0]);
    for (int i = 1; i < 7; i++) p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(above[i]));
    for (int i = 1; i < 5; i++) q = _mm512_fmadd_ps(q, square, _mm512_set1_ps(below[i]));
    return _mm512_maskz_add_ps(is_inside, one, _mm512_div_ps(_mm512_mul_ps(x, p), q));
}

/* gelu of M rows of C numbers, in place; each number alone, wherever it is. */
void gelu_rows(float *x, long M, long C, long stride) {
#pragma omp parallel for schedule(static)
    for (long m = 0; m < M; m++)
        for (long c = 0; c < C; c += CHANNELS) {
            float *numbers = x + m * stride + c;
            __mmask16 in = first_of_vector(C - c);
            __m512 v = _mm512_maskz_loadu_ps(in, numbers), half = _mm512_set1_ps(0.5f);
            v = _mm512_mul_ps(_mm512_mul_ps(half, v), one_plus_erf(v));
            _mm512_mask_storeu_ps(numbers, in, v);
        }
}
#endif
