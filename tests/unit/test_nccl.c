/* How ranks agree on NCCL: over a made-up NCCL that fails where it is told to, every rank has the backend or none has,
 * nothing is left over, and nobody waits. The communicators are the CPU's, whose backends do not matter here; linked
 * with --wrap for the functions below. What the real NCCL does is for tests/gpu. */
#include "comm/backend.h"
#include "comm/nccl_state.h"

#include "device/cuda_driver.h"
#include "ranks.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { RANKS = 3, NOBODY = -1, PAGE = 4096, AREA = 4 * PAGE };

/* ---- The made-up NCCL and CUDA ---- */

struct ncclComm {
    int rank;
};

static int bad_id, bad_init, bad_memset, bad_window; /* the rank at which it fails */
static bool asynchronous_error;
static atomic_int made, aborted, destroyed, windows, calls;
static _Thread_local int me;
static char area[RANKS][AREA] __attribute__((aligned(PAGE)));

ncclResult_t __wrap_ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t __wrap_ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 7, sizeof *id);
    return me == bad_id ? ncclSystemError : ncclSuccess;
}

ncclResult_t __wrap_ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config);
ncclResult_t __wrap_ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    REQUIRE(rank == me && ranks > rank && id.internal[99] == 7 && config->blocking == 1);
    if (rank == bad_init)
        return ncclSystemError;
    *out = malloc(sizeof **out);
    (*out)->rank = rank;
    atomic_fetch_add(&made, 1);
    return ncclSuccess;
}

ncclResult_t __wrap_ncclCommAbort(ncclComm_t nccl);
ncclResult_t __wrap_ncclCommAbort(ncclComm_t nccl)
{
    atomic_fetch_add(&aborted, 1);
    nccl->rank = NOBODY; /* seen by whoever is in it */
    free(nccl);
    return ncclSuccess;
}

ncclResult_t __wrap_ncclCommDestroy(ncclComm_t nccl);
ncclResult_t __wrap_ncclCommDestroy(ncclComm_t nccl)
{
    atomic_fetch_add(&destroyed, 1);
    free(nccl);
    return ncclSuccess;
}

ncclResult_t __wrap_ncclCommGetAsyncError(ncclComm_t nccl, ncclResult_t *found);
ncclResult_t __wrap_ncclCommGetAsyncError(ncclComm_t nccl, ncclResult_t *found)
{
    *found = asynchronous_error && nccl->rank == 1 ? ncclRemoteError : ncclSuccess;
    return ncclSuccess;
}

/* Takes its time, so that aborts meet it. */
ncclResult_t __wrap_ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t nccl, cudaStream_t stream);
ncclResult_t __wrap_ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t nccl, cudaStream_t stream)
{
    (void)send, (void)recv, (void)stream;
    REQUIRE(nccl->rank == me && count > 0 && type == ncclFloat32 && op == ncclSum);
    nanosleep(&(struct timespec){0, 200000}, NULL);
    REQUIRE(nccl->rank == me);
    atomic_fetch_add(&calls, 1);
    return ncclSuccess;
}

ncclResult_t __wrap_ncclCommWindowRegister(ncclComm_t nccl, void *memory, size_t bytes,
                                           ncclWindow_t *out, int flags);
ncclResult_t __wrap_ncclCommWindowRegister(ncclComm_t nccl, void *memory, size_t bytes,
                                           ncclWindow_t *out, int flags)
{
    REQUIRE(nccl->rank == me && bytes > 0 && flags == NCCL_WIN_COLL_SYMMETRIC);
    if (me == bad_window)
        return ncclSystemError;
    *out = memory;
    atomic_fetch_add(&windows, 1);
    return ncclSuccess;
}

ncclResult_t __wrap_ncclCommWindowDeregister(ncclComm_t nccl, ncclWindow_t window);
ncclResult_t __wrap_ncclCommWindowDeregister(ncclComm_t nccl, ncclWindow_t window)
{
    REQUIRE(nccl->rank == me && window != NULL);
    atomic_fetch_sub(&windows, 1);
    return ncclSuccess;
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
    bad_id = bad_init = bad_memset = bad_window = NOBODY;
    asynchronous_error = false;
    atomic_store(&made, 0);
    atomic_store(&aborted, 0);
    atomic_store(&destroyed, 0);
    atomic_store(&windows, 0);
    atomic_store(&calls, 0);
}

static alnico_comm_t attach(struct rank *rank, alnico_status_t expected)
{
    me = rank->rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    REQUIRE_STATUS(backend_nccl.attach(comm, "test"), expected);
    return comm;
}

static void detach(struct rank *rank, alnico_comm_t comm)
{
    backend_nccl.detach(comm);
    REQUIRE(!comm->nccl);
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void run(int size, void (*body)(struct rank *))
{
    ranks_run(size, body, NULL);
    assert_int_equal(atomic_load(&made), atomic_load(&aborted) + atomic_load(&destroyed));
    assert_int_equal(atomic_load(&windows), 0);
}

static alnico_status_t start(alnico_comm_t comm, size_t count)
{
    struct call call = {ALNICO_ALLREDUCE, area[me], area[me], count, ALNICO_FLOAT32, ALNICO_SUM};
    struct choice choice = {.backend = &backend_nccl, .algorithm = &algorithm_nccl};
    return backend_nccl.start(comm, &call, &choice, NULL);
}

/* ---- Making it ---- */

static void good_body(struct rank *rank)
{
    alnico_comm_t comm = attach(rank, ALNICO_SUCCESS);
    REQUIRE(comm->nccl != NULL);
    ranks_barrier(rank);
    int before = atomic_load(&calls);
    REQUIRE(rank->size == 1 ? before == 0 : before > 0); /* connected */
    ranks_barrier(rank);
    REQUIRE_STATUS(start(comm, 10), ALNICO_SUCCESS);
    REQUIRE_STATUS(start(comm, 0), ALNICO_SUCCESS);
    ranks_barrier(rank);
    REQUIRE(atomic_load(&calls) == before + rank->size);
    detach(rank, comm);
}

static void test_every_rank_has_it(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS; size++) {
        reset();
        run(size, good_body);
        assert_int_equal(atomic_load(&destroyed), size);
    }
}

static void absent_body(struct rank *rank)
{
    alnico_comm_t comm = attach(rank, ALNICO_SUCCESS);
    REQUIRE(!comm->nccl && !backend_nccl.supports(comm, NULL, &algorithm_nccl));
    REQUIRE_STATUS(backend_nccl.health(comm), ALNICO_SUCCESS);
    backend_nccl.abort(comm);
    detach(rank, comm);
}

static void test_one_rank_fails_and_none_has_it(void **state)
{
    (void)state;
    int *const failures[] = {&bad_id, &bad_init, &bad_memset};
    for (int i = 0; i < 3; i++) {
        reset();
        *failures[i] = i; /* only rank 0 makes an identifier */
        run(RANKS, absent_body);
    }
}

/* ---- What it supports ---- */

static void kinds_body(struct rank *rank)
{
    alnico_comm_t comm = attach(rank, ALNICO_SUCCESS);
    struct call call = {.collective = ALNICO_ALLREDUCE, .count = 1, .type = ALNICO_FLOAT16};
    for (int op = 0; op <= ALNICO_BITWISE_XOR; op++) {
        call.op = (alnico_op_t)op;
        bool extreme = op == ALNICO_MINIMUM || op == ALNICO_MAXIMUM;
        REQUIRE(backend_nccl.supports(comm, &call, &algorithm_nccl) ==
                (op <= ALNICO_AVERAGE && !extreme));
        call.type = ALNICO_INT8;
        REQUIRE(backend_nccl.supports(comm, &call, &algorithm_nccl) == (op <= ALNICO_AVERAGE));
        call.type = ALNICO_FLOAT16;
    }
    detach(rank, comm);
}

static void test_minima_of_floats_are_for_others(void **state)
{
    (void)state;
    reset();
    run(1, kinds_body);
}

/* ---- Windows ---- */

static bool symmetric(alnico_comm_t comm, void *memory, size_t bytes)
{
    struct call call = {ALNICO_ALLREDUCE, memory, memory, bytes / 4, ALNICO_FLOAT32, ALNICO_SUM};
    return backend_nccl.supports(comm, &call, &algorithm_nccl_symmetric);
}

static void enroll(alnico_comm_t comm, struct alnico_registration *r, char *base, size_t bytes)
{
    *r = (struct alnico_registration){.comm = comm, .base = base, .bytes = bytes};
    r->next = comm->registrations;
    REQUIRE_STATUS(backend_nccl.enroll(comm, r, "register"), ALNICO_SUCCESS);
    comm->registrations = r;
}

static void windows_body(struct rank *rank)
{
    static char elsewhere[RANKS][64];
    struct alnico_registration whole, part, foreign, odd;
    bool works = rank->size > 1 && bad_window == NOBODY;
    alnico_comm_t comm = attach(rank, ALNICO_SUCCESS);
    enroll(comm, &foreign, elsewhere[me], 64);
    enroll(comm, &odd, area[me] + (me == 1 ? 256 : PAGE), PAGE); /* good on some ranks only */
    REQUIRE(!odd.nccl);
    enroll(comm, &whole, area[me], 2 * PAGE);
    enroll(comm, &part, area[me] + PAGE, PAGE); /* in a window already */
    REQUIRE(!foreign.nccl && !part.nccl && (whole.nccl != NULL) == works);
    REQUIRE(symmetric(comm, area[me] + 64, 2 * PAGE - 64) == works);
    REQUIRE(!symmetric(comm, area[me] + 64, 2 * PAGE));
    REQUIRE(!symmetric(comm, elsewhere[me], 64));
    comm->registrations = NULL;
    backend_nccl.withdraw(comm, &part);
    backend_nccl.withdraw(comm, &whole);
    backend_nccl.withdraw(comm, &foreign);
    REQUIRE(!symmetric(comm, area[me], PAGE));
    detach(rank, comm);
}

static void test_windows(void **state)
{
    (void)state;
    reset();
    run(1, windows_body);
    assert_int_equal(atomic_load(&made), 1);
    run(RANKS, windows_body);
    assert_int_equal(atomic_load(&made), 1 + 2 * RANKS);
    reset();
    bad_window = 1;
    run(RANKS, windows_body);
}

/* ---- Errors ---- */

/* What carried nothing is not looked at. */
static void health_body(struct rank *rank)
{
    alnico_comm_t comm = attach(rank, ALNICO_SUCCESS);
    ranks_barrier(rank);
    if (rank->rank == 0)
        asynchronous_error = true;
    ranks_barrier(rank);
    REQUIRE_STATUS(backend_nccl.health(comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(start(comm, 1), ALNICO_SUCCESS);
    REQUIRE_STATUS(backend_nccl.health(comm), me == 1 ? ALNICO_ERROR_SYSTEM : ALNICO_SUCCESS);
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

static void *abort_it(void *comm)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
    backend_nccl.abort(comm);
    backend_nccl.abort(comm);
    return NULL;
}

/* The handle ends while the rank is in NCCL or is not, and never under its feet. */
static void abort_body(struct rank *rank)
{
    pthread_t thread;
    alnico_comm_t comm = attach(rank, ALNICO_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, abort_it, comm) == 0);
    alnico_status_t status = ALNICO_SUCCESS;
    while (status == ALNICO_SUCCESS) {
        status = start(comm, 1);
        REQUIRE_STATUS(backend_nccl.health(comm), ALNICO_SUCCESS);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rank_has_it),
        cmocka_unit_test(test_one_rank_fails_and_none_has_it),
        cmocka_unit_test(test_minima_of_floats_are_for_others),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_asynchronous_errors),
        cmocka_unit_test(test_abort_by_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
