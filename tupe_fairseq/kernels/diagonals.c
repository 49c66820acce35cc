/* Cells and tables by distance: M matrices of I queries and J keys, rows and matrices of cells at
   the given strides; tables of W columns whose rows are queries or keys (diagonals.py). */

/* cells += table of queries; the keys first, ..., last - 1 read columns of their own. */
static void add_by_query(float *cells, float *table, long M, long I, long J, long matrix,
                           long row, long W, long offset) {
#pragma omp parallel for collapse(2) schedule(static)
    for (long m = 0; m < M; m++)
        for (long i = 0; i < I; i++) {
            float *to = cells + m * matrix + i * row;
            const float *values = table + (m * I + i) * W;
            long shift = offset - i, first = clamped(-shift, 0, J);
            long last = clamped(W - shift, first, J);
            for (long j = 0; j < first; j++) to[j] += values[0];
            for (long j = first; j < last; j++) to[j] += values[j + shift];
            for (long j = last; j < J; j++) to[j] += values[W - 1];
        }
}

/* The transpose. */
static void sum_by_query(float *cells, float *table, long M, long I, long J, long matrix,
                           long row, long W, long offset) {
#pragma omp parallel for collapse(2) schedule(static)
    for (long m = 0; m < M; m++)
        for (long i = 0; i < I; i++) {
            const float *from = cells + m * matrix + i * row;
            float *values = table + (m * I + i) * W, left = 0.0f, right = 0.0f;
            long shift = offset - i, first = clamped(-shift, 0, J);
            long last = clamped(W - shift, first, J);
            long start = clamped(first + shift, 0, W), stop = clamped(last + shift, start, W);
            memset(values, 0, start * sizeof *values);
            memset(values + stop, 0, (W - stop) * sizeof *values);
#pragma omp simd reduction(+ : left)
            for (long j = 0; j < first; j++) left += from[j];
#pragma omp simd reduction(+ : right)
            for (long j = last; j < J; j++) right += from[j];
            for (long j = first; j < last; j++) values[j + shift] = from[j];
            values[0] += left;
            values[W - 1] += right;
        }
}

/* By key, square blocks of cells are transposed in registers, so that cells and table are read and
   written in whole cache lines. */
enum { SIDE = LANES };

/* to += the transpose of from; the rows at these strides. */
INLINE void add_transposed(float *to, long to_row, const float *from, long from_row) {
#ifdef HAS_VECTORS
    Vector v[SIDE];
    for (int k = 0; k < SIDE; k++) v[k] = at(from + k * from_row);
    transpose(v);
    for (int k = 0; k < SIDE; k++) put(to + k * to_row, at(to + k * to_row) + v[k]);
#else
    for (long k = 0; k < SIDE; k++)
        for (long l = 0; l < SIDE; l++) to[k * to_row + l] += from[l * from_row + k];
#endif
}

/* Cells of queries i, ... and keys j, ..., `rows` by `columns`, and the table by key: cells +=
   table, or table += cells where `sums`. In a row of the table the queries descend. */
static void add_block(float *cells, float *table, long i, long j, long rows, long columns, long row,
                      long W, long offset, int sums) {
    long column = j - i - SIDE + 1 + offset; /* of the last query and the first key */
    if (rows == SIDE && columns == SIDE && column >= 0 && column + 2 * SIDE - 2 < W) {
        float *last = cells + (SIDE - 1) * row;
        if (sums)
            add_transposed(table + column, W + 1, last, -row);
        else
            add_transposed(last, -row, table + column, W + 1);
        return;
    }
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < columns; c++) {
            float *values = table + c * W + clamped(j + c - i - r + offset, 0, W - 1);
            float *cell = cells + r * row + c;
            if (sums)
                *values += *cell;
            else
                *cell += *values;
        }
}

static void add_by_key(float *cells, float *table, long M, long I, long J, long matrix, long row,
                        long W, long offset) {
#pragma omp parallel for collapse(2) schedule(static)
    for (long m = 0; m < M; m++)
        for (long i = 0; i < I; i += SIDE)
            for (long j = 0; j < J; j += SIDE) {
                long rows = clamped(I - i, 0, SIDE), columns = clamped(J - j, 0, SIDE);
                float *at = cells + m * matrix + i * row + j, *values = table + (m * J + j) * W;
                add_block(at, values, i, j, rows, columns, row, W, offset, 0);
            }
}

static void sum_by_key(float *cells, float *table, long M, long I, long J, long matrix, long row,
                        long W, long offset) {
#pragma omp parallel for collapse(2) schedule(static)
    for (long m = 0; m < M; m++)
        for (long j = 0; j < J; j += SIDE) {
            long columns = clamped(J - j, 0, SIDE);
            float *values = table + (m * J + j) * W;
            memset(values, 0, columns * W * sizeof *values);
            for (long i = 0; i < I; i += SIDE) {
                long rows = clamped(I - i, 0, SIDE);
                float *at = cells + m * matrix + i * row + j;
                add_block(at, values, i, j, rows, columns, row, W, offset, 1);
            }
        }
}

void add_by_distance(float *cells, float *table, long M, long I, long J, long matrix, long row,
                     long W, long offset, int by_key) {
    (by_key ? add_by_key : add_by_query)(cells, table, M, I, J, matrix, row, W, offset);
}

void sum_by_distance(float *cells, float *table, long M, long I, long J, long matrix, long row,
                     long W, long offset, int by_key) {
    (by_key ? sum_by_key : sum_by_query)(cells, table, M, I, J, matrix, row, W, offset);
}

