/* How ranks agree on NCCL: over a made-up NCCL that fails where it is told to, every rank has the
 * backend or none has, nothing is left over, and nobody waits. The communicators are the CPU's,
 * whose backends do not matter here; linked with --wrap for the functions below. What the real NCCL
 * does is for tests/gpu. */
#include "comm/backends/nccl/algorithms.h"
#include "comm/backends/nccl/nccl.h"
#include "comm/communicator/registration.h"

#include "base/status.h"
#include "device/cuda/driver.h"
#include "tests/support/ranks.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 3, NOBODY = -1, EVERYBODY = -2, PAGE = 4096, AREA = 4 * PAGE };

/* ---- The made-up NCCL and CUDA ---- */

struct ncclComm {
    int rank;
};

static int bad_library, bad_id, bad_init, bad_memset, bad_reduce, bad_window,
    bad_send; /* the rank at which it fails */
static bool asynchronous_error;
static atomic_int made, aborted, destroyed, windows, calls;
static int version; /* of NCCL */
static _Thread_local int me = NOBODY;

/* What never ends at a rank, until it is let go. */
enum place { IN_NOTHING, IN_INIT, IN_REDUCE, IN_WINDOW, IN_ABORT };
static enum place stuck;
static int stuck_rank;
static atomic_bool let_go, kernels_end;

static void arrive(enum place place, int rank)
{
    if (me == NOBODY) /* a thread of the library's */
        me = rank;
    while (stuck == place && (rank == stuck_rank || stuck_rank == EVERYBODY) &&
           !atomic_load(&let_go))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}
static char area[RANKS][AREA] __attribute__((aligned(PAGE)));

static ncclResult_t fake_ncclGetVersion(int *out)
{
    *out = version;
    return ncclSuccess;
}

static ncclResult_t fake_ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 7, sizeof *id);
    return me == bad_id ? ncclSystemError : ncclSuccess;
}

static ncclResult_t fake_ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id,
                                                int rank, ncclConfig_t *config)
{
    arrive(IN_INIT, rank);
    REQUIRE(rank == me && ranks > rank && id.internal[99] == 7 && config->blocking == 1);
    if (rank == bad_init)
        return ncclSystemError;
    *out = malloc(sizeof **out);
    (*out)->rank = rank;
    atomic_fetch_add(&made, 1);
    return ncclSuccess;
}

static ncclResult_t fake_ncclCommAbort(ncclComm_t nccl)
{
    arrive(IN_ABORT, nccl->rank);
    atomic_fetch_add(&aborted, 1);
    atomic_store(&kernels_end, true); /* of all ranks, as though the data had come */
    nccl->rank = NOBODY;              /* seen by whoever is in it */
    free(nccl);
    return ncclSuccess;
}

static ncclResult_t fake_ncclCommDestroy(ncclComm_t nccl)
{
    atomic_fetch_add(&destroyed, 1);
    free(nccl);
    return ncclSuccess;
}

static ncclResult_t fake_ncclCommGetAsyncError(ncclComm_t nccl, ncclResult_t *found)
{
    *found = asynchronous_error && nccl->rank == 1 ? ncclRemoteError : ncclSuccess;
    return ncclSuccess;
}

/* Takes its time, so that aborts meet it. */
static ncclResult_t fake_ncclAllReduce(const void *send, void *recv, size_t count,
                                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t nccl,
                                       cudaStream_t stream)
{
    (void)send, (void)recv, (void)stream;
    arrive(IN_REDUCE, nccl->rank);
    REQUIRE(nccl->rank == me && count > 0 && type == ncclFloat32 && op == ncclSum);
    nanosleep(&(struct timespec){0, 200000}, NULL);
    REQUIRE(nccl->rank == me);
    atomic_fetch_add(&calls, 1);
    return me == bad_reduce ? ncclSystemError : ncclSuccess;
}

/* What else connects the ranks: tests/unit/backends/test_nccl_calls.c has the rest. */
static ncclResult_t fake_ncclBroadcast(const void *send, void *recv, size_t count,
                                       ncclDataType_t type, int root, ncclComm_t nccl,
                                       cudaStream_t stream)
{
    (void)send, (void)recv, (void)stream;
    REQUIRE(nccl->rank == me && count > 0 && type == ncclFloat32 && root == 0);
    return ncclSuccess;
}

static ncclResult_t fake_ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                    ncclRedOp_t op, int root, ncclComm_t nccl, cudaStream_t stream)
{
    (void)send, (void)recv, (void)stream;
    REQUIRE(nccl->rank == me && count > 0 && type == ncclFloat32 && op == ncclSum && root == 0);
    return ncclSuccess;
}

static ncclResult_t fake_ncclAllGather(const void *send, void *recv, size_t count,
                                       ncclDataType_t type, ncclComm_t nccl, cudaStream_t stream)
{
    (void)stream;
    REQUIRE(nccl->rank == me && count > 0 && type == ncclFloat32);
    REQUIRE((const float *)send == (float *)recv + (size_t)me * count);
    return ncclSuccess;
}

static ncclResult_t fake_ncclReduceScatter(const void *send, void *recv, size_t count,
                                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t nccl,
                                           cudaStream_t stream)
{
    (void)stream;
    REQUIRE(nccl->rank == me && count > 0 && type == ncclFloat32 && op == ncclSum);
    REQUIRE((const float *)recv == (const float *)send + (size_t)me * count);
    return ncclSuccess;
}

static ncclResult_t fake_ncclGroupStart(void)
{
    return ncclSuccess;
}

static ncclResult_t fake_ncclGroupEnd(void)
{
    return ncclSuccess;
}

static ncclResult_t fake_ncclSend(const void *send, size_t count, ncclDataType_t type, int to,
                                  ncclComm_t nccl, cudaStream_t stream)
{
    (void)send, (void)stream, (void)to;
    arrive(IN_REDUCE, nccl->rank);
    REQUIRE(nccl->rank == me && count == 1 && type == ncclFloat32);
    return me == bad_send ? ncclSystemError : ncclSuccess;
}

static ncclResult_t fake_ncclRecv(void *recv, size_t count, ncclDataType_t type, int from,
                                  ncclComm_t nccl, cudaStream_t stream)
{
    (void)recv, (void)stream, (void)from;
    REQUIRE(nccl->rank == me && count == 1 && type == ncclFloat32);
    return ncclSuccess;
}

static ncclResult_t fake_ncclCommWindowRegister(ncclComm_t nccl, void *memory, size_t bytes,
                                                ncclWindow_t *out, int flags)
{
    arrive(IN_WINDOW, nccl->rank);
    REQUIRE(nccl->rank == me && bytes > 0 && flags == NCCL_WIN_COLL_SYMMETRIC);
    if (me == bad_window)
        return ncclSystemError;
    *out = memory;
    atomic_fetch_add(&windows, 1);
    return ncclSuccess;
}

static ncclResult_t fake_ncclCommWindowDeregister(ncclComm_t nccl, ncclWindow_t window)
{
    REQUIRE(nccl->rank == me && window != NULL);
    atomic_fetch_sub(&windows, 1);
    return ncclSuccess;
}

static const char *fake_ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "made-up error";
}

static const char *fake_ncclGetLastError(ncclComm_t nccl)
{
    (void)nccl;
    return "";
}

const struct nccl_library *__wrap_nccl_library(void);
const struct nccl_library *__wrap_nccl_library(void)
{
    static const struct nccl_library functions = {
        .ncclGetErrorString = fake_ncclGetErrorString,
        .ncclGetLastError = fake_ncclGetLastError,
        .ncclGetVersion = fake_ncclGetVersion,
        .ncclGetUniqueId = fake_ncclGetUniqueId,
        .ncclCommInitRankConfig = fake_ncclCommInitRankConfig,
        .ncclCommAbort = fake_ncclCommAbort,
        .ncclCommDestroy = fake_ncclCommDestroy,
        .ncclCommGetAsyncError = fake_ncclCommGetAsyncError,
        .ncclAllReduce = fake_ncclAllReduce,
        .ncclBroadcast = fake_ncclBroadcast,
        .ncclReduce = fake_ncclReduce,
        .ncclAllGather = fake_ncclAllGather,
        .ncclReduceScatter = fake_ncclReduceScatter,
        .ncclGroupStart = fake_ncclGroupStart,
        .ncclGroupEnd = fake_ncclGroupEnd,
        .ncclSend = fake_ncclSend,
        .ncclRecv = fake_ncclRecv,
        .ncclCommWindowRegister = fake_ncclCommWindowRegister,
        .ncclCommWindowDeregister = fake_ncclCommWindowDeregister,
    };
    if (bad_library == NOBODY || me != bad_library)
        return &functions;
    error_set(ALNICO_ERROR_UNSUPPORTED, "NCCL is not there");
    return NULL;
}

cudaError_t __wrap_cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t __wrap_cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(memory, value, bytes);
    return me == bad_memset ? cudaErrorUnknown : cudaSuccess;
}

static CUresult range(CUdeviceptr *start, size_t *bytes, CUdeviceptr at)
{
    *start = (CUdeviceptr)(uintptr_t)area[me];
    *bytes = AREA;
    return at >= *start && at < *start + AREA ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult retain(CUmemGenericAllocationHandle *out, void *memory)
{
    (void)memory;
    *out = 1;
    return CUDA_SUCCESS;
}

static CUresult properties(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle)
{
    (void)handle;
    out->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    return CUDA_SUCCESS;
}

const struct cuda_driver *__wrap_cuda_driver(void);
const struct cuda_driver *__wrap_cuda_driver(void)
{
    static const struct cuda_driver driver = {
        .cuMemGetAddressRange = range,
        .cuMemRetainAllocationHandle = retain,
        .cuMemGetAllocationPropertiesFromHandle = properties,
        .cuMemRelease = release,
    };
    return &driver;
}

/* ---- Worlds ---- */

static void reset(void)
{
    bad_library = bad_id = bad_init = bad_memset = bad_reduce = bad_window = bad_send = NOBODY;
    stuck = IN_NOTHING;
    version = NCCL_VERSION_CODE;
    atomic_store(&let_go, false);
    atomic_store(&kernels_end, false);
    asynchronous_error = false;
    atomic_store(&made, 0);
    atomic_store(&aborted, 0);
    atomic_store(&destroyed, 0);
    atomic_store(&windows, 0);
    atomic_store(&calls, 0);
}

/* Made, as if a blocking call had asked for it. */
static alnico_comm_t attach(struct rank *rank)
{
    me = rank->rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    REQUIRE_STATUS(nccl_ops.attach(comm, "test"), ALNICO_SUCCESS);
    REQUIRE_STATUS(nccl_ops.prepare(comm, &algorithm_nccl, "test"), ALNICO_SUCCESS);
    REQUIRE(nccl_ops.prepared(comm, &algorithm_nccl));
    return comm;
}

static void detach(struct rank *rank, alnico_comm_t comm)
{
    nccl_ops.detach(comm);
    REQUIRE(!comm->state[BACKEND_NCCL]);
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

/* With a window that a stuck thread may have made late. */
static void run_stuck(int size, void (*body)(struct rank *))
{
    ranks_run(size, body, NULL);
    for (int i = 0; i < 5000 && made != aborted + destroyed; i++) /* by threads that were left */
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_int_equal(atomic_load(&made), atomic_load(&aborted) + atomic_load(&destroyed));
}

static void run(int size, void (*body)(struct rank *))
{
    run_stuck(size, body);
    assert_int_equal(atomic_load(&windows), 0);
}

static alnico_status_t start(alnico_comm_t comm, size_t count)
{
    struct call call = {.collective = ALNICO_ALLREDUCE,
                        .send = area[me],
                        .recv = area[me],
                        .count = count,
                        .type = ALNICO_FLOAT32,
                        .op = ALNICO_SUM};
    struct choice choice = {.backend = &backend_nccl, .algorithm = &algorithm_nccl};
    return nccl_ops.start(comm, &call, &choice, NULL);
}

/* ---- Making it ---- */

/* What malloc has given out, with all ranks at rest. */
static long long heap_in_use(struct rank *rank)
{
    ranks_barrier(rank);
    struct mallinfo2 heap = mallinfo2();
    ranks_barrier(rank);
    return (long long)(heap.uordblks + heap.hblkhd);
}

/* The threads that NCCL is called on come and go too. */
static void many_body(struct rank *rank)
{
    enum { WARM = 4, MANY = 40, SLACK = 16 * MANY };
    long long before = 0;
    for (int i = 0; i < WARM + MANY; i++) {
        if (i == WARM)
            before = heap_in_use(rank);
        alnico_comm_t comm = attach(rank);
        REQUIRE_STATUS(nccl_ops.prepare(comm, &algorithm_nccl_messages, "test"), ALNICO_SUCCESS);
        REQUIRE_STATUS(start(comm, 1), ALNICO_SUCCESS);
        detach(rank, comm);
    }
    long long grown = heap_in_use(rank) - before;
    if (grown > SLACK)
        fprintf(stderr, "rank %d: %lld bytes more after %d communicators\n", rank->rank, grown,
                MANY);
    REQUIRE(ranks_sanitized() || grown <= SLACK);
}

static void test_many_leave_nothing(void **state)
{
    (void)state;
    reset();
    run(2, many_body);
}

/* One rank copies, without NCCL. */
static void good_body(struct rank *rank)
{
    alnico_comm_t comm = attach(rank);
    REQUIRE(comm->state[BACKEND_NCCL] != NULL);
    ranks_barrier(rank);
    int before = atomic_load(&calls);
    REQUIRE(rank->size == 1 ? before == 0 : before > 0); /* connected */
    ranks_barrier(rank);
    REQUIRE_STATUS(start(comm, 10), ALNICO_SUCCESS);
    REQUIRE_STATUS(start(comm, 0), ALNICO_SUCCESS);
    ranks_barrier(rank);
    REQUIRE(atomic_load(&calls) == (rank->size == 1 ? 0 : before + rank->size));
    detach(rank, comm);
}

static void test_every_rank_has_it(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS; size++) {
        reset();
        run(size, good_body);
        assert_int_equal(atomic_load(&destroyed), size == 1 ? 0 : size);
    }
}

static void absent_body(struct rank *rank)
{
    alnico_comm_t comm = attach(rank);
    REQUIRE(!nccl_ops.supports(comm, NULL, &algorithm_nccl));
    REQUIRE_STATUS(nccl_ops.health(comm), ALNICO_SUCCESS);
    nccl_ops.abort(comm);
    detach(rank, comm);
}

static void test_one_rank_fails_and_none_has_it(void **state)
{
    (void)state;
    int *const failures[] = {&bad_id, &bad_init, &bad_memset, &bad_reduce, &bad_library};
    for (int i = 0; i < 5; i++) {
        reset();
        *failures[i] = i % RANKS; /* only rank 0 makes an identifier */
        run(RANKS, absent_body);
    }
}

/* ---- When it is made ---- */

/* The rows of a CUDA communicator, whose memory is the host's. */
static bool capturing;

static uint64_t fake_capturing(void *stream)
{
    (void)stream;
    return capturing;
}

/* The device and its backends, as when a communicator is made. */
static void use_device(alnico_comm_t comm, const struct device_ops *device)
{
    int count = 0;
    comm->device = device;
    for (int b = 0; b < BACKENDS; b++)
        if (backends[b]->ops && backends[b]->devices & 1u << device->kind)
            comm->backends[count++] = backends[b]->ops;
    comm->backends[count] = NULL;
}

static void become_cuda(alnico_comm_t comm, struct device_ops *device)
{
    struct tuning_row rows[] = {{.device = ALNICO_DEVICE_CUDA,
                                 .ranks = RANKS,
                                 .hosts = 1,
                                 .bytes = SIZE_MAX,
                                 .backend = "nccl",
                                 .algorithm = "nccl",
                                 .chunk_bytes = 1024},
                                {.device = ALNICO_DEVICE_CUDA,
                                 .ranks = RANKS,
                                 .hosts = 1,
                                 .bytes = SIZE_MAX,
                                 .backend = "host",
                                 .algorithm = "ring",
                                 .chunk_bytes = 1024}};
    struct tuning tuning = {.rows = rows, .count = 2};
    *device = device_cpu;
    device->kind = ALNICO_DEVICE_CUDA;
    device->capturing = fake_capturing;
    use_device(comm, device);
    tuning_steps_finish(&comm->tuning);
    REQUIRE_STATUS(tuning_steps_init(&comm->tuning, &tuning, ALNICO_DEVICE_CUDA, comm->size, 1),
                   ALNICO_SUCCESS);
}

static alnico_status_t sum(alnico_comm_t comm, alnico_request_t *request)
{
    float *vector = (float *)area[me];
    if (request)
        return alnico_iallreduce(ALNICO_IN_PLACE, vector, 10, ALNICO_FLOAT32, ALNICO_SUM, comm,
                                 request);
    return alnico_allreduce(ALNICO_IN_PLACE, vector, 10, ALNICO_FLOAT32, ALNICO_SUM, comm);
}

/* Behind barriers, what the ranks have made and called since. */
static void require_counts(struct rank *rank, int made_here, int calls_here)
{
    ranks_barrier(rank);
    REQUIRE(atomic_load(&made) == made_here && atomic_load(&calls) == calls_here);
    ranks_barrier(rank);
}

/* Messages between all pairs are connected apart from the rest, and an abort ends the handle all
 * the same. */
static void pairs_body(struct rank *rank)
{
    alnico_comm_t comm = attach(rank);
    REQUIRE(!nccl_ops.prepared(comm, &algorithm_nccl_messages));
    alnico_status_t expected = bad_send == NOBODY ? ALNICO_SUCCESS : ALNICO_ERROR_SYSTEM;
    REQUIRE_STATUS(nccl_ops.prepare(comm, &algorithm_nccl_messages, "test"), expected);
    REQUIRE(nccl_ops.prepared(comm, &algorithm_nccl_messages));
    REQUIRE_STATUS(alnico_comm_status(comm), expected);
    if (expected == ALNICO_SUCCESS)
        REQUIRE_STATUS(start(comm, 1), ALNICO_SUCCESS);
    detach(rank, comm);
}

static void test_pairs_are_connected_when_wanted(void **state)
{
    (void)state;
    reset();
    run(RANKS, pairs_body);
    assert_int_equal(atomic_load(&made), RANKS);
    assert_int_equal(atomic_load(&destroyed), RANKS);
    reset();
    bad_send = 1;
    run(RANKS, pairs_body);
    assert_int_equal(atomic_load(&aborted), RANKS);
}

/* Only a call that may wait makes NCCL, or one that is captured and that nothing else can do; the others
 * leave it out until then. */
static void lazy_body(struct rank *rank)
{
    static struct device_ops devices[RANKS];
    alnico_request_t request;
    me = rank->rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    REQUIRE_STATUS(nccl_ops.attach(comm, "test"), ALNICO_SUCCESS);
    REQUIRE(nccl_ops.supports(comm, NULL, &algorithm_nccl));
    become_cuda(comm, &devices[me]);
    REQUIRE_STATUS(sum(comm, &request), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    require_counts(rank, 0, 0);
    capturing = true;
    ranks_barrier(rank);
    if (!*(const bool *)
              rank->argument) /* otherwise at the first call: the host's is not capturable */
        capturing = false;
    ranks_barrier(rank);
    REQUIRE_STATUS(sum(comm, NULL), ALNICO_SUCCESS);
    ranks_barrier(rank);
    capturing = false;
    int before = atomic_load(&calls);
    require_counts(rank, RANKS, before);
    REQUIRE_STATUS(sum(comm, NULL), ALNICO_SUCCESS);
    capturing = true;
    REQUIRE_STATUS(sum(comm, NULL), ALNICO_SUCCESS);
    require_counts(rank, RANKS, before + 2 * RANKS);
    capturing = false;
    use_device(comm, &device_cpu);
    detach(rank, comm);
}

static void test_a_blocking_or_captured_call_makes_it(void **state)
{
    (void)state;
    for (int captured = 0; captured < 2; captured++) {
        bool argument = captured;
        reset();
        ranks_run(RANKS, lazy_body, &argument);
    }
}

static void forced_body(struct rank *rank)
{
    static struct device_ops devices[RANKS];
    me = rank->rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    REQUIRE_STATUS(nccl_ops.attach(comm, "test"), ALNICO_SUCCESS);
    become_cuda(comm, &devices[me]);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "ring"), ALNICO_SUCCESS);
    ranks_barrier(rank);
    REQUIRE(atomic_load(&made) == 0);
    ranks_barrier(rank);
    alnico_status_t expected = bad_init == NOBODY ? ALNICO_SUCCESS : ALNICO_ERROR_UNSUPPORTED;
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "nccl"), expected);
    use_device(comm, &device_cpu);
    detach(rank, comm);
}

static void test_a_forced_name_makes_it(void **state)
{
    (void)state;
    reset();
    run(RANKS, forced_body);
    assert_int_equal(atomic_load(&made), RANKS);
    reset();
    bad_init = 1;
    run(RANKS, forced_body);
}

/* Registering as much as the table gives to NCCL, for graphs that are captured next; and nobody
 * else being there. */
static void ahead_body(struct rank *rank)
{
    static struct device_ops devices[RANKS];
    struct alnico_registration r;
    me = rank->rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    void *peer = comm->state[BACKEND_PEER];
    if (rank->argument)
        comm->state[BACKEND_PEER] = NULL;
    REQUIRE_STATUS(nccl_ops.attach(comm, "test"), ALNICO_SUCCESS);
    comm->state[BACKEND_PEER] = peer;
    require_counts(rank, rank->argument ? RANKS : 0, atomic_load(&calls));
    become_cuda(comm, &devices[me]);
    r = (struct alnico_registration){.comm = comm, .base = area[me], .bytes = 64};
    REQUIRE_STATUS(nccl_ops.enroll(comm, &r, "register"), ALNICO_SUCCESS);
    ranks_barrier(rank);
    REQUIRE(nccl_ops.prepared(comm, &algorithm_nccl));
    nccl_ops.withdraw(comm, &r);
    use_device(comm, &device_cpu);
    detach(rank, comm);
}

static void test_what_cannot_wait_has_it_ahead(void **state)
{
    (void)state;
    reset();
    run(RANKS, ahead_body);
    reset();
    ranks_run(RANKS, ahead_body, &made);
}

/* ---- Deadlines ---- */

static const double deadline = 0.5;

/* Whoever waits gives up; what was stuck ends by itself once it can. */
static void stuck_body(struct rank *rank)
{
    me = rank->rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    comm->family->settings.timeout = deadline;
    REQUIRE_STATUS(nccl_ops.attach(comm, "test"), ALNICO_SUCCESS);
    ranks_barrier(rank);
    double start_s = ranks_seconds();
    REQUIRE_STATUS(nccl_ops.prepare(comm, &algorithm_nccl, "call"), ALNICO_ERROR_TIMEOUT);
    double waited = ranks_seconds() - start_s;
    ranks_require_detail("did not come");
    REQUIRE(waited < 2 * deadline + 2);
    REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_ERROR_TIMEOUT);
    nccl_ops.abort(comm);
    detach(rank, comm);
    atomic_store(&let_go, true);
}

static void test_making_it_has_a_deadline(void **state)
{
    (void)state;
    static const enum place places[] = {IN_INIT, IN_REDUCE};
    for (int i = 0; i < 2; i++) {
        reset();
        stuck = places[i];
        stuck_rank = 1;
        run(RANKS, stuck_body);
    }
}

/* Who is missing from the beginning is named, and NCCL is not even begun. */
static void missing_body(struct rank *rank)
{
    me = rank->rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    comm->family->settings.timeout = 2; /* long, or a rank that is held up is missing too */
    REQUIRE_STATUS(nccl_ops.attach(comm, "test"), ALNICO_SUCCESS);
    if (me != 1) {
        REQUIRE_STATUS(nccl_ops.prepare(comm, &algorithm_nccl, "call"), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("call: rank 1 did not come");
    }
    ranks_barrier(rank);
    detach(rank, comm);
}

static void test_who_does_not_come_is_named(void **state)
{
    (void)state;
    reset();
    run(RANKS, missing_body);
    assert_int_equal(atomic_load(&made), 0);
}

static void *abort_comm(void *comm)
{
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    REQUIRE_STATUS(alnico_comm_abort(comm), ALNICO_SUCCESS);
    return NULL;
}

/* All ranks are stuck, and the deadline is far away. */
static void freed_body(struct rank *rank)
{
    pthread_t thread;
    me = rank->rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    REQUIRE_STATUS(nccl_ops.attach(comm, "test"), ALNICO_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, abort_comm, comm) == 0);
    REQUIRE_STATUS(nccl_ops.prepare(comm, &algorithm_nccl, "call"), ALNICO_ERROR_ABORTED);
    pthread_join(thread, NULL);
    detach(rank, comm);
    atomic_store(&let_go, true);
}

static void test_an_abort_ends_the_making(void **state)
{
    (void)state;
    reset();
    stuck = IN_INIT;
    stuck_rank = EVERYBODY;
    run(RANKS, freed_body);
}

static void stuck_window_body(struct rank *rank)
{
    struct alnico_registration r;
    alnico_comm_t comm = attach(rank);
    comm->family->settings.timeout = deadline;
    r = (struct alnico_registration){.comm = comm, .base = area[me], .bytes = PAGE};
    REQUIRE_STATUS(nccl_ops.enroll(comm, &r, "register"), ALNICO_ERROR_TIMEOUT);
    nccl_ops.withdraw(comm, &r);
    detach(rank, comm);
    atomic_store(&let_go, true);
}

static void test_windows_have_a_deadline(void **state)
{
    (void)state;
    reset();
    stuck = IN_WINDOW;
    stuck_rank = 2;
    run_stuck(RANKS, stuck_window_body);
}

/* ---- What it supports ---- */

static void kinds_body(struct rank *rank)
{
    alnico_comm_t comm = attach(rank);
    struct call call = {.collective = ALNICO_ALLREDUCE, .count = 1, .type = ALNICO_FLOAT16};
    bool alone = rank->size == 1; /* only copies */
    for (int op = 0; op <= ALNICO_BITWISE_XOR; op++) {
        call.op = (alnico_op_t)op;
        bool extreme = op == ALNICO_MINIMUM || op == ALNICO_MAXIMUM;
        REQUIRE(nccl_ops.supports(comm, &call, &algorithm_nccl) ==
                (alone || (op <= ALNICO_AVERAGE && !extreme)));
        call.type = ALNICO_INT8;
        REQUIRE(nccl_ops.supports(comm, &call, &algorithm_nccl) == (alone || op <= ALNICO_AVERAGE));
        call.type = ALNICO_FLOAT16;
    }
    detach(rank, comm);
}

static void test_minima_of_floats_are_for_others(void **state)
{
    (void)state;
    for (int size = 1; size <= 2; size++) {
        reset();
        run(size, kinds_body);
    }
}

/* ---- Windows ---- */

static bool symmetric(alnico_comm_t comm, void *memory, size_t bytes)
{
    struct call call = {.collective = ALNICO_ALLREDUCE,
                        .send = memory,
                        .recv = memory,
                        .count = bytes / 4,
                        .type = ALNICO_FLOAT32,
                        .op = ALNICO_SUM};
    return nccl_ops.supports(comm, &call, &algorithm_nccl_symmetric);
}

static void enroll(alnico_comm_t comm, struct alnico_registration *r, char *base, size_t bytes)
{
    *r = (struct alnico_registration){.comm = comm, .base = base, .bytes = bytes};
    r->next = comm->registrations;
    REQUIRE_STATUS(nccl_ops.enroll(comm, r, "register"), ALNICO_SUCCESS);
    comm->registrations = r;
}

static void windows_body(struct rank *rank)
{
    static char elsewhere[RANKS][64];
    struct alnico_registration whole, part, foreign, odd;
    bool works = rank->size > 1 && bad_window == NOBODY;
    alnico_comm_t comm = attach(rank);
    enroll(comm, &foreign, elsewhere[me], 64);
    enroll(comm, &odd, area[me] + (me == 1 ? 256 : PAGE), PAGE); /* good on some ranks only */
    REQUIRE(!odd.state[BACKEND_NCCL]);
    enroll(comm, &whole, area[me], 2 * PAGE);
    enroll(comm, &part, area[me] + PAGE, PAGE); /* in a window already */
    REQUIRE(!foreign.state[BACKEND_NCCL] && !part.state[BACKEND_NCCL] &&
            (whole.state[BACKEND_NCCL] != NULL) == works);
    REQUIRE(symmetric(comm, area[me] + 64, 2 * PAGE - 64) == works);
    REQUIRE(!symmetric(comm, area[me] + 64, 2 * PAGE));
    REQUIRE(!symmetric(comm, elsewhere[me], 64));
    comm->registrations = NULL;
    nccl_ops.withdraw(comm, &part);
    nccl_ops.withdraw(comm, &whole);
    nccl_ops.withdraw(comm, &foreign);
    REQUIRE(!symmetric(comm, area[me], PAGE));
    detach(rank, comm);
}

static void test_windows(void **state)
{
    (void)state;
    reset();
    run(1, windows_body);
    assert_int_equal(atomic_load(&made), 0);
    run(RANKS, windows_body);
    assert_int_equal(atomic_load(&made), 2 * RANKS);
    reset();
    bad_window = 1;
    run(RANKS, windows_body);
}

/* A rank's own block lies anywhere in its window: all ranks must decide alike. */
static void own_blocks_body(struct rank *rank)
{
    struct alnico_registration whole;
    alnico_comm_t comm = attach(rank);
    struct call call = {
        .send = area[me] + PAGE + 4 * me, .recv = area[me], .count = 4, .type = ALNICO_FLOAT32};
    enroll(comm, &whole, area[me], 2 * PAGE);
    call.collective = ALNICO_ALLGATHER;
    bool gathers = nccl_ops.supports(comm, &call, &algorithm_nccl_symmetric);
    call.collective = ALNICO_REDUCE_SCATTER;
    call.recv = area[me] + PAGE + 4 * me;
    call.send = area[me];
    bool scatters = nccl_ops.supports(comm, &call, &algorithm_nccl_symmetric);
    REQUIRE(gathers == (version >= 22807) && scatters == gathers);
    comm->registrations = NULL;
    nccl_ops.withdraw(comm, &whole);
    detach(rank, comm);
}

static void test_own_blocks_lie_anywhere(void **state)
{
    (void)state;
    reset();
    run(RANKS, own_blocks_body);
    version = 22803;
    run(RANKS, own_blocks_body);
}

static bool halves(alnico_comm_t comm, alnico_collective_t collective, size_t offset, size_t count)
{
    struct call call = {.collective = collective,
                        .send = area[me] + offset,
                        .recv = area[me] + PAGE + offset,
                        .count = count,
                        .type = me % 2 ? ALNICO_FLOAT16 : ALNICO_BFLOAT16,
                        .op = ALNICO_SUM};
    return nccl_ops.supports(comm, &call, &algorithm_nccl_symmetric);
}

/* Elements of two bytes are read from multiples of four only; an own block may lie anywhere. */
static void halves_body(struct rank *rank)
{
    struct alnico_registration whole;
    alnico_comm_t comm = attach(rank);
    enroll(comm, &whole, area[me], 2 * PAGE);
    for (size_t offset = 0; offset < 8; offset += 2)
        for (size_t count = 1; count < 6; count++) {
            bool vector = offset % 4 == 0, scatters = vector && count % 2 == 0;
            REQUIRE(halves(comm, ALNICO_ALLREDUCE, offset, count) == vector);
            REQUIRE(halves(comm, ALNICO_REDUCE_SCATTER, offset, count) == scatters);
            REQUIRE(!halves(comm, ALNICO_ALLGATHER, offset, count));
        }
    comm->registrations = NULL;
    nccl_ops.withdraw(comm, &whole);
    detach(rank, comm);
}

static void test_halves_are_read_by_words(void **state)
{
    (void)state;
    reset();
    run(RANKS, halves_body);
}

/* ---- Errors ---- */

/* What carried nothing is not looked at. */
static void health_body(struct rank *rank)
{
    alnico_comm_t comm = attach(rank);
    ranks_barrier(rank);
    if (rank->rank == 0)
        asynchronous_error = true;
    ranks_barrier(rank);
    REQUIRE_STATUS(nccl_ops.health(comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(start(comm, 1), ALNICO_SUCCESS);
    REQUIRE_STATUS(nccl_ops.health(comm), me == 1 ? ALNICO_ERROR_SYSTEM : ALNICO_SUCCESS);
    if (me == 1)
        ranks_require_detail("NCCL failed in communicator");
    detach(rank, comm);
}

static void test_asynchronous_errors(void **state)
{
    (void)state;
    reset();
    run(RANKS, health_body);
}

static void *abort_it(void *argument)
{
    alnico_comm_t comm = argument;
    struct report report = {.rank = comm->rank, .status = ALNICO_ERROR_ABORTED};
    nanosleep(&(struct timespec){0, 1000000}, NULL);
    detector_report_failure(&comm->detector, comm->transport, &report);
    nccl_ops.abort(comm);
    nccl_ops.abort(comm);
    return NULL;
}

/* The handle ends while the rank is in NCCL or is not, and never under its feet. */
static void abort_body(struct rank *rank)
{
    pthread_t thread;
    alnico_comm_t comm = attach(rank);
    REQUIRE(pthread_create(&thread, NULL, abort_it, comm) == 0);
    alnico_status_t status = ALNICO_SUCCESS;
    while (status == ALNICO_SUCCESS) {
        status = start(comm, 1);
        REQUIRE_STATUS(nccl_ops.health(comm), ALNICO_SUCCESS);
    }
    REQUIRE(status == ALNICO_ERROR_ABORTED);
    pthread_join(thread, NULL);
    detach(rank, comm);
}

static void test_abort_by_another_thread(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        reset();
        run(RANKS, abort_body);
        assert_int_equal(atomic_load(&aborted), RANKS);
    }
}

/* ---- A kernel that another rank's abort ends well ---- */

static bool event_complete(struct device_event *event)
{
    (void)event;
    return atomic_load(&kernels_end);
}

static alnico_status_t event_record(struct device_event *event, void *stream)
{
    (void)event, (void)stream;
    return ALNICO_SUCCESS;
}

static alnico_status_t event_synchronize(struct device_event *event)
{
    return event_complete(event) ? ALNICO_SUCCESS
                                 : error_set(ALNICO_ERROR_SYSTEM, "the kernel still runs");
}

static void become_gpu(alnico_comm_t comm, struct device_ops *device)
{
    become_cuda(comm, device);
    device->host_accessible = false;
    device->event_complete = event_complete;
    device->event_record = event_record;
    device->event_synchronize = event_synchronize;
}

enum who_ends { DEADLINE, ABORT, SILENT_ABORT };

/* Rank 2 never calls. Rank 0 gives up, or is aborted, by a thread that may send or must not;
 * whoever only sees that its kernel has ended must not take that for data: rank 1, whose own
 * deadline is far. */
static void misled_body(struct rank *rank)
{
    static struct device_ops devices[RANKS];
    pthread_t thread;
    enum who_ends how = *(const enum who_ends *)rank->argument;
    alnico_status_t expected = how == DEADLINE ? ALNICO_ERROR_TIMEOUT : ALNICO_ERROR_ABORTED;
    alnico_comm_t comm = attach(rank);
    become_gpu(comm, &devices[me]);
    comm->family->settings.timeout = 8;
    comm->transport->concurrent = how != SILENT_ABORT;
    ranks_barrier(rank);
    if (me < 2) {
        REQUIRE_STATUS(start(comm, 1), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_SUCCESS);
    }
    ranks_barrier(rank); /* nobody gives up before */
    if (me == 0)
        comm->family->settings.timeout = deadline;
    if (me == 0 && how != DEADLINE)
        REQUIRE(pthread_create(&thread, NULL, abort_comm, comm) == 0);
    if (me < 2) {
        REQUIRE_STATUS(alnico_synchronize(comm), expected);
        if (how == DEADLINE)
            ranks_require_detail(me == 0 ? "did not come within" : "rank 2 did not come");
        else
            ranks_require_detail(me == 0 ? "aborted by this rank 0" : "rank 0 gave up");
        REQUIRE_STATUS(alnico_comm_status(comm), expected);
    }
    if (me == 0 && how != DEADLINE)
        pthread_join(thread, NULL);
    ranks_barrier(rank);
    REQUIRE_STATUS(alnico_comm_status(comm), me < 2 ? expected : ALNICO_SUCCESS);
    use_device(comm, &device_cpu);
    detach(rank, comm);
}

static void test_another_ranks_abort_is_no_success(void **state)
{
    (void)state;
    for (int how = DEADLINE; how <= SILENT_ABORT; how++) {
        enum who_ends argument = (enum who_ends)how;
        reset();
        ranks_run(RANKS, misled_body, &argument);
        assert_int_equal(atomic_load(&made), atomic_load(&aborted) + atomic_load(&destroyed));
    }
}

/* NCCL's abort may wait for what else the GPU runs, and who calls abort may be about to end
 * that. */
static void patient_body(struct rank *rank)
{
    alnico_comm_t comm = attach(rank);
    REQUIRE_STATUS(start(comm, 1), ALNICO_SUCCESS);
    ranks_barrier(rank);
    nccl_ops.abort(comm); /* would wait for ever */
    REQUIRE_STATUS(start(comm, 1), ALNICO_ERROR_ABORTED);
    ranks_barrier(rank);
    REQUIRE(rank->rank != stuck_rank || atomic_load(&aborted) < rank->size);
    ranks_barrier(rank);
    atomic_store(&let_go, true);
    detach(rank, comm);
}

static void test_an_abort_waits_for_nothing(void **state)
{
    (void)state;
    reset();
    stuck = IN_ABORT;
    stuck_rank = 1;
    run(RANKS, patient_body);
    assert_int_equal(atomic_load(&aborted), RANKS);
}

/* What malloc's caches of threads keep looks as if it were in use: glibc reads that it shall have
 * none when it is loaded. */
static void leave_out_caches(char **argv)
{
    if (!getenv("GLIBC_TUNABLES") &&
        setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1) == 0)
        execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    (void)argc;
    leave_out_caches(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rank_has_it),
        cmocka_unit_test(test_many_leave_nothing),
        cmocka_unit_test(test_one_rank_fails_and_none_has_it),
        cmocka_unit_test(test_pairs_are_connected_when_wanted),
        cmocka_unit_test(test_a_blocking_or_captured_call_makes_it),
        cmocka_unit_test(test_a_forced_name_makes_it),
        cmocka_unit_test(test_what_cannot_wait_has_it_ahead),
        cmocka_unit_test(test_making_it_has_a_deadline),
        cmocka_unit_test(test_who_does_not_come_is_named),
        cmocka_unit_test(test_an_abort_ends_the_making),
        cmocka_unit_test(test_windows_have_a_deadline),
        cmocka_unit_test(test_minima_of_floats_are_for_others),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_own_blocks_lie_anywhere),
        cmocka_unit_test(test_halves_are_read_by_words),
        cmocka_unit_test(test_asynchronous_errors),
        cmocka_unit_test(test_abort_by_another_thread),
        cmocka_unit_test(test_another_ranks_abort_is_no_success),
        cmocka_unit_test(test_an_abort_waits_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
