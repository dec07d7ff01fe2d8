/* The drop-in over the made-up CUDA, beside right results (random_calls.c): errors in NCCL's own codes, groups, creation and
 * end in every way, parts of communicators, sums with factors, and that nothing is left over. */
#include "tests/integrations/nccl/crew.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int creations = 100; /* or the program's argument */

static void one_thread(void (*body)(struct crew *))
{
    crew_run(ONE_THREAD, 2, 1, body);
}

static void threads(int size, void (*body)(struct crew *))
{
    crew_run(THREADS, size, 1, body);
}

/* The call is refused with this result, and the detail says `text`. */
#define REFUSED(result, text, call)                                                                \
    do {                                                                                           \
        REQUIRE((call) == (result));                                                               \
        REQUIRE_DETAIL(text);                                                                      \
    } while (0)
#define REQUIRE_DETAIL(text)                                                                       \
    do {                                                                                           \
        if (!strstr(ncclGetLastError(NULL), text))                                                 \
            crew_fail(text, __FILE__, __LINE__);                                                   \
    } while (0)

/* Each rank has its number plus one; all get the sum. */
static void require_sum(struct crew *crew, ncclComm_t *comms, int count, int sum)
{
    int32_t values[8];
    if (count > 1)
        CHECK(ncclGroupStart());
    for (int i = 0; i < count; i++) {
        int rank = -1;
        CHECK(ncclCommUserRank(comms[i], &rank));
        values[i] = rank + 1;
        CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comms[i],
                            crew->streams[i][0]));
    }
    if (count > 1)
        CHECK(ncclGroupEnd());
    crew_synchronize(crew);
    for (int i = 0; i < count; i++)
        REQUIRE(values[i] == sum);
}

/* ---- Arguments ---- */

static void refuse_arguments(struct crew *crew)
{
    int32_t x[8] = {0}, y[8];
    ncclComm_t comm = crew->comms[0], none = (ncclComm_t)x;
    cudaStream_t s = crew->streams[0][0];
    ncclRedOp_t op;
    int n;
    REFUSED(ncclInvalidArgument, "ncclAllReduce: unknown type 12",
            ncclAllReduce(x, y, 1, (ncclDataType_t)12, ncclSum, comm, s));
    REFUSED(ncclInvalidArgument, "unknown type -1",
            ncclAllReduce(x, y, 1, (ncclDataType_t)-1, ncclSum, comm, s));
    REFUSED(ncclInvalidArgument, "unknown reduction 5",
            ncclAllReduce(x, y, 1, ncclInt32, ncclNumOps, comm, s));
    REFUSED(ncclInvalidArgument, "unknown reduction -3",
            ncclReduceScatter(x, y, 1, ncclInt32, (ncclRedOp_t)-3, comm, s));
    REFUSED(ncclInvalidArgument, "unknown reduction 9", /* a bitwise one of Alnico's */
            ncclAllReduce(x, y, 1, ncclInt32, (ncclRedOp_t)9, comm, s));
    REFUSED(ncclInvalidArgument, "ncclReduce: alnico_reduce: unknown operation 70000",
            ncclReduce(x, y, 1, ncclInt32, (ncclRedOp_t)70000, 0, comm, s));
    REFUSED(ncclInvalidArgument, "ncclBcast: root 7", ncclBcast(x, 1, ncclInt32, 7, comm, s));
    REFUSED(ncclInvalidArgument, "root 2 is not in 0 to 1",
            ncclBroadcast(x, y, 1, ncclInt32, 2, comm, s));
    REFUSED(ncclInvalidArgument, "root -1", ncclReduce(x, y, 1, ncclInt32, ncclSum, -1, comm, s));
    REFUSED(ncclInvalidArgument, "peer 7", ncclSend(x, 1, ncclInt32, 7, comm, s));
    REFUSED(ncclInvalidArgument, "ncclAllGather: alnico_allgather: send is NULL",
            ncclAllGather(NULL, y, 1, ncclInt32, comm, s));
    REFUSED(ncclInvalidArgument, "overlap",
            ncclAllReduce(x, x + 1, 2, ncclInt32, ncclSum, comm, s));
    REFUSED(ncclInvalidArgument, "(nil) is not a communicator",
            ncclAllReduce(x, y, 1, ncclInt32, ncclSum, NULL, s));
    REFUSED(ncclInvalidArgument, "is not a communicator", ncclCommCount(none, &n));
    REFUSED(ncclInvalidArgument, "is not a communicator",
            ncclCommCount((ncclComm_t)((char *)comm + 8), &n));
    REFUSED(ncclInvalidArgument, "the result is NULL", ncclCommCount(comm, NULL));
    REFUSED(ncclInvalidArgument, "the result is NULL", ncclCommGetAsyncError(comm, NULL));
    REFUSED(ncclInvalidArgument, "op is NULL",
            ncclRedOpCreatePreMulSum(NULL, x, ncclInt32, ncclScalarHostImmediate, comm));
    REFUSED(ncclInvalidArgument, "factor is NULL",
            ncclRedOpCreatePreMulSum(&op, NULL, ncclInt32, ncclScalarHostImmediate, comm));
    REFUSED(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: unknown type 12",
            ncclRedOpCreatePreMulSum(&op, x, ncclNumTypes, ncclScalarHostImmediate, comm));
    REFUSED(ncclInvalidArgument, "unknown residence 9",
            ncclRedOpCreatePreMulSum(&op, x, ncclInt32, (ncclScalarResidence_t)9, comm));
    REFUSED(ncclInvalidArgument, "has created no operation 6",
            ncclRedOpDestroy((ncclRedOp_t)6, comm));
    REFUSED(ncclInvalidArgument, "has created no operation 0", ncclRedOpDestroy(ncclSum, comm));
    REFUSED(ncclInvalidArgument, "buffer is NULL", ncclCommRegister(comm, NULL, 8, (void **)&x));
    REFUSED(ncclInvalidUsage, "no group", ncclGroupEnd());
    REFUSED(ncclInvalidArgument, "version is NULL", ncclGetVersion(NULL));
    REFUSED(ncclInvalidArgument, "the id is NULL", ncclGetUniqueId(NULL));
    REQUIRE(strstr(ncclGetLastError(comm), "buffer is NULL")); /* the communicator's last */
    REQUIRE(strcmp(ncclGetErrorString(ncclInvalidUsage),
                   "invalid usage (run with NCCL_DEBUG=WARN for details)") == 0);
    REQUIRE(strcmp(ncclGetErrorString((ncclResult_t)99), "unknown result code") == 0);
    require_sum(crew, crew->comms, crew->count, 3);
}

static void arguments_are_refused(void **state)
{
    (void)state;
    one_thread(refuse_arguments);
}

static void creations_are_refused(void **state)
{
    (void)state;
    ncclUniqueId id, empty = {{0}};
    ncclComm_t comm = (ncclComm_t)&id, comms[2];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int twice[] = {3, 3}, beyond[] = {0, 8};
    CHECK(ncclGetUniqueId(&id));
    REFUSED(ncclInvalidArgument, "comm is NULL", ncclCommInitRank(NULL, 1, id, 0));
    REFUSED(ncclInvalidArgument, "the number of ranks is 0", ncclCommInitRank(&comm, 0, id, 0));
    REFUSED(ncclInvalidArgument, "rank 1 is not in 0 to 0", ncclCommInitRank(&comm, 1, id, 1));
    REQUIRE(comm == NULL);
    REFUSED(ncclInvalidArgument, "ncclCommInitRank: alnico_comm_create_id",
            ncclCommInitRank(&comm, 1, empty, 0));
    config.magic = 1;
    REFUSED(ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER",
            ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.blocking = 2;
    REFUSED(ncclInvalidArgument, "config.blocking is 2",
            ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.minCTAs = 8, config.maxCTAs = 4;
    REFUSED(ncclInvalidArgument, "minCTAs 8 and maxCTAs 4",
            ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    REFUSED(ncclInvalidArgument, "2 ids", ncclCommInitRankScalable(&comm, 1, 0, 2, &id, NULL));
    REFUSED(ncclInvalidUsage, "GPU 3 is there twice", ncclCommInitAll(comms, 2, twice));
    REFUSED(ncclUnhandledCudaError, "GPU 8 is not in 0 to 7", ncclCommInitAll(comms, 2, beyond));
    REFUSED(ncclInvalidArgument, "0 communicators", ncclCommInitAll(comms, 0, NULL));
    CHECK(ncclCommInitRank(&comm, 1, id, 0));
    CHECK(ncclCommDestroy(comm));
    REQUIRE(ncclCommInitRank(&comm, 1, id, 0) == ncclSystemError && comm == NULL);
    CHECK(ncclCommFinalize(NULL));
    CHECK(ncclCommRevoke(NULL, 0));
    CHECK(ncclCommDestroy(NULL));
    CHECK(ncclCommAbort(NULL));
}

/* A communicator that is not to block is there at once; its state says so. */
static void nobody_waits_for_what_is_there(void **state)
{
    (void)state;
    ncclUniqueId id;
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t error = ncclInProgress;
    config.blocking = 0;
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    CHECK(ncclCommGetAsyncError(comm, &error));
    REQUIRE(error == ncclSuccess);
    CHECK(ncclCommFinalize(comm));
    CHECK(ncclCommGetAsyncError(comm, &error));
    REQUIRE(error == ncclSuccess);
    CHECK(ncclCommDestroy(comm));
}

/* ---- Groups ---- */

static void play_groups(struct crew *crew)
{
    int32_t x[2] = {1, 2}, y[2] = {0};
    ncclComm_t *comms = crew->comms;
    /* An error inside is the end's, and nothing of the group happens. */
    CHECK(ncclGroupStart());
    CHECK(ncclAllReduce(&x[0], &y[0], 1, ncclInt32, ncclSum, comms[0], NULL));
    REQUIRE(ncclAllReduce(&x[1], &y[1], 1, ncclInt32, ncclSum, NULL, NULL) == ncclInvalidArgument);
    CHECK(ncclAllReduce(&x[1], &y[1], 1, ncclInt32, ncclSum, comms[1], NULL));
    REFUSED(ncclInvalidArgument, "(nil) is not a communicator", ncclGroupEnd());
    REQUIRE(y[0] == 0 && y[1] == 0);
    /* Groups are nested, and the default streams are those of the thread's GPU. */
    CHECK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        CHECK(ncclGroupStart());
        CHECK(ncclSend(&x[i], 1, ncclInt32, 1 - i, comms[i], crew->streams[i][0]));
        CHECK(ncclGroupEnd());
        CHECK(ncclRecv(&y[i], 1, ncclInt32, 1 - i, comms[i], crew->streams[i][1]));
    }
    CHECK(ncclGroupEnd());
    crew_synchronize(crew);
    REQUIRE(y[0] == 2 && y[1] == 1);
    /* There is no estimate, and the group is gone. */
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    CHECK(ncclGroupStart());
    REFUSED(ncclInvalidUsage, "no estimate", ncclGroupSimulateEnd(&info));
    REQUIRE(ncclGroupEnd() == ncclInvalidUsage);
    require_sum(crew, comms, 2, 3);
}

static void groups_are_one(void **state)
{
    (void)state;
    one_thread(play_groups);
}

/* A message that ranks send before they call what the others call first: in a group there is no order. */
static void cross(struct crew *crew)
{
    int32_t x = crew->first + 1, sum = 0, message = 0;
    int other = 1 - crew->first;
    ncclComm_t comm = crew->comms[0];
    cudaStream_t s = crew->streams[0][0];
    CHECK(ncclGroupStart());
    if (crew->first == 0)
        CHECK(ncclAllReduce(&x, &sum, 1, ncclInt32, ncclSum, comm, s));
    CHECK(ncclSend(&x, 1, ncclInt32, other, comm, s));
    CHECK(ncclRecv(&message, 1, ncclInt32, other, comm, s));
    if (crew->first == 1)
        CHECK(ncclAllReduce(&x, &sum, 1, ncclInt32, ncclSum, comm, s));
    CHECK(ncclGroupEnd());
    crew_synchronize(crew);
    REQUIRE(sum == 3 && message == other + 1);
}

static void a_group_has_no_order(void **state)
{
    (void)state;
    threads(2, cross);
}

/* A thread that ends in an open group, and a communicator that ends before its group. */
static void *leave_open(void *argument)
{
    static int32_t x;
    CHECK(ncclGroupStart());
    CHECK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, argument, NULL));
    return NULL;
}

static void a_group_may_be_left_open(void **state)
{
    (void)state;
    ncclComm_t comms[2];
    int32_t x = 1;
    pthread_t thread;
    CHECK(ncclCommInitAll(comms, 2, NULL));
    REQUIRE(pthread_create(&thread, NULL, leave_open, comms[0]) == 0);
    pthread_join(thread, NULL);
    CHECK(ncclGroupStart());
    CHECK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comms[0], NULL));
    CHECK(ncclCommDestroy(comms[0]));
    CHECK(ncclCommDestroy(comms[1]));
    REFUSED(ncclInvalidArgument, "ncclAllReduce: the communicator", ncclGroupEnd());
    CHECK(ncclCommInitAll(comms, 1, NULL));
    CHECK(ncclGroupStart());
    CHECK(ncclCommSplit(comms[0], 0, 0, &comms[1], NULL));
    CHECK(ncclCommAbort(comms[0]));
    REFUSED(ncclInvalidArgument, "ncclCommSplit: the communicator", ncclGroupEnd());
    REQUIRE(comms[1] == NULL);
}

/* ---- Lives ---- */

static void a_destroyed_communicator_is_refused(void **state)
{
    (void)state;
    ncclComm_t comms[3];
    int32_t x = 1;
    int n = 0;
    CHECK(ncclCommInitAll(comms, 3, NULL));
    for (int i = 0; i < 3; i++) {
        int rank = -1, device = -1;
        CHECK(ncclCommUserRank(comms[i], &rank));
        CHECK(ncclCommCuDevice(comms[i], &device));
        CHECK(ncclCommCount(comms[i], &n));
        REQUIRE(rank == i && device == i && n == 3);
    }
    CHECK(ncclCommDestroy(comms[0])); /* the others have not come: nobody waits */
    REFUSED(ncclInvalidArgument, "was destroyed",
            ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comms[0], NULL));
    REFUSED(ncclInvalidArgument, "was destroyed", ncclCommDestroy(comms[0]));
    REFUSED(ncclInvalidArgument, "was destroyed", ncclCommAbort(comms[0]));
    CHECK(ncclCommDestroy(comms[1]));
    CHECK(ncclCommDestroy(comms[2]));
    REFUSED(ncclInvalidArgument, "was destroyed", ncclCommCount(comms[2], &n));
}

static void destroy_with_streams(bool revoked)
{
    ncclComm_t comms[3];
    cudaStream_t streams[3];
    int32_t x[3] = {1, 2, 3};
    CHECK(ncclCommInitAll(comms, 3, NULL));
    CHECK(ncclGroupStart());
    for (int i = 0; i < 3; i++) {
        REQUIRE(cudaStreamCreateWithFlags(&streams[i], 0) == cudaSuccess);
        CHECK(ncclAllReduce(&x[i], &x[i], 1, ncclInt32, ncclSum, comms[i], streams[i]));
    }
    CHECK(ncclGroupEnd());
    if (revoked)
        CHECK(ncclCommRevoke(comms[2], 0));
    for (int i = 2; i >= 0; i--) {
        int before = made_up_streams;
        CHECK(ncclCommDestroy(comms[i]));
        REQUIRE(made_up_current[i] != streams[i]);
        if (i == 2)
            REQUIRE((made_up_streams < before) == revoked); /* that of its own */
        cudaStreamDestroy(streams[i]);
    }
}

/* A rank's stream goes after its destroy and before that of the others. What has failed waits for none. */
static void streams_go_after_a_destroy(void **state)
{
    (void)state;
    destroy_with_streams(false);
    destroy_with_streams(true);
}

static void finalize_them(struct crew *crew)
{
    int32_t x = 1;
    ncclResult_t error = ncclInternalError;
    require_sum(crew, crew->comms, crew->count, 3);
    for (int i = 0; i < crew->count; i++) {
        CHECK(ncclCommFinalize(crew->comms[i]));
        CHECK(ncclCommGetAsyncError(crew->comms[i], &error));
        REQUIRE(error == ncclSuccess);
    }
    REFUSED(ncclInvalidUsage, "was finalized",
            ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, crew->comms[0], NULL));
    REFUSED(ncclInvalidArgument, "was finalized", ncclCommFinalize(crew->comms[0]));
}

static void a_finalized_communicator_starts_nothing(void **state)
{
    (void)state;
    one_thread(finalize_them);
}

/* Rank 0 aborts while rank 1 waits for it: rank 1 hears of it, and both go on. */
static void abort_one(struct crew *crew)
{
    int32_t x = 1;
    ncclResult_t error = ncclSuccess;
    ncclComm_t comm = crew->comms[0];
    if (crew->first == 0) {
        usleep(20000);
        CHECK(ncclCommAbort(comm));
    } else {
        CHECK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, crew->streams[0][0]));
        while (error == ncclSuccess)
            CHECK(ncclCommGetAsyncError(comm, &error));
        REQUIRE(error == ncclRemoteError);
        REQUIRE(strstr(ncclGetLastError(comm), "rank 0"));
        REQUIRE(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, crew->streams[0][0]) ==
                ncclRemoteError);
        CHECK(ncclCommAbort(comm));
    }
    CHECK(ncclGetUniqueId(&(ncclUniqueId){{0}}));
    crew->comms[0] = NULL; /* destroys nothing more */
}

static void an_abort_is_heard_of(void **state)
{
    (void)state;
    threads(2, abort_one);
}

static void abort_group(struct crew *crew)
{
    CHECK(ncclGroupStart());
    for (int i = 0; i < crew->count; i++) {
        CHECK(ncclCommAbort(crew->comms[i]));
        crew->comms[i] = NULL;
    }
    CHECK(ncclGroupEnd());
}

static void several_are_aborted_in_a_group(void **state)
{
    (void)state;
    one_thread(abort_group);
}

/* ---- Parts ---- */

/* Ranks 0 and 2 by falling keys, rank 1 none. */
static void split_them(struct crew *crew)
{
    ncclComm_t parts[3], with[3];
    int count = 0, rank = -1;
    CHECK(ncclGroupStart());
    for (int i = 0; i < crew->count; i++) {
        int own = crew->first + i;
        CHECK(ncclCommSplit(crew->comms[i], own == 1 ? NCCL_SPLIT_NOCOLOR : 5, -own, &parts[i],
                            NULL));
    }
    CHECK(ncclGroupEnd());
    for (int i = 0; i < crew->count; i++) {
        int own = crew->first + i;
        REQUIRE((parts[i] == NULL) == (own == 1));
        if (!parts[i])
            continue;
        CHECK(ncclCommUserRank(parts[i], &rank));
        REQUIRE(rank == (own == 2 ? 0 : 1));
        with[count++] = parts[i];
    }
    if (count)
        require_sum(crew, with, count, 3);
    for (int i = 0; i < count; i++)
        CHECK(ncclCommDestroy(with[i]));
    REFUSED(ncclInvalidArgument, "color -2", ncclCommSplit(crew->comms[0], -2, 0, parts, NULL));
    REFUSED(ncclInvalidArgument, "newcomm is NULL",
            ncclCommSplit(crew->comms[0], 0, 0, NULL, NULL));
}

static void communicators_are_split(void **state)
{
    (void)state;
    crew_run(ONE_THREAD, 3, 1, split_them);
    crew_run(THREADS, 3, 1, split_them);
}

/* Without rank 1, from a communicator that works, and then rank 0 alone from one that is revoked. */
static void shrink_them(struct crew *crew)
{
    int excluded[] = {1, 2}, none = 9;
    ncclComm_t *comms = crew->comms, fewer, fewest;
    if (crew->first == 1) {
        REFUSED(ncclInvalidArgument, "this rank, 1, is excluded",
                ncclCommShrink(comms[0], excluded, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
        return;
    }
    REFUSED(ncclInvalidArgument, "excluded rank 9",
            ncclCommShrink(comms[0], &none, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
    REFUSED(ncclInvalidArgument, "unknown flags 0x4",
            ncclCommShrink(comms[0], excluded, 1, &fewer, NULL, 4));
    CHECK(ncclCommShrink(comms[0], excluded, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
    require_sum(crew, &fewer, 1, 6);
    if (crew->first != 0) {
        CHECK(ncclCommDestroy(fewer));
        return;
    }
    CHECK(ncclCommRevoke(fewer, 0));
    CHECK(ncclCommShrink(fewer, excluded, 2, &fewest, NULL, NCCL_SHRINK_ABORT));
    require_sum(crew, &fewest, 1, 1);
    CHECK(ncclCommDestroy(fewest));
    CHECK(ncclCommDestroy(fewer));
}

static void communicators_shrink(void **state)
{
    (void)state;
    crew_run(PROCESSES, 4, 1, shrink_them);
}

/* Revoked communicators have not failed. They start nothing, and are split by all ranks. */
static void revoke_them(struct crew *crew)
{
    int32_t x = 1;
    ncclComm_t comm = crew->comms[0], part;
    ncclResult_t error = ncclInternalError;
    CHECK(ncclCommRevoke(comm, 0));
    CHECK(ncclCommGetAsyncError(comm, &error));
    REQUIRE(error == ncclSuccess);
    REFUSED(ncclInvalidUsage, "was revoked",
            ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, crew->streams[0][0]));
    REFUSED(ncclInvalidArgument, "was revoked", ncclCommRevoke(comm, 0));
    REFUSED(ncclInvalidArgument, "was revoked", ncclCommFinalize(comm));
    CHECK(ncclCommSplit(comm, crew->first == 1 ? NCCL_SPLIT_NOCOLOR : 0, 0, &part, NULL));
    REQUIRE((part == NULL) == (crew->first == 1));
    if (part)
        require_sum(crew, &part, 1, 3);
    CHECK(ncclCommDestroy(part));
}

static void what_is_revoked_is_split(void **state)
{
    (void)state;
    threads(3, revoke_them);
}

/* ---- Sums with factors ---- */

/* A group keeps what is destroyed in it until its calls have begun. */
static void multiply(struct crew *crew)
{
    double x[2] = {1, 2}, y[2] = {0};
    float factors[2] = {0.5f, 4};
    int before = made_up_factors;
    ncclRedOp_t ops[2], other;
    ncclComm_t *comms = crew->comms;
    CHECK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        double factor = factors[i];
        CHECK(ncclRedOpCreatePreMulSum(&ops[i], &factor, ncclFloat64, ncclScalarHostImmediate,
                                       comms[i]));
        factor = 77; /* it was read */
        CHECK(ncclAllReduce(&x[i], &y[i], 1, ncclFloat64, ops[i], comms[i], crew->streams[i][0]));
        CHECK(ncclRedOpDestroy(ops[i], comms[i]));
    }
    CHECK(ncclGroupEnd());
    crew_synchronize(crew);
    REQUIRE(y[0] == 8.5 && y[1] == 8.5 && made_up_factors == before);
    REFUSED(ncclInvalidArgument, "unknown operation",
            ncclAllReduce(x, y, 1, ncclFloat64, ops[0], comms[0], crew->streams[0][0]));
    CHECK(ncclRedOpCreatePreMulSum(&other, factors, ncclFloat32, ncclScalarDevice, crew->comms[0]));
    REQUIRE(made_up_factors == before + 1 && other != ops[0]);
    REFUSED(ncclInvalidArgument, "type is float64, and operation",
            ncclAllReduce(x, y, 1, ncclFloat64, other, comms[0], crew->streams[0][0]));
    CHECK(ncclRedOpDestroy(other, comms[0]));
    require_sum(crew, comms, 2, 3);
}

static void sums_have_factors(void **state)
{
    (void)state;
    one_thread(multiply);
}

/* ---- Buffers that nothing is in ---- */

/* Without elements, and at ranks that the root does not need them of. */
static void leave_out(struct crew *crew)
{
    int32_t x[2] = {3, 4}, y[2] = {0};
    ncclComm_t comm = crew->comms[0];
    cudaStream_t s = crew->streams[0][0];
    void *root_in = crew->first == 0 ? x : NULL, *root_out = crew->first == 0 ? y : NULL;
    CHECK(ncclAllReduce(NULL, NULL, 0, ncclInt32, ncclSum, comm, s));
    CHECK(ncclReduce(NULL, NULL, 0, ncclInt32, ncclAvg, 1, comm, s));
    CHECK(ncclBcast(NULL, 0, ncclInt32, 1, comm, s));
    CHECK(ncclAllGather(NULL, NULL, 0, ncclInt32, comm, s));
    CHECK(ncclReduceScatter(NULL, NULL, 0, ncclInt32, ncclSum, comm, s));
    CHECK(ncclAlltoAll(NULL, NULL, 0, ncclInt32, comm, s));
    CHECK(ncclGroupStart());
    CHECK(ncclSend(NULL, 0, ncclInt32, 1 - crew->first, comm, s));
    CHECK(ncclRecv(NULL, 0, ncclInt32, 1 - crew->first, comm, s));
    CHECK(ncclGroupEnd());
    CHECK(ncclScatter(root_in, y, 1, ncclInt32, 0, comm, s));
    crew_synchronize(crew);
    REQUIRE(y[0] == 3 + crew->first);
    CHECK(ncclGather(y, root_in, 1, ncclInt32, 0, comm, s));
    CHECK(ncclReduce(x, root_out, 2, ncclInt32, ncclSum, 0, comm, s));
    crew_synchronize(crew);
    REQUIRE(x[0] == 3 && x[1] == 4 && (crew->first || (y[0] == 6 && y[1] == 8)));
    memset(y, 0, sizeof y);
    CHECK(ncclBroadcast(root_in, y, 2, ncclInt32, 0, comm, s));
    crew_synchronize(crew);
    REQUIRE(y[0] == 3 && y[1] == 4);
}

static void some_buffers_are_left_out(void **state)
{
    (void)state;
    threads(2, leave_out);
}

/* ---- Memory ---- */

static void use_windows(struct crew *crew)
{
    void *memory[2], *handle;
    ncclWindow_t windows[2];
    CHECK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        CHECK(ncclMemAlloc(&memory[i], 4096));
        CHECK(ncclCommWindowRegister(crew->comms[i], memory[i], 4096, &windows[i],
                                     NCCL_WIN_COLL_SYMMETRIC));
    }
    CHECK(ncclGroupEnd());
    CHECK(ncclGroupStart());
    CHECK(ncclCommRegister(crew->comms[0], memory[0], 4096, &handle)); /* at once, and alone */
    REQUIRE(handle != NULL);
    for (int i = 0; i < 2; i++)
        CHECK(ncclAllReduce(memory[i], memory[i], 1024, ncclInt32, ncclSum, crew->comms[i], NULL));
    CHECK(ncclGroupEnd());
    REFUSED(ncclInvalidArgument, "is not one of communicator",
            ncclCommDeregister(crew->comms[1], handle));
    CHECK(ncclCommDeregister(crew->comms[0], handle));
    REFUSED(ncclInvalidArgument, "was deregistered", ncclCommDeregister(crew->comms[0], handle));
    CHECK(ncclCommDeregister(crew->comms[0], NULL));
    CHECK(ncclGroupStart());
    for (int i = 0; i < 2; i++)
        CHECK(ncclCommWindowDeregister(crew->comms[i], windows[i]));
    CHECK(ncclGroupEnd());
    CHECK(ncclGroupStart());
    CHECK(ncclCommWindowDeregister(crew->comms[1], windows[1]));
    REFUSED(ncclInvalidArgument, "ncclCommWindowDeregister: alnico", ncclGroupEnd());
    REQUIRE(strstr(ncclGetLastError(crew->comms[1]), "was deregistered"));
    for (int i = 0; i < 2; i++)
        CHECK(ncclMemFree(memory[i]));
    REFUSED(ncclInvalidArgument, "the size is 0",
            ncclCommWindowRegister(crew->comms[0], memory, 0, windows, 0));
    REFUSED(ncclInvalidArgument, "unknown flags 0x8",
            ncclCommWindowRegister(crew->comms[0], memory, 8, windows, 8));
    CHECK(ncclMemAlloc(&memory[0], 0));
    CHECK(ncclMemFree(NULL));
    REFUSED(ncclInvalidArgument, "ptr is NULL", ncclMemAlloc(NULL, 8));
}

static void memory_is_registered(void **state)
{
    (void)state;
    one_thread(use_windows);
}

/* ---- Leftovers ---- */

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void create_and_destroy(int times)
{
    for (int i = 0; i < times; i++) {
        ncclComm_t comms[2], parts[2];
        CHECK(ncclCommInitAll(comms, 2, NULL));
        CHECK(ncclGroupStart());
        for (int r = 0; i % 10 == 0 && r < 2; r++)
            CHECK(ncclCommSplit(comms[r], r, 0, &parts[r], NULL));
        CHECK(ncclGroupEnd());
        for (int r = 0; i % 10 == 0 && r < 2; r++)
            CHECK(ncclCommDestroy(parts[r]));
        CHECK(i % 5 ? ncclCommDestroy(comms[1]) : ncclCommAbort(comms[1]));
        CHECK(ncclCommDestroy(comms[0]));
    }
}

static void nothing_is_left_over(void **state)
{
    (void)state;
    create_and_destroy(20);
    malloc_trim(0);
    size_t bytes = mallinfo2().uordblks;
    int streams = made_up_streams, descriptors = open_descriptors();
    create_and_destroy(creations);
    size_t grown = mallinfo2().uordblks > bytes ? mallinfo2().uordblks - bytes : 0;
    printf("%d communicators of 2 ranks: %zu bytes more\n", creations, grown);
    assert_int_equal(made_up_streams, streams);
    assert_in_range(open_descriptors(), 0, descriptors + 4); /* listeners end a little later */
    assert_in_range(grown, 0, 32768);
}

int main(int count, char **arguments)
{
    if (count > 1)
        creations = atoi(arguments[1]);
    mallopt(M_ARENA_MAX, 1); /* all of it is counted */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communicators_shrink), /* forks: before any thread */
        cmocka_unit_test(arguments_are_refused),
        cmocka_unit_test(creations_are_refused),
        cmocka_unit_test(nobody_waits_for_what_is_there),
        cmocka_unit_test(groups_are_one),
        cmocka_unit_test(a_group_has_no_order),
        cmocka_unit_test(a_group_may_be_left_open),
        cmocka_unit_test(a_destroyed_communicator_is_refused),
        cmocka_unit_test(streams_go_after_a_destroy),
        cmocka_unit_test(a_finalized_communicator_starts_nothing),
        cmocka_unit_test(an_abort_is_heard_of),
        cmocka_unit_test(several_are_aborted_in_a_group),
        cmocka_unit_test(communicators_are_split),
        cmocka_unit_test(what_is_revoked_is_split),
        cmocka_unit_test(sums_have_factors),
        cmocka_unit_test(some_buffers_are_left_out),
        cmocka_unit_test(memory_is_registered),
        cmocka_unit_test(nothing_is_left_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
