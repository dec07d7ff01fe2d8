/*
 * A column of ones before a matrix, in place, so that a bias is a column of weights (Biswas,
 * SHM-Learn-Dist: ShiftRight and ShiftLeft): rows x columns float32, one row after the other, become
 * rows x (columns + 1) and back. On the CPU on the calling thread, on a GPU on its stream.
 */
#ifndef ALNICO_TRAIN_KERNELS_REALIGN_H
#define ALNICO_TRAIN_KERNELS_REALIGN_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* rows, columns: without the ones, > 0, at most 2^31 numbers together. There is room for
 * rows x (columns + 1) numbers. */
struct realign {
    float *matrix;
    size_t rows, columns;
    bool right; /* the ones come in; false: they go */
};

void realign(const struct realign *pass);

/* On a stream of the current GPU, with so many bytes of its memory to work with. Returns a
 * cudaError_t. */
size_t train_realign_scratch(const struct realign *pass);
int train_realign(const struct realign *pass, void *scratch, void *stream);

#ifdef __cplusplus
}
#endif

#endif
