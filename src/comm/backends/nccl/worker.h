/*
 * A call of NCCL's that may wait for other ranks without end, on a thread of its own. The caller
 * waits until a deadline, and otherwise abandons the call to the thread, which ends the NCCL
 * communicator as soon as NCCL returns. NCCL's own nonblocking communicators would start and join a
 * thread in every collective (2.28), and cannot become blocking ones.
 */
#ifndef ALNICO_COMM_BACKENDS_NCCL_WORKER_H
#define ALNICO_COMM_BACKENDS_NCCL_WORKER_H

#include "comm/backends/nccl/library.h"
#include "comm/communicator/comm.h"

struct nccl_worker {
    alnico_status_t (*run)(struct nccl_worker *); /* on the thread, with the device entered */
    void (*finish)(struct nccl_worker *);         /* frees what run used; NULL: nothing */
    const struct device_ops *device;
    int device_index;
    int rank, size, most_blocks;
    ncclUniqueId id;
    ncclComm_t nccl; /* what is made or used; an abandoned worker's thread aborts it */
    void *memory, *window, *stream; /* what run uses, and a window that it made */
    size_t bytes;
    double delay_s; /* for run: how long to wait first */
    bool pairs;     /* for run: connects all pairs of ranks */
    struct device_event *event;
    struct nccl_worker_state *state; /* for nccl/worker.c */
};

/* A worker for this rank, not yet begun; NULL, with a detail, without memory. */
struct nccl_worker *nccl_worker_create(alnico_comm_t comm,
                                       alnico_status_t (*run)(struct nccl_worker *));

/* Begins. Errors: SYSTEM (no thread). */
alnico_status_t nccl_worker_start(struct nccl_worker *worker);

/* Begins and waits as long as the communicator lets it: its run's status, or with *worker NULL,
 * abandoned: TIMEOUT (the deadline, or a rank whose process has ended), or what is latched
 * meanwhile. Pumps an engine without a thread. */
alnico_status_t nccl_worker_do(alnico_comm_t comm, const char *who, struct nccl_worker **worker);

/* Whether somebody has abandoned it: for run, where it can give up. */
bool nccl_worker_abandoned(struct nccl_worker *worker);

/* Waits up to so many seconds for one that was begun, and frees it or abandons it. NULL is fine. */
void nccl_worker_finish(struct nccl_worker *worker, double seconds);

/* Finishes and frees one that is over or was never begun. NULL is fine. */
void nccl_worker_free(struct nccl_worker *worker);

#endif
