/*
 * NCCL: a collective is NCCL's own kernel, enqueued on the communicator's stream, or for a nonblocking call on one of
 * the library's (streamed.c). Nothing waits here; a kernel may wait for other ranks. Alone on its rank, NCCL copies.
 *
 * An abort by another thread ends the handle at once, or leaves that to the calling thread while it is in NCCL.
 */
#include "comm/backend.h"
#include "comm/nccl_state.h"
#include "comm/streamed.h"

#include "datatype.h"
#include "status.h"

#include <stdlib.h>

/* ---- What NCCL has ---- */

static const ncclDataType_t types[DATATYPES] = {
    [ALNICO_INT8] = ncclInt8,       [ALNICO_UINT8] = ncclUint8,
    [ALNICO_INT32] = ncclInt32,     [ALNICO_UINT32] = ncclUint32,
    [ALNICO_INT64] = ncclInt64,     [ALNICO_UINT64] = ncclUint64,
    [ALNICO_FLOAT16] = ncclFloat16, [ALNICO_BFLOAT16] = ncclBfloat16,
    [ALNICO_FLOAT32] = ncclFloat32, [ALNICO_FLOAT64] = ncclFloat64};

/* Up to AVERAGE. NCCL's of integers adds, wrapping, and divides the magnitude, which truncates. */
static const ncclRedOp_t ops[] = {[ALNICO_SUM] = ncclSum,
                                  [ALNICO_PRODUCT] = ncclProd,
                                  [ALNICO_MINIMUM] = ncclMin,
                                  [ALNICO_MAXIMUM] = ncclMax,
                                  [ALNICO_AVERAGE] = ncclAvg};

/* NCCL's minimum and maximum of floats pass over a NaN, which must come through. */
static bool has_operation(const struct call *call)
{
    if (call->op > ALNICO_AVERAGE)
        return false;
    bool extreme = call->op == ALNICO_MINIMUM || call->op == ALNICO_MAXIMUM;
    return !extreme || datatype_is_integer(call->type);
}

/* Of others than these NCCL has no symmetric kernel, and would silently take a plain one. */
static bool has_symmetric_kernel(const struct call *call)
{
    return call->op == ALNICO_SUM &&
           (call->type == ALNICO_FLOAT32 || call->type == ALNICO_FLOAT16 ||
            call->type == ALNICO_BFLOAT16);
}

static bool nccl_supports(alnico_comm_t comm, const struct call *call,
                          const struct algorithm *algorithm)
{
    if (!comm->nccl)
        return false;
    if (algorithm != &algorithm_nccl_symmetric)
        return !call || has_operation(call);
    if (!call)
        return nccl_has_windows(comm);
    size_t bytes = call->count * datatype_bytes(call->type);
    return has_symmetric_kernel(call) && nccl_in_window(comm, call->send, bytes) &&
           nccl_in_window(comm, call->recv, bytes);
}

/* ---- The handles ---- */

/* The handle that an abort has to end now, with the lock held: NCCL's abort waits for what the GPU still runs, of other
 * backends too, so a handle that carried nothing is left to the end of the communicator. So is the symmetric one:
 * its kernels do not look whether they shall end. */
static ncclComm_t take_plain(struct nccl_state *state)
{
    ncclComm_t nccl = state->used ? state->plain : NULL;
    if (nccl)
        state->plain = NULL;
    return nccl;
}

/* Without the lock: others look at the state meanwhile. */
static void end_taken(ncclComm_t nccl)
{
    if (nccl)
        ncclCommAbort(nccl);
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

void nccl_leave(struct nccl_state *state)
{
    pthread_mutex_lock(&state->lock);
    state->busy = false;
    ncclComm_t nccl = state->abort_wanted ? take_plain(state) : NULL;
    pthread_mutex_unlock(&state->lock);
    end_taken(nccl);
}

static void nccl_abort(alnico_comm_t comm)
{
    struct nccl_state *state = comm->nccl;
    if (!state)
        return;
    pthread_mutex_lock(&state->lock);
    state->abort_wanted = true;
    ncclComm_t nccl = state->busy ? NULL : take_plain(state);
    pthread_mutex_unlock(&state->lock);
    end_taken(nccl);
}

static alnico_status_t look(ncclComm_t nccl, const struct alnico_comm *comm)
{
    ncclResult_t found = ncclSuccess;
    if (!nccl)
        return ALNICO_SUCCESS;
    ncclResult_t result = ncclCommGetAsyncError(nccl, &found);
    if (result == ncclSuccess && (found == ncclSuccess || found == ncclInProgress))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_SYSTEM, "NCCL failed in communicator %d: %s: %s", comm->id,
                     ncclGetErrorString(found ? found : result), ncclGetLastError(nccl));
}

static alnico_status_t nccl_health(alnico_comm_t comm)
{
    struct nccl_state *state = comm->nccl;
    if (!state || !atomic_load_explicit(&state->carried, memory_order_relaxed))
        return ALNICO_SUCCESS;
    pthread_mutex_lock(&state->lock);
    alnico_status_t status = look(state->plain, comm);
    if (status == ALNICO_SUCCESS)
        status = look(state->symmetric, comm);
    pthread_mutex_unlock(&state->lock);
    return status;
}

/* ---- Attaching ---- */

static void say_version(const struct alnico_comm *comm)
{
    int version = 0;
    ncclGetVersion(&version);
    log_write(LOG_INFO, "communicator %d: NCCL %d, built with %d", comm->id, version,
              NCCL_VERSION_CODE);
}

static alnico_status_t make_plain(alnico_comm_t comm, const struct nccl_step *step, ncclComm_t *out)
{
    TRY(nccl_make(comm, step, out));
    if (!*out || comm->size == 1)
        return ALNICO_SUCCESS;
    bool all;
    alnico_status_t status = nccl_connect(comm, step, *out, &all);
    if (!all) {
        ncclCommAbort(*out);
        *out = NULL;
    }
    return status;
}

/* What only NCCL cannot do is no error: the backend is absent from this communicator. */
static alnico_status_t nccl_attach(alnico_comm_t comm, const char *who)
{
    const struct nccl_step step = {who, "this communicator is without NCCL", LOG_WARNING};
    struct nccl_state *state = calloc(1, sizeof *state);
    bool all;
    alnico_status_t mine =
        state ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "no memory for NCCL's state");
    alnico_status_t status = nccl_agree(comm, &step, mine, &all);
    ncclComm_t nccl = NULL;
    if (all)
        status = make_plain(comm, &step, &nccl);
    if (!nccl) {
        free(state);
        return status;
    }
    pthread_mutex_init(&state->lock, NULL);
    state->plain = nccl;
    comm->nccl = state;
    say_version(comm);
    return ALNICO_SUCCESS;
}

static void end(ncclComm_t nccl, bool broken)
{
    if (!nccl)
        return;
    ncclResult_t result = broken ? ncclCommAbort(nccl) : ncclCommDestroy(nccl);
    if (result != ncclSuccess)
        log_write(LOG_WARNING, "NCCL could not end a communicator: %s", ncclGetErrorString(result));
}

static void nccl_detach(alnico_comm_t comm)
{
    struct nccl_state *state = comm->nccl;
    if (!state)
        return;
    bool broken = atomic_load(&comm->latch.status) != ALNICO_SUCCESS;
    end(state->symmetric, broken);
    end(state->plain, broken);
    pthread_mutex_destroy(&state->lock);
    free(state);
    comm->nccl = NULL;
}

/* ---- Starting ---- */

static alnico_status_t launch(alnico_comm_t comm, const struct call *call, bool symmetric,
                              void *stream)
{
    struct nccl_state *state = comm->nccl;
    ncclComm_t nccl = nccl_enter(state, symmetric ? &state->symmetric : &state->plain);
    if (!nccl)
        return error_set(ALNICO_ERROR_ABORTED, "communicator %d was aborted", comm->id);
    ncclRedOp_t op = comm->size == 1 ? ncclSum : ops[call->op];
    alnico_status_t status = nccl_status(
        ncclAllReduce(call->send, call->recv, call->count, types[call->type], op, nccl, stream),
        nccl, "ncclAllReduce");
    nccl_leave(state);
    if (status == ALNICO_ERROR_SYSTEM) /* others may have begun: it cannot be undone */
        comm_latch(comm, status, alnico_error_detail());
    return status;
}

static alnico_status_t nccl_start(alnico_comm_t comm, const struct call *call,
                                  const struct choice *choice, alnico_request_t *request)
{
    struct streamed *op;
    void *stream;
    TRY(streamed_begin(comm, request != NULL, &op, &stream));
    bool symmetric = choice->algorithm == &algorithm_nccl_symmetric;
    alnico_status_t status = call->count ? launch(comm, call, symmetric, stream) : ALNICO_SUCCESS;
    if (status == ALNICO_SUCCESS)
        return streamed_end(comm, op, &backend_nccl, request);
    streamed_cancel(op);
    return status;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const struct backend_ops backend_nccl = {
    .name = "nccl",
    .about = "NCCL " TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR) "." TEXT(
        NCCL_PATCH) " on the communicator's stream",
    .needs = "NCCL, sums, products or averages, or minima or maxima of integers, and for "
             "nccl_symmetric 16- or 32-bit floating sums in registered windows of one host",
    .devices = 1u << ALNICO_DEVICE_CUDA,
    .capturable = true,
    .attach = nccl_attach,
    .detach = nccl_detach,
    .supports = nccl_supports,
    .health = nccl_health,
    .abort = nccl_abort,
    .enroll = nccl_enroll,
    .withdraw = nccl_withdraw,
    .start = nccl_start,
    .join = streamed_join,
    .test = streamed_test,
    .synchronize = streamed_synchronize,
    .release = streamed_release,
};
