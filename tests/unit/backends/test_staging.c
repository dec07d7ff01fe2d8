/* Messages of a device whose memory the host does not reach, on a device made of the CPU's streams:
 * its addresses are not the host's, so that whatever loads or stores there by itself crashes. And
 * the ring of pinned memory. */
#include "progress/staging.h"

#include "base/status.h"
#include "comm/algorithms/algorithm.h"
#include "comm/api/create.h"
#include "comm/backends/host/host.h"
#include "tests/support/cases.h"
#include "tests/support/far.h"
#include "tests/support/ranks.h"
#include "train/base/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/patience.h"

static uint64_t seed;

/* ---- The device ---- */

static void *far_alloc(void *context, size_t bytes, bool registered)
{
    return far_of(cases_memory_cpu.alloc(context, bytes, registered));
}

static void far_free(void *context, void *memory)
{
    cases_memory_cpu.free(context, host_of(memory));
}

static void far_move(void *context, void *to, const void *from, size_t bytes)
{
    (void)context;
    memcpy(host_of(to), host_of(from), bytes);
}

/* ---- Ranks on it ---- */

struct seat {
    alnico_stream_t stream;
    alnico_comm_t comm, twin;
};

static void seat_open(struct seat *s, struct rank *rank, const char *algorithm)
{
    REQUIRE_STATUS(alnico_stream_create(&s->stream), ALNICO_SUCCESS);
    s->comm = far_comm(rank, s->stream);
    s->comm->transport->sends_first = rank->rank % 2 == 0;
    REQUIRE_STATUS(alnico_comm_set_algorithm(s->comm, ALNICO_ALLREDUCE, algorithm), ALNICO_SUCCESS);
    s->twin = ranks_comm(rank, NULL);
}

static void seat_close(struct seat *s)
{
    alnico_comm_destroy(s->comm);
    alnico_comm_destroy(s->twin);
    alnico_stream_destroy(s->stream);
}

static void run_cases(struct rank *rank)
{
    static const size_t counts[] = {0, 1, 1000, 4001, 70001};
    static const char *const algorithms[] = {"recursive_doubling", "rabenseifner", "ring"};
    for (int i = 0; i < 3; i++) {
        struct seat s;
        seat_open(&s, rank, algorithms[i]);
        struct cases_memory memory = {
            .alloc = far_alloc, .free = far_free, .put = far_move, .get = far_move, .twin = s.twin};
        struct cases cases = {.memory = &memory,
                              .comm = s.comm,
                              .counts = counts,
                              .number = sizeof counts / sizeof *counts,
                              .thin = i > 0 || rank->size != 3 || ranks_sanitized(),
                              .seed = seed};
        cases_run_table(&cases);
        REQUIRE(cases.run > 0 && cases.refused == 0);
        seat_close(&s);
    }
}

static void every_case_is_right(void **state)
{
    (void)state;
    atomic_store(&far_copies, 0);
    atomic_store(&far_short_copies, 0);
    static const int sizes[] = {3, 4, 1};
    for (int i = 0; i < ranks_repetitions(3); i++)
        ranks_run(sizes[i], run_cases, NULL);
    assert_true(atomic_load(&far_copies) > 0);
    assert_true(atomic_load(&far_short_copies) > 0);
}

/* ---- Many at once ---- */

enum { CALLS = 3000, MOST = 40000 };

/* More than the ring holds are given to the stream before it may begin: some go the way of long
 * ones, on each rank others. Every call's input is the result of the one before. */
struct barrier {
    atomic_bool go;
};

static void hold(void *argument)
{
    struct barrier *barrier = argument;
    while (!atomic_load(&barrier->go))
        nap_us(50);
}

static void run_many(struct rank *rank)
{
    struct seat s;
    struct barrier barrier = {false};
    uint64_t generator = seed;
    uint32_t *x = calloc(MOST, sizeof *x);
    uint32_t expected = 1;
    REQUIRE(x != NULL);
    seat_open(&s, rank, "recursive_doubling");
    for (int i = 0; i < MOST; i++)
        x[i] = 1;
    REQUIRE_STATUS(alnico_stream_enqueue(s.stream, hold, &barrier), ALNICO_SUCCESS);
    for (int i = 0; i < CALLS; i++) {
        bool large = random_next(&generator) % 100 == 0;
        size_t count = large ? MOST : 1 + random_next(&generator) % 300;
        bool nonblocking = random_next(&generator) % 8 == 0;
        alnico_request_t request;
        if (nonblocking) {
            REQUIRE_STATUS(alnico_iallreduce(far_of(x), far_of(x), count, ALNICO_UINT32, ALNICO_SUM,
                                             s.comm, &request),
                           ALNICO_SUCCESS);
            REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
        } else {
            REQUIRE_STATUS(
                alnico_allreduce(far_of(x), far_of(x), count, ALNICO_UINT32, ALNICO_SUM, s.comm),
                ALNICO_SUCCESS);
        }
        expected *= (uint32_t)rank->size; /* element 0 is in every call */
        if (i == 100 + 1500 * rank->rank)
            atomic_store(&barrier.go, true);
    }
    atomic_store(&barrier.go, true);
    REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_SUCCESS);
    REQUIRE(x[0] == expected);
    seat_close(&s);
    free(x);
}

static void calls_queue_up_beyond_the_ring(void **state)
{
    (void)state;
    ranks_run(3, run_many, NULL);
}

/* Nonblocking ones of both lengths, joined in another order. */
static void run_requests(struct rank *rank)
{
    enum { FLYING = 12, COUNT = 20000 };
    struct seat s;
    seat_open(&s, rank, "ring");
    int64_t *x = calloc(FLYING * COUNT, sizeof *x);
    REQUIRE(x != NULL);
    for (int round = 0; round < 20; round++) {
        alnico_request_t requests[FLYING];
        for (int i = 0; i < FLYING * COUNT; i++)
            x[i] = rank->rank + i + round;
        for (int i = 0; i < FLYING; i++)
            REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, far_of(x + i * COUNT),
                                             i % 2 ? COUNT : 50, ALNICO_INT64, ALNICO_SUM, s.comm,
                                             &requests[i]),
                           ALNICO_SUCCESS);
        for (int i = FLYING - 1; i >= 0; i--)
            REQUIRE_STATUS(i % 3 ? alnico_request_synchronize(&requests[i])
                                 : alnico_wait(&requests[i]),
                           ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_SUCCESS);
        for (int i = 0; i < FLYING; i++)
            for (int k = 0; k < COUNT; k++) {
                int64_t own = i * COUNT + k + round;
                bool reduced = i % 2 || k < 50;
                REQUIRE(x[i * COUNT + k] == (reduced ? 2 * own + 1 : own + rank->rank));
            }
    }
    seat_close(&s);
    free(x);
}

static void requests_of_all_lengths_overlap(void **state)
{
    (void)state;
    ranks_run(2, run_requests, NULL);
}

/* More than the chunks' memory holds at once, one behind the other. */
static void run_long(struct rank *rank)
{
    enum { FLYING = 3, COUNT = 800001 };
    struct seat s;
    alnico_request_t requests[FLYING];
    seat_open(&s, rank, "rabenseifner");
    int32_t *x = malloc(FLYING * COUNT * sizeof *x);
    REQUIRE(x != NULL);
    for (int i = 0; i < FLYING * COUNT; i++)
        x[i] = i * (rank->rank + 1);
    for (int i = 0; i < FLYING; i++)
        REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, far_of(x + i * COUNT),
                                         (size_t)(COUNT - i), ALNICO_INT32, ALNICO_SUM, s.comm,
                                         &requests[i]),
                       ALNICO_SUCCESS);
    for (int i = 0; i < FLYING; i++)
        REQUIRE_STATUS(alnico_request_synchronize(&requests[i]), ALNICO_SUCCESS);
    for (int i = 0; i < FLYING * COUNT; i++) {
        bool reduced = i % COUNT < COUNT - i / COUNT;
        REQUIRE(x[i] == i * (reduced ? 6 : rank->rank + 1));
    }
    seat_close(&s);
    free(x);
}

static void long_ones_use_their_memory_again(void **state)
{
    (void)state;
    ranks_run(3, run_long, NULL);
}

/* Two parts a chunk: those of one chunk run beside the next one's, and their messages do not mix. Of
 * rank 0, which comes late, all rounds of a part may arrive before the next chunk's. */
static void run_late(struct rank *rank)
{
    enum { COUNT = 800001, PART_BYTES = 200000 };
    struct seat s;
    seat_open(&s, rank, "ring");
    s.comm->family->settings.chunk_bytes = PART_BYTES;
    int32_t *x = malloc(COUNT * sizeof *x);
    REQUIRE(x != NULL);
    for (int i = 0; i < COUNT; i++)
        x[i] = i * (rank->rank + 1);
    ranks_barrier(rank);
    if (rank->rank == 0)
        nap_us(50000);
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, far_of(x), COUNT, ALNICO_INT32, ALNICO_SUM, s.comm),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(x[i] == 6 * i);
    seat_close(&s);
    free(x);
}

static void parts_of_two_chunks_do_not_mix(void **state)
{
    (void)state;
    ranks_run(3, run_late, NULL);
}

/* ---- Failure ---- */

/* Rank 1 does not come: rank 0's stream goes on, and its short result is as it was. */
static void run_alone(struct rank *rank)
{
    enum { COUNT = 300000 };
    bool nonblocking = *(int *)rank->argument % 2;
    size_t count = *(int *)rank->argument / 2 ? COUNT : 100;
    struct seat s;
    int32_t *from = calloc(COUNT, sizeof *from), *to = malloc(COUNT * sizeof *to);
    REQUIRE(from && to);
    memset(to, 0x33, COUNT * sizeof *to);
    seat_open(&s, rank, "recursive_doubling");
    s.comm->family->settings.timeout = 0.3;
    if (rank->rank == 0) {
        alnico_request_t request;
        if (nonblocking) {
            REQUIRE_STATUS(alnico_iallreduce(far_of(from), far_of(to), count, ALNICO_INT32,
                                             ALNICO_SUM, s.comm, &request),
                           ALNICO_SUCCESS);
            REQUIRE_STATUS(alnico_request_synchronize(&request), ALNICO_ERROR_TIMEOUT);
        } else {
            REQUIRE_STATUS(
                alnico_allreduce(far_of(from), far_of(to), count, ALNICO_INT32, ALNICO_SUM, s.comm),
                ALNICO_SUCCESS);
        }
        REQUIRE_STATUS(alnico_stream_synchronize(s.stream), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("rank 1 did not come");
        REQUIRE_STATUS(
            alnico_allreduce(far_of(from), far_of(to), 1, ALNICO_INT32, ALNICO_SUM, s.comm),
            ALNICO_ERROR_TIMEOUT);
        for (size_t i = 0; i < COUNT; i++)
            REQUIRE(to[i] == 0x33333333);
    }
    ranks_barrier(rank);
    seat_close(&s);
    free(from);
    free(to);
}

static void missing_rank_leaves_the_result_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        ranks_run(2, run_alone, &i);
}

static void *release_late(void *argument)
{
    struct barrier *barrier = argument;
    nap_us(200000);
    atomic_store(&barrier->go, true);
    return NULL;
}

/* Two blocks from rank 1, or one from each. */
static alnico_status_t receive_two(struct seat *s, int rank, int32_t *to, size_t count,
                                   bool messages)
{
    int32_t *from = to + 2 * count;
    if (!messages)
        return alnico_alltoall(far_of(from), far_of(to), count, ALNICO_INT32, s->comm);
    alnico_status_t status = alnico_group_begin(s->comm);
    for (size_t i = 0; i < 2 && status == ALNICO_SUCCESS; i++)
        status = rank == 0 ? alnico_recv(far_of(to + i * count), count, ALNICO_INT32, 1, s->comm)
                           : alnico_send(far_of(from), count, ALNICO_INT32, 0, s->comm);
    alnico_request_t request;
    TRY(status);
    TRY(alnico_group_end(s->comm, &request));
    return alnico_request_synchronize(&request);
}

/* Rank 0's second copy to the device fails while the first waits: it has ended when the call
 * has. */
static void run_failing_copy(struct rank *rank)
{
    enum { COUNT = 20000 };
    bool messages = *(int *)rank->argument;
    struct seat s;
    struct barrier barrier = {false};
    pthread_t thread;
    int32_t *memory = calloc((size_t)4 * COUNT, sizeof *memory);
    REQUIRE(memory != NULL);
    seat_open(&s, rank, "ring");
    if (rank->rank == 0) {
        far_fail_second(host_staging(s.comm)->in);
        REQUIRE_STATUS(alnico_stream_enqueue(host_staging(s.comm)->in, hold, &barrier),
                       ALNICO_SUCCESS);
        REQUIRE(pthread_create(&thread, NULL, release_late, &barrier) == 0);
    }
    const bool fails = messages && rank->rank == 0;
    REQUIRE_STATUS(receive_two(&s, rank->rank, memory, COUNT, messages),
                   fails ? ALNICO_ERROR_SYSTEM : ALNICO_SUCCESS);
    if (rank->rank == 0) {
        REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_ERROR_SYSTEM);
        REQUIRE(atomic_load(&barrier.go));
        pthread_join(thread, NULL);
        far_fail_second(NULL);
    } else {
        alnico_synchronize(s.comm);
    }
    ranks_barrier(rank);
    seat_close(&s);
    free(memory);
}

static void copies_before_one_that_fails_end_too(void **state)
{
    (void)state;
    for (int messages = 0; messages < 2; messages++)
        ranks_run(2, run_failing_copy, &messages);
}

/* The engine's thread has no part in it, which a driver may hold up. */
static void run_received(struct rank *rank)
{
    enum { COUNT = 5000 };
    struct seat s;
    alnico_request_t request;
    int32_t *x = calloc(COUNT, sizeof *x);
    REQUIRE(x != NULL);
    seat_open(&s, rank, "ring");
    /* Who waits: the stream, the host, alnico_synchronize, alnico_comm_destroy. */
    for (int way = 0; way < 4; way++) {
        const int before = atomic_load(&far_copies);
        ranks_barrier(rank);
        if (rank->rank == 1) {
            for (int i = 0; i < COUNT; i++)
                x[i] = i + way;
            REQUIRE_STATUS(alnico_send(far_of(x), COUNT, ALNICO_INT32, 0, s.comm), ALNICO_SUCCESS);
            REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_SUCCESS);
        } else {
            REQUIRE_STATUS(alnico_irecv(far_of(x), COUNT, ALNICO_INT32, 1, s.comm, &request),
                           ALNICO_SUCCESS);
            while (atomic_load(&s.comm->in_flight) > 0)
                nap_us(50);
            REQUIRE(atomic_load(&far_copies) == before + 1); /* the sender's */
            if (way == 3)
                break;
            REQUIRE_STATUS(way == 0   ? alnico_wait(&request)
                           : way == 1 ? alnico_request_synchronize(&request)
                                      : alnico_synchronize(s.comm),
                           ALNICO_SUCCESS);
            if (way == 0)
                REQUIRE_STATUS(alnico_stream_synchronize(s.stream), ALNICO_SUCCESS);
            for (int i = 0; i < COUNT; i++)
                REQUIRE(x[i] == i + way);
            if (way == 2)
                REQUIRE_STATUS(alnico_request_synchronize(&request), ALNICO_SUCCESS);
        }
    }
    seat_close(&s);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(x[i] == i + 3);
    free(x);
}

static void a_message_is_copied_by_the_one_that_waits(void **state)
{
    (void)state;
    ranks_run(2, run_received, NULL);
}

/* A longer message wants more memory while a held stream has still to copy the one before. */
static void run_growing(struct rank *rank)
{
    enum { FEW = 100, MANY = 5000 };
    struct seat s;
    struct barrier barrier = {false};
    alnico_request_t request;
    int32_t *x = calloc(FEW + MANY, sizeof *x);
    REQUIRE(x != NULL);
    seat_open(&s, rank, "ring");
    for (int i = 0; rank->rank == 1 && i < FEW + MANY; i++)
        x[i] = i;
    if (rank->rank == 1) {
        REQUIRE_STATUS(alnico_send(far_of(x), FEW, ALNICO_INT32, 0, s.comm), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_send(far_of(x + FEW), MANY, ALNICO_INT32, 0, s.comm), ALNICO_SUCCESS);
    } else {
        REQUIRE_STATUS(alnico_irecv(far_of(x), FEW, ALNICO_INT32, 1, s.comm, &request),
                       ALNICO_SUCCESS);
        while (atomic_load(&s.comm->in_flight) > 0)
            nap_us(50);
        REQUIRE_STATUS(alnico_stream_enqueue(s.stream, hold, &barrier), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_recv(far_of(x + FEW), MANY, ALNICO_INT32, 1, s.comm), ALNICO_SUCCESS);
        atomic_store(&barrier.go, true);
    }
    REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_synchronize(s.stream), ALNICO_SUCCESS);
    for (int i = 0; i < FEW + MANY; i++)
        REQUIRE(x[i] == i);
    seat_close(&s);
    free(x);
}

static void memory_lives_until_the_stream_has_copied(void **state)
{
    (void)state;
    ranks_run(2, run_growing, NULL);
}

/* More short ones than the ring has regions, one after the other: none goes the way of long ones. */
static void run_again(struct rank *rank)
{
    enum { COUNT = 100 };
    struct seat s;
    alnico_request_t request;
    int32_t *x = calloc(COUNT, sizeof *x);
    REQUIRE(x != NULL);
    seat_open(&s, rank, "ring");
    ranks_barrier(rank);
    const int before = atomic_load(&far_short_copies);
    ranks_barrier(rank);
    for (int call = 0; call < STAGING_REGIONS + 100; call++) {
        REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, far_of(x), COUNT, ALNICO_INT32,
                                         ALNICO_SUM, s.comm, &request),
                       ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_request_synchronize(&request), ALNICO_SUCCESS);
    }
    ranks_barrier(rank);
    REQUIRE(atomic_load(&far_short_copies) == before + 2 * (STAGING_REGIONS + 100));
    seat_close(&s);
    free(x);
}

static void short_ones_use_their_memory_again(void **state)
{
    (void)state;
    ranks_run(2, run_again, NULL);
}

/* Blocks of different lengths go the way of short ones, unless there are gaps between them, which stay
 * as they are. */
static void run_blocks(struct rank *rank)
{
    static const size_t counts[] = {3, 5}, apart[] = {0, 4};
    const size_t own = counts[rank->rank];
    struct seat s;
    int32_t *x = calloc(8, sizeof *x), *y = calloc(9, sizeof *y);
    REQUIRE(x && y);
    seat_open(&s, rank, "ring");
    REQUIRE_STATUS(alnico_comm_set_algorithm(s.comm, ALNICO_REDUCE_SCATTERV, "ring"),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_set_algorithm(s.comm, ALNICO_ALLGATHERV, "ring"), ALNICO_SUCCESS);
    for (int i = 0; i < 9; i++)
        x[i % 8] = i % 8, y[i] = -1;
    ranks_barrier(rank);
    const int before = atomic_load(&far_short_copies);
    ranks_barrier(rank);
    REQUIRE_STATUS(
        alnico_reduce_scatterv(far_of(x), far_of(y), counts, ALNICO_INT32, ALNICO_SUM, s.comm),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_synchronize(s.stream), ALNICO_SUCCESS);
    for (size_t i = 0; i < 9; i++)
        REQUIRE(y[i] == (i < own ? 2 * (int32_t)(i + 3 * (size_t)rank->rank) : -1));
    ranks_barrier(rank);
    const int dense = atomic_load(&far_short_copies);
    REQUIRE(dense > before);
    ranks_barrier(rank);
    REQUIRE_STATUS(
        alnico_allgatherv(far_of(x), own, far_of(y), counts, apart, ALNICO_INT32, s.comm),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_synchronize(s.stream), ALNICO_SUCCESS);
    for (int i = 0; i < 9; i++)
        REQUIRE(i == 3 ? y[i] == (rank->rank ? 12 : -1) : y[i] == (i < 3 ? i : i - 4));
    ranks_barrier(rank);
    REQUIRE(atomic_load(&far_short_copies) == dense);
    seat_close(&s);
    free(x);
    free(y);
}

static void short_blocks_of_different_lengths_go_as_others(void **state)
{
    (void)state;
    ranks_run(2, run_blocks, NULL);
}

/* Rank 0 gives up while its short result is on the way to the device. */
static void run_abandoned(struct rank *rank)
{
    struct seat s;
    struct barrier barrier = {false};
    pthread_t thread;
    alnico_request_t request;
    int32_t *x = calloc(100, sizeof *x);
    REQUIRE(x != NULL);
    seat_open(&s, rank, "ring");
    if (rank->rank == 0)
        REQUIRE_STATUS(alnico_stream_enqueue(host_staging(s.comm)->in, hold, &barrier),
                       ALNICO_SUCCESS);
    ranks_barrier(rank);
    REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, far_of(x), 100, ALNICO_INT32, ALNICO_SUM,
                                     s.comm, &request),
                   ALNICO_SUCCESS);
    if (rank->rank == 0) {
        bool done = false;
        while (atomic_load(&s.comm->in_flight) > 0)
            nap_us(50);
        REQUIRE_STATUS(alnico_test(&request, &done), ALNICO_SUCCESS);
        REQUIRE(!done);
        REQUIRE(pthread_create(&thread, NULL, release_late, &barrier) == 0);
        REQUIRE_STATUS(alnico_comm_abort(s.comm), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_request_synchronize(&request), ALNICO_SUCCESS);
        REQUIRE(atomic_load(&barrier.go));
        pthread_join(thread, NULL);
    } else {
        alnico_request_synchronize(&request);
    }
    ranks_barrier(rank);
    seat_close(&s);
    free(x);
}

static void a_result_on_its_way_ends_before_the_call(void **state)
{
    (void)state;
    ranks_run(2, run_abandoned, NULL);
}

/* ---- The ring ---- */

enum { HELD = 64 };

struct held {
    unsigned region;
    size_t bytes;
    unsigned char *memory, mark;
    bool used;
};

static void check_held(const struct held *h)
{
    for (size_t i = 0; i < h->bytes; i++)
        if (h->memory[i] != h->mark)
            fail_msg("byte %zu of a region of %zu is %d, not %d (seed %llu)", i, h->bytes,
                     h->memory[i], h->mark, (unsigned long long)seed);
}

/* Regions in use never overlap, whatever the order in which they are given back, and all of it is
 * used again. */
static void regions_do_not_overlap(void **state)
{
    (void)state;
    struct staging *staging;
    struct held held[HELD] = {0};
    uint64_t generator = seed;
    int taken = 0, refused = 0;
    assert_int_equal(staging_create(&device_cpu, &staging), ALNICO_SUCCESS);
    for (int i = 0; i < ranks_repetitions(20000); i++) {
        struct held *h = &held[random_next(&generator) % HELD];
        if (h->used) {
            check_held(h);
            staging_give(staging, h->region);
            h->used = false;
            continue;
        }
        h->bytes = random_next(&generator) % (i % 3 ? 2000 : 2 * STAGING_SHORT_BYTES);
        h->memory = (unsigned char *)staging_take(staging, h->bytes, &h->region);
        refused += !h->memory;
        taken += h->memory != NULL;
        h->used = h->memory != NULL;
        if (!h->used)
            continue;
        assert_int_equal((uintptr_t)h->memory % 64, 0);
        assert_true((char *)h->memory + h->bytes <= staging->memory + STAGING_RING_BYTES);
        memset(h->memory, h->mark = (unsigned char)i, h->bytes);
    }
    assert_true(taken > 1000 && refused > 0);
    for (int i = 0; i < HELD; i++)
        if (held[i].used)
            staging_give(staging, held[i].region);
    unsigned region;
    assert_non_null(staging_take(staging, STAGING_RING_BYTES - 64, &region));
    assert_null(staging_take(staging, 1, &region));
    staging_give(staging, region);
    assert_null(staging_take(staging, STAGING_RING_BYTES, &region));
    staging_destroy(staging);
    staging_destroy(NULL);
}

static void regions_are_bounded(void **state)
{
    (void)state;
    struct staging *staging;
    unsigned regions[STAGING_REGIONS], more;
    assert_int_equal(staging_create(&device_cpu, &staging), ALNICO_SUCCESS);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < STAGING_REGIONS; i++)
            assert_non_null(staging_take(staging, 8, &regions[i]));
        assert_null(staging_take(staging, 8, &more));
        for (int i = 0; i < STAGING_REGIONS; i++)
            staging_give(staging, regions[(i * 7 + round) % STAGING_REGIONS]);
    }
    staging_destroy(staging);
}

/* ---- Ranks on one device ---- */

static _Thread_local const char *device_name;

static void tell_name(char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", device_name);
}

static void meet_on_devices(struct rank *rank)
{
    static const char *const names[] = {"07:00", "09:00", "07:00"};
    struct device_ops named = *far_device();
    struct rendezvous r = ranks_rendezvous(rank, 60);
    struct creation made = {.device = &named, .who = "test"};
    alnico_comm_t comm = NULL;
    named.identify = tell_name;
    device_name = names[rank->rank];
    REQUIRE_STATUS(transport_local_meet(&r, &made.transport), ALNICO_SUCCESS);
    alnico_status_t status = comm_build(&made, &comm);
    if (rank->size == 3) {
        REQUIRE_STATUS(status, ALNICO_ERROR_ARGUMENT);
        ranks_require_detail("test: ranks 0 and 2 are both on GPU 07:00 of one host");
    } else {
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
        alnico_comm_destroy(comm);
    }
}

static void ranks_on_one_device_are_named(void **state)
{
    (void)state;
    ranks_run(2, meet_on_devices, NULL);
    ranks_run(3, meet_on_devices, NULL);
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_do_not_overlap),
        cmocka_unit_test(regions_are_bounded),
        cmocka_unit_test(every_case_is_right),
        cmocka_unit_test(calls_queue_up_beyond_the_ring),
        cmocka_unit_test(requests_of_all_lengths_overlap),
        cmocka_unit_test(long_ones_use_their_memory_again),
        cmocka_unit_test(parts_of_two_chunks_do_not_mix),
        cmocka_unit_test(missing_rank_leaves_the_result_alone),
        cmocka_unit_test(copies_before_one_that_fails_end_too),
        cmocka_unit_test(a_message_is_copied_by_the_one_that_waits),
        cmocka_unit_test(memory_lives_until_the_stream_has_copied),
        cmocka_unit_test(short_ones_use_their_memory_again),
        cmocka_unit_test(short_blocks_of_different_lengths_go_as_others),
        cmocka_unit_test(a_result_on_its_way_ends_before_the_call),
        cmocka_unit_test(ranks_on_one_device_are_named),
    };
    alarm(2 * WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
