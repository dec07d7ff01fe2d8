/*
 * The peer backend on CUDA: a collective is one kernel that loads from and stores to the other
 * ranks' GPUs, enqueued on the communicator's stream, or for a nonblocking call on one of the
 * library's (operations/stream_operation.c). Nothing waits here. Kernels wait for each other, and
 * one that gives up leaves a word that every later call looks at.
 */
#include "comm/backends/peer_cuda/messages.h"
#include "comm/backends/peer_cuda/peer_cuda.h"
#include "comm/communicator/out_of_band.h"
#include "comm/communicator/registration.h"
#include "comm/gpumem/faults.h"
#include "comm/gpumem/map.h"
#include "comm/operations/stream_operation.h"

#include "base/datatype.h"
#include "base/log.h"
#include "base/status.h"
#include "device/backoff.h"
#include "device/cuda/driver.h"
#include "device/cuda/parts.h"

#include <stdlib.h>

/* The backend's state in a communicator. */
struct peer_cuda_state {
    struct peer_map map;
    struct peer_memory own; /* this rank's scratch */
    size_t scratch_bytes;   /* of it */
    struct peer_share scratch;
    struct peer_words *words; /* mapped host memory */
    struct peer_world world;
    struct peer_functions functions;
    struct peer_messages messages; /* of the newest kernel of messages */
    bool has_sent_messages;
    cudaStream_t signal; /* where an abort tells the others */
    atomic_bool aborted;
};

static struct peer_cuda_state *state_of(const struct alnico_comm *comm)
{
    return comm->state[BACKEND_PEER_CUDA];
}

#define KERNEL(NAME) &peer_cuda_kernels[PEER_CUDA_##NAME]

/* Which kernel carries out a collective by an algorithm. A barrier gathers what nobody looks at. Of
 * messages it is the smaller one: peer_messages_plan chooses. */
static const struct route {
    const struct algorithm *algorithm;
    const struct peer_kernel *kernels[COLLECTIVES];
} routes[] = {
    {&peer_cuda_one_shot_line,
     {[ALNICO_ALLREDUCE] = KERNEL(ONE_SHOT_LINE),
      [ALNICO_BARRIER] = KERNEL(ALLGATHER_LINE),
      [ALNICO_ALLGATHER] = KERNEL(ALLGATHER_LINE),
      [ALNICO_ALLTOALL] = KERNEL(ALLTOALL_LINE),
      [ALNICO_BROADCAST] = KERNEL(BROADCAST_LINE),
      [ALNICO_REDUCE_SCATTER] = KERNEL(REDUCE_SCATTER_LINE)}},
    {&peer_cuda_one_shot, {[ALNICO_ALLREDUCE] = KERNEL(ONE_SHOT)}},
    {&peer_cuda_two_shot_line, {[ALNICO_ALLREDUCE] = KERNEL(TWO_SHOT_LINE)}},
    {&peer_cuda_two_shot_direct, {[ALNICO_ALLREDUCE] = KERNEL(TWO_SHOT_DIRECT)}},
    {&peer_cuda_two_shot_staged, {[ALNICO_ALLREDUCE] = KERNEL(TWO_SHOT_STAGED)}},
    {&peer_cuda_recursive_doubling, {[ALNICO_ALLREDUCE] = KERNEL(RECURSIVE_DOUBLING)}},
    {&peer_cuda_one_shot_direct,
     {[ALNICO_ALLGATHER] = KERNEL(ALLGATHER_DIRECT),
      [ALNICO_ALLTOALL] = KERNEL(ALLTOALL_DIRECT),
      [ALNICO_REDUCE_SCATTER] = KERNEL(REDUCE_SCATTER_DIRECT)}},
    {&peer_cuda_exchange, {[ALNICO_SENDRECV] = KERNEL(MESSAGES_FEW)}},
};

/* The kernel of a call, or where that is NULL, of any call by the algorithm; NULL: none. */
static const struct peer_kernel *kernel_for(const struct call *call,
                                            const struct algorithm *algorithm)
{
    const struct route *route = routes, *end = routes + sizeof routes / sizeof *routes;
    const struct peer_kernel *found = NULL;
    while (route < end && route->algorithm != algorithm)
        route++;
    if (route < end && call)
        return route->kernels[call->collective];
    for (int c = 0; route < end && !found && c < COLLECTIVES; c++)
        found = route->kernels[c];
    return found;
}

static bool uses_lines(const struct peer_kernel *kernel)
{
    return kernel != KERNEL(ONE_SHOT) && !kernel->direct;
}

/* All ranks' memory for this side of their call, if it is registered; otherwise NULL. */
static const struct peer_share *share_of(alnico_comm_t comm, const struct side *side,
                                         const void *memory, alnico_datatype_t type, size_t *offset)
{
    size_t bytes = side_extent(side) * datatype_bytes(type);
    const struct alnico_registration *r = registration_find(comm, memory, bytes);
    if (!r)
        return NULL;
    *offset = (size_t)((const char *)memory - r->base);
    return r->state[BACKEND_PEER_CUDA];
}

/* An alltoall in place would write over blocks that are still to be sent. */
static bool writes_over(const struct call *call)
{
    return call->collective == ALNICO_ALLTOALL && call->send == call->recv;
}

static bool fits_direct(alnico_comm_t comm, const struct call *call)
{
    struct side reads = call_reads(call, comm->rank, comm->size),
                writes = call_writes(call, comm->rank, comm->size);
    size_t offset;
    return !writes_over(call) && share_of(comm, &reads, call->send, call->type, &offset) &&
           share_of(comm, &writes, call->recv, call->type, &offset);
}

/* A function of the call alone where registered memory is all that is missing. */
static bool peer_direct(alnico_comm_t comm, const struct call *call,
                        const struct algorithm *algorithm)
{
    if (!state_of(comm) || !call)
        return state_of(comm) != NULL;
    const struct peer_kernel *kernel = kernel_for(call, algorithm);
    return kernel && kernel->direct && !writes_over(call) &&
           peer_kernel_fits(kernel, &state_of(comm)->world,
                            call->count * datatype_bytes(call->type));
}

static bool peer_supports(alnico_comm_t comm, const struct call *call,
                          const struct algorithm *algorithm)
{
    const struct peer_kernel *kernel = kernel_for(call, algorithm);
    if (!state_of(comm) || !kernel || (uses_lines(kernel) && !state_of(comm)->map.ordered))
        return false;
    if (!call)
        return true;
    int most_blocks = comm->limits.blocks;
    if (call->collective == ALNICO_SENDRECV)
        return (most_blocks == 0 || most_blocks >= peer_messages_blocks_least(comm->size)) &&
               call_own_messages_meet(call, comm->rank);
    return (!kernel->direct || fits_direct(comm, call)) &&
           peer_kernel_fits(kernel, &state_of(comm)->world,
                            call->count * datatype_bytes(call->type));
}

/* A rank's own block counts by its place in everybody's buffer. */
static void find_blocks(const struct alnico_comm *comm, const struct call *call,
                        struct peer_arguments *out)
{
    size_t own = (size_t)comm->rank * out->bytes;
    for (int i = 0; i < comm->size; i++) {
        if (call->collective == ALNICO_REDUCE_SCATTER) {
            out->sends[i] += own;
            out->recvs[i] = call->recv;
        } else {
            out->sends[i] = call->send;
            out->recvs[i] += own;
        }
        if (call->collective == ALNICO_ALLTOALL)
            out->sends[i] += (size_t)i * out->bytes;
    }
}

static void find_buffers(alnico_comm_t comm, const struct call *call, struct peer_arguments *out)
{
    struct side reads = call_reads(call, comm->rank, comm->size),
                writes = call_writes(call, comm->rank, comm->size);
    size_t from = 0, to = 0;
    const struct peer_share *send = share_of(comm, &reads, call->send, call->type, &from);
    const struct peer_share *recv = share_of(comm, &writes, call->recv, call->type, &to);
    for (int i = 0; i < comm->size; i++) {
        out->sends[i] = send->memory[i].at + from;
        out->recvs[i] = recv->memory[i].at + to;
    }
    if (call->collective != ALNICO_ALLREDUCE)
        find_blocks(comm, call, out);
}

/* Every rank's word of a barrier, in place, in its own scratch. */
static struct call barrier_call(const struct alnico_comm *comm)
{
    char *words = state_of(comm)->world.own + PEER_AT_BARRIER;
    return (struct call){.collective = ALNICO_ALLGATHER,
                         .send = words + comm->rank * (int)sizeof(uint64_t),
                         .recv = words,
                         .count = 1,
                         .type = ALNICO_UINT64};
}

static alnico_status_t launch(alnico_comm_t comm, const struct call *call,
                              const struct choice *choice, void *stream)
{
    const struct peer_cuda_state *state = state_of(comm);
    const struct peer_kernel *kernel = kernel_for(call, choice->algorithm);
    struct peer_arguments a;
    if (call->count == 0)
        return ALNICO_SUCCESS;
    a.world = state->world;
    a.send = call->send;
    a.recv = call->recv;
    a.bytes = call->count * datatype_bytes(call->type);
    a.type = (int32_t)call->type;
    a.op = (int32_t)call->op;
    a.kernel = (int32_t)(kernel - peer_cuda_kernels);
    a.root = call->root;
    if (kernel->direct)
        find_buffers(comm, call, &a);
    return peer_call_launch(&state->functions, kernel, &a, choice->blocks, stream);
}

static alnico_status_t launch_messages(alnico_comm_t comm, const struct call *call,
                                       const struct choice *choice, void *stream)
{
    struct peer_cuda_state *state = state_of(comm);
    struct peer_messages *messages = &state->messages;
    struct peer_grid grid;
    if (call->messages_count == 0)
        return ALNICO_SUCCESS;
    messages->group.base =
        (struct peer_arguments){.world = state->world, .send = call->send, .recv = call->recv};
    if (peer_messages_plan(messages, &grid, call->messages, call->messages_count, choice->blocks))
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "a group of %d messages between GPUs; %d are the most in one kernel",
                         call->messages_count, PEER_MESSAGES_MOST);
    int result = peer_kernel_launch(&state->functions, &messages->group.base, &grid, stream);
    state->has_sent_messages = true;
    return cuda_driver_status((CUresult)result, "cuLaunchKernelEx");
}

static alnico_status_t peer_launch(alnico_comm_t comm, const struct call *call,
                                   const struct choice *choice, void *stream)
{
    if (call->collective == ALNICO_SENDRECV)
        return launch_messages(comm, call, choice, stream);
    if (call->collective != ALNICO_BARRIER)
        return launch(comm, call, choice, stream);
    struct call barrier = barrier_call(comm);
    return launch(comm, &barrier, choice, stream);
}

static alnico_status_t peer_health(alnico_comm_t comm)
{
    const struct peer_cuda_state *state = state_of(comm);
    return state ? peer_faults_look(comm, state->words, peer_cuda_kernels, PEER_CUDA_KERNELS)
                 : ALNICO_SUCCESS;
}

/* A rank whose message was not as long as its receive need not have waited for anything since. */
static void peer_listen(alnico_comm_t comm)
{
    struct peer_cuda_state *state = state_of(comm);
    uint32_t report = 0;
    if (!state || !state->has_sent_messages || state->words->fault != PEER_FAULT_NONE)
        return;
    if (cudaMemcpyAsync(&report, state->own.at + PEER_AT_REPORT, sizeof report,
                        cudaMemcpyDeviceToHost, state->signal) != cudaSuccess ||
        cudaStreamSynchronize(state->signal) != cudaSuccess)
        cudaGetLastError();
    if (report == 0)
        return;
    state->words->rank = (uint32_t)PEER_REPORT_BY(report);
    state->words->report = report;
    state->words->kernel = PEER_CUDA_MESSAGES_FEW;
    atomic_thread_fence(memory_order_release);
    *(volatile uint32_t *)&state->words->fault = PEER_FAULT_REPORTED;
}

/* The report for the others. If a kernel found the fault, or got a report, it is the same again,
 * not that this rank gave up. */
static uint32_t own_report(const struct peer_cuda_state *state)
{
    const struct peer_words *words = state->words;
    uint32_t fault = *(const volatile uint32_t *)&words->fault;
    atomic_thread_fence(memory_order_acquire);
    if (fault == PEER_FAULT_REPORTED)
        return words->report;
    bool found = fault != PEER_FAULT_NONE && fault != PEER_FAULT_ABORTED;
    return PEER_REPORT(state->world.rank, found ? fault : PEER_FAULT_NONE, found ? words->rank : 0);
}

/* Copies this rank's report into every other rank's scratch. */
static cudaError_t copy_report(struct peer_cuda_state *state, size_t at)
{
    for (int i = 0; i < state->world.size; i++) {
        cudaError_t error = cudaSuccess;
        if (i != state->world.rank)
            error =
                cudaMemcpyAsync(state->world.scratch[i] + at, &state->words->own_report,
                                sizeof state->words->own_report, cudaMemcpyDefault, state->signal);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

/* This rank's kernels see its own word. The kernels of the others, which may wait for one that this
 * rank never launches, see the report that is copied into their scratch. */
static void peer_abort(alnico_comm_t comm)
{
    struct peer_cuda_state *state = state_of(comm);
    if (!state || atomic_exchange(&state->aborted, true))
        return;
    state->words->own_report = own_report(state);
    *(volatile uint32_t *)&state->words->abort = 1;
    int before = comm_enter(comm);
    if (copy_report(state, PEER_AT_REPORT) != cudaSuccess)
        cudaGetLastError();
    comm_leave(comm, before);
}

/* Memory that its rank frees by itself has to live on while another rank maps it. */
static alnico_status_t check_late(const struct alnico_registration *registration)
{
    struct peer_memory found;
    if (!registration->late || peer_memory_find(registration->base, &found))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_UNSUPPORTED,
                     "memory at %p is not made by cuMemCreate, as alnico_memory_allocate makes it",
                     (void *)registration->base);
}

static alnico_status_t enroll(alnico_comm_t comm, struct alnico_registration *registration,
                              const char *who)
{
    struct peer_share *share = calloc(1, sizeof *share);
    alnico_status_t status = check_late(registration);
    if (!share)
        status = error_set(ALNICO_ERROR_MEMORY, "no memory for a registration");
    status = comm_agree_status(comm, who, status);
    if (status == ALNICO_SUCCESS)
        status = peer_map_share(&state_of(comm)->map, who, registration->base, registration->bytes,
                                share);
    if (status != ALNICO_SUCCESS)
        free(share);
    else
        registration->state[BACKEND_PEER_CUDA] = share;
    return status;
}

/* The calling thread may be capturing a graph, in which nothing of this is. */
static alnico_status_t peer_enroll(alnico_comm_t comm, struct alnico_registration *registration,
                                   const char *who)
{
    alnico_status_t status;
    if (!state_of(comm))
        return ALNICO_SUCCESS;
    RELAXED(status, enroll(comm, registration, who));
    return status;
}

static void peer_withdraw(alnico_comm_t comm, struct alnico_registration *registration)
{
    enum cudaStreamCaptureMode before = cuda_mode_exchange(cudaStreamCaptureModeRelaxed);
    if (registration->state[BACKEND_PEER_CUDA])
        peer_map_unshare(&state_of(comm)->map, registration->state[BACKEND_PEER_CUDA]);
    cuda_mode_exchange(before);
    free(registration->state[BACKEND_PEER_CUDA]);
    registration->state[BACKEND_PEER_CUDA] = NULL;
}

static void peer_memory(alnico_comm_t comm, alnico_comm_memory_t *sum)
{
    const struct peer_cuda_state *state = state_of(comm);
    if (!state)
        return;
    sum->device += state->own.bytes;
    sum->host += sizeof *state->words;
    sum->scratch += state->own.bytes + sizeof *state->words;
}

static alnico_status_t make_words(alnico_comm_t comm, struct peer_cuda_state *state)
{
    TRY(comm->device->pinned_alloc(sizeof *state->words, (void **)&state->words));
    *state->words = (struct peer_words){0};
    return cuda_status(cudaHostGetDevicePointer((void **)&state->world.words, state->words, 0),
                       "cudaHostGetDevicePointer");
}

/* The part that a rank makes by itself. */
static alnico_status_t make_own(alnico_comm_t comm, struct peer_cuda_state *state)
{
    double timeout = comm->family->settings.timeout;
    state->world =
        (struct peer_world){.rank = comm->rank,
                            .size = comm->size,
                            .most_blocks = comm->limits.blocks,
                            .line_bytes = state->world.line_bytes,
                            .timeout_ns = timeout < 1e9 ? (uint64_t)(timeout * 1e9) : UINT64_MAX};
    TRY(cuda_status((cudaError_t)peer_kernels_load(peer_cuda_kernels, PEER_CUDA_KERNELS, comm->size,
                                                   &state->functions, &state->world.modern),
                    "loading the peer kernels"));
    TRY(cuda_status(cudaStreamCreateWithFlags(&state->signal, cudaStreamNonBlocking),
                    "cudaStreamCreateWithFlags"));
    TRY(make_words(comm, state));
    TRY(peer_map_alloc(&state->map, state->scratch_bytes, &state->own));
    return cuda_status((cudaError_t)peer_scratch_clear(state->own.at, state->scratch_bytes, 1),
                       "clearing the scratch");
}

enum { SIGNAL_WAIT_NS = 1000000000 };

static enum wait look_for_signal(void *context)
{
    const struct peer_cuda_state *state = context;
    bool busy = state->signal && cudaStreamQuery(state->signal) == cudaErrorNotReady;
    return busy ? WAIT_IDLE : WAIT_DONE;
}

/* The scratch of a broken communicator may still be written by a rank that has not heard of it:
 * memory that does not outlive its owner by itself is then left alone. */
static void state_destroy(alnico_comm_t comm, struct peer_cuda_state *state)
{
    /* An abort's copies are short; longer is not waited for what may be behind other work. */
    bool settled = wait_until(look_for_signal, state, backoff_now_ns() + SIGNAL_WAIT_NS, true);
    peer_map_unshare(&state->map, &state->scratch);
    if (state->own.mapping || !comm->transport->broken)
        peer_map_free(&state->own);
    if (state->signal)
        cudaStreamDestroy(state->signal);
    if (settled) /* otherwise a copy may still read them */
        comm->device->pinned_free(state->words);
    cudaGetLastError();
    free(state);
}

/* Makes the driver get now what an abort's copies need: kernels may spin later, and it would wait
 * for them. */
static alnico_status_t rehearse(struct peer_cuda_state *state)
{
    TRY(cuda_status(copy_report(state, PEER_AT_NOTHING), "copying into other ranks' scratch"));
    return cuda_status(cudaStreamSynchronize(state->signal), "copying into other ranks' scratch");
}

static alnico_status_t make_all(alnico_comm_t comm, struct peer_cuda_state *state, const char *who)
{
    TRY(comm_agree_status(comm, who, make_own(comm, state)));
    TRY(peer_map_share(&state->map, who, state->own.at, state->scratch_bytes, &state->scratch));
    for (int i = 0; i < comm->size; i++)
        state->world.scratch[i] = state->scratch.memory[i].at;
    state->world.own = state->own.at;
    return comm_agree_status(comm, who, rehearse(state));
}

enum { SCRATCH_UNIT = 2 << 20, HOST_BYTES = sizeof(struct peer_words) }; /* the driver's unit */

/* The longest lines that the limit leaves room for. */
static bool take_scratch(alnico_comm_t comm, struct peer_cuda_state *state)
{
    uint32_t lines = PEER_LINES_BYTES;
    size_t bytes = PEER_SCRATCH_BYTES;
    while (lines > PEER_LINES_LEAST && bytes + SCRATCH_UNIT + HOST_BYTES > comm->scratch_left) {
        lines /= 2;
        bytes = PEER_AT_LINES + 2 * (size_t)lines;
    }
    state->world.line_bytes = lines;
    state->scratch_bytes = bytes;
    return comm_take_scratch(comm, "peer",
                             (bytes + SCRATCH_UNIT - 1) / SCRATCH_UNIT * SCRATCH_UNIT + HOST_BYTES);
}

/* If the machine refuses, the ranks go on without this backend; other errors fail the creation. */
static alnico_status_t peer_attach(alnico_comm_t comm, const char *who)
{
    bool works = false;
    struct peer_cuda_state *state = calloc(1, sizeof *state);
    alnico_status_t status = state ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "no memory");
    status = comm_agree_status(comm, who, status);
    if (status != ALNICO_SUCCESS) {
        free(state);
        return status;
    }
    status = peer_map_init(&state->map, comm, who, &works);
    works = works && take_scratch(comm, state);
    if (status == ALNICO_SUCCESS && works)
        status = make_all(comm, state, who);
    if (status == ALNICO_SUCCESS && works) {
        comm->state[BACKEND_PEER_CUDA] = state;
        return ALNICO_SUCCESS;
    }
    state_destroy(comm, state);
    if (status != ALNICO_ERROR_UNSUPPORTED && status != ALNICO_ERROR_SYSTEM)
        return status;
    log_write(comm->rank == 0 ? LOG_WARNING : LOG_DEBUG, "no peer backend: %s",
              alnico_error_detail());
    return ALNICO_SUCCESS;
}

static void peer_detach(alnico_comm_t comm)
{
    if (state_of(comm))
        state_destroy(comm, state_of(comm));
    comm->state[BACKEND_PEER_CUDA] = NULL;
}

const struct backend_ops peer_cuda_ops = {
    .about = "GPUs of one host load from and store to each other's memory",
    .needs =
        "2 to 8 ranks of one host on GPUs that reach each other; those by the name direct: "
        "buffers registered on this communicator, blocks of a multiple of 16 bytes, and no "
        "alltoall in place; the others: a message that their scratch holds, but for "
        "exchange, which needs messages to the rank itself in the same call as their receive; and, "
        "but for one_shot, NVLink",
    .capturable = true,
    .attach = peer_attach,
    .detach = peer_detach,
    .supports = peer_supports,
    .memory = peer_memory,
    .health = peer_health,
    .listen = peer_listen,
    .abort = peer_abort,
    .enroll = peer_enroll,
    .withdraw = peer_withdraw,
    .direct = peer_direct,
    .start = stream_operation_start,
    .launch = peer_launch,
};
