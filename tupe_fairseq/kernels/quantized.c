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

enum { CHANNELS = 16, FOUR = 4, QUEUE = 8 };

/* Products of few rows, for which the fixed time of a library's call is notable. q, M×4F, is
   multiplied by a weight of B blocks: block b has its numbers as F×16×4 for 16 outputs and 4F
   inputs. out, M×O := step · q weight · scales + low · sums + bias. */
void few_rows(float *out, const uint8_t *q, const float *ranges, const int8_t *weight,
              const float *scales, const float *sums, const float *bias, long M, long F, long O) {
#pragma omp parallel for schedule(static)
    for (long o = 0; o < O; o += CHANNELS) {
        const int8_t *block = weight + o * FOUR * F;
        __mmask16 in = O - o < CHANNELS ? (__mmask16)((1u << (O - o)) - 1) : (__mmask16)0xffff;
        __m512 scale = _mm512_maskz_loadu_ps(in, scales + o);
        __m512 sum = _mm512_maskz_loadu_ps(in, sums + o);
        __m512 offset = _mm512_maskz_loadu_ps(in, bias + o);
        for (long m = 0; m < M; m += QUEUE) {
            long count = M - m < QUEUE ? M - m : QUEUE;
            const uint8_t *rows[QUEUE];
            __m512i totals[QUEUE];
            for (long r = 0; r < QUEUE; r++) {
                rows[r] = q + (m + (r < count ? r : 0)) * FOUR * F;
                totals[r] = _mm512_setzero_si512();
            }
            for (long f = 0; f < F; f++) {
                __m512i numbers = _mm512_loadu_si512(block + f * CHANNELS * FOUR);
                for (long r = 0; r < QUEUE; r++) {
                    int four;
                    memcpy(&four, rows[r] + f * FOUR, FOUR);
                    totals[r] = _mm512_dpbusd_epi32(totals[r], _mm512_set1_epi32(four), numbers);
                }
            }
            for (long r = 0; r < count; r++) {
                __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(totals[r]), scale);
                __m512 low = _mm512_set1_ps(ranges[M + m + r]), step = _mm512_set1_ps(ranges[m + r]);
                __m512 rest = _mm512_fmadd_ps(low, sum, offset);
                _mm512_mask_storeu_ps(out + (m + r) * O + o, in, _mm512_fmadd_ps(step, product, rest));
            }
        }
    }
}
#endif
