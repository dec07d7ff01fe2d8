/*
 * Linpack on our broadcasts: blocked right-looking LU with partial pivoting of [A | b], blocks of columns
 * dealt to the ranks in turn. The owner of a block factors it and broadcasts it while all update what
 * lies behind (look-ahead, as in HPL). Matrices stand column by column; OpenBLAS computes.
 */
#include "benchmarks/studies/linpack_ranks.h"

#include "benchmarks/studies/study.h"
#include "tests/support/ranks.h"
#include "train/base/random.h"

#include <alnico/alnico.h>
#include <cblas.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* LAPACK's, which OpenBLAS has, but no header of it. */
void dgetrf_(const int *rows, const int *columns, double *a, const int *lead, int *pivots,
             int *status);
void dlaswp_(const int *columns, double *a, const int *lead, const int *first, const int *last,
             const int *pivots, const int *step);

/* The columns of a rank: blocks rank, rank + size, ... of [A | b]. */
struct matrix {
    const struct linpack_run *run;
    int rank, ranks, rows; /* rows = N; there are N + 1 columns */
    int columns;           /* of this rank */
    double *at;            /* rows x columns */
    double *panels[2];     /* each: the rows of a block from its diagonal on, then pivots */
    int *pivots;
    alnico_comm_t comm;
};

/* ---- Where columns are ---- */

static int block_count(const struct matrix *m)
{
    return (m->rows + m->run->block) / m->run->block; /* of N + 1 columns */
}

static int block_width(const struct matrix *m, int block)
{
    const int rest = m->rows + 1 - block * m->run->block;
    return rest < m->run->block ? rest : m->run->block;
}

/* Columns of this rank that are before a block. */
static int local_before(const struct matrix *m, int block)
{
    int count = 0;
    for (int b = m->rank; b < block; b += m->ranks)
        count += block_width(m, b);
    return count;
}

static double *column_at(const struct matrix *m, int column)
{
    return m->at + (size_t)column * (size_t)m->rows;
}

void linpack_column(const struct linpack_run *run, int column, double *out)
{
    uint64_t state = random_stream(run->seed, (uint64_t)column);
    for (int i = 0; i < run->size; i++)
        out[i] = random_unit(&state) - 0.5;
}

static void matrix_fill(struct matrix *m)
{
    int local = 0;
    for (int b = m->rank; b < block_count(m); b += m->ranks)
        for (int i = 0; i < block_width(m, b); i++)
            linpack_column(m->run, b * m->run->block + i, column_at(m, local++));
}

/* ---- The factors ---- */

/* The columns of A that a block has: b is not factored. */
static int panel_width(const struct matrix *m, int block)
{
    const int rest = m->rows - block * m->run->block;
    return rest < m->run->block ? rest : m->run->block;
}

static int panel_rows(const struct matrix *m, int block)
{
    return m->rows - block * m->run->block;
}

/* Its owner's: factors a block in place, and packs it with its pivots. */
static void panel_factor(struct matrix *m, int block, double *panel)
{
    const int rows = panel_rows(m, block), width = panel_width(m, block);
    double *at = column_at(m, local_before(m, block)) + block * m->run->block;
    int status;
    dgetrf_(&rows, &width, at, &m->rows, m->pivots, &status);
    if (status)
        program_fail("the matrix is singular");
    for (int j = 0; j < width; j++)
        memcpy(panel + (size_t)j * (size_t)rows, at + (size_t)j * (size_t)m->rows,
               (size_t)rows * sizeof *panel);
    for (int j = 0; j < width; j++)
        panel[(size_t)width * (size_t)rows + (size_t)j] = m->pivots[j];
}

/* Brings local columns `from` to `to` up to date with a panel: swaps rows, solves for the rows of U,
 * and subtracts the product. */
static void columns_update(struct matrix *m, int block, const double *panel, int from, int to)
{
    const int rows = panel_rows(m, block), width = panel_width(m, block), columns = to - from,
              one = 1;
    double *upper = column_at(m, from) + block * m->run->block;
    if (columns <= 0)
        return;
    for (int j = 0; j < width; j++)
        m->pivots[j] = (int)panel[(size_t)width * (size_t)rows + (size_t)j];
    dlaswp_(&columns, upper, &m->rows, &one, &width, m->pivots, &one);
    cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, width, columns, 1,
                panel, rows, upper, m->rows);
    if (rows > width)
        cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, rows - width, columns, width, -1,
                    panel + width, rows, upper, m->rows, 1, upper + width, m->rows);
}

static void panel_broadcast(struct matrix *m, int block, alnico_request_t *request)
{
    double *panel = m->panels[block % 2];
    const size_t count = (size_t)panel_width(m, block) * ((size_t)panel_rows(m, block) + 1);
    program_check(
        alnico_ibroadcast(panel, count, ALNICO_FLOAT64, block % m->ranks, m->comm, request),
        "broadcasting a panel");
}

/* The next panel is on its way before the rest of the matrix is updated. */
static void matrix_factor(struct matrix *m)
{
    const int count = (m->rows + m->run->block - 1) / m->run->block;
    alnico_request_t request;
    if (m->rank == 0)
        panel_factor(m, 0, m->panels[0]);
    panel_broadcast(m, 0, &request);
    for (int k = 0; k < count; k++) {
        const double *panel = m->panels[k % 2];
        const bool mine = (k + 1) % m->ranks == m->rank && k + 1 < count;
        int from = local_before(m, k + 1);
        program_check(alnico_wait(&request), "waiting for a panel");
        if (mine) {
            const int next = from + block_width(m, k + 1);
            columns_update(m, k, panel, from, next);
            panel_factor(m, k + 1, m->panels[(k + 1) % 2]);
            from = next;
        }
        if (k + 1 < count)
            panel_broadcast(m, k + 1, &request);
        /* A last block that holds b beside columns of A: b is not behind the panel. */
        if (k % m->ranks == m->rank && block_width(m, k) > panel_width(m, k))
            from--;
        columns_update(m, k, panel, from, m->columns);
    }
}

/* ---- The solution ---- */

/* x of U x = y, block by block from the last: the owner solves, and all learn what is left. */
static void matrix_solve(struct matrix *m, double *x)
{
    const int last = block_count(m) - 1, count = (m->rows + m->run->block - 1) / m->run->block;
    if (last % m->ranks == m->rank)
        memcpy(x, column_at(m, m->columns - 1), (size_t)m->rows * sizeof *x);
    program_check(alnico_broadcast(x, (size_t)m->rows, ALNICO_FLOAT64, last % m->ranks, m->comm),
                  "broadcasting y");
    for (int k = count - 1; k >= 0; k--) {
        const int first = k * m->run->block, width = panel_width(m, k);
        if (k % m->ranks == m->rank) {
            const double *u = column_at(m, local_before(m, k));
            cblas_dtrsv(CblasColMajor, CblasUpper, CblasNoTrans, CblasNonUnit, width, u + first,
                        m->rows, x + first, 1);
            cblas_dgemv(CblasColMajor, CblasNoTrans, first, width, -1, u, m->rows, x + first, 1, 1,
                        x, 1);
        }
        program_check(
            alnico_broadcast(x, (size_t)(first + width), ALNICO_FLOAT64, k % m->ranks, m->comm),
            "broadcasting x");
    }
}

/* Plain sums. */
double linpack_residual(const struct linpack_run *run, const double *x)
{
    const size_t n = (size_t)run->size;
    double *column = study_memory(n * sizeof *column), *rest = study_memory(n * sizeof *rest),
           *sums = study_memory(n * sizeof *sums), a = 0, largest = 0, most = 0, b = 0;
    for (int j = 0; j < run->size; j++) {
        linpack_column(run, j, column);
        largest = fmax(largest, fabs(x[j]));
        for (size_t i = 0; i < n; i++) {
            rest[i] += column[i] * x[j];
            sums[i] += fabs(column[i]);
        }
    }
    linpack_column(run, run->size, column);
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs(rest[i] - column[i]));
        a = fmax(a, sums[i]);
        b = fmax(b, fabs(column[i]));
    }
    free(column);
    free(rest);
    free(sums);
    return most / (DBL_EPSILON * (a * largest + b) * (double)run->size);
}

/* ---- A rank ---- */

static void matrix_open(struct matrix *m)
{
    const size_t rows = (size_t)m->rows, block = (size_t)m->run->block;
    m->columns = local_before(m, block_count(m));
    m->at = study_memory((rows * (size_t)m->columns + 1) * sizeof *m->at);
    for (int i = 0; i < 2; i++)
        m->panels[i] = study_memory((rows + 1) * block * sizeof *m->at);
    m->pivots = study_memory(block * sizeof *m->pivots);
}

static void matrix_close(struct matrix *m)
{
    free(m->at);
    free(m->panels[0]);
    free(m->panels[1]);
    free(m->pivots);
}

static void work(struct rank *rank)
{
    struct linpack_run *run = rank->argument;
    struct matrix m = {.run = run, .rank = rank->rank, .ranks = rank->size, .rows = run->size};
    double *x = study_memory((size_t)run->size * sizeof *x);
    openblas_set_num_threads(run->threads); /* it asks each thread for its number */
    m.comm = ranks_comm(rank, NULL);
    matrix_open(&m);
    matrix_fill(&m);
    program_check(alnico_barrier(m.comm), "a barrier");
    const double begin = seconds_now();
    matrix_factor(&m);
    matrix_solve(&m, x);
    if (rank->rank == 0) {
        run->seconds = seconds_now() - begin;
        if (run->check)
            run->residual = linpack_residual(run, x);
    }
    alnico_comm_destroy(m.comm);
    matrix_close(&m);
    free(x);
}

void linpack_ranks_run(struct linpack_run *run, int ranks)
{
    ranks_run(ranks, work, run);
}
