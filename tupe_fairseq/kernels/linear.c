/* Products of few rows with a weight, which is read once and as it is stored (linear.py).

   Libraries first copy a weight into blocks, which for few rows takes longer than the product. */

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>

/* The products of ROWS rows of x and WEIGHTS rows of a weight are in registers together. */
#ifdef __AVX512F__
enum { ROWS = 8, WEIGHTS = 2, LANES = 16 };
typedef __m512 Vector;
#define LOAD _mm512_loadu_ps
#define ADD_PRODUCT _mm512_fmadd_ps
#define ZERO _mm512_setzero_ps

/* 16 vectors -> the sum of each. */
static inline void sums(float *out, Vector *v) {
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
    _mm512_storeu_ps(out, v[0]);
}
#else
enum { ROWS = 4, WEIGHTS = 3, LANES = 8 };
typedef __m256 Vector;
#define LOAD _mm256_loadu_ps
#define ADD_PRODUCT _mm256_fmadd_ps
#define ZERO _mm256_setzero_ps

/* 12 vectors -> the sum of each. */
static inline void sums(float *out, Vector *v) {
    for (int k = 0; k < ROWS * WEIGHTS; k += 4) {
        Vector sum = _mm256_hadd_ps(_mm256_hadd_ps(v[k], v[k + 1]),
                                    _mm256_hadd_ps(v[k + 2], v[k + 3]));
        __m128 low = _mm256_castps256_ps128(sum), high = _mm256_extractf128_ps(sum, 1);
        _mm_storeu_ps(out + k, _mm_add_ps(low, high));
    }
}
#endif

enum { TERMS = ROWS * WEIGHTS, LINE = 16 };

/* out, WEIGHTS×ROWS: the products of these rows of a weight and of x. On `first` use of these rows
   of the weight, the next are fetched: the processor does not foresee streams that are short. */
static inline __attribute__((always_inline)) void dots(
    float *out, const float *const *x, const float *const *weight, long I, int first) {
    Vector sum[TERMS], part[WEIGHTS];
    for (int r = 0; r < TERMS; r++) sum[r] = ZERO();
    for (long i = 0; i < I; i += LINE) {
        for (int w = 0; first && w < WEIGHTS; w++)
            _mm_prefetch((const char *)(weight[w] + WEIGHTS * I + i), _MM_HINT_T0);
        for (long j = i; j < i + LINE; j += LANES) {
            for (int w = 0; w < WEIGHTS; w++) part[w] = LOAD(weight[w] + j);
            for (int r = 0; r < ROWS; r++) {
                Vector x_part = LOAD(x[r] + j);
                for (int w = 0; w < WEIGHTS; w++)
                    sum[w * ROWS + r] = ADD_PRODUCT(x_part, part[w], sum[w * ROWS + r]);
            }
        }
    }
    sums(out, sum);
}

/* out := x weightᵀ + bias for x M×I, weight O×I, with I a multiple of 16; bias may be absent.
   Returns whether this processor is served. */
int small_linear(float *out, const float *x, const float *weight, const float *bias, long M, long I,
                 long O) {
#pragma omp parallel for schedule(static)
    for (long o = 0; o < O; o += WEIGHTS) {
        const float *weights[WEIGHTS], *rows[ROWS];
        float found[TERMS];
        long outputs = O - o < WEIGHTS ? O - o : WEIGHTS;
        for (long w = 0; w < WEIGHTS; w++) weights[w] = weight + (o + (w < outputs ? w : 0)) * I;
        for (long m = 0; m < M; m += ROWS) {
            long count = M - m < ROWS ? M - m : ROWS;
            for (long r = 0; r < ROWS; r++) rows[r] = x + (m + (r < count ? r : 0)) * I;
            if (m)
                dots(found, rows, weights, I, 0);
            else
                dots(found, rows, weights, I, 1);
            for (long r = 0; r < count; r++)
                for (long w = 0; w < outputs; w++)
                    out[(m + r) * O + o + w] = found[w * ROWS + r] + (bias ? bias[o + w] : 0.0f);
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
