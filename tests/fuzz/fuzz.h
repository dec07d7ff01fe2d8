/* What a fuzz target is: one function, called by libFuzzer or by replay.c with any bytes. It aborts
 * on a wrong answer. */
#ifndef ALNICO_TESTS_FUZZ_FUZZ_H
#define ALNICO_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is left of the bytes; zeros follow. */
struct input {
    const uint8_t *data;
    size_t left;
};

static inline int next(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->data++;
}

/* Ends the run with the place if `condition` is false. */
#define FUZZ_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
