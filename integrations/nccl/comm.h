/*
 * What an ncclComm_t points to: a communicator of Alnico. Handles are never freed, so that a wrong or old
 * one is an error and not a crash. A call holds the communicator while it runs; an abort, which may come
 * from any thread, waits for those that hold it.
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_COMM_H
#define ALNICO_INTEGRATIONS_NCCL_COMM_H

#include "integrations/nccl/errors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum comm_state { COMM_FREE, COMM_LIVE, COMM_GONE };

struct clique;

struct ncclComm {
    atomic_int state;
    atomic_int users; /* calls that hold it */
    uint64_t number;  /* in the order of creation, by which groups order what they start */
    alnico_comm_t alnico;
    int rank, size, device;
    cudaStream_t home; /* for what belongs to no user's stream */
    struct clique *clique;
    struct ncclComm *next_leaving; /* in its clique */
    uint32_t splits;               /* so far: they number the children's cliques */
    atomic_bool finalized, revoked;
    pthread_mutex_t lock; /* of the detail */
    char detail[DETAIL_BYTES];
};

/* Takes a communicator of this thread's device over. *out: NULL on error, and then it is destroyed. */
ncclResult_t comm_adopt(alnico_comm_t alnico, int device, cudaStream_t home, ncclComm_t *out);

/* After success comm_release follows. Errors: ncclInvalidArgument. */
ncclResult_t comm_hold(ncclComm_t comm);

/* Keeps the thread's detail with the communicator unless `result` is ncclSuccess; returns it. */
ncclResult_t comm_failed(ncclComm_t comm, ncclResult_t result);

/* Lets go of the communicator, after comm_failed with `result`, which it returns. */
ncclResult_t comm_release(ncclComm_t comm, ncclResult_t result);

/* Only one caller takes a communicator out of use. */
ncclResult_t comm_retire(ncclComm_t comm);

/* Waits for those that hold it, ends it and makes the handle free. It is retired. */
void comm_end(ncclComm_t comm);

/* The text of ncclGetLastError, "" in a thread without errors. */
const char *comm_last_error(ncclComm_t comm);

#endif
