/* Types and operations as the public header describes them, for the fuzz targets. */
#ifndef ALNICO_TESTS_FUZZ_CALL_VALUES_H
#define ALNICO_TESTS_FUZZ_CALL_VALUES_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of an element; 0: there is no such type. */
size_t values_bytes(int type);
bool values_have(int type, int op);

/* to = op over the ranks of one element each, of integers. */
void values_reduce(int type, int op, int size, const unsigned char *const *from, unsigned char *to);

#endif
