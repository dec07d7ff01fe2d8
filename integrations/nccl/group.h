/*
 * Groups: what a thread calls between ncclGroupStart and ncclGroupEnd, nested or not, is kept and then
 * carried out at once, as one thread may be several ranks. First the jobs, which wait for other ranks, each
 * in a thread of its own; then the calls, communicator by communicator in the order of their creation:
 * collectives in the order of the calls, then all messages as one operation. An error of a call inside a
 * group makes its end return that error and do nothing.
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_GROUP_H
#define ALNICO_INTEGRATIONS_NCCL_GROUP_H

#include "integrations/nccl/comm.h"

/* Work that waits for other ranks. `run` is called on the communicator's device, or the one that was current
 * when the job was given. */
struct job {
    ncclResult_t (*run)(const struct job *job);
    const char *who; /* its entry point */
    int device;
    bool crowded;    /* another rank of the new communicator belongs to the same thread */
    ncclComm_t comm; /* that it is called on, which is held meanwhile; NULL for a new one */
    ncclComm_t ends; /* one that is retired */
    ncclComm_t *out; /* of a new one */
    ncclUniqueId id;
    int size, rank; /* also color and key of a split, count and flags of a shrink */
    int *excluded;
    void *memory; /* of a window */
    size_t bytes;
    void *window;
};

/* Carries the job out, or keeps it for the end of the group. Its `device` and `who` are set here. */
ncclResult_t group_job(struct job *job);

/* Carries jobs out at once, all at the same time; the first error of them. */
ncclResult_t jobs_run(const struct job *jobs, size_t count);

/* The calls of ncclComm's operations. */
enum kind {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    SEND,
    RECV,
    OP_DESTROY, /* of a reduction */
    KINDS
};

struct operation {
    enum kind kind;
    const char *who; /* its entry point */
    ncclDataType_t type;
    ncclRedOp_t op;
    int other; /* the root, or the other rank of a message */
    const void *send;
    void *recv;
    size_t count;
    ncclComm_t comm;
    cudaStream_t stream;
    size_t order; /* in its group */
};

/* A group of the calling thread is open. */
bool group_is_open(void);

/* Starts operations of a group, which it puts in order. */
ncclResult_t group_start(struct operation *operations, size_t count);

/* Keeps an operation for the end of the group. Errors: ncclSystemError. */
ncclResult_t group_keep(const struct operation *operation);

/* `result`, which the end of the thread's group returns if it is an error. */
ncclResult_t group_result(ncclResult_t result);

#endif
