/* Products of few rows with a weight, which is read once and as it is stored (linear.py).

   Libraries first copy a weight into blocks, which for few rows takes longer than the product. */

/* The products of ROWS rows of x and WEIGHTS rows of a weight are in registers together. */
enum { ROWS = 4, WEIGHTS = 3, LINE = 16 };

/* out, WEIGHTS×ROWS: the products of these rows of a weight and of x. On `first` use of these rows
   of the weight, the next are fetched: the processor does not foresee streams that are short. */
INLINE void dots(
    float *out, const float *const *x, const float *const *weight, long I, int first) {
    Vector sums[WEIGHTS][ROWS] = {{{0}}};
    for (long i = 0; i < I; i += LINE) {
        for (int w = 0; first && w < WEIGHTS; w++) __builtin_prefetch(weight[w] + WEIGHTS * I + i);
        for (long j = i; j < i + LINE; j += LANES)
            for (int w = 0; w < WEIGHTS; w++)
                for (int r = 0; r < ROWS; r++)
                    sums[w][r] += *(const Vector *)(x[r] + j) * *(const Vector *)(weight[w] + j);
    }
    for (int w = 0; w < WEIGHTS; w++)
        for (int r = 0; r < ROWS; r++) {
            float sum = 0.0f;
            for (int lane = 0; lane < LANES; lane++) sum += sums[w][r][lane];
            out[w * ROWS + r] = sum;
        }
}

/* out := x weightᵀ + bias for x M×I, weight O×I, with I a multiple of 16; bias may be absent. */
void small_linear(float *out, const float *x, const float *weight, const float *bias, long M,
                  long I, long O) {
#pragma omp parallel for schedule(static)
    for (long o = 0; o < O; o += WEIGHTS) {
        const float *weights[WEIGHTS], *rows[ROWS];
        float products[WEIGHTS * ROWS];
        long outputs = O - o < WEIGHTS ? O - o : WEIGHTS;
        for (long w = 0; w < WEIGHTS; w++) weights[w] = weight + (o + (w < outputs ? w : 0)) * I;
        for (long m = 0; m < M; m += ROWS) {
            long count = M - m < ROWS ? M - m : ROWS;
            for (long r = 0; r < ROWS; r++) rows[r] = x + (m + (r < count ? r : 0)) * I;
            dots(products, rows, weights, I, m == 0);
            for (long r = 0; r < count; r++)
                for (long w = 0; w < outputs; w++)
                    out[(m + r) * O + o + w] = products[w * ROWS + r] + (bias ? bias[o + w] : 0.0f);
        }
    }
}
