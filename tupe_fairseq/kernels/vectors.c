/* Vectors of floats, for processors with AVX-512 and with AVX2 (HAS_VECTORS). On others, LANES numbers
   are what the compiler makes of them, and there are no functions here. */

#if defined(__AVX512F__) && defined(__AVX512BW__)
enum { LANES = 16 };
#define HAS_VECTORS
#else
enum { LANES = 8 };
#if defined(__AVX2__) && defined(__FMA__)
#define HAS_VECTORS
#endif
#endif
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Integers __attribute__((vector_size(4 * LANES), aligned(4)));

#define INLINE static inline __attribute__((always_inline))

#ifdef HAS_VECTORS
#include <immintrin.h>

INLINE Vector at(const float *x) { return *(const Vector *)x; }

INLINE void put(float *x, Vector v) { *(Vector *)x = v; }

#if defined(__AVX512F__) && defined(__AVX512BW__)
/* The first numbers of a vector, of which so many are left. */
INLINE __mmask16 first_of(long left) {
    return left < LANES ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
}

/* As many as are left of LANES numbers; in place of the others is 0. */
INLINE Vector load(const float *x, long left) {
    return (Vector)_mm512_maskz_loadu_ps(first_of(left), x);
}

INLINE void store(float *x, Vector v, long left) {
    _mm512_mask_storeu_ps(x, first_of(left), (__m512)v);
}

/* A LANES×LANES matrix, in place. */
INLINE void transpose(Vector *v) {
    __m512 w[LANES], x[LANES];
    for (int i = 0; i < LANES; i += 2) {
        w[i] = _mm512_unpacklo_ps((__m512)v[i], (__m512)v[i + 1]);
        w[i + 1] = _mm512_unpackhi_ps((__m512)v[i], (__m512)v[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(w[i + j]), b = _mm512_castps_pd(w[i + j + 2]);
            x[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            x[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < LANES; i += 8)
        for (int j = i; j < i + 4; j++) {
            w[j] = _mm512_shuffle_f32x4(x[j], x[j + 4], 0x88);
            w[j + 4] = _mm512_shuffle_f32x4(x[j], x[j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        v[j] = (Vector)_mm512_shuffle_f32x4(w[j], w[j + 8], 0x88);
        v[j + 8] = (Vector)_mm512_shuffle_f32x4(w[j], w[j + 8], 0xdd);
    }
}

INLINE float largest_of(Vector v) { return _mm512_reduce_max_ps((__m512)v); }

INLINE float sum_of(Vector v) { return _mm512_reduce_add_ps((__m512)v); }

/* The second where one is NaN. */
INLINE Vector greater_of(Vector a, Vector b) { return (Vector)_mm512_max_ps((__m512)a, (__m512)b); }

INLINE Vector rounded(Vector v) { return (Vector)_mm512_roundscale_ps((__m512)v, 0); }

/* v 2ⁿ for whole n from -126 to 127, and 0 where x is less than the limit. */
INLINE Vector scaled(Vector v, Vector n, Vector x, float limit) {
    __mmask16 is_not_less = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(limit), _CMP_NLT_UQ);
    return (Vector)_mm512_maskz_scalef_ps(is_not_less, (__m512)v, (__m512)n);
}

#ifdef __AVX512VNNI__
#define PAIRS_OVERFLOW 0
#else
#define PAIRS_OVERFLOW 1
#endif

/* Sums of products of four numbers from 0 to 255 with four from -127 to 127, which are added. Without
   VNNI, each two of the products must have a sum of 16 bits: others overflow. */
INLINE Integers add_products(Integers sums, Integers numbers, Integers weights) {
#if !PAIRS_OVERFLOW
    return (Integers)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)numbers, (__m512i)weights);
#else
    __m512i pairs = _mm512_maddubs_epi16((__m512i)numbers, (__m512i)weights);
    return sums + (Integers)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#endif
}
#else
/* As above, by AVX2. */
INLINE __m256i first_of(long left) {
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)left), lanes);
}

INLINE Vector load(const float *x, long left) {
    return left < LANES ? (Vector)_mm256_maskload_ps(x, first_of(left)) : at(x);
}

INLINE void store(float *x, Vector v, long left) {
    if (left < LANES)
        for (long i = 0; i < left; i++) x[i] = v[i];
    else
        put(x, v);
}

INLINE void transpose(Vector *v) {
    __m256 w[LANES], x[LANES];
    for (int i = 0; i < LANES; i += 2) {
        w[i] = _mm256_unpacklo_ps((__m256)v[i], (__m256)v[i + 1]);
        w[i + 1] = _mm256_unpackhi_ps((__m256)v[i], (__m256)v[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 2; j++) {
            __m256d a = _mm256_castps_pd(w[i + j]), b = _mm256_castps_pd(w[i + j + 2]);
            x[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            x[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
    for (int j = 0; j < 4; j++) {
        v[j] = (Vector)_mm256_permute2f128_ps(x[j], x[j + 4], 0x20);
        v[j + 4] = (Vector)_mm256_permute2f128_ps(x[j], x[j + 4], 0x31);
    }
}

INLINE float largest_of(Vector v) {
    float largest = v[0];
    for (int i = 1; i < LANES; i++) largest = v[i] > largest ? v[i] : largest;
    return largest;
}

INLINE float sum_of(Vector v) {
    float sum = v[0];
    for (int i = 1; i < LANES; i++) sum += v[i];
    return sum;
}

INLINE Vector greater_of(Vector a, Vector b) { return (Vector)_mm256_max_ps((__m256)a, (__m256)b); }

INLINE Vector rounded(Vector v) {
    return (Vector)_mm256_round_ps((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE Vector scaled(Vector v, Vector n, Vector x, float limit) {
    __m256i exponents = _mm256_add_epi32(_mm256_cvtps_epi32((__m256)n), _mm256_set1_epi32(127));
    Vector powers = (Vector)_mm256_slli_epi32(exponents, 23);
    __m256 is_not_less = _mm256_cmp_ps((__m256)x, _mm256_set1_ps(limit), _CMP_NLT_UQ);
    return (Vector)_mm256_and_ps((__m256)(v * powers), is_not_less);
}

#ifdef __AVXVNNI__
#define PAIRS_OVERFLOW 0
#else
#define PAIRS_OVERFLOW 1
#endif

INLINE Integers add_products(Integers sums, Integers numbers, Integers weights) {
#if !PAIRS_OVERFLOW
    return (Integers)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)numbers, (__m256i)weights);
#else
    __m256i pairs = _mm256_maddubs_epi16((__m256i)numbers, (__m256i)weights);
    return sums + (Integers)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}
#endif
#endif
