/* Ranks of a test, as NCCL's programs have them: one thread that is all of them, a thread each, or a process each. */
#ifndef ALNICO_TESTS_INTEGRATIONS_NCCL_CREW_H
#define ALNICO_TESTS_INTEGRATIONS_NCCL_CREW_H

#include "tests/integrations/nccl/made_up_cuda.h"

#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

/* Prints the place and ends the process. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            crew_fail(#condition, __FILE__, __LINE__);                                             \
    } while (0)
void crew_fail(const char *condition, const char *file, int line) __attribute__((noreturn));

/* NCCL's call has succeeded. */
#define CHECK(call) REQUIRE((call) == ncclSuccess)

/* The ranks of a communicator that the calling thread is. */
struct crew {
    int size, first, count; /* all; this thread's are `count` from `first` on */
    ncclComm_t comms[8];
    cudaStream_t streams[8][2];
    unsigned seed;
};

/* Processes come first: a fork has no threads but its own. */
enum crew_way { PROCESSES, ONE_THREAD, THREADS, CREW_WAYS };

/* Runs `body` with `size` ranks in each of the crew's parts, GPU r for rank r. */
void crew_run(enum crew_way way, int size, unsigned seed, void (*body)(struct crew *));

/* Waits for the streams of the crew's ranks. */
void crew_synchronize(struct crew *crew);

/* The same numbers on all ranks that begin with the same state. */
uint32_t crew_random(unsigned *state);

#endif
