/* See comm.h. */
#include "integrations/nccl/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLAB = 64, SLABS = 1024 };

/* Memory of handles, which is never given back. Those that were used last are used again last. */
static struct {
    pthread_mutex_t lock;
    struct ncclComm *_Atomic slabs[SLABS];
    atomic_int count;
    size_t next; /* where the search for a free one begins */
    uint64_t created;
} handles = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_handle(ncclComm_t comm)
{
    int count = atomic_load_explicit(&handles.count, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        uintptr_t from = (uintptr_t)handles.slabs[i], offset = (uintptr_t)comm - from;
        if ((uintptr_t)comm >= from && offset < SLAB * sizeof(struct ncclComm))
            return offset % sizeof(struct ncclComm) == 0;
    }
    return false;
}

static ncclComm_t find_free(void)
{
    size_t all = SLAB * (size_t)handles.count;
    for (size_t i = 0; i < all; i++) {
        size_t at = (handles.next + i) % all;
        ncclComm_t comm = &handles.slabs[at / SLAB][at % SLAB];
        if (atomic_load(&comm->state) == COMM_FREE && atomic_load(&comm->users) == 0) {
            handles.next = at + 1;
            return comm;
        }
    }
    return NULL;
}

static ncclComm_t add_slab(void)
{
    struct ncclComm *slab = handles.count < SLABS ? calloc(SLAB, sizeof *slab) : NULL;
    if (!slab)
        return NULL;
    for (int i = 0; i < SLAB; i++)
        pthread_mutex_init(&slab[i].lock, NULL);
    handles.slabs[handles.count] = slab;
    atomic_fetch_add_explicit(&handles.count, 1, memory_order_release);
    return slab;
}

static ncclComm_t take_handle(void)
{
    pthread_mutex_lock(&handles.lock);
    ncclComm_t comm = find_free();
    if (!comm)
        comm = add_slab();
    if (comm) {
        atomic_store(&comm->state, COMM_GONE);
        comm->number = ++handles.created;
    }
    pthread_mutex_unlock(&handles.lock);
    return comm;
}

/* Members that stay when a handle is used again: state, users, number and lock. */
static void clear(ncclComm_t comm)
{
    comm->clique = NULL;
    comm->next_leaving = NULL;
    comm->splits = 0;
    comm->finalized = false;
    comm->revoked = false;
    comm->detail[0] = '\0';
}

ncclResult_t comm_adopt(alnico_comm_t alnico, int device, cudaStream_t home, ncclComm_t *out)
{
    ncclComm_t comm = take_handle();
    *out = comm;
    if (!comm) {
        alnico_comm_destroy(alnico);
        cudaStreamDestroy(home);
        return fail(ncclSystemError, "no memory for a communicator");
    }
    clear(comm);
    comm->alnico = alnico;
    comm->rank = alnico_comm_rank(alnico);
    comm->size = alnico_comm_size(alnico);
    comm->device = device;
    comm->home = home;
    atomic_store(&comm->state, COMM_LIVE);
    return ncclSuccess;
}

ncclResult_t comm_hold(ncclComm_t comm)
{
    if (!is_handle(comm))
        return fail(ncclInvalidArgument, "%p is not a communicator", (void *)comm);
    atomic_fetch_add(&comm->users, 1);
    if (atomic_load(&comm->state) == COMM_LIVE)
        return ncclSuccess;
    atomic_fetch_sub(&comm->users, 1);
    return fail(ncclInvalidArgument, "the communicator %p was destroyed", (void *)comm);
}

ncclResult_t comm_failed(ncclComm_t comm, ncclResult_t result)
{
    if (result == ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    snprintf(comm->detail, sizeof comm->detail, "%s", fail_detail());
    pthread_mutex_unlock(&comm->lock);
    return result;
}

ncclResult_t comm_release(ncclComm_t comm, ncclResult_t result)
{
    (void)comm_failed(comm, result);
    atomic_fetch_sub_explicit(&comm->users, 1, memory_order_release);
    return result;
}

ncclResult_t comm_retire(ncclComm_t comm)
{
    int live = COMM_LIVE;
    ncclResult_t result = comm_hold(comm);
    if (result != ncclSuccess)
        return result;
    if (!atomic_compare_exchange_strong(&comm->state, &live, COMM_GONE))
        result = fail(ncclInvalidArgument, "the communicator %p was destroyed", (void *)comm);
    return comm_release(comm, result);
}

void comm_end(ncclComm_t comm)
{
    while (atomic_load(&comm->users) > 0)
        nanosleep(&(struct timespec){0, 50000}, NULL);
    alnico_comm_destroy(comm->alnico);
    cudaStreamDestroy(comm->home);
    clear(comm);
    atomic_store(&comm->state, COMM_FREE);
}

const char *comm_last_error(ncclComm_t comm)
{
    static _Thread_local char shown[DETAIL_BYTES];
    if (!comm || !is_handle(comm) || atomic_load(&comm->state) != COMM_LIVE)
        return fail_detail();
    pthread_mutex_lock(&comm->lock);
    memcpy(shown, comm->detail, sizeof shown);
    pthread_mutex_unlock(&comm->lock);
    return shown[0] ? shown : fail_detail();
}
