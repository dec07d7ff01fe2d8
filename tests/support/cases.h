/* The table of allreduce cases that every transport, stream and algorithm has to pass. */
#ifndef ALNICO_TESTS_CASES_H
#define ALNICO_TESTS_CASES_H

#include <alnico/alnico.h>

#include <stdint.h>

enum how { HOW_BLOCKING, HOW_NONBLOCKING, HOWS };

struct allreduce_case {
    size_t count;
    alnico_datatype_t type;
    alnico_op_t op;
    bool in_place;
    enum how how;
    size_t offset; /* elements before the buffers' aligned start */
};

/* Runs one case on a communicator of ranks 0 to size-1 and ends the process, naming the case, if the result is
 * wrong, differs between the ranks, or anything around the buffers was written. */
void cases_run(alnico_comm_t comm, const struct allreduce_case *c, uint64_t seed);

/* Every type x operation x in place x blocking for the counts, with the algorithm in force. */
void cases_run_all(alnico_comm_t comm, const size_t *counts, int number, uint64_t seed);

/* Forces an algorithm (collective). False if it is the peer backend's and there is one rank; the test fails if it
 * cannot be used otherwise. */
struct algorithm;
bool cases_force(alnico_comm_t comm, const struct algorithm *algorithm);

/* Every case for every algorithm. */
void cases_run_algorithms(alnico_comm_t comm, const size_t *counts, int number, uint64_t seed);

#endif
