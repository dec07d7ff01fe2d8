/*
 * The shared backend on CUDA: GPUs of one host go through host memory that all of them map, where
 * they do not reach each other's and NCCL is not there. A collective is one kernel
 * (shared_cuda/shots.cu), as of the peer backend: nothing waits here, no thread and no copy engine
 * takes part, and a kernel that gives up leaves a word that every later call looks at.
 *
 * The memory is a segment of one part for each rank, pinned once in each process. A GPU keeps its
 * epochs itself.
 */
#include "comm/backends/shared_cuda/shared_cuda.h"
#include "comm/communicator/out_of_band.h"
#include "comm/gpumem/faults.h"
#include "comm/gpumem/map.h"
#include "comm/hostmem/segment.h"
#include "comm/operations/stream_operation.h"

#include "base/datatype.h"
#include "base/log.h"
#include "base/status.h"
#include "device/cuda/driver.h"
#include "device/cuda/parts.h"
#include "device/deferred_free.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The backend's state in a communicator. */
struct shared_state {
    struct segment segment;
    bool pinned;
    char *own; /* in the GPU's memory */
    struct peer_world world;
    struct peer_functions functions;
};

static char *part_of(const struct shared_state *state, int rank)
{
    return (char *)state->segment.base + (size_t)rank * shared_part_bytes(state->segment.size);
}

static struct peer_words *words_of(const struct shared_state *state)
{
    return (struct peer_words *)(void *)(part_of(state, state->segment.rank) + SHARED_AT_WORDS);
}

/* Ranks that are threads of one process share a mapping, which the driver pins once for the
 * process. It is unpinned later (device/deferred_free.h). */
struct pin {
    struct deferred later; /* first */
    struct pin *next;
    struct mapping *mapping;
    void *base;
    int users;
};

static struct {
    pthread_mutex_t lock;
    struct pin *first;
} pins = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct pin **find_pin(const void *base)
{
    struct pin **link = &pins.first;
    while (*link && (*link)->base != base)
        link = &(*link)->next;
    return link;
}

static void unpin(struct deferred *item)
{
    struct pin *pin = (struct pin *)item;
    cudaError_t error;
    RELAXED(error, cudaHostUnregister(pin->base));
    (void)error;
    segment_release(pin->mapping);
    free(pin);
}

static alnico_status_t add_pin(const struct segment *segment)
{
    struct pin *pin = malloc(sizeof *pin);
    if (!pin)
        return error_set(ALNICO_ERROR_MEMORY, "no memory to pin a segment");
    alnico_status_t status =
        cuda_status(cudaHostRegister(segment->base, segment->bytes,
                                     cudaHostRegisterMapped | cudaHostRegisterPortable),
                    "cudaHostRegister");
    if (status != ALNICO_SUCCESS) {
        free(pin);
        return status;
    }
    *pin = (struct pin){.later = {.bytes = segment->bytes, .release = unpin},
                        .next = pins.first,
                        .mapping = segment_hold(segment),
                        .base = segment->base};
    pins.first = pin;
    return ALNICO_SUCCESS;
}

static alnico_status_t pin_segment(const struct segment *segment)
{
    deferred_run();
    pthread_mutex_lock(&pins.lock);
    alnico_status_t status = *find_pin(segment->base) ? ALNICO_SUCCESS : add_pin(segment);
    if (status == ALNICO_SUCCESS)
        (*find_pin(segment->base))->users++;
    pthread_mutex_unlock(&pins.lock);
    return status;
}

static void unpin_segment(void *base)
{
    pthread_mutex_lock(&pins.lock);
    struct pin **link = find_pin(base), *pin = *link;
    bool last = --pin->users == 0;
    if (last)
        *link = pin->next;
    pthread_mutex_unlock(&pins.lock);
    if (last)
        deferred_free(&pin->later);
}

/* The segment's length. */
static size_t shared_bytes(int size)
{
    return (size_t)size * shared_part_bytes(size);
}

static struct shared_state *state_of(const struct alnico_comm *comm)
{
    return comm->state[BACKEND_SHARED];
}

/* Touches this rank's part first, so that its pages are near the rank. */
static alnico_status_t make_own(alnico_comm_t comm, struct shared_state *state)
{
    double timeout = comm->family->settings.timeout;
    state->world =
        (struct peer_world){.rank = comm->rank,
                            .size = comm->size,
                            .most_blocks = comm->limits.blocks,
                            .timeout_ns = timeout < 1e9 ? (uint64_t)(timeout * 1e9) : UINT64_MAX};
    memset(part_of(state, comm->rank), 0, shared_part_bytes(comm->size));
    TRY(cuda_status((cudaError_t)peer_kernels_load(shared_kernels, SHARED_KERNELS, comm->size,
                                                   &state->functions, &state->world.modern),
                    "loading the shared kernels"));
    TRY(comm->device->alloc(SHARED_OWN_BYTES, (void **)&state->own));
    state->world.own = state->own;
    return cuda_status((cudaError_t)peer_scratch_clear(state->own, SHARED_OWN_BYTES, 1),
                       "clearing epochs");
}

static alnico_status_t map_parts(struct shared_state *state)
{
    struct segment *segment = &state->segment;
    TRY(pin_segment(segment));
    state->pinned = true;
    for (int i = 0; i < segment->size; i++)
        TRY(cuda_status(
            cudaHostGetDevicePointer((void **)&state->world.scratch[i], part_of(state, i), 0),
            "cudaHostGetDevicePointer"));
    char *own = state->world.scratch[segment->rank];
    state->world.words = (struct peer_words *)(void *)(own + SHARED_AT_WORDS);
    return ALNICO_SUCCESS;
}

static void state_destroy(alnico_comm_t comm, struct shared_state *state)
{
    if (state->pinned)
        unpin_segment(state->segment.base);
    if (state->own)
        comm->device->free(state->own);
    segment_destroy(&state->segment);
    cudaGetLastError();
    free(state);
}

static alnico_status_t make_all(alnico_comm_t comm, struct shared_state *state, const char *who)
{
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, who);
    alnico_status_t status = state ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "no memory");
    struct segment segment;
    TRY(segment_create(&r.base, status, shared_bytes(comm->size), &segment));
    state->segment = segment;
    TRY(comm_agree_status(comm, who, make_own(comm, state)));
    return comm_agree_status(comm, who, map_parts(state));
}

/* If the machine refuses, the ranks go on without this backend; other errors fail the creation. */
static alnico_status_t shared_attach(alnico_comm_t comm, const char *who)
{
    if (comm->hosts > 1 || comm->size < 2 || comm->size > PEER_GPUS ||
        !comm_take_scratch(comm, "shared",
                           segment_part(shared_bytes(comm->size), comm->size, 0) +
                               SHARED_OWN_BYTES))
        return ALNICO_SUCCESS;
    struct shared_state *state = calloc(1, sizeof *state);
    alnico_status_t status = make_all(comm, state, who);
    if (status == ALNICO_SUCCESS) {
        comm->state[BACKEND_SHARED] = state;
        return ALNICO_SUCCESS;
    }
    if (state)
        state_destroy(comm, state);
    if (status != ALNICO_ERROR_UNSUPPORTED && status != ALNICO_ERROR_SYSTEM)
        return status;
    log_write(comm->rank == 0 ? LOG_WARNING : LOG_DEBUG, "no shared backend: %s",
              alnico_error_detail());
    return ALNICO_SUCCESS;
}

static void shared_detach(alnico_comm_t comm)
{
    if (state_of(comm))
        state_destroy(comm, state_of(comm));
    comm->state[BACKEND_SHARED] = NULL;
}

static void shared_memory(alnico_comm_t comm, alnico_comm_memory_t *sum)
{
    if (!state_of(comm))
        return;
    size_t part = segment_part(shared_bytes(comm->size), comm->size, comm->rank);
    sum->device += SHARED_OWN_BYTES;
    sum->shared += part;
    sum->scratch += SHARED_OWN_BYTES + part;
}

static const struct peer_kernel *kernel_of(const struct algorithm *algorithm)
{
    return &shared_kernels[algorithm == &shared_one_shot ? SHARED_ONE_SHOT : SHARED_TWO_SHOT];
}

static bool shared_supports(alnico_comm_t comm, const struct call *call,
                            const struct algorithm *algorithm)
{
    if (!state_of(comm) || !call)
        return state_of(comm) != NULL;
    return call->collective == ALNICO_ALLREDUCE &&
           peer_kernel_fits(kernel_of(algorithm), &state_of(comm)->world,
                            call->count * datatype_bytes(call->type));
}

static alnico_status_t shared_launch(alnico_comm_t comm, const struct call *call,
                                     const struct choice *choice, void *stream)
{
    const struct shared_state *state = state_of(comm);
    const struct peer_kernel *kernel = kernel_of(choice->algorithm);
    struct peer_arguments a;
    if (call->count == 0)
        return ALNICO_SUCCESS;
    a.world = state->world;
    a.send = call->send;
    a.recv = call->recv;
    a.bytes = call->count * datatype_bytes(call->type);
    a.type = (int32_t)call->type;
    a.op = (int32_t)call->op;
    a.kernel = (int32_t)(kernel - shared_kernels);
    a.root = 0;
    return peer_call_launch(&state->functions, kernel, &a, choice->blocks, stream);
}

static alnico_status_t shared_health(alnico_comm_t comm)
{
    return state_of(comm)
               ? peer_faults_look(comm, words_of(state_of(comm)), shared_kernels, SHARED_KERNELS)
               : ALNICO_SUCCESS;
}

/* Unless there is a report already. */
static void post_report(char *part, uint32_t what)
{
    uint32_t nothing = 0;
    atomic_compare_exchange_strong((_Atomic uint32_t *)(void *)(part + PEER_AT_REPORT), &nothing,
                                   what);
}

/* This rank's kernels see its own word; those of the others, which may wait for a kernel that this
 * rank never launches, a report in their parts. */
static void shared_abort(alnico_comm_t comm)
{
    struct shared_state *state = state_of(comm);
    if (!state)
        return;
    *(volatile uint32_t *)&words_of(state)->abort = 1;
    for (int i = 0; i < comm->size; i++)
        if (i != comm->rank)
            post_report(part_of(state, i), PEER_REPORT(comm->rank, PEER_FAULT_NONE, 0));
}

const struct backend_ops shared_ops = {
    .about = "GPUs of one host load from and store to host memory that all of them map",
    .needs = "2 to 8 ranks of one host; shared_one_shot: a message of 128 KB at most",
    .capturable = true,
    .attach = shared_attach,
    .detach = shared_detach,
    .supports = shared_supports,
    .memory = shared_memory,
    .health = shared_health,
    .abort = shared_abort,
    .start = stream_operation_start,
    .launch = shared_launch,
};
