/* Softmax with dropout, and dropout, in one pass over memory.

   Shapes: M matrices of R rows (queries) and S columns (keys), row-major. Each function has a
   counterpart in torch (softmax.py, dropout.py) with the full description. The struct ScoreTerms and the
   constants of random bits are declared by native.py, which puts them before this source. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Declared here because compilers may lack omp.h: the library is torch's. */
int omp_get_max_threads(void);

static inline long clamped(long x, long low, long high) {
    return x < low ? low : x > high ? high : x;
}

static inline long up_to(long x, long step) { return (x + step - 1) / step * step; }

/* SplitMix64 (Steele et al. 2014). */
static inline uint64_t mix(uint64_t z) {
    z = (z ^ (z >> SHIFT_1)) * MULTIPLIER_1;
    z = (z ^ (z >> SHIFT_2)) * MULTIPLIER_2;
    return z ^ (z >> SHIFT_3);
}

/* Mask entries from the words with counters first, ..., first + words - 1. */
static void draw(int16_t *entries, long words, uint64_t key, uint64_t first) {
    for (long i = 0; i < words; i++) {
        uint64_t word = mix(key + (first + i) * STEP);
        memcpy(entries + ENTRIES_PER_WORD * i, &word, sizeof word);
    }
}

/* exp(x) for x <= 0 to about 1 ulp: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]. 0 for -inf,
   NaN for NaN: nothing is converted to an integer, which has neither. */
static inline float exponential(float x) {
    const float shift = 12582912.0f; /* 1.5 2^23: the sum is rounded to an integer, its low bits */
    x = x < -100.0f ? -100.0f : x;
    float shifted = x * 1.44269504f + shift, n = shifted - shift;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = n < -126.0f ? 0 : (bits + 127) << 23; /* 2^n, 0 where it would be denormal */
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* row += what is given, either of which may be absent. */
static void add_terms(float *row, const float *bias, const float *padding, long S) {
    if (bias)
        for (long j = 0; j < S; j++) row[j] += bias[j];
    if (padding)
        for (long j = 0; j < S; j++) row[j] += padding[j];
}

static void softmax(float *row, long S) {
    float largest = -INFINITY, sum = 0.0f;
#pragma omp simd reduction(max : largest)
    for (long j = 0; j < S; j++) largest = row[j] > largest ? row[j] : largest;
#pragma omp simd reduction(+ : sum)
    for (long j = 0; j < S; j++) {
        row[j] = exponential(row[j] - largest);
        sum += row[j];
    }
    float scale = 1.0f / sum;
    for (long j = 0; j < S; j++) row[j] *= scale;
}

static void drop(float *row, const int16_t *entries, int threshold, float scale, long S) {
    for (long j = 0; j < S; j++) row[j] = entries[j] >= threshold ? scale * row[j] : 0.0f;
}

static long bias_at(const ScoreTerms *t, long m, long r) {
    return m / t->matrices_per_bias * t->bias_matrix + r * t->bias_row;
}

static const float *bias_of(const ScoreTerms *t, long m, long r) {
    return t->bias ? t->bias + bias_at(t, m, r) : 0;
}

static const float *padding_of(const ScoreTerms *t, long m) {
    return t->padding ? t->padding + m % t->paddings * t->padding_matrix : 0;
}

/* scores := softmax(scores + bias + padding) after dropout. */
void softmax_dropout(float *scores, const ScoreTerms *t, long M, long R, long S) {
    long words = (S + ENTRIES_PER_WORD - 1) / ENTRIES_PER_WORD;
#pragma omp parallel for schedule(static)
    for (long r = 0; r < R; r++) {
        int16_t entries[ENTRIES_PER_WORD * words];
        for (long m = 0; m < M; m++) {
            float *row = scores + (m * R + r) * S;
            add_terms(row, bias_of(t, m, r), padding_of(t, m), S);
            softmax(row, S);
            if (t->drops) {
                draw(entries, words, t->key, t->first + (m * R + r) * words);
                drop(row, entries, t->threshold, t->scale, S);
            }
        }
    }
}

/* scores := softmax(scores + bias + padding) after dropout; grad_dropped, the gradient of that,
   := the gradient of the scores, which is also added to grad_bias. */
void softmax_dropout_backward(float *scores, float *grad_dropped, float *grad_bias,
                              const ScoreTerms *t, long M, long R, long S) {
    long words = (S + ENTRIES_PER_WORD - 1) / ENTRIES_PER_WORD;
#pragma omp parallel for schedule(static)
    for (long r = 0; r < R; r++) {
        int16_t entries[ENTRIES_PER_WORD * words];
        for (long m = 0; m < M; m++) {
            float *row = scores + (m * R + r) * S, *grad = grad_dropped + (m * R + r) * S;
            float mean = 0.0f;
            add_terms(row, bias_of(t, m, r), padding_of(t, m), S);
            softmax(row, S);
            if (t->drops) {
                draw(entries, words, t->key, t->first + (m * R + r) * words);
                drop(grad, entries, t->threshold, t->scale, S);
            }
#pragma omp simd reduction(+ : mean)
            for (long j = 0; j < S; j++) mean += row[j] * grad[j];
            for (long j = 0; j < S; j++) grad[j] = row[j] * (grad[j] - mean);
            if (grad_bias) {
                float *sum = grad_bias + bias_at(t, m, r);
                for (long j = 0; j < S; j++) sum[j] += grad[j];
            }
            if (t->drops) drop(row, entries, t->threshold, t->scale, S);
        }
    }
}

/* out := scale x where kept. */
void dropout(float *out, const float *x, uint64_t key, int threshold, float scale, long size) {
    enum { CHUNK = 4096 };
#pragma omp parallel for schedule(static)
    for (long start = 0; start < size; start += CHUNK) {
        long end = start + CHUNK < size ? start + CHUNK : size;
        int16_t entries[CHUNK];
        draw(entries, CHUNK / ENTRIES_PER_WORD, key, start / ENTRIES_PER_WORD);
        for (long i = start; i < end; i++)
            out[i] = entries[i - start] >= threshold ? scale * x[i] : 0.0f;
    }
}
