/* Winograd's F(2x2, 3x3) (Lavin, Gray 2016) of one tile, on the CPU and in kernels:
 * Y = A^T [(G g G^T) (B^T d B)] A, 2 x 2 numbers of y from 4 x 4 of x and 3 x 3 of w. */
#ifndef ALNICO_BENCHMARKS_STUDIES_CONVOLUTIONS_WINOGRAD_H
#define ALNICO_BENCHMARKS_STUDIES_CONVOLUTIONS_WINOGRAD_H

#ifdef __CUDACC__
#define WINOGRAD static __host__ __device__ inline
#else
#define WINOGRAD static inline
#endif

/* Products of numbers for each 2 x 2 of y, a channel and a filter: plainly, and by Winograd. */
enum { PLAIN_PRODUCTS = 36, WINOGRAD_PRODUCTS = 16 };

/* One dimension of each transform: numbers `step` apart. */
WINOGRAD void winograd_weights_pass(const float *g, int step, float *out, int out_step)
{
    const float sum = (g[0] + g[2 * step]) / 2, half = g[step] / 2;
    out[0] = g[0];
    out[out_step] = sum + half;
    out[2 * out_step] = sum - half;
    out[3 * out_step] = g[2 * step];
}

WINOGRAD void winograd_pixels_pass(const float *d, int step, float *out, int out_step)
{
    out[0] = d[0] - d[2 * step];
    out[out_step] = d[step] + d[2 * step];
    out[2 * out_step] = d[2 * step] - d[step];
    out[3 * out_step] = d[step] - d[3 * step];
}

WINOGRAD void winograd_results_pass(const float *m, int step, float *out, int out_step)
{
    out[0] = m[0] + m[step] + m[2 * step];
    out[out_step] = m[step] - m[2 * step] - m[3 * step];
}

/* u = G g G^T: 4 x 4 of 3 x 3. */
WINOGRAD void winograd_weights(const float *g, float *u)
{
    float half[12];
    for (int column = 0; column < 3; column++)
        winograd_weights_pass(g + column, 3, half + column, 3);
    for (int row = 0; row < 4; row++)
        winograd_weights_pass(half + 3 * row, 1, u + 4 * row, 1);
}

/* v = B^T d B: 4 x 4 of 4 x 4. */
WINOGRAD void winograd_pixels(const float *d, float *v)
{
    float half[16];
    for (int column = 0; column < 4; column++)
        winograd_pixels_pass(d + column, 4, half + column, 4);
    for (int row = 0; row < 4; row++)
        winograd_pixels_pass(half + 4 * row, 1, v + 4 * row, 1);
}

/* y = A^T m A: 2 x 2 of 4 x 4. */
WINOGRAD void winograd_results(const float *m, float *y)
{
    float half[8];
    for (int column = 0; column < 4; column++)
        winograd_results_pass(m + column, 4, half + column, 4);
    for (int row = 0; row < 2; row++)
        winograd_results_pass(half + 4 * row, 1, y + 2 * row, 1);
}

#undef WINOGRAD
#endif
