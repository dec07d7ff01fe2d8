/* The source's way to bring a column of ones into a matrix on a GPU (Biswas, SHM-Learn-Dist), with
 * its errors repaired: one kernel saves what rows before will overwrite, another moves each row by
 * one block. Compared with by the study of realignment. */
#ifndef ALNICO_BENCHMARKS_STUDIES_REALIGN_SOURCE_H
#define ALNICO_BENCHMARKS_STUDIES_REALIGN_SOURCE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The helper: rows (rows - 1) / 2 numbers of the GPU. Returns a cudaError_t. */
int realign_source_right(float *matrix, size_t rows, size_t columns, float *helper, void *stream);

#ifdef __cplusplus
}
#endif

#endif
