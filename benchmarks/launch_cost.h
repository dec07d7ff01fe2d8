/* Kernels that do nothing, with parameters of several sizes, for launch_cost.c. Shared by C and
 * CUDA C. */
#ifndef ALNICO_BENCHMARKS_LAUNCH_COST_H
#define ALNICO_BENCHMARKS_LAUNCH_COST_H

#ifdef __cplusplus
extern "C" {
#endif

/* The host function of a kernel with one parameter of so many bytes (8, 64, 128, ..., 512), or with
 * so many pointers (1, 2, 4, 8); NULL for other numbers. */
const void *launch_cost_struct(int bytes);
const void *launch_cost_pointers(int count);

#ifdef __cplusplus
}
#endif

#endif
