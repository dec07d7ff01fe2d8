/*
 * NCCL: a collective is NCCL's own kernel, enqueued on the communicator's stream, or for a
 * nonblocking call on one of the library's (operations/stream_operation.c). Nothing waits here
 * except the creation of NCCL's communicator; a kernel may wait for other ranks. A communicator of
 * one rank copies, without NCCL.
 *
 * NCCL's communicators take part of a second and memory. Where the peer backend takes every call,
 * one is made no sooner than something goes to NCCL that may wait: a blocking call, a forced name,
 * or a registration of as much memory as the table gives to NCCL. They are not split off from each
 * other (ncclCommSplit): the parent's calls, which other threads make, would have to be in the same
 * order on all ranks.
 *
 * An abort by another thread ends the handle, or leaves that to the calling thread while it is in
 * NCCL. A kernel that NCCL aborts leaves its loops and signals its neighbours as though it had the
 * data, so theirs may end well with data that nobody sent: reports of failures travel before the
 * abort (communicator/abort.c).
 */
#include "comm/backends/nccl/algorithms.h"
#include "comm/backends/nccl/calls.h"
#include "comm/backends/nccl/nccl.h"
#include "comm/backends/nccl/worker.h"
#include "comm/communicator/registration.h"
#include "comm/operations/stream_operation.h"

#include "base/datatype.h"
#include "base/status.h"
#include "device/backoff.h"

#include <stdlib.h>

static bool nccl_supports(alnico_comm_t comm, const struct call *call,
                          const struct algorithm *algorithm)
{
    if (!nccl_state_of(comm) || nccl_state_of(comm)->absent)
        return false;
    if (call)
        return nccl_can(comm, call, algorithm);
    return algorithm != &algorithm_nccl_symmetric || nccl_has_windows(comm);
}

/* The handle that an abort has to end now, with the lock held: NCCL's abort waits for what the GPU
 * still runs, of other backends too, so a handle that carried nothing is left to the end of the
 * communicator. So is the symmetric one: its kernels do not look whether they shall end. */
static ncclComm_t take_plain(struct nccl_state *state)
{
    ncclComm_t nccl = state->used ? state->plain : NULL;
    if (nccl)
        state->plain = NULL;
    return nccl;
}

/* Seconds that a report takes to arrive once it is sent, and for which one is awaited that the
 * calling thread has to send, which looks that often while it waits. */
static double notice(alnico_comm_t comm)
{
    return detector_has_reported(&comm_told(comm)->detector) ? 0.05 : 0.25;
}

/* Without the lock: others look at the state meanwhile. Only one thread ever has a handle to
 * end. */
static void end_taken(alnico_comm_t comm, ncclComm_t nccl)
{
    struct nccl_state *state = nccl_state_of(comm);
    if (!nccl)
        return;
    struct nccl_worker *ending = nccl_abort_begin(comm, nccl, notice(comm));
    pthread_mutex_lock(&state->lock);
    state->ending = ending;
    pthread_mutex_unlock(&state->lock);
}

ncclComm_t nccl_enter(struct nccl_state *state, const ncclComm_t *handle)
{
    pthread_mutex_lock(&state->lock);
    ncclComm_t nccl = state->abort_wanted ? NULL : *handle;
    state->busy = nccl != NULL;
    state->used |= state->busy && handle == &state->plain;
    atomic_store_explicit(&state->carried, state->carried || state->busy, memory_order_relaxed);
    pthread_mutex_unlock(&state->lock);
    return nccl;
}

void nccl_leave(alnico_comm_t comm)
{
    struct nccl_state *state = nccl_state_of(comm);
    pthread_mutex_lock(&state->lock);
    state->busy = false;
    ncclComm_t nccl = state->abort_wanted ? take_plain(state) : NULL;
    pthread_mutex_unlock(&state->lock);
    end_taken(comm, nccl);
}

void nccl_put(struct nccl_state *state, ncclComm_t *handle, ncclComm_t nccl)
{
    pthread_mutex_lock(&state->lock);
    *handle = nccl;
    pthread_mutex_unlock(&state->lock);
}

/* Takes the handle away until it is put back; it is the taker's to end. */
static ncclComm_t nccl_take(struct nccl_state *state, ncclComm_t *handle)
{
    ncclComm_t nccl = nccl_enter(state, handle);
    if (nccl)
        nccl_put(state, handle, NULL);
    return nccl;
}

static void nccl_abort(alnico_comm_t comm)
{
    struct nccl_state *state = nccl_state_of(comm);
    if (!state)
        return;
    pthread_mutex_lock(&state->lock);
    state->abort_wanted = true;
    ncclComm_t nccl = state->busy ? NULL : take_plain(state);
    pthread_mutex_unlock(&state->lock);
    end_taken(comm, nccl);
}

static bool nccl_misleads(alnico_comm_t comm)
{
    return nccl_state_of(comm) &&
           atomic_load_explicit(&nccl_state_of(comm)->carried, memory_order_relaxed);
}

static alnico_status_t look(ncclComm_t nccl, const struct alnico_comm *comm)
{
    ncclResult_t found = ncclSuccess;
    if (!nccl)
        return ALNICO_SUCCESS;
    ncclResult_t result = nccl_library()->ncclCommGetAsyncError(nccl, &found);
    if (result == ncclSuccess && (found == ncclSuccess || found == ncclInProgress))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_SYSTEM, "NCCL failed in communicator %d: %s: %s", comm->id,
                     nccl_library()->ncclGetErrorString(found ? found : result),
                     nccl_library()->ncclGetLastError(nccl));
}

static alnico_status_t nccl_health(alnico_comm_t comm)
{
    struct nccl_state *state = nccl_state_of(comm);
    if (!state || !atomic_load_explicit(&state->carried, memory_order_relaxed))
        return ALNICO_SUCCESS;
    pthread_mutex_lock(&state->lock);
    alnico_status_t status = look(state->plain, comm);
    if (status == ALNICO_SUCCESS)
        status = look(state->symmetric, comm);
    pthread_mutex_unlock(&state->lock);
    return status;
}

static bool is_made(const struct nccl_state *state, const struct algorithm *algorithm)
{
    if (algorithm == &algorithm_nccl_messages)
        return state->tried && (state->paired || state->absent);
    return state->tried || algorithm != &algorithm_nccl;
}

static bool nccl_prepared(alnico_comm_t comm, const struct algorithm *algorithm)
{
    return !nccl_state_of(comm) || comm->size == 1 || is_made(nccl_state_of(comm), algorithm);
}

static alnico_status_t make_plain(alnico_comm_t comm, const struct nccl_step *step)
{
    struct nccl_state *state = nccl_state_of(comm);
    ncclComm_t nccl;
    TRY(nccl_make(comm, step, &nccl));
    if (nccl)
        TRY(nccl_connect(comm, step, NCCL_CONNECT_ALL, &nccl));
    nccl_put(state, &state->plain, nccl);
    state->absent = !nccl;
    state->tried = true;
    return ALNICO_SUCCESS;
}

static void say_made(const struct alnico_comm *comm, int64_t start_ns)
{
    log_write(LOG_INFO, "communicator %d: NCCL %d, built with %d, made in %.2f s", comm->id,
              nccl_version(), NCCL_VERSION_CODE, 1e-9 * (double)(backoff_now_ns() - start_ns));
}

/* The handle is the worker's meanwhile. Calls that were enqueued before may be under way on it, so
 * there is no way back. */
static alnico_status_t pair(alnico_comm_t comm, const struct nccl_step *step)
{
    struct nccl_state *state = nccl_state_of(comm);
    bool all;
    TRY(nccl_agree(comm, step, ALNICO_SUCCESS, &all));
    ncclComm_t nccl = nccl_take(state, &state->plain);
    if (!nccl)
        return error_set(ALNICO_ERROR_ABORTED, "communicator %d was aborted", comm->id);
    alnico_status_t status = nccl_connect(comm, step, NCCL_CONNECT_PAIRS, &nccl);
    nccl_put(state, &state->plain, nccl);
    nccl_leave(comm);
    state->paired = true;
    if (status == ALNICO_SUCCESS && !nccl)
        status = error_set(ALNICO_ERROR_SYSTEM, "%s: NCCL could not connect all pairs of ranks",
                           step->who);
    return status;
}

/* If only NCCL cannot do it, that is no error: the backend is absent from this communicator. An
 * error that separates this rank from the others is one, of which they may not know. */
static alnico_status_t make(alnico_comm_t comm, const struct algorithm *algorithm, const char *who)
{
    const struct nccl_step step = {who, "this communicator is without NCCL", LOG_WARNING};
    struct nccl_state *state = nccl_state_of(comm);
    int64_t start_ns = backoff_now_ns();
    comm_settle(comm);
    alnico_status_t status = state->tried ? ALNICO_SUCCESS : make_plain(comm, &step);
    if (status == ALNICO_SUCCESS && !is_made(state, algorithm))
        status = pair(comm, &step);
    if (status != ALNICO_SUCCESS)
        comm_latch(comm, status, alnico_error_detail());
    else if (!state->absent)
        say_made(comm, start_ns);
    return status;
}

/* The calling thread may be capturing a graph, in which nothing of this is. */
static alnico_status_t nccl_prepare(alnico_comm_t comm, const struct algorithm *algorithm,
                                    const char *who)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (nccl_prepared(comm, algorithm))
        return ALNICO_SUCCESS;
    bool relaxed =
        !comm->device->host_accessible && cudaThreadExchangeStreamCaptureMode(&mode) == 0;
    alnico_status_t status = make(comm, algorithm, who);
    if (relaxed)
        cudaThreadExchangeStreamCaptureMode(&mode);
    return status;
}

static bool is_forced(const struct alnico_comm *comm, const struct algorithm *algorithm)
{
    for (int c = 0; c < COLLECTIVES; c++)
        if (comm->forced[c].algorithm == algorithm)
            return true;
    return false;
}

/* Whether another backend takes the calls that must not wait until NCCL's communicator is made. */
static bool can_come_later(alnico_comm_t comm)
{
    const struct backend *peer = backend_find("peer", (int)comm->device->kind);
    return peer->ops &&
           peer->ops->supports(comm, NULL,
                               backend_algorithm(peer, ALNICO_ALLREDUCE, "two_shot_staged")) &&
           !is_forced(comm, &algorithm_nccl) && !is_forced(comm, &algorithm_nccl_symmetric);
}

static alnico_status_t nccl_attach(alnico_comm_t comm, const char *who)
{
    const struct nccl_step step = {who, "this communicator is without NCCL", LOG_WARNING};
    if (!comm_take_scratch(comm, "nccl", NCCL_SCRATCH_BYTES))
        return ALNICO_SUCCESS;
    struct nccl_state *state = calloc(1, sizeof *state);
    bool all;
    alnico_status_t mine = state ? comm->device->alloc(NCCL_SCRATCH_BYTES, &state->scratch)
                                 : error_set(ALNICO_ERROR_MEMORY, "no memory for NCCL's state");
    alnico_status_t status = nccl_agree(comm, &step, mine, &all);
    if (!all) {
        if (state && state->scratch)
            comm->device->free(state->scratch);
        free(state);
        return status;
    }
    pthread_mutex_init(&state->lock, NULL);
    comm->state[BACKEND_NCCL] = state;
    if (!can_come_later(comm))
        TRY(nccl_prepare(comm, &algorithm_nccl, who));
    return is_forced(comm, &algorithm_nccl_messages)
               ? nccl_prepare(comm, &algorithm_nccl_messages, who)
               : ALNICO_SUCCESS;
}

static void nccl_memory(alnico_comm_t comm, alnico_comm_memory_t *sum)
{
    size_t bytes = nccl_state_of(comm) ? NCCL_SCRATCH_BYTES : 0;
    sum->device += bytes;
    sum->scratch += bytes;
}

/* Captured calls on so much memory come without notice. */
static bool is_for_nccl(const struct alnico_comm *comm, size_t bytes)
{
    const struct tuning_step *step =
        tuning_choose(&comm->tuning, ALNICO_ALLREDUCE, MODE_REGISTERED | MODE_CAPTURED, bytes);
    return step && step->choice.algorithm == &algorithm_nccl;
}

static alnico_status_t enroll(alnico_comm_t comm, struct alnico_registration *registration,
                              const char *who)
{
    if (is_for_nccl(comm, registration->bytes))
        TRY(nccl_prepare(comm, &algorithm_nccl, who));
    return nccl_enroll(comm, registration, who);
}

static void end(ncclComm_t nccl, bool broken)
{
    if (!nccl)
        return;
    ncclResult_t result =
        broken ? nccl_library()->ncclCommAbort(nccl) : nccl_library()->ncclCommDestroy(nccl);
    if (result != ncclSuccess)
        log_write(LOG_WARNING, "NCCL could not end a communicator: %s",
                  nccl_library()->ncclGetErrorString(result));
}

static void nccl_detach(alnico_comm_t comm)
{
    struct nccl_state *state = nccl_state_of(comm);
    if (!state)
        return;
    bool broken = atomic_load(&comm->latch.status) != ALNICO_SUCCESS;
    nccl_worker_finish(state->ending, comm->family->settings.timeout);
    end(state->symmetric, broken);
    end(state->plain, broken);
    if (!broken) /* otherwise a kernel may still be under way */
        comm->device->free(state->scratch);
    pthread_mutex_destroy(&state->lock);
    free(state);
    comm->state[BACKEND_NCCL] = NULL;
}

static alnico_status_t nccl_launch(alnico_comm_t comm, const struct call *call,
                                   const struct choice *choice, void *stream)
{
    bool symmetric = choice->algorithm == &algorithm_nccl_symmetric;
    if (comm->size == 1)
        return nccl_copy_alone(comm, call, stream);
    struct nccl_state *state = nccl_state_of(comm);
    ncclComm_t nccl = nccl_enter(state, symmetric ? &state->symmetric : &state->plain);
    if (!nccl)
        return error_set(ALNICO_ERROR_ABORTED, "communicator %d was aborted", comm->id);
    alnico_status_t status = nccl_enqueue(comm, call, nccl, state->scratch, stream);
    nccl_leave(comm);
    if (status == ALNICO_ERROR_SYSTEM) /* others may have begun: it cannot be undone */
        comm_latch(comm, status, alnico_error_detail());
    return status;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const struct backend_ops nccl_ops = {
    .about = "NCCL " TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR) "." TEXT(
        NCCL_PATCH) " on the communicator's stream",
    .needs = "NCCL; no logical or bitwise operation, and minima and maxima of integers only; no "
             "alltoall in "
             "place; messages to the rank itself in the same call as their receive; and for "
             "nccl_symmetric "
             "allgathers, or 16- or 32-bit floating sums, in registered windows of one host",
    .capturable = true,
    .attach = nccl_attach,
    .detach = nccl_detach,
    .prepared = nccl_prepared,
    .prepare = nccl_prepare,
    .supports = nccl_supports,
    .memory = nccl_memory,
    .health = nccl_health,
    .abort = nccl_abort,
    .misleads = nccl_misleads,
    .enroll = enroll,
    .withdraw = nccl_withdraw,
    .start = stream_operation_start,
    .launch = nccl_launch,
};
