/* Memory that ranks share without a collective call: every rank goes the same way in every call, whatever the
 * others pass, what is freed is never taken for what has its address now, and nobody waits long. The
 * communicators are the CPU's with a made-up backend that wants registered memory; the host's carries
 * out its calls. */
#include "comm/communicator/comm.h"
#include "comm/communicator/out_of_band.h"
#include "comm/communicator/registration.h"
#include "comm/communicator/sharing.h"

#include "base/status.h"
#include "tests/support/forks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { RANKS = 3, COUNT = 16, AREA = 1024, NOBODY = -1, CALLS = 3000 };

/* ---- The made-up backend ---- */

static const struct algorithm made_direct = {.name = "direct"}, made_plain = {.name = "plain"};

/* What one rank's memory is to the others, and what this rank has done so far. */
struct trial {
    char *bases[RANKS];
};
static _Thread_local int directs, plains, enrolled, withdrawn, refusing = NOBODY;
static _Thread_local bool capture;
static _Thread_local char *addresses[RANKS]; /* the next call's `send` on each rank; NULL: any */

static bool holds(alnico_comm_t comm, const void *memory, size_t bytes)
{
    const struct alnico_registration *r = registration_find(comm, memory, bytes);
    return r && r->state[BACKEND_PEER_CUDA];
}

static bool supports(alnico_comm_t comm, const struct call *call, const struct algorithm *algorithm)
{
    size_t bytes = call ? call->count * sizeof(float) : 0;
    return algorithm == &made_plain || !call ||
           (holds(comm, call->send, bytes) && holds(comm, call->recv, bytes));
}

static bool direct(alnico_comm_t comm, const struct call *call, const struct algorithm *algorithm)
{
    (void)comm;
    return !call || algorithm == &made_direct;
}

static alnico_status_t enroll(alnico_comm_t comm, struct alnico_registration *registration,
                              const char *who)
{
    bool bad = comm->rank == refusing;
    alnico_status_t status = comm_agree_status(
        comm, who,
        bad ? error_set(ALNICO_ERROR_UNSUPPORTED, "this memory cannot be shared") : ALNICO_SUCCESS);
    enrolled++;
    if (status != ALNICO_SUCCESS)
        return status;
    struct trial *trial = calloc(1, sizeof *trial);
    REQUIRE(trial != NULL);
    REQUIRE_STATUS(
        comm_allgather(comm, who, &registration->base, trial->bases, sizeof registration->base),
        ALNICO_SUCCESS);
    registration->state[BACKEND_PEER_CUDA] = trial;
    return ALNICO_SUCCESS;
}

static void withdraw(alnico_comm_t comm, struct alnico_registration *registration)
{
    (void)comm;
    withdrawn += registration->state[BACKEND_PEER_CUDA] != NULL;
    free(registration->state[BACKEND_PEER_CUDA]);
    registration->state[BACKEND_PEER_CUDA] = NULL;
}

static const char *host_algorithm(alnico_collective_t collective)
{
    return collective == ALNICO_ALLREDUCE   ? "recursive_doubling"
           : collective == ALNICO_ALLGATHER ? "ring"
                                            : "pairwise";
}

/* What the backend reaches must be where the ranks have their buffers. */
static void require_addresses(alnico_comm_t comm, const struct call *call)
{
    const struct alnico_registration *r =
        registration_find(comm, call->send, call->count * sizeof(float));
    const struct trial *trial = r->state[BACKEND_PEER_CUDA];
    for (int i = 0; i < RANKS && addresses[i]; i++)
        REQUIRE(trial->bases[i] + ((const char *)call->send - r->base) == addresses[i]);
}

static alnico_status_t start(alnico_comm_t comm, const struct call *call,
                             const struct choice *choice, alnico_request_t *request)
{
    bool is_direct = choice->algorithm == &made_direct;
    const struct choice by_host = {.backend = &backend_host,
                                   .algorithm =
                                       backend_algorithm(&backend_host, (int)call->collective,
                                                         host_algorithm(call->collective)),
                                   .chunk_bytes = CHUNK_BYTES_LEAST};
    REQUIRE(by_host.algorithm != NULL);
    if (is_direct)
        require_addresses(comm, call);
    directs += is_direct;
    plains += !is_direct;
    return backend_host.ops->start(comm, call, &by_host, request);
}

static const struct backend_ops made_ops = {.about = "made up",
                                            .needs = "nothing",
                                            .capturable = true,
                                            .supports = supports,
                                            .enroll = enroll,
                                            .withdraw = withdraw,
                                            .direct = direct,
                                            .start = start};
static const struct backend made = {.name = "made", .ops = &made_ops};

static uint64_t capturing(void *stream)
{
    (void)stream;
    return capture;
}

static struct device_ops device; /* the CPU's, whose streams can be captured */

static void set_row(struct tuning_step *step, bool plain)
{
    const struct tuning_step direct_step = {SIZE_MAX, {&made, &made_direct, CHUNK_BYTES_LEAST, 0}};
    struct tuning_step plain_step = direct_step;
    plain_step.choice.algorithm = &made_plain;
    *step = plain ? plain_step : direct_step;
}

/* For all calls the plain way, and before it for registered buffers the direct one. */
static void set_rows(alnico_comm_t comm, int collective)
{
    for (unsigned modes = 0; modes < MODES; modes++) {
        struct tuning_step *step = comm->tuning.of[collective][modes];
        if (modes & MODE_REGISTERED)
            set_row(step++, false);
        set_row(step++, true);
        step->choice.backend = NULL;
    }
}

static alnico_comm_t over(alnico_comm_t comm)
{
    int count = 0;
    while (comm->backends[count])
        count++;
    comm->backends[count] = &made_ops;
    comm->device = &device;
    set_rows(comm, ALNICO_ALLREDUCE);
    set_rows(comm, ALNICO_ALLGATHER);
    REQUIRE_STATUS(sharing_attach(comm, "alnico_test"), ALNICO_SUCCESS);
    REQUIRE(comm->sharing && sharing_bytes(comm) > 0);
    return comm;
}

/* ---- Calls ---- */

static char areas[RANKS][4 * AREA] __attribute__((aligned(64)));

static void set_addresses(char *at[RANKS])
{
    for (int i = 0; i < RANKS; i++)
        addresses[i] = at ? at[i] : NULL;
}

/* An allreduce in place: whether it went the direct way. The results are right either way. */
static bool reduce(alnico_comm_t comm, void *memory)
{
    float *x = memory;
    int before = directs, all = directs + plains;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(comm->rank + i);
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, x, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(x[i] == (float)(RANKS * (RANKS - 1) / 2 + RANKS * i));
    REQUIRE(directs + plains == all + 1);
    return directs > before;
}

/* A rank that a test's machine holds up for longer than the patience is late: then again. The outcome of each
 * call is the same on all. */
static bool reduces_directly(alnico_comm_t comm, void *memory)
{
    for (int i = 0; i < 20000; i++)
        if (reduce(comm, memory))
            return true;
    return false;
}

static alnico_registration_t enlist(alnico_comm_t comm, void *memory, size_t bytes)
{
    alnico_registration_t registration;
    REQUIRE_STATUS(alnico_comm_register_local(comm, memory, bytes, &registration), ALNICO_SUCCESS);
    return registration;
}

static void unlist(alnico_comm_t comm, alnico_registration_t registration)
{
    REQUIRE_STATUS(alnico_comm_deregister(comm, registration), ALNICO_SUCCESS);
}

static void run(void (*body)(struct rank *))
{
    device = device_cpu;
    device.capturing = capturing;
    ranks_run(RANKS, body, NULL);
}

/* ---- Tests ---- */

/* Each rank registers by itself, elsewhere in its area and another length. */
static void by_itself(struct rank *rank)
{
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    char *at[RANKS];
    for (int i = 0; i < RANKS; i++)
        at[i] = areas[i] + 64 * i + 128;
    REQUIRE(!reduce(comm, at[rank->rank]));
    alnico_registration_t registration =
        enlist(comm, areas[rank->rank] + 64 * rank->rank, AREA - 64 * (size_t)rank->rank);
    set_addresses(at);
    REQUIRE(reduces_directly(comm, at[rank->rank]));
    REQUIRE(reduces_directly(comm, at[rank->rank]));
    REQUIRE(enrolled == 1 && withdrawn == 0);
    unlist(comm, registration);
    REQUIRE(!reduce(comm, at[rank->rank]));
    REQUIRE(alnico_comm_deregister(comm, registration) == ALNICO_ERROR_ARGUMENT);
    alnico_comm_destroy(comm);
    REQUIRE(withdrawn == 1);
}

/* One rank's buffer is not registered, or lies elsewhere in its memory, for as long as it likes. */
static void one_differs(struct rank *rank)
{
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    char *own = areas[rank->rank];
    enlist(comm, own, AREA);
    double begin = ranks_seconds();
    for (int i = 0; i < 20; i++)
        REQUIRE(!reduce(comm, rank->rank == i % RANKS ? own + 2 * AREA : own));
    for (int i = 0; i < 20; i++)
        REQUIRE(!reduce(comm, rank->rank == i % RANKS ? own + 64 : own));
    REQUIRE(ranks_seconds() - begin < 5); /* no deadline */
    REQUIRE(reduces_directly(comm, own));
    alnico_comm_destroy(comm);
}

/* An own block may lie at any place, and in other memory. */
static void own_block(struct rank *rank)
{
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    char *own = areas[rank->rank];
    float *send = (float *)(void *)(own + AREA + 64 * rank->rank), *recv = (float *)(void *)own;
    enlist(comm, own, AREA);
    enlist(comm, own + AREA, AREA);
    for (int i = 0; i < COUNT; i++)
        send[i] = (float)(100 * rank->rank + i);
    for (int i = 0; i < 20000 && directs == 0; i++)
        REQUIRE_STATUS(alnico_allgather(send, recv, COUNT, ALNICO_FLOAT32, comm), ALNICO_SUCCESS);
    REQUIRE(directs == 1 && enrolled == 2);
    for (int i = 0; i < RANKS * COUNT; i++)
        REQUIRE(recv[i] == (float)(100 * (i / COUNT) + i % COUNT));
    alnico_comm_destroy(comm);
    REQUIRE(withdrawn == 2);
}

/* Two pieces of memory hold `send`, and only the older one `recv`: all ranks mean the newer one for `send`, which
 * begins elsewhere on each. */
static void two_hold(struct rank *rank)
{
    char *own = areas[rank->rank], *sends[RANKS];
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    alnico_registration_t all;
    enlist(comm, own, 3 * AREA);
    enlist(comm, own + 64 * rank->rank, AREA);
    REQUIRE(reduces_directly(comm, own + 2 * AREA));
    directs = 0;
    REQUIRE_STATUS(alnico_comm_register(comm, own, AREA, &all), ALNICO_SUCCESS);
    for (int i = 0; i < RANKS; i++)
        sends[i] = areas[i] + 64 * i + 128;
    set_addresses(sends);
    for (int i = 0; i < 20000 && directs == 0; i++)
        REQUIRE_STATUS(alnico_allreduce(sends[rank->rank], own + 2 * AREA, COUNT, ALNICO_FLOAT32,
                                        ALNICO_SUM, comm),
                       ALNICO_SUCCESS);
    REQUIRE(directs == 1 && enrolled == 3);
    alnico_comm_destroy(comm);
}

/* What has been freed is no more, though its address is there again. */
static void address_again(struct rank *rank)
{
    enum { BYTES = 1 << 20 };
    static char *allocated[RANKS];
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    for (int i = 0; i < 3; i++) {
        void *memory;
        REQUIRE_STATUS(alnico_memory_allocate(ALNICO_DEVICE_CPU, BYTES, &memory), ALNICO_SUCCESS);
        allocated[rank->rank] = memory;
        ranks_barrier(rank);
        set_addresses(allocated);
        REQUIRE(reduces_directly(comm, memory));
        REQUIRE(enrolled == i + 1);
        ranks_barrier(rank);
        alnico_memory_free(ALNICO_DEVICE_CPU, memory);
        ranks_barrier(rank); /* the next call of each finds that, in other memory too */
        set_addresses(NULL);
        REQUIRE(!reduce(comm, areas[rank->rank]));
        REQUIRE(withdrawn == i + 1);
    }
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
    REQUIRE(withdrawn == 3);
}

/* One rank frees; the others' memory stays, and what they had mapped does not. */
static void one_frees(struct rank *rank)
{
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    char *own = areas[rank->rank];
    alnico_registration_t registration = enlist(comm, own, AREA);
    for (int i = 0; i < 100; i++) { /* more than there are places in the table */
        REQUIRE(reduces_directly(comm, own));
        REQUIRE(reduces_directly(comm, own));
        REQUIRE(enrolled == i + 1);
        ranks_barrier(rank);
        if (i % RANKS == rank->rank)
            unlist(comm, registration);
        ranks_barrier(rank);
        REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
        REQUIRE(withdrawn == i + 1);
        REQUIRE(!reduce(comm, own));
        if (i % RANKS == rank->rank)
            registration = enlist(comm, own, AREA);
    }
    alnico_comm_destroy(comm);
}

/* More live memory than places: what has none goes the plain way. */
static void too_many(struct rank *rank)
{
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    char *own = areas[rank->rank];
    for (int i = 0; i < 64; i++) {
        enlist(comm, own, AREA);
        REQUIRE(reduces_directly(comm, own));
    }
    enlist(comm, own, AREA);
    for (int i = 0; i < 10; i++)
        REQUIRE(!reduce(comm, own));
    REQUIRE(enrolled == 64);
    alnico_comm_destroy(comm);
    REQUIRE(withdrawn == 64);
}

/* The first call is captured, and a rank comes to it late. */
static void first_captured(struct rank *rank)
{
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    enlist(comm, areas[rank->rank], AREA);
    capture = true;
    if (rank->rank == 1)
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    REQUIRE(reduce(comm, areas[rank->rank]));
    capture = false;
    alnico_comm_destroy(comm);
}

enum { TIMES = 60 };

/* In how many of so many votes the rank has waited in vain; rank 1 comes late to all. */
static int waits(struct rank *rank, alnico_comm_t comm, char *own)
{
    int waits = 0;
    for (int i = 0; i < TIMES; i++) {
        bool agreed;
        const struct sharing_side sides[] = {{own, 64, false}, {own, 64, false}};
        ranks_barrier(rank);
        if (rank->rank == 1)
            nanosleep(&(struct timespec){0, 5000000}, NULL);
        double begin = ranks_seconds();
        REQUIRE(sharing_begin(comm) || i == 0);
        REQUIRE_STATUS(sharing_agree(comm, sides, false, "alnico_test", &agreed), ALNICO_SUCCESS);
        waits += ranks_seconds() - begin > 90e-6;
        REQUIRE(!agreed);
        sharing_end(comm);
        ranks_barrier(rank);
    }
    return rank->rank == 1 ? 1 : waits;
}

/* Not captured, nobody waits for long; and whoever has waited in vain waits less and less often. */
static void late(struct rank *rank)
{
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    char *own = areas[rank->rank];
    enlist(comm, own, AREA);
    int count = waits(rank, comm, own);
    REQUIRE(count > 0 && count < TIMES / 2);
    REQUIRE(reduces_directly(comm, own));
    alnico_comm_destroy(comm);
}

/* Memory of one rank cannot be shared: it is tried once. */
static void refused(struct rank *rank)
{
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    char *own = areas[rank->rank];
    refusing = 1;
    enlist(comm, own, AREA);
    for (int i = 0; i < 20000 && enrolled == 0; i++)
        REQUIRE(!reduce(comm, own));
    REQUIRE(waits(rank, comm, own) < 10);
    REQUIRE(enrolled == 1 && withdrawn == 0);
    refusing = NOBODY;
    enlist(comm, own + AREA, AREA);
    REQUIRE(reduces_directly(comm, own + AREA));
    alnico_comm_destroy(comm);
}

/* Nonblocking calls, forced ones, and reductions that another backend carries out otherwise. */
static void no_part(struct rank *rank)
{
    alnico_request_t request;
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    float *x = (float *)(void *)areas[rank->rank];
    enlist(comm, x, AREA);
    REQUIRE(reduces_directly(comm, x));
    directs = 0;
    REQUIRE_STATUS(
        alnico_iallreduce(ALNICO_IN_PLACE, x, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm, &request),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    comm->forced[ALNICO_ALLREDUCE] = (struct choice){&made, &made_plain, CHUNK_BYTES_LEAST, 0};
    for (int i = 0; i < 5; i++)
        REQUIRE(!reduce(comm, x));
    comm->forced[ALNICO_ALLREDUCE].algorithm = &made_direct;
    REQUIRE(alnico_allreduce(ALNICO_IN_PLACE, x, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm) ==
            ALNICO_ERROR_UNSUPPORTED);
    comm->forced[ALNICO_ALLREDUCE] = (struct choice){0};
    for (unsigned modes = 0; modes < MODES; modes++) {
        struct tuning_step *step = comm->tuning.of[ALNICO_ALLREDUCE][modes];
        step[modes & MODE_REGISTERED ? 1 : 0].choice = (struct choice){
            &backend_host, backend_algorithm(&backend_host, ALNICO_ALLREDUCE, "ring"),
            CHUNK_BYTES_LEAST, 0};
    }
    for (int i = 0; i < 5; i++)
        REQUIRE_STATUS(
            alnico_allreduce(ALNICO_IN_PLACE, x, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm),
            ALNICO_SUCCESS);
    REQUIRE(directs == 0);
    alnico_comm_destroy(comm);
}

static void set_plain_first(alnico_comm_t comm, unsigned modes)
{
    struct tuning_step *step = comm->tuning.of[ALNICO_ALLREDUCE][modes];
    set_row(&step[0], true);
    set_row(&step[1], false);
}

/* Where another way goes before the direct one, nobody votes: for all calls, or for those that are captured. */
static void plain_first(struct rank *rank)
{
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    enlist(comm, areas[rank->rank], AREA);
    set_plain_first(comm, MODE_REGISTERED | MODE_CAPTURED);
    capture = true;
    for (int i = 0; i < 3; i++)
        REQUIRE(!reduce(comm, areas[rank->rank]));
    capture = false;
    set_plain_first(comm, MODE_REGISTERED);
    for (int i = 0; i < 3; i++)
        REQUIRE(!reduce(comm, areas[rank->rank]));
    REQUIRE(enrolled == 0);
    alnico_comm_destroy(comm);
}

static void arguments(struct rank *rank)
{
    alnico_registration_t r = (alnico_registration_t)(void *)rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    char *own = areas[rank->rank];
    REQUIRE(alnico_comm_register_local(comm, own, 64, NULL) == ALNICO_ERROR_ARGUMENT);
    REQUIRE(alnico_comm_register_local(comm, NULL, 64, &r) == ALNICO_ERROR_ARGUMENT && !r);
    REQUIRE(alnico_comm_register_local(comm, own, 0, &r) == ALNICO_ERROR_ARGUMENT && !r);
    REQUIRE(alnico_comm_register_local(NULL, own, 64, &r) == ALNICO_ERROR_ARGUMENT && !r);
    if (rank->rank == 0) /* alone; and what is left the communicator's end removes */
        enlist(comm, own, 64);
    REQUIRE(!comm->sharing); /* nothing on the CPU wants it */
    alnico_comm_destroy(comm);
}

/* Calls at random: in memory that some ranks have registered, each for itself, freed meanwhile and registered anew. All
 * ranks go the same way in each. */
struct ways {
    char way[CALLS];
};

static void random_calls(alnico_comm_t comm, struct ways *ways)
{
    enum { PIECES = 3 };
    unsigned own_seed = 77u + (unsigned)comm->rank, common_seed = 5;
    alnico_registration_t registered[PIECES] = {NULL};
    static _Thread_local char memory[PIECES * AREA] __attribute__((aligned(64)));
    for (int i = 0; i < CALLS; i++) {
        int piece = rand_r(&common_seed) % PIECES, shift = 64 * (rand_r(&common_seed) % 4);
        capture = rand_r(&common_seed) % 50 == 0;
        char *at = memory + piece * AREA + shift;
        if (rand_r(&own_seed) % 20 == 0 && registered[piece]) {
            unlist(comm, registered[piece]);
            registered[piece] = NULL;
        } else if (rand_r(&own_seed) % 4 == 0 && !registered[piece]) {
            registered[piece] = enlist(comm, memory + piece * AREA, AREA);
        }
        if (rand_r(&own_seed) % 100 == 0)
            nanosleep(&(struct timespec){0, 200000}, NULL);
        ways->way[i] = reduce(comm, at);
    }
    capture = false;
}

static void compare_ways(struct rank *rank, const struct ways *ways)
{
    struct ways *all = malloc(RANKS * sizeof *all);
    int count = 0;
    REQUIRE(all != NULL);
    for (int part = 0; part < CALLS; part += 500) { /* as much as a bootstrap of processes takes */
        char parts[RANKS][500];
        REQUIRE(rank->bootstrap.allgather(rank->bootstrap.context, ways->way + part, parts, 500) ==
                0);
        for (int r = 0; r < RANKS; r++)
            memcpy(all[r].way + part, parts[r], 500);
    }
    for (int i = 0; i < CALLS; i++) {
        count += ways->way[i];
        for (int r = 0; r < RANKS; r++)
            REQUIRE(all[r].way[i] == ways->way[i]);
    }
    free(all);
    if (rank->rank == 0)
        print_message("%d of %d calls were direct\n", count, CALLS);
    REQUIRE(count > 0 && count < CALLS);
}

static void at_random(struct rank *rank)
{
    static struct ways ways[RANKS];
    alnico_comm_t comm = over(ranks_comm(rank, NULL));
    random_calls(comm, &ways[rank->rank]);
    compare_ways(rank, &ways[rank->rank]);
    alnico_comm_destroy(comm);
    REQUIRE(withdrawn > 0 && withdrawn <= enrolled);
}

static void at_random_in_processes(struct rank *rank)
{
    static struct ways ways;
    alnico_comm_t comm = over(forks_comm(rank, NULL));
    random_calls(comm, &ways);
    compare_ways(rank, &ways);
    alnico_comm_destroy(comm);
}

#define TEST(NAME)                                                                                 \
    static void test_##NAME(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        run(NAME);                                                                                 \
    }
TEST(by_itself)
TEST(one_differs)
TEST(own_block)
TEST(two_hold)
TEST(address_again)
TEST(one_frees)
TEST(too_many)
TEST(first_captured)
TEST(late)
TEST(refused)
TEST(no_part)
TEST(plain_first)
TEST(arguments)
TEST(at_random)

static void test_processes(void **state)
{
    (void)state;
    device = device_cpu;
    device.capturing = capturing;
    forks_run(RANKS, 1, at_random_in_processes, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),      cmocka_unit_test(test_by_itself),
        cmocka_unit_test(test_one_differs),    cmocka_unit_test(test_own_block),
        cmocka_unit_test(test_two_hold),       cmocka_unit_test(test_address_again),
        cmocka_unit_test(test_one_frees),      cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_first_captured), cmocka_unit_test(test_late),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_no_part),
        cmocka_unit_test(test_plain_first),    cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
