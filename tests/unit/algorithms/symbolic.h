/* Algorithms proven symbolically: elements are sums of tokens, each of which stands for one element
 * of one rank's input, and all ranks' rounds run as the executor runs them, over messages that wait
 * for their receiver. */
#ifndef ALNICO_TESTS_UNIT_ALGORITHMS_SYMBOLIC_H
#define ALNICO_TESTS_UNIT_ALGORITHMS_SYMBOLIC_H

#include "comm/algorithms/algorithm.h"

#include <stdint.h>

/* An element: a sum modulo 2^64 of tokens, which are random, so that equal sums are of equal tokens
 * but for one case in 10^19. Two values are none: */
enum {
    SYMBOLIC_NOTHING, /* never written; must not be read */
    SYMBOLIC_FOREIGN  /* not the operation's: must be neither read nor written */
};

/* The token of element e of block b of a rank's input. */
uint64_t symbolic_token(int rank, int b, size_t e);

/* The owner fills shape, buffer and elements of SEND and RECV, which may overlap in place. */
struct symbolic_rank {
    struct shape shape;
    uint64_t *buffer[BUFFERS]; /* WORK is made and freed by the machine */
    size_t elements[BUFFERS];
    bool keeps_recv; /* RECV is read only: the root's of a broadcast */
    struct symbolic_state *state;
};

/* Runs all ranks to the end. Returns NULL, or what is wrong until the next run: an exchange leaves
 * its buffer, writes SEND or a RECV that is kept, reads what is not there or touches what is
 * foreign; exchanges of a round depend on each other, are too many, or need more room for arrivals
 * than announced; a message and its receive differ in length; ranks wait for ever; or after a
 * barrier a rank has not heard of every other. */
const char *symbolic_run(const struct algorithm *algorithm, struct symbolic_rank *ranks, int size,
                         bool barrier);

#endif
