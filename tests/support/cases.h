/* The table of allreduce cases that every device, transport, stream and algorithm has to pass. */
#ifndef ALNICO_TESTS_SUPPORT_CASES_H
#define ALNICO_TESTS_SUPPORT_CASES_H

#include "comm/algorithms/algorithm.h"

#include <alnico/alnico.h>

#include <stdint.h>

enum how { HOW_BLOCKING, HOW_NONBLOCKING, HOWS };

struct allreduce_case {
    size_t count;
    alnico_datatype_t type;
    alnico_op_t op;
    bool in_place;
    enum how how;
    size_t offset; /* elements before the buffers' aligned start; from 2 on, recv has another one */
    bool registered; /* both buffers lie in registered memory, where there is some */
    bool may_refuse; /* ALNICO_ERROR_UNSUPPORTED is as good as a result, if every rank gets it */
};

/* ---- Where the buffers live ---- */

struct cases_memory {
    /* Memory for one buffer, for as long as one case takes; the same place in registered memory on
     * all ranks. */
    void *(*alloc)(void *context, size_t bytes, bool registered);
    void (*free)(void *context, void *memory);

    /* From the host's memory and to it; done on return. */
    void (*put)(void *context, void *to, const void *from, size_t bytes);
    void (*get)(void *context, void *to, const void *from, size_t bytes);

    void *context;
    bool registers; /* there is registered memory */

    /* Of the same ranks, on the CPU: by it they compare. NULL: by the one under test. */
    alnico_comm_t twin;
};

extern const struct cases_memory cases_memory_cpu;

/* ---- Cases ---- */

/* Runs one case on a communicator of ranks 0 to size-1 and ends the process, naming the case, if
 * the result is wrong, differs between the ranks, or anything around the buffers was written. */
void cases_run(alnico_comm_t comm, const struct allreduce_case *c, uint64_t seed);

/* The same in other memory. False if it was refused, as it may be. */
bool cases_run_in(const struct cases_memory *memory, alnico_comm_t comm,
                  const struct allreduce_case *c, uint64_t seed);

/* A part of the table, and what became of it. */
struct cases {
    const struct cases_memory *memory;
    alnico_comm_t comm;
    const size_t *counts;
    int number; /* of counts; where thin, without a common divisor with 8 */
    /* Every type x operation, with the next count and the next way to call, instead of every count
     * and way. */
    bool thin;
    uint64_t seed;

    /* Which cases may be refused; NULL: none. */
    bool (*may_refuse)(const struct allreduce_case *c, const void *argument);
    const void *argument;

    int run, refused; /* how many, added up */
};

void cases_run_table(struct cases *cases);

/* Every type x operation x in place x blocking for the counts on the CPU, with the algorithm in
 * force. */
void cases_run_all(alnico_comm_t comm, const size_t *counts, int number, uint64_t seed);

/* The i-th algorithm of allreduce on the CPU, over all backends; NULL after the last. */
const struct algorithm *cases_algorithm(int i);

/* Forces an algorithm (collective). False if it is the peer backend's and there is one rank; the
 * test fails if it cannot be used otherwise. */
struct algorithm;
bool cases_force(alnico_comm_t comm, const struct algorithm *algorithm);

/* Every case for every algorithm on the CPU. */
void cases_run_algorithms(alnico_comm_t comm, const size_t *counts, int number, uint64_t seed);

#endif
