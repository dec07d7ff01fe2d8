/* What the tests of the trainer on a GPU share: vectors in three types, and comparisons that say
 * what differs and go on, since one run on a rented machine must tell everything. */
#ifndef ALNICO_TESTS_GPU_TRAIN_CHECK_H
#define ALNICO_TESTS_GPU_TRAIN_CHECK_H

#include "tests/gpu/support/gpu.h"

#include "train/kernels/cuda/launch.h"

#include <alnico/alnico.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What kernels are launched with: a stream of the current GPU, scratch, a rate of 0.1 and a loss
 * scale of 128. */
struct train_gpu check_gpu(void);

/* After a launch: waits for the stream (a cudaStream_t). An error of either ends the test. */
void launched(void *stream, int error, const char *kernel);

/* How many comparisons were made, and how many failed. */
extern size_t check_count, check_failures;

/* A vector on the host and its image on the GPU. What is put is rounded to the type first, so that
 * both hold the same. */
struct vector {
    float *host;
    void *gpu;
    size_t count;
    int type;
};
struct vector vector_make(size_t count, int type);
void vector_free(struct vector *vector);
void vector_put(struct vector *vector);
void vector_get(struct vector *vector);

/* Random numbers around `middle`, on host and GPU; all bits set, which is NaN, on the GPU. */
struct vector vector_random(size_t count, int type, uint64_t *state, double middle, double width);
struct vector vector_poisoned(size_t count, int type);

/* Rows of random numbers with zeros where channels are padding. */
struct vector vector_padded(uint64_t *state, size_t rows, unsigned channels, unsigned padded,
                            int type, double middle);

/* Rounds to a type and back. */
float round_to(float x, int type);

/* The distance between neighbouring numbers of the type around 1. */
double type_epsilon(int type);
const char *type_name(int type);

/* Zeros; the caller frees them. The test ends if there is no memory. */
double *doubles(size_t count);

/* Compares element by element: |got - expected| <= absolute + relative * |expected|. Prints the
 * first differences with what they are of, and how many there are. */
bool check_close(const char *what, const float *got, const double *expected, size_t count,
                 double absolute, double relative);

/* Compares the length of the difference with that of what is expected; prints the distance always
 * if `loud`. */
bool check_distance(const char *what, const float *got, const float *expected, size_t count,
                    double most, bool loud);

/* Whether what goes wrong now is tried again: it is then counted and said, but not called a
 * failure. */
extern bool check_tentative;

/* Notes that something went wrong, printf-like. */
void check_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Takes the ways of training that a last argument "ways=NAMES" asks for (ALNICO_TRAIN_WAYS), before
 * anything else. Returns the number of the arguments before it. */
int check_ways(int count, char **arguments);

/* Prints the totals; the exit status. */
int check_result(const char *name);

#endif
