/* Products of batches of small matrices, as attention needs them (products.py). native.py joins
   the sources: LANES is from linear.c, clamped, up_to, bias_of and padding_of are from kernels.c.

   A tile of the result stays in registers: 6 rows of 4 vectors of 16 numbers, 24 sums. Step k adds
   the products of column k of a and row k of b:

                          row k of b: 4 vectors
       column k of a      [ 16 ][ 16 ][ 16 ][ 16 ]
           x              sum   sum   sum   sum
           x              sum   sum   sum   sum
           . (6 rows)     .     .     .     .

   Libraries are slower here: MKL has no AVX-512 on AMD's processors, and oneDNN copies both
   factors. Without AVX-512 there are no such functions. */

#ifdef __AVX512F__
#include <immintrin.h>
#include <stdlib.h>

enum { TILE_ROWS = 6, VECTORS = 4, COLUMNS = VECTORS * LANES };
/* Steps of a tile, whose second factor then stays in the cache; most and fewest rows of a part. */
enum { DEPTH = 128, PART = 192, SMALL_PART = 30 };
/* Scores that attention computes at a time, and most of their rows: they stay in the cache. */
enum { CELLS = 1 << 18, QUERIES = 126 };

static inline __mmask16 first_lanes(long count) {
    return count < LANES ? (1u << count) - 1 : 0xffff;
}

/* A 16x16 matrix, in place. */
static inline void transpose(__m512 *v) {
    __m512 w[LANES];
    for (int i = 0; i < LANES; i += 2) {
        w[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        w[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(w[i + j]), b = _mm512_castps_pd(w[i + j + 2]);
            v[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            v[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < LANES; i += 8)
        for (int j = i; j < i + 4; j++) {
            w[j] = _mm512_shuffle_f32x4(v[j], v[j + 4], 0x88);
            w[j + 4] = _mm512_shuffle_f32x4(v[j], v[j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        v[j] = _mm512_shuffle_f32x4(w[j], w[j + 8], 0x88);
        v[j + 8] = _mm512_shuffle_f32x4(w[j], w[j + 8], 0xdd);
    }
}

/* panel := b, K×N with N <= COLUMNS, whose columns are consecutive at the stride; the panel has rows
   of COLUMNS, in which the last vector is filled with 0. */
static void pack(float *panel, const float *b, long stride, long K, long N) {
    for (long n = 0; n < N; n += LANES)
        for (long k = 0; k < K; k += LANES) {
            __m512 v[LANES];
            for (long i = 0; i < LANES; i++) {
                __mmask16 lanes = n + i < N ? first_lanes(K - k) : 0;
                v[i] = _mm512_maskz_loadu_ps(lanes, b + (n + i) * stride + k);
            }
            transpose(v);
            for (long i = 0; i < LANES && k + i < K; i++)
                _mm512_storeu_ps(panel + (k + i) * COLUMNS + n, v[i]);
        }
}

/* One tile: c := a b, or += a b where `adds`, in K steps. c has at most 6 rows, each of 1 to 4
   vectors, of whose last only the lanes `last` are used. In place of missing rows, the first is
   computed again and not stored. */
static inline __attribute__((always_inline)) void tile(
    float *c, long c_row, const float *a, long a_row, long a_column, const float *b, long b_row,
    long K, long rows, int vectors, __mmask16 last, int adds) {
    __m512 sum[TILE_ROWS][VECTORS];
    const float *a_rows[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++) {
        a_rows[r] = a + (r < rows ? r : 0) * a_row;
        for (int v = 0; v < vectors; v++) {
            __mmask16 lanes = !adds || r >= rows ? 0 : v < vectors - 1 ? 0xffff : last;
            sum[r][v] = _mm512_maskz_loadu_ps(lanes, c + r * c_row + v * LANES);
        }
    }
    for (long k = 0; k < K; k++) {
        __m512 b_vectors[VECTORS];
        for (int v = 0; v < vectors; v++) {
            __mmask16 lanes = v < vectors - 1 ? 0xffff : last;
            b_vectors[v] = _mm512_maskz_loadu_ps(lanes, b + k * b_row + v * LANES);
        }
        for (int r = 0; r < TILE_ROWS; r++) {
            __m512 x = _mm512_set1_ps(a_rows[r][k * a_column]);
            for (int v = 0; v < vectors; v++)
                sum[r][v] = _mm512_fmadd_ps(x, b_vectors[v], sum[r][v]);
        }
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < vectors; v++) {
            __mmask16 lanes = r >= rows ? 0 : v < vectors - 1 ? 0xffff : last;
            _mm512_mask_storeu_ps(c + r * c_row + v * LANES, lanes, sum[r][v]);
        }
}

/* The same for any number of rows. The compiler makes a loop for each constant. */
static void tiles(float *c, long c_row, const float *a, long a_row, long a_column, const float *b,
                  long b_row, long K, long R, long N, int adds) {
    int vectors = (N + LANES - 1) / LANES;
    __mmask16 last = first_lanes(N - (vectors - 1) * LANES);
#define TILES(V, COLUMN)                                                              \
    for (long r = 0; r < R; r += TILE_ROWS)                                           \
        tile(c + r * c_row, c_row, a + r * a_row, a_row, COLUMN, b, b_row, K, R - r, V, last, adds)
    if (vectors == 4 && a_column == 1)
        TILES(4, 1);
    else if (vectors == 4)
        TILES(4, a_column);
    else if (vectors == 3)
        TILES(3, a_column);
    else if (vectors == 2)
        TILES(2, a_column);
    else
        TILES(1, a_column);
#undef TILES
}

/* c := a b, or += a b, for one matrix. */
static void product(float *c, long c_row, const float *a, long a_row, long a_column,
                    const float *b, long b_row, long b_column, long R, long K, long N, int adds) {
    float panel[DEPTH * COLUMNS];
    for (long n = 0; n < N; n += COLUMNS)
        for (long k = 0; k < K; k += DEPTH) {
            long depth = K - k < DEPTH ? K - k : DEPTH, width = N - n < COLUMNS ? N - n : COLUMNS;
            const float *b_part = b + k * b_row + n * b_column, *a_part = a + k * a_column;
            if (b_column != 1) pack(panel, b_part, b_column, depth, width);
            tiles(c + n, c_row, a_part, a_row, a_column, b_column == 1 ? b_part : panel,
                  b_column == 1 ? b_row : COLUMNS, depth, R, width, adds || k > 0);
        }
}

/* Rows of a part: all threads get as many parts of M matrices of R rows. */
static long rows_of_part(long M, long R) {
    long parts = up_to(R, PART) / PART;
    parts = (up_to(M * parts, omp_get_max_threads()) + M - 1) / M;
    return clamped(up_to((R + parts - 1) / parts, TILE_ROWS), SMALL_PART, PART);
}

/* c := a b, or += a b, for M matrices a R×K, b K×N, c R×N at the given strides; of b, the rows or
   the columns are consecutive in memory, of c the rows. */
void multiply(float *c, const float *a, const float *b, long M, long R, long K, long N,
              long c_matrix, long c_row, long a_matrix, long a_row, long a_column, long b_matrix,
              long b_row, long b_column, int adds) {
    if (M < 1 || R < 1) return;
    long step = rows_of_part(M, R);
#pragma omp parallel for collapse(2) schedule(static)
    for (long m = 0; m < M; m++)
        for (long r = 0; r < R; r += step) {
            long rows = R - r < step ? R - r : step;
            product(c + m * c_matrix + r * c_row, c_row, a + m * a_matrix + r * a_row, a_row,
                    a_column, b + m * b_matrix, b_row, b_column, rows, K, N, adds);
        }
}

/* Where row i of head h of sequence b begins, at their strides. */
static inline long row_at(const long *strides, long b, long h, long i) {
    return b * strides[0] + h * strides[1] + i * strides[2];
}

/* Queries whose scores are computed together: by the length of the sequence, not by the batch. Rows
   of scores are whole vectors. */
static inline long rows_of_scores(long length) {
    return clamped(CELLS / (length ? up_to(length, LANES) : 1), TILE_ROWS, QUERIES);
}

/* Room for the scores of any sequence of at most T tokens. */
static inline long room_of_scores(long T) {
    long row = up_to(T, LANES), most = CELLS > TILE_ROWS * row ? CELLS : TILE_ROWS * row;
    return QUERIES * row < most ? QUERIES * row : most;
}

/* exp(x) for x <= 0 to about 1 ulp, as in kernels.c; 0 below exp(-87), NaN for NaN. */
static inline __m512 exponentials(__m512 x) {
    static const float factors[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                    4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    /* Where the result would be denormal, the processor takes a hundred times as long. */
    __mmask16 is_normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(factors[0]);
    for (int i = 1; i < 6; i++) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(factors[i]));
    p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r), _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(is_normal, p, n);
}

/* A row of S numbers, in whole vectors, := softmax(row + bias + padding), either of which may be
   absent. After its end it is 0. */
static inline void softmax_of_vectors(float *row, const float *bias, const float *padding, long S) {
    __m512 largest = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps(), x;
    for (long j = 0; j < S; j += LANES) {
        __mmask16 in = first_lanes(S - j);
        x = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), in, row + j);
        if (bias) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(in, bias + j));
        if (padding) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(in, padding + j));
        largest = _mm512_max_ps(largest, x);
        _mm512_storeu_ps(row + j, x);
    }
    largest = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
    for (long j = 0; j < S; j += LANES) {
        x = exponentials(_mm512_sub_ps(_mm512_loadu_ps(row + j), largest));
        sum = _mm512_add_ps(sum, x);
        _mm512_storeu_ps(row + j, x);
    }
    __m512 scale = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(sum));
    for (long j = 0; j < S; j += LANES)
        _mm512_storeu_ps(row + j, _mm512_mul_ps(_mm512_loadu_ps(row + j), scale));
}

/* R rows := their softmax, after bias and padding are added; matrix m, queries from i and keys from j
   on. */
static void softmax_rows(float *scores, const ScoreTerms *t, long m, long i, long j, long R, long S) {
    for (long r = 0; r < R; r++) {
        const float *bias = bias_of(t, m, i + r), *padding = padding_of(t, m);
        softmax_of_vectors(scores + r * up_to(S, LANES), bias ? bias + j : 0,
                           padding ? padding + j : 0, S);
    }
}

/* out := softmax(q kᵀ + bias + padding) v for B sequences of at most T tokens and H heads; q and k
   have E columns, v and out D. Matrix h B + b of the terms belongs to head h of sequence b, of which
   the first lengths[b] tokens are read and written. Query i sees the keys i + low, ..., i + high,
   and the bias hides the others. Strides of sequences, heads and rows: of q, k, v, out.
   Returns 1, or 0 where a thread has no memory for scores: out is incomplete then. */
int attend(float *out, const float *q, const float *k, const float *v, const ScoreTerms *t,
           const long *lengths, const long *strides, long B, long H, long T, long E, long D,
           long low, long high) {
    const long *q_strides = strides, *k_strides = strides + 3;
    const long *v_strides = strides + 6, *out_strides = strides + 9;
    long parts = up_to(T, rows_of_scores(T)) / rows_of_scores(T);
    int failed = 0;
#pragma omp parallel reduction(| : failed)
    {
        float *scores = malloc(room_of_scores(T) * sizeof *scores);
        failed = !scores;
#pragma omp for collapse(3) schedule(dynamic)
        for (long b = 0; b < B; b++)
            for (long h = 0; h < H; h++)
                for (long part = 0; part < parts; part++) {
                    long step = rows_of_scores(lengths[b]), i = part * step;
                    long m = h * B + b, R = clamped(lengths[b] - i, 0, step);
                    long j = clamped(i + low, 0, T), S = clamped(i + R + high, j, lengths[b]) - j;
                    long row = up_to(S, LANES);
                    if (failed || !R) continue;
                    /* q kᵀ */
                    product(scores, row, q + row_at(q_strides, b, h, i), q_strides[2], 1,
                            k + row_at(k_strides, b, h, j), 1, k_strides[2], R, E, S, 0);
                    softmax_rows(scores, t, m, i, j, R, S);
                    /* weights v */
                    product(out + row_at(out_strides, b, h, i), out_strides[2], scores, row, 1,
                            v + row_at(v_strides, b, h, j), v_strides[2], 1, R, S, D, 0);
                }
        free(scores);
    }
    return !failed;
}
#endif
