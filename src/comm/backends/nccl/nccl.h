/* NCCL's handles of a communicator, for the files of that backend: made and agreed upon by all ranks,
 * and guarded against an abort by another thread. */
#ifndef ALNICO_COMM_BACKENDS_NCCL_NCCL_H
#define ALNICO_COMM_BACKENDS_NCCL_NCCL_H

#include "base/log.h"
#include "comm/backends/nccl/library.h"
#include "comm/communicator/comm.h"

#include <pthread.h>

struct nccl_worker;

struct nccl_state {
    pthread_mutex_t lock;
    ncclComm_t plain;     /* without windows; NULL: not made yet, or aborted */
    ncclComm_t symmetric; /* with the windows of registered memory; NULL: none yet, or aborted */
    bool tried, absent;   /* for the calling thread: `plain` was to be made, and could not be */
    bool paired;          /* it has connections between all pairs of ranks */
    void *scratch;        /* of the device's memory */
    bool used;            /* `plain` was asked for an operation */
    atomic_bool carried;  /* either was: only then it may have failed, and is worth looking at */
    bool busy;            /* the calling thread is in NCCL: whoever aborts leaves that to it */
    bool abort_wanted;
    struct nccl_worker *ending; /* aborts what was `plain` */
};

static inline struct nccl_state *nccl_state_of(const struct alnico_comm *comm)
{
    return comm->state[BACKEND_NCCL];
}

/* NCCL's result as a status; the detail names the function, what NCCL says, and its last message
 * (`nccl` may be NULL). */
alnico_status_t nccl_status(ncclResult_t result, ncclComm_t nccl, const char *function);

/* A step that all ranks take together: in which public call, what there is none of without it, and
 * how loudly rank 0's log says so. */
struct nccl_step {
    const char *who, *without;
    enum log_level level;
};

/* Whether `mine` is success on every rank (collective). Where it is not, the log says why. Errors:
 * the out-of-band allgather's. */
alnico_status_t nccl_agree(alnico_comm_t comm, const struct nccl_step *step, alnico_status_t mine,
                           bool *all);

/* Makes an NCCL communicator of the same ranks (collective). *out is NULL on every rank if one of
 * them cannot. Errors: as nccl_agree, and where NCCL waits too long TIMEOUT, or what is latched
 * meanwhile. */
alnico_status_t nccl_make(alnico_comm_t comm, const struct nccl_step *step, ncclComm_t *out);

/* Connections for NCCL's collectives; or for messages between any two ranks, which take more
 * memory. */
enum nccl_connect { NCCL_CONNECT_ALL, NCCL_CONNECT_PAIRS };

/* Lets NCCL make its connections now, so that no later call waits in them for other ranks
 * (collective). *nccl becomes NULL on every rank if one of them cannot. Errors: as nccl_agree. */
alnico_status_t nccl_connect(alnico_comm_t comm, const struct nccl_step *step,
                             enum nccl_connect what, ncclComm_t *nccl);

/* Aborts a communicator after so many seconds, on a thread of its own, for NCCL's abort waits for
 * what else the GPU runs; to be finished. NULL: it is done. */
struct nccl_worker *nccl_abort_begin(alnico_comm_t comm, ncclComm_t nccl, double delay_s);

/* The handle, to be left again before the calling thread returns; NULL if it was aborted. */
ncclComm_t nccl_enter(struct nccl_state *state, const ncclComm_t *handle);
void nccl_leave(alnico_comm_t comm);
void nccl_put(struct nccl_state *state, ncclComm_t *handle, ncclComm_t nccl);

/* The backend's slots of the same names. */
alnico_status_t nccl_enroll(alnico_comm_t comm, struct alnico_registration *registration,
                            const char *who);
void nccl_withdraw(alnico_comm_t comm, struct alnico_registration *registration);

/* Whether memory may have windows at all, and whether all of the bytes lie in one. */
bool nccl_has_windows(const struct alnico_comm *comm);
bool nccl_in_window(const struct alnico_comm *comm, const void *memory, size_t bytes);

#endif
