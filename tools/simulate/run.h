/* One operation on a simulated machine: the library's executors, one for each rank and chunk,
 * driven over virtual time by one thread. Any number of them may run at once. */
#ifndef ALNICO_TOOLS_SIMULATE_RUN_H
#define ALNICO_TOOLS_SIMULATE_RUN_H

#include "comm/algorithms/algorithm.h"
#include "comm/transports/sim/sim.h"

struct simulate_operation;

struct simulate_case {
    const struct sim_machine *machine;
    const struct algorithm *algorithm;
    int ranks;
    size_t count;       /* float32 elements of the vector, or of each rank's block */
    size_t chunk_count; /* elements of a chunk, three of which are in flight; 0: one chunk */
    bool data;          /* move, add and check real elements */
    const struct simulate_operation *operation; /* NULL: allreduce; the root is rank 0 */
};

struct simulate_result {
    double time_us;    /* until the last rank has its result */
    uint64_t messages; /* sent in all */
    size_t wrong;      /* elements on all ranks; 0 without data */
};

/* Errors: MEMORY, SYSTEM (the ranks wait for each other), and the executor's. */
alnico_status_t simulate_run(const struct simulate_case *what, struct simulate_result *out);

/* Bytes of elements that a case with data holds at once, about; all ranks together. */
double simulate_data_bytes(const struct simulate_case *what);

/* Rounds of all ranks and chunks: what the time of simulating goes with. */
double simulate_rounds(const struct simulate_case *what);

#endif
