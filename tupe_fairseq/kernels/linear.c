/* Products of few rows with a weight, which is read once and as it is stored (linear.py).

   Libraries first copy a weight into blocks, which for few rows takes longer than the product. */

#ifdef __AVX512F__
#include <immintrin.h>

enum { ROWS = 8, LANES = 16, AHEAD = 2 };

/* 16 vectors -> the sum of each. */
static inline __m512 sums(__m512 *v) {
    for (int k = 0; k < 8; k++)
        v[k] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * k], v[2 * k + 1]),
                             _mm512_unpackhi_ps(v[2 * k], v[2 * k + 1]));
    for (int k = 0; k < 4; k++) {
        __m512d a = _mm512_castps_pd(v[2 * k]), b = _mm512_castps_pd(v[2 * k + 1]);
        v[k] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    for (int half = 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            v[k] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * k], v[2 * k + 1], 0x88),
                                 _mm512_shuffle_f32x4(v[2 * k], v[2 * k + 1], 0xdd));
    return v[0];
}

/* The products of 8 rows of x with two rows of a weight. */
static inline void dots(float *out, const float *const *x, const float *a, const float *b, long I) {
    __m512 sum[2 * ROWS];
    for (int r = 0; r < 2 * ROWS; r++) sum[r] = _mm512_setzero_ps();
    for (long i = 0; i < I; i += LANES) {
        /* The next rows; the processor does not foresee two streams that are short. */
        _mm_prefetch((const char *)(a + AHEAD * I + i), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + AHEAD * I + i), _MM_HINT_T0);
        __m512 a_part = _mm512_loadu_ps(a + i), b_part = _mm512_loadu_ps(b + i);
        for (int r = 0; r < ROWS; r++) {
            __m512 x_part = _mm512_loadu_ps(x[r] + i);
            sum[r] = _mm512_fmadd_ps(x_part, a_part, sum[r]);
            sum[ROWS + r] = _mm512_fmadd_ps(x_part, b_part, sum[ROWS + r]);
        }
    }
    _mm512_storeu_ps(out, sums(sum));
}

/* out := x weightᵀ + bias for x M×I, weight O×I, with I a multiple of 16; bias may be absent.
   Returns whether this processor is served. */
int small_linear(float *out, const float *x, const float *weight, const float *bias, long M, long I,
                 long O) {
#pragma omp parallel for schedule(static)
    for (long o = 0; o < O; o += 2) {
        long next = o + 1 < O ? o + 1 : o;
        float add[2] = {bias ? bias[o] : 0.0f, bias ? bias[next] : 0.0f};
        for (long m = 0; m < M; m += ROWS) {
            const float *rows[ROWS];
            float found[2 * ROWS];
            long count = M - m < ROWS ? M - m : ROWS;
            for (long r = 0; r < ROWS; r++) rows[r] = x + (m + (r < count ? r : 0)) * I;
            dots(found, rows, weight + o * I, weight + next * I, I);
            for (long r = 0; r < count; r++) {
                out[(m + r) * O + o] = found[r] + add[0];
                out[(m + r) * O + next] = found[next - o ? ROWS + r : r] + add[next - o];
            }
        }
    }
    return 1;
}
#else
int small_linear(float *out, const float *x, const float *weight, const float *bias, long M, long I,
                 long O) {
    return 0;
}
#endif
