/* The operations of alnico-perf, one row each: how its size follows from bytes, what its buffers
 * hold before and after, and the calls, ours and MPI's. A new operation needs a row in
 * operations.c, its layout in layout.c, its calls in calls.c and mpi.c and, where NCCL has it,
 * gpu/nccl_calls.c. */
#ifndef ALNICO_TOOLS_PERF_OPERATIONS_H
#define ALNICO_TOOLS_PERF_OPERATIONS_H

#include "comm/collectives.h"

#include <stdbool.h>

/* Rows of the table: each collective has the number of its own, and two more follow. */
enum { PERF_EXCHANGE = ALNICO_SENDRECV + 1, PERF_PINGPONG, PERF_OPERATIONS };

enum {
    PERF_REQUESTS = 4 /* that one call of MPI may leave open */
};

/* The parts that the size of a row is made of. */
enum perf_shape {
    SHAPE_NONE,   /* no elements */
    SHAPE_VECTOR, /* `count` elements */
    SHAPE_BLOCKS, /* a block of `count` elements for each rank; in the vector forms on average */
    SHAPE_PAIR    /* `count` elements to each of two neighbours; the size is that of one message */
};

/* The blocks of all ranks in a whole vector, packed; of an alltoallv, this rank's to or
 * from each. Counts and places as ours and as MPI take them. */
struct perf_blocks {
    size_t *counts, *at;
    int *mpi_counts, *mpi_at;
};

/* One call's arguments. */
struct perf_job {
    const struct perf_operation *operation;
    const void *send; /* not looked at if in_place */
    void *recv;       /* in place the only buffer */
    bool in_place;    /* this rank's call is */
    size_t count;     /* of the vector, the message or a block; in the vector forms on average */
    const struct perf_blocks *blocks;
    alnico_datatype_t type;
    alnico_op_t op;
    int root, rank, ranks;
    alnico_comm_t comm;
};

/* The rank `distance` (1 or -1) places on in the ring. */
static inline int job_neighbour(const struct perf_job *job, int distance)
{
    return (job->rank + distance + job->ranks) % job->ranks;
}

/* The buffers of a call, or `in_place`, with which the library marks the other one. Of a scatter
 * the root sends from the only buffer. */
static inline const void *job_send(const struct perf_job *job, const void *in_place)
{
    return job->in_place ? in_place : job->send;
}

static inline const void *job_scattered(const struct perf_job *job)
{
    return job->in_place ? job->recv : job->send;
}

static inline void *job_recv(const struct perf_job *job, void *in_place)
{
    return job->in_place ? in_place : job->recv;
}

/* A rank's input: so many elements of a buffer, which are the first of its sequence of values. */
struct perf_input {
    bool in_recv;
    size_t at, count;
};

/* A part of recv after the call: elements `index` and following of what ranks first, first + 1, ...
 * (`ranks` of them) sent, combined. Parts lie one behind the other from recv[0] on; what is behind
 * them is left as it was. */
struct perf_part {
    size_t at, count, index;
    int first, ranks;
};

typedef bool perf_part_of(const struct perf_job *job, int i, struct perf_part *out);
typedef alnico_status_t perf_call(const struct perf_job *job, alnico_request_t *request);

/* An operation, as far as collectives[] does not say it. */
struct perf_operation {
    const char *name;
    alnico_collective_t collective;
    enum perf_shape shape;
    double bus; /* what crosses the busiest link, over the size; (ranks - 1) / ranks of it where
                 * a rank keeps its own share */
    perf_part_of *part; /* NULL: no result */
    /* Ours; a request makes it nonblocking, NULL blocking. */
    perf_call *call;
    const char *about;
    bool same;       /* every rank gets the same bits */
    bool blocking;   /* it has no nonblocking form */
    int messages;    /* one after the other in a call, whose time is divided by so many; 0: 1 */
    int ranks_least; /* 0: 1 */
};

/* The row of that name, or NULL; the i-th, NULL after the last; and which one a row is. */
const struct perf_operation *perf_operation_find(const char *name);
const struct perf_operation *perf_operation_at(int i);
int perf_operation_id(const struct perf_operation *operation);

/* The name of the i-th algorithm that a device has for it; NULL after the last. */
const char *perf_algorithm(const struct perf_operation *operation, alnico_device_t device, int i);

/* Bus bandwidth / algorithm bandwidth, as in nccl-tests. */
double perf_bus_factor(const struct perf_operation *operation, int ranks);

/* `count` of a call whose size is so many elements, at least 1; the size of such a call, and the
 * elements of the larger of its buffers, which is the same on all ranks. */
size_t perf_count(const struct perf_operation *operation, size_t elements, int ranks);
size_t perf_size(const struct perf_operation *operation, size_t count, int ranks);
size_t perf_extent(const struct perf_operation *operation, size_t count, int ranks);

/* One call of ours (calls.c). */
alnico_status_t perf_call_ours(const struct perf_job *job, alnico_request_t *request);

perf_call call_allreduce, call_reduce, call_broadcast, call_allgather, call_allgatherv,
    call_reduce_scatter, call_reduce_scatterv, call_gather, call_gatherv, call_scatter,
    call_scatterv, call_alltoall, call_alltoallv, call_barrier, call_sendrecv, call_exchange,
    call_pingpong;

/* In layout.c. Memory for the blocks of so many ranks. False if there is none; afterwards blocks_finish, also
 * then. */
bool blocks_init(struct perf_blocks *blocks, int ranks);
void blocks_finish(struct perf_blocks *blocks);

/* The blocks of a call: all of `count` elements, or in the vector forms every second one with half
 * as many, rounded down, and the others with as many more; of an odd number of ranks the last has
 * `count`. In an alltoallv rank r's block for rank b is as long as block (r + b) mod ranks is
 * elsewhere. Where a whole vector has more than INT_MAX elements, the ints are undefined. */
void blocks_set(struct perf_blocks *blocks, const struct perf_operation *operation, size_t count,
                int rank, int ranks);

/* A call without buffers. `in_place` is the option; the blocks are set to its own. */
struct perf_job job_make(const struct perf_operation *operation, size_t count, bool in_place,
                         int root, int rank, int ranks, const struct perf_blocks *blocks);

struct perf_input job_input(const struct perf_job *job);

/* The i-th part of this rank's result; false after the last. */
bool job_part(const struct perf_job *job, int i, struct perf_part *out);

/* Elements of recv that the parts of the result cover. */
size_t job_result_count(const struct perf_job *job);

perf_part_of part_all, part_copy, part_blocks, part_reduced, part_scattered, part_previous,
    part_pair, part_partner;

/* Peers to measure against (peers.c). */
enum { PEER_MPI, PEER_STAGED, PEER_NCCL, PEER_NCCL_SYMMETRIC, PEERS };

struct peer_info {
    const char *name, *key; /* of --versus, and in JSON */
    alnico_device_t device; /* where its buffers are */
    bool built;             /* this build has it */
    bool capturable;        /* its calls may be put into a CUDA graph */
};

extern const struct peer_info peer_table[PEERS];

/* The peers of a device that this build has, as a mask of 1u << PEER_. */
unsigned peer_all(alnico_device_t device);

/* The peer of a device that is named by `length` characters; -1 if there is none. */
int peer_find(const char *name, size_t length, alnico_device_t device);

#endif
