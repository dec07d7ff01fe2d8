/* Messages of a device's memory: the scratch that algorithms need there, calls of many chunks, what
 * the table chooses, and a rank that does not come. On a made-up device, over a made-up transport
 * that takes its addresses; alnico-conformance --device aware has every operation. */
#include "comm/backends/host/host.h"
#include "comm/operations/pipeline.h"

#include "base/datatype.h"
#include "tests/support/far.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/patience.h"

/* ---- Scratch ---- */

enum { RANKS = 13, AWKWARD = 3 /* elements more than a multiple */ };

/* What the busiest rank needs beside its buffers, in elements: arrivals, WORK and a copy of the
 * input. */
static size_t needed(const struct call *call, const struct algorithm *algorithm, int size,
                     int hosts, size_t count)
{
    uint64_t identities[RANKS];
    size_t most = 0;
    for (int r = 0; r < size; r++)
        identities[r] = (uint64_t)(r * hosts / size);
    struct host_map *map = host_map_create(identities, size);
    assert_non_null(map);
    for (int rank = 0; rank < size; rank++) {
        struct shape shape = {.rank = rank,
                              .size = size,
                              .root = call->root,
                              .map = map,
                              .count = count,
                              .stride = count};
        size_t arrivals = algorithm->arrivals ? algorithm->arrivals(&shape) : count;
        size_t work = algorithm->work ? algorithm->work(&shape) : 0;
        bool copies = call->collective == ALNICO_ALLTOALL ||
                      (call_reduces(call) && call->collective != ALNICO_ALLREDUCE);
        struct side reads = call_reads(call, rank, size);
        size_t shadow = copies ? (size_t)reads.blocks * count : 0;
        size_t all = (call_reduces(call) ? arrivals : 0) + work + shadow;
        most = all > most ? all : most;
    }
    free(map);
    return most;
}

static void check_scratch(struct call *call, const struct algorithm *algorithm, int size)
{
    size_t count = pipeline_arithmetic_count(call, algorithm, size);
    assert_true(count > 0);
    if (count == SIZE_MAX)
        count = (size_t)1 << 20;
    call->count = count;
    for (int hosts = 1; hosts <= size; hosts++)
        for (size_t less = 0; less <= AWKWARD; less++) {
            size_t bytes = 64 + datatype_bytes(call->type) *
                                    needed(call, algorithm, size, hosts, count - less);
            if (bytes > ARITHMETIC_CHUNK_BYTES)
                fail_msg("%s of %d ranks on %d hosts needs %zu bytes", algorithm->name, size, hosts,
                         bytes);
        }
}

static void scratch_is_enough(void **state)
{
    (void)state;
    int checked = 0;
    for (int c = 0; c < COLLECTIVES; c++) {
        const struct algorithm *const *a = backend_aware.algorithms[c];
        for (; c != ALNICO_SENDRECV && a && *a; a++, checked++)
            for (int size = 1; size <= RANKS; size++)
                for (int root = 0; root < size; root += 1 + size / 3) {
                    struct call call = {.collective = (alnico_collective_t)c,
                                        .count = 1,
                                        .type = ALNICO_FLOAT64,
                                        .op = ALNICO_AVERAGE,
                                        .root = root};
                    if (!call_is_vector(&call))
                        check_scratch(&call, aware_rounds(*a), size);
                }
    }
    assert_true(checked > 10);
}

/* ---- Calls ---- */

struct seat {
    alnico_stream_t stream;
    alnico_comm_t comm;
};

static void seat_open(struct seat *s, struct rank *rank)
{
    REQUIRE_STATUS(alnico_stream_create(&s->stream), ALNICO_SUCCESS);
    s->comm = far_comm(rank, s->stream);
    far_be_aware(s->comm);
    REQUIRE(aware_arithmetic(s->comm) != NULL);
}

static void seat_close(struct seat *s)
{
    alnico_comm_destroy(s->comm);
    alnico_stream_destroy(s->stream);
}

/* More than all chunks in flight have scratch for, each call's input being the result of the one
 * before; pinned memory has no part in it. */
static void run_long(struct rank *rank)
{
    enum { COUNT = 5000001, CALLS = 3 };
    static const char *const algorithms[] = {"aware_recursive_doubling", "aware_ring",
                                             "aware_hierarchical_rabenseifner"};
    struct seat s;
    seat_open(&s, rank);
    int32_t *x = malloc(COUNT * sizeof *x);
    REQUIRE(x != NULL);
    for (int i = 0; i < COUNT; i++)
        x[i] = i % 1000 + rank->rank;
    for (int call = 0; call < CALLS; call++) {
        REQUIRE(far_force(s.comm, ALNICO_ALLREDUCE, algorithms[call]));
        REQUIRE_STATUS(
            alnico_allreduce(ALNICO_IN_PLACE, far_of(x), COUNT, ALNICO_INT32, ALNICO_SUM, s.comm),
            ALNICO_SUCCESS);
    }
    REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(x[i] == 9 * (3 * (i % 1000) + 3));
    seat_close(&s);
    free(x);
}

static void calls_of_many_chunks_are_right(void **state)
{
    (void)state;
    atomic_store(&far_messages, 0);
    atomic_store(&far_short_copies, 0);
    ranks_run(3, run_long, NULL);
    assert_true(atomic_load(&far_messages) > 0);
    assert_int_equal(atomic_load(&far_short_copies), 0);
}

/* By the rows for GPUs, of which no other backend works here. */
static void run_chosen(struct rank *rank)
{
    enum { COUNT = 40000 };
    bool aware = *(bool *)rank->argument;
    struct seat s;
    int32_t *x = calloc(2 * COUNT, sizeof *x);
    REQUIRE(x != NULL);
    seat_open(&s, rank);
    if (!aware)
        aware_ops.detach(s.comm);
    tuning_steps_finish(&s.comm->tuning);
    REQUIRE_STATUS(tuning_steps_init(&s.comm->tuning, NULL, ALNICO_DEVICE_CUDA, rank->size, 1),
                   ALNICO_SUCCESS);
    x[0] = x[COUNT] = 1 + rank->rank;
    atomic_store(&far_messages, 0);
    ranks_barrier(rank);
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, far_of(x), COUNT, ALNICO_INT32, ALNICO_SUM, s.comm),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_sendrecv(far_of(x + COUNT), 1, 1 - rank->rank, far_of(x + COUNT + 1), 1,
                                   1 - rank->rank, ALNICO_INT32, s.comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_SUCCESS);
    ranks_barrier(rank);
    REQUIRE(x[0] == 3 && x[COUNT + 1] == 2 - rank->rank);
    REQUIRE((atomic_load(&far_messages) > 0) == aware);
    seat_close(&s);
    free(x);
}

static void the_table_takes_it_where_it_works(void **state)
{
    (void)state;
    for (int aware = 0; aware < 2; aware++)
        ranks_run(2, run_chosen, &(bool){aware});
}

/* ---- Failure ---- */

/* Rank 1 does not come: rank 0's stream goes on, and its next call has the error. */
static void run_alone(struct rank *rank)
{
    enum { COUNT = 3000000 };
    struct seat s;
    int32_t *x = calloc(COUNT, sizeof *x);
    REQUIRE(x != NULL);
    seat_open(&s, rank);
    REQUIRE(far_force(s.comm, ALNICO_ALLREDUCE, "aware_rabenseifner"));
    s.comm->family->settings.timeout = 0.3;
    for (int call = 0; rank->rank == 0 && call < 2; call++)
        alnico_allreduce(ALNICO_IN_PLACE, far_of(x), COUNT, ALNICO_INT32, ALNICO_SUM, s.comm);
    if (rank->rank == 0) {
        REQUIRE_STATUS(alnico_stream_synchronize(s.stream), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("rank 1 did not come");
    }
    ranks_barrier(rank);
    seat_close(&s);
    free(x);
}

static void missing_rank_is_named(void **state)
{
    (void)state;
    ranks_run(2, run_alone, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_is_enough),
        cmocka_unit_test(calls_of_many_chunks_are_right),
        cmocka_unit_test(the_table_takes_it_where_it_works),
        cmocka_unit_test(missing_rank_is_named),
    };
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
