/* Products of batches of small matrices, as attention needs them (products.py). native.py joins
   the sources: vectors are from vectors.c, clamped, up_to, bias_of and padding_of from kernels.c.

   A tile of the result stays in registers: 6 rows of 4 vectors of 16 numbers, 24 sums, and with AVX2
   of 2 vectors of 8. Step k adds the products of column k of a and row k of b:

                          row k of b: 4 vectors
       column k of a      [ 16 ][ 16 ][ 16 ][ 16 ]
           x              sum   sum   sum   sum
           x              sum   sum   sum   sum
           . (6 rows)     .     .     .     .

   Libraries are slower here: MKL has no AVX-512 on AMD's processors, and oneDNN copies both
   factors. With AVX2, MKL is as fast, and attention alone uses this. */

#ifdef HAS_VECTORS
#include <stdlib.h>

enum { TILE_ROWS = 6, VECTORS = LANES == 16 ? 4 : 2, COLUMNS = VECTORS * LANES };
/* Steps of a tile, whose second factor then stays in the cache; most and fewest rows of a part. */
enum { DEPTH = 128, PART = 192, SMALL_PART = 30 };
/* Scores that attention computes at a time, and most of their rows: they stay in the cache. */
enum { CELLS = 1 << 18, QUERIES = 126 };

/* panel := b, K×N with N <= COLUMNS, of which the rows are consecutive where the column stride is 1,
   and else the columns where the row stride is 1. The panel has rows of COLUMNS, in which the last
   vector is filled with 0. */
static void pack(float *panel, const float *b, long row, long column, long K, long N) {
    for (long n = 0; n < N; n += LANES)
        for (long k = 0; k < K; k += LANES) {
            Vector v[LANES] = {{0}};
            if (column == 1)
                for (long i = 0; i < LANES && k + i < K; i++)
                    v[i] = load(b + (k + i) * row + n, N - n);
            else {
                for (long i = 0; i < LANES && n + i < N; i++)
                    v[i] = load(b + (n + i) * column + k, K - k);
                transpose(v);
            }
            for (long i = 0; i < LANES && k + i < K; i++) put(panel + (k + i) * COLUMNS + n, v[i]);
        }
}

/* One tile: c := a b, or += a b where `adds`, in K steps. c has at most 6 rows, each of 1 to 4
   vectors, of whose last so many numbers are used. In place of missing rows, the first is computed
   again and not stored. */
INLINE void tile(float *c, long c_row, const float *a, long a_row, long a_column, const float *b,
                 long b_row, long K, long rows, int vectors, long last, int adds) {
    Vector sum[TILE_ROWS][VECTORS];
    const float *a_rows[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++) {
        a_rows[r] = a + (r < rows ? r : 0) * a_row;
        for (int v = 0; v < vectors; v++) {
            long left = !adds || r >= rows ? 0 : v < vectors - 1 ? LANES : last;
            sum[r][v] = load(c + r * c_row + v * LANES, left);
        }
    }
    for (long k = 0; k < K; k++) {
        Vector numbers[VECTORS];
        for (int v = 0; v < vectors; v++) numbers[v] = at(b + k * b_row + v * LANES);
        for (int r = 0; r < TILE_ROWS; r++) {
            float x = a_rows[r][k * a_column];
            for (int v = 0; v < vectors; v++) sum[r][v] += x * numbers[v];
        }
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < vectors; v++) {
            long left = r >= rows ? 0 : v < vectors - 1 ? LANES : last;
            store(c + r * c_row + v * LANES, sum[r][v], left);
        }
}

/* The same for any number of rows. The compiler makes a loop for each constant. */
static void tiles(float *c, long c_row, const float *a, long a_row, long a_column, const float *b,
                  long b_row, long K, long R, long N, int adds) {
    int vectors = (N + LANES - 1) / LANES;
    long last = N - (vectors - 1) * LANES;
#define TILES(V, COLUMN)                                                              \
    for (long r = 0; r < R; r += TILE_ROWS)                                           \
        tile(c + r * c_row, c_row, a + r * a_row, a_row, COLUMN, b, b_row, K, R - r, V, last, adds)
    if (vectors == VECTORS && a_column == 1)
        TILES(VECTORS, 1);
    else if (vectors == VECTORS)
        TILES(VECTORS, a_column);
    else if (vectors == VECTORS - 1)
        TILES(VECTORS - 1, a_column);
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
            int packs = b_column != 1 || width % LANES;
            if (packs) pack(panel, b_part, b_row, b_column, depth, width);
            tiles(c + n, c_row, a_part, a_row, a_column, packs ? panel : b_part,
                  packs ? COLUMNS : b_row, depth, R, width, adds || k > 0);
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

/* exp(x) for x <= 0 to about 1 ulp, as in kernels.c; 0 below exp(-87), NaN for NaN. Denormal results
   would take a hundred times as long. */
INLINE Vector exponentials(Vector x) {
    static const float factors[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                    4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    Vector n = rounded(x * 1.44269504f), r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Vector p = (Vector){0} + factors[0];
    for (int i = 1; i < 6; i++) p = p * r + factors[i];
    return scaled(p * r * r + r + 1.0f, n, x, -87.0f);
}

/* A row of S numbers, in whole vectors, := softmax(row + bias + padding), either of which may be
   absent. After its end it is 0. */
INLINE void softmax_of_vectors(float *row, const float *bias, const float *padding, long S) {
    Vector largest = (Vector){0} - INFINITY, sum = {0};
    for (long j = S; j < up_to(S, LANES); j++) row[j] = -INFINITY;
    for (long j = 0; j < S; j += LANES) {
        Vector x = at(row + j);
        if (bias) x += load(bias + j, S - j);
        if (padding) x += load(padding + j, S - j);
        largest = greater_of(largest, x);
        put(row + j, x);
    }
    float maximum = largest_of(largest);
    for (long j = 0; j < S; j += LANES) {
        Vector x = exponentials(at(row + j) - maximum);
        sum += x;
        put(row + j, x);
    }
    float scale = 1.0f / sum_of(sum);
    for (long j = 0; j < S; j += LANES) put(row + j, at(row + j) * scale);
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
