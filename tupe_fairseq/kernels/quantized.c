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

#ifdef HAS_VECTORS
enum { FOUR = 4 };
/* A tile of the result stays in registers: 6 rows of 4 vectors of outputs, and with AVX2 4 of 2. Most
   rows that are multiplied with a part of the weight while it is in the cache. */
enum { QUEUE = LANES == 16 ? 6 : 4, BLOCKS = LANES == 16 ? 4 : 2, PANEL = 288 };

/* QUEUE rows of the product below from m on, as far as there are any, in outputs o, ..., of as many
   blocks. In place of missing rows, the first is computed again and not stored. */
INLINE void integer_tile(float *out, const uint8_t *q, const float *ranges, const int8_t *weight,
                         const float *scales, const float *sums, const float *bias, long M, long F,
                         long O, long m, long o, int blocks, int first) {
    long count = M - m < QUEUE ? M - m : QUEUE;
    const int8_t *block = weight + o * FOUR * F;
    const uint8_t *rows[QUEUE];
    Integers totals[QUEUE][BLOCKS], counted[QUEUE][BLOCKS];
    for (int r = 0; r < QUEUE; r++) {
        rows[r] = q + (m + (r < count ? r : 0)) * FOUR * F;
        for (int b = 0; b < blocks; b++) totals[r][b] = (Integers){0};
    }
    for (long f = 0; f < F; f++) {
        Integers numbers[BLOCKS];
        for (int b = 0; b < blocks; b++)
            numbers[b] = *(const Integers *)(block + (b * F + f) * LANES * FOUR);
        /* The next tile's, on first use of this one's: it comes from another level of the cache. */
        for (int b = 0; first && b < blocks; b++)
            __builtin_prefetch(block + ((b + blocks) * F + f) * LANES * FOUR);
        for (int r = 0; r < QUEUE; r++) {
            int32_t four;
            memcpy(&four, rows[r] + f * FOUR, FOUR);
            for (int b = 0; b < blocks; b++)
                totals[r][b] = add_products(totals[r][b], (Integers){0} + four, numbers[b]);
        }
    }
    /* In a second array, because the compiler keeps the first one in registers only where it unrolls
       all loops over it. */
    for (int r = 0; r < QUEUE; r++)
        for (int b = 0; b < blocks; b++) counted[r][b] = totals[r][b];
    for (int b = 0; b < blocks; b++) {
        long start = o + b * LANES, left = O - start;
        Vector scale = load(scales + start, left), sum = load(sums + start, left);
        Vector offset = load(bias + start, left);
        for (int r = 0; r < count; r++) {
            Vector product = __builtin_convertvector(counted[r][b], Vector) * scale;
            Vector result = ranges[m + r] * product + (ranges[M + m + r] * sum + offset);
            store(out + (m + r) * O + start, result, left);
        }
    }
}

/* out, M×O := x weightᵀ + bias, with the rows of x, M×4F, in 8 bits. The weight is in blocks: each has
   its numbers as F×LANES×4 for LANES outputs and 4F inputs. Each output has a scale, a sum of its
   weights and a bias, 3×O together. The room is for M pairs of floats and M×4F bytes. */
void quantized_product(float *out, const float *x, const int8_t *weight, const float *scales,
                       float *room, long M, long F, long O) {
    const float *sums = scales + O, *bias = sums + O, *ranges = room;
    uint8_t *q = (uint8_t *)(room + 2 * M);
    long width = BLOCKS * LANES, parts = up_to(O, width) / width;
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
                if (O - o > width - LANES)
                    TILE(o, BLOCKS);
                else
                    for (long p = o; p < O; p += LANES) TILE(p, 1);
            }
#undef TILE
}

/* Outputs of a block of the weight. */
int outputs_of_block(void) { return LANES; }

/* Whether a sum of two products of numbers in 8 bits overflows. */
int overflows(void) { return PAIRS_OVERFLOW; }

/* 1 + erf(x / sqrt(2)): the rational function of x² that Eigen has, which is 1 beyond 4. */
INLINE Vector one_plus_erf(Vector x) {
    static const float above[] = {-2.72614225801306e-10f, 2.77068142495902e-08f,
                                  -2.10102402082508e-06f, -5.69250639462346e-05f,
                                  -7.34990630326855e-04f, -2.95459980854025e-03f,
                                  -1.60960333262415e-02f};
    static const float below[] = {-1.45660718464996e-05f, -2.13374055278905e-04f,
                                  -1.68282697438203e-03f, -7.37332916720468e-03f,
                                  -1.42647390514189e-02f};
    Vector least = (Vector){0} - 4.0f;
    x *= 0.70710678f;
    Integers is_inside = x > least;
    x = -greater_of(-greater_of(x, least), least);
    Vector square = x * x, p = (Vector){0} + above[0], q = (Vector){0} + below[0];
    for (int i = 1; i < 7; i++) p = p * square + above[i];
    for (int i = 1; i < 5; i++) q = q * square + below[i];
    return (Vector)((Integers)(1.0f + x * p / q) & is_inside);
}

/* gelu of M rows of C numbers, in place; each number alone, wherever it is. */
void gelu_rows(float *x, long M, long C, long stride) {
#pragma omp parallel for schedule(static)
    for (long m = 0; m < M; m++)
        for (long c = 0; c < C; c += LANES) {
            float *numbers = x + m * stride + c;
            Vector v = load(numbers, C - c);
            store(numbers, 0.5f * v * one_plus_erf(v), C - c);
        }
}
#endif
