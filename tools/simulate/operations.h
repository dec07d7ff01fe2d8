/* The operations that alnico-simulate knows: what each rank has, in float32 elements, and what must
 * come of it. */
#ifndef ALNICO_TOOLS_SIMULATE_OPERATIONS_H
#define ALNICO_TOOLS_SIMULATE_OPERATIONS_H

#include "tools/simulate/run.h"

/* The contents of SEND or RECV (algorithms/algorithm.h) on a rank: nothing, one block or vector, or
 * a block for each rank. INPUT: a vector that begins as the input, which is also what is sent. */
enum simulate_side { SIDE_NONE, SIDE_BLOCK, SIDE_BLOCKS, SIDE_INPUT };

enum simulate_flags {
    REDUCES = 1,
    ROOTED = 2,
    SEND_AT_ROOT = 4, /* the root, which is rank 0, has that side only */
    RECV_AT_ROOT = 8,
    LENGTHS = 16, /* a vector form, with blocks of equal length: never cut into chunks */
    RING = 32     /* a group of messages: each rank sends to the next one; never cut into chunks */
};

struct simulate_operation {
    const char *name;
    const struct algorithm *const *algorithms;
    enum simulate_side send, recv;
    int flags;
};

/* The i-th, allreduce first; NULL after the last. And that of a name, or NULL. */
const struct simulate_operation *operation_at(int i);
const struct simulate_operation *operation_find(const char *name);

/* A case's operation: allreduce unless it names one. */
const struct simulate_operation *operation_of(const struct simulate_case *what);

/* All ranks' SEND and RECV. Without data they are addresses that nobody touches, of one rank. */
struct simulate_buffers {
    const struct simulate_case *what;
    float *send, *recv;
    size_t send_bytes, recv_bytes; /* as allocated */
};

/* Makes them and fills in the inputs. Errors: MEMORY. */
alnico_status_t buffers_create(const struct simulate_case *what, struct simulate_buffers *out);
void buffers_destroy(struct simulate_buffers *buffers);

/* A rank's SEND or RECV. */
float *buffers_side(const struct simulate_buffers *buffers, int rank, bool sends);

/* Counts the received elements that are wrong. */
size_t buffers_wrong(const struct simulate_buffers *buffers);

/* Bytes of all ranks' SEND and RECV with data. */
double buffers_bytes(const struct simulate_case *what);

/* Memory of `bytes`: of zeros, or without data addresses only. NULL if there is none. */
void *memory_take(size_t bytes, bool data);
void memory_give(void *memory, size_t bytes, bool data);

#endif
