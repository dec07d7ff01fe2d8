/* Random inputs that any rank can make for any other, and what a collective must make of them:
 * integers exactly, floats in float64 with a bound. Independent of the library's own arithmetic. */
#ifndef ALNICO_TESTS_SUPPORT_REFERENCE_H
#define ALNICO_TESTS_SUPPORT_REFERENCE_H

#include <alnico/alnico.h>

#include <stdint.h>

/* Fills `count` elements with the input of a rank. */
void reference_fill(void *buffer, size_t count, alnico_datatype_t type, alnico_op_t op,
                    uint64_t seed, int rank);

/* Checks the result over the inputs of the `size` ranks ranks[0..size). Returns the number of wrong
 * elements and describes the first in `text` (may be NULL). */
size_t reference_check(const void *result, size_t count, alnico_datatype_t type, alnico_op_t op,
                       uint64_t seed, const int *ranks, int size, char *text, size_t text_bytes);

/* The same for elements [first, last) of the result. */
size_t reference_check_part(const void *result, size_t first, size_t last, alnico_datatype_t type,
                            alnico_op_t op, uint64_t seed, const int *ranks, int size, char *text,
                            size_t text_bytes);

/* A hash of bytes, to compare results between ranks. */
uint64_t reference_hash(const void *bytes, size_t count);

/* A 64-bit pseudo-random function of its arguments. */
uint64_t reference_random(uint64_t seed, uint64_t a, uint64_t b);

#endif
