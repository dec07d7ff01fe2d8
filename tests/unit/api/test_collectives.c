/* Every collective but allreduce on communicators whose ranks are threads: each algorithm, every
 * root, equal and unequal blocks, in place, blocking and not, on the inline and on a real stream.
 * Whatever is not to be written is poisoned. */
#include "comm/communicator/comm.h"
#include "comm/tuning/tuning.h"

#include "tests/support/far.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { POISON = 0x5a5a5a5a, SIZES = 5, GUARD = 16 };

/* One call of one rank. */
struct trial {
    alnico_comm_t comm;
    int rank, size, root;
    size_t count; /* of each block, or of the vector; the average where blocks are unequal */
    bool in_place, nonblocking, far;
    int32_t *send, *recv;
    size_t room; /* elements of each */
    size_t counts[SIZES], at[SIZES];
    alnico_request_t request;
};

/* Element i of block b of what a rank has. */
static int32_t value(int rank, int b, size_t i)
{
    return (int32_t)((uint32_t)rank * 100003u + (uint32_t)b * 1009u + (uint32_t)i * 7u);
}

static int32_t sum(int size, int b, size_t i)
{
    uint32_t total = 0;
    for (int r = 0; r < size; r++)
        total += (uint32_t)value(r, b, i);
    return (int32_t)total;
}

static void put(int32_t *to, int rank, int b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = value(rank, b, i);
}

static void expect(const struct trial *t, const int32_t *got, int rank, int b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (got[i] != value(rank, b, i)) {
            fprintf(stderr, "rank %d of %d, root %d, count %zu: element %zu of block %d is %d\n",
                    t->rank, t->size, t->root, t->count, i, b, got[i]);
            REQUIRE(!"right");
        }
}

static void expect_sum(const struct trial *t, const int32_t *got, int b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (got[i] != sum(t->size, b, i)) {
            fprintf(stderr, "rank %d of %d, root %d, count %zu: element %zu of sum %d is %d\n",
                    t->rank, t->size, t->root, t->count, i, b, got[i]);
            REQUIRE(!"right");
        }
}

static void expect_poison(const int32_t *from, const int32_t *to)
{
    for (; from < to; from++)
        REQUIRE(*from == POISON);
}

/* Everything but the blocks. */
static void expect_gaps(const struct trial *t, const size_t *counts, const size_t *at)
{
    for (size_t i = 0; i < t->room; i++) {
        bool inside = false;
        for (int b = 0; b < t->size; b++)
            inside |= i >= at[b] && i < at[b] + counts[b];
        REQUIRE(inside || t->recv[i] == POISON);
    }
}

/* What the call gets: the address on the device. */
static void *there(const struct trial *t, const void *buffer)
{
    return t->far && buffer ? far_of(buffer) : (void *)buffer;
}

static void *in_place_or(const struct trial *t, bool meaningful, const void *buffer)
{
    return t->in_place && meaningful ? ALNICO_IN_PLACE : there(t, buffer);
}

/* The blocking call, or the other one and its wait. */
#define CALL(T, NAME, ...)                                                                         \
    do {                                                                                           \
        if (!(T)->nonblocking) {                                                                   \
            REQUIRE_STATUS(alnico_##NAME(__VA_ARGS__, (T)->comm), ALNICO_SUCCESS);                 \
            REQUIRE_STATUS(alnico_synchronize((T)->comm), ALNICO_SUCCESS);                         \
            break;                                                                                 \
        }                                                                                          \
        REQUIRE_STATUS(alnico_i##NAME(__VA_ARGS__, (T)->comm, &(T)->request), ALNICO_SUCCESS);     \
        REQUIRE_STATUS(alnico_request_synchronize(&(T)->request), ALNICO_SUCCESS);                 \
    } while (0)

/* ---- One function a collective ---- */

static void try_reduce(struct trial *t)
{
    bool is_root = t->rank == t->root, here = t->in_place && is_root;
    put(here ? t->recv : t->send, t->rank, 0, t->count);
    CALL(t, reduce, in_place_or(t, is_root, t->send), there(t, is_root ? t->recv : NULL), t->count,
         ALNICO_INT32, ALNICO_SUM, t->root);
    if (is_root)
        expect_sum(t, t->recv, 0, t->count);
    expect_poison(t->recv + (is_root ? t->count : 0), t->recv + t->room);
    if (!here)
        expect(t, t->send, t->rank, 0, t->count);
}

static void try_broadcast(struct trial *t)
{
    if (t->rank == t->root)
        put(t->recv, t->root, 3, t->count);
    CALL(t, broadcast, there(t, t->recv), t->count, ALNICO_INT32, t->root);
    expect(t, t->recv, t->root, 3, t->count);
    expect_poison(t->recv + t->count, t->recv + t->room);
}

static void try_allgather(struct trial *t)
{
    size_t own = (size_t)t->rank * t->count;
    put(t->in_place ? t->recv + own : t->send, t->rank, 0, t->count);
    CALL(t, allgather, in_place_or(t, true, t->send), there(t, t->recv), t->count, ALNICO_INT32);
    for (int b = 0; b < t->size; b++)
        expect(t, t->recv + (size_t)b * t->count, b, 0, t->count);
    expect_poison(t->recv + (size_t)t->size * t->count, t->recv + t->room);
}

static void try_allgatherv(struct trial *t)
{
    size_t own = t->counts[t->rank];
    put(t->in_place ? t->recv + t->at[t->rank] : t->send, t->rank, 0, own);
    CALL(t, allgatherv, in_place_or(t, true, t->send), own, there(t, t->recv), t->counts, t->at,
         ALNICO_INT32);
    for (int b = 0; b < t->size; b++)
        expect(t, t->recv + t->at[b], b, 0, t->counts[b]);
    expect_gaps(t, t->counts, t->at);
}

static void try_reduce_scatter(struct trial *t)
{
    size_t own = (size_t)t->rank * t->count;
    int32_t *send = t->in_place ? t->recv : t->send;
    for (int b = 0; b < t->size; b++)
        put(send + (size_t)b * t->count, t->rank, b, t->count);
    CALL(t, reduce_scatter, in_place_or(t, true, t->send), there(t, t->recv), t->count,
         ALNICO_INT32, ALNICO_SUM);
    expect_sum(t, t->recv + (t->in_place ? own : 0), t->rank, t->count);
    for (int b = 0; b < t->size; b++)
        if (!t->in_place || b != t->rank)
            expect(t, send + (size_t)b * t->count, t->rank, b, t->count);
    if (!t->in_place)
        expect_poison(t->recv + t->count, t->recv + t->room);
}

static void try_reduce_scatterv(struct trial *t)
{
    int32_t *send = t->in_place ? t->recv : t->send;
    size_t at = 0, own = 0;
    for (int b = 0; b < t->size; b++) {
        own = b == t->rank ? at : own;
        put(send + at, t->rank, b, t->counts[b]);
        at += t->counts[b];
    }
    CALL(t, reduce_scatterv, in_place_or(t, true, t->send), there(t, t->recv), t->counts,
         ALNICO_INT32, ALNICO_SUM);
    expect_sum(t, t->recv + (t->in_place ? own : 0), t->rank, t->counts[t->rank]);
    if (!t->in_place)
        expect_poison(t->recv + t->counts[t->rank], t->recv + t->room);
}

static void try_gather(struct trial *t)
{
    bool is_root = t->rank == t->root, here = t->in_place && is_root;
    put(here ? t->recv + (size_t)t->rank * t->count : t->send, t->rank, 0, t->count);
    CALL(t, gather, in_place_or(t, is_root, t->send), there(t, is_root ? t->recv : NULL), t->count,
         ALNICO_INT32, t->root);
    for (int b = 0; is_root && b < t->size; b++)
        expect(t, t->recv + (size_t)b * t->count, b, 0, t->count);
    expect_poison(t->recv + (is_root ? (size_t)t->size * t->count : 0), t->recv + t->room);
}

static void try_gatherv(struct trial *t)
{
    bool is_root = t->rank == t->root, here = t->in_place && is_root;
    size_t own = t->counts[t->rank];
    put(here ? t->recv + t->at[t->rank] : t->send, t->rank, 0, own);
    CALL(t, gatherv, in_place_or(t, is_root, t->send), own, there(t, is_root ? t->recv : NULL),
         is_root ? t->counts : NULL, is_root ? t->at : NULL, ALNICO_INT32, t->root);
    for (int b = 0; is_root && b < t->size; b++)
        expect(t, t->recv + t->at[b], b, 0, t->counts[b]);
    if (is_root)
        expect_gaps(t, t->counts, t->at);
}

static void try_scatter(struct trial *t)
{
    bool is_root = t->rank == t->root, here = t->in_place && is_root;
    for (int b = 0; is_root && b < t->size; b++)
        put(t->send + (size_t)b * t->count, t->root, b, t->count);
    CALL(t, scatter, there(t, is_root ? t->send : NULL), in_place_or(t, is_root, t->recv), t->count,
         ALNICO_INT32, t->root);
    if (!here)
        expect(t, t->recv, t->root, t->rank, t->count);
    expect_poison(t->recv + (here ? 0 : t->count), t->recv + t->room);
    for (int b = 0; is_root && b < t->size; b++)
        expect(t, t->send + (size_t)b * t->count, t->root, b, t->count);
}

static void try_scatterv(struct trial *t)
{
    bool is_root = t->rank == t->root, here = t->in_place && is_root;
    size_t own = t->counts[t->rank];
    for (int b = 0; is_root && b < t->size; b++)
        put(t->send + t->at[b], t->root, b, t->counts[b]);
    CALL(t, scatterv, there(t, is_root ? t->send : NULL), is_root ? t->counts : NULL,
         is_root ? t->at : NULL, in_place_or(t, is_root, t->recv), own, ALNICO_INT32, t->root);
    if (!here)
        expect(t, t->recv, t->root, t->rank, own);
    expect_poison(t->recv + (here ? 0 : own), t->recv + t->room);
}

static void try_alltoall(struct trial *t)
{
    int32_t *send = t->in_place ? t->recv : t->send;
    for (int b = 0; b < t->size; b++)
        put(send + (size_t)b * t->count, t->rank, b, t->count);
    CALL(t, alltoall, in_place_or(t, true, t->send), there(t, t->recv), t->count, ALNICO_INT32);
    for (int b = 0; b < t->size; b++)
        expect(t, t->recv + (size_t)b * t->count, b, t->rank, t->count);
    expect_poison(t->recv + (size_t)t->size * t->count, t->recv + t->room);
}

/* What rank a sends to rank b: not symmetric, but where it is in place. */
static size_t pair_count(const struct trial *t, int a, int b)
{
    size_t kind = t->in_place ? (size_t)(a + b) : (size_t)(a + 2 * b);
    return kind % 4 == 0 ? 0 : t->count * (kind % 4) / 2;
}

static void try_alltoallv(struct trial *t)
{
    size_t send_counts[SIZES], recv_counts[SIZES], send_at[SIZES], next = 0;
    int32_t *send = t->in_place ? t->recv : t->send;
    for (int b = 0; b < t->size; b++) {
        send_counts[b] = pair_count(t, t->rank, b);
        recv_counts[b] = pair_count(t, b, t->rank);
        send_at[b] = t->in_place ? t->at[b] : next;
        next += send_counts[b];
        put(send + send_at[b], t->rank, b, send_counts[b]);
    }
    CALL(t, alltoallv, in_place_or(t, true, t->send), t->in_place ? NULL : send_counts, NULL,
         there(t, t->recv), recv_counts, t->at, ALNICO_INT32);
    for (int b = 0; b < t->size; b++)
        expect(t, t->recv + t->at[b], b, t->rank, recv_counts[b]);
    expect_gaps(t, recv_counts, t->at);
}

static void try_barrier(struct trial *t)
{
    if (t->nonblocking) {
        REQUIRE_STATUS(alnico_ibarrier(t->comm, &t->request), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_wait(&t->request), ALNICO_SUCCESS);
    } else {
        REQUIRE_STATUS(alnico_barrier(t->comm), ALNICO_SUCCESS);
    }
}

static void (*const tries[COLLECTIVES])(struct trial *) = {
    [ALNICO_REDUCE] = try_reduce,
    [ALNICO_BROADCAST] = try_broadcast,
    [ALNICO_ALLGATHER] = try_allgather,
    [ALNICO_ALLGATHERV] = try_allgatherv,
    [ALNICO_REDUCE_SCATTER] = try_reduce_scatter,
    [ALNICO_REDUCE_SCATTERV] = try_reduce_scatterv,
    [ALNICO_GATHER] = try_gather,
    [ALNICO_GATHERV] = try_gatherv,
    [ALNICO_SCATTER] = try_scatter,
    [ALNICO_SCATTERV] = try_scatterv,
    [ALNICO_ALLTOALL] = try_alltoall,
    [ALNICO_ALLTOALLV] = try_alltoallv,
    [ALNICO_BARRIER] = try_barrier,
};

/* ---- The table of trials ---- */

/* Blocks of 0 to 1.5 times the average, in the reverse order and with gaps; some are empty. */
static void lay_out(struct trial *t)
{
    size_t next = 3;
    for (int b = t->size - 1; b >= 0; b--) {
        t->counts[b] = b % 4 == 1 ? 0 : t->count * (size_t)(b % 4 + 1) / 3;
        t->at[b] = next;
        next += t->count * 3 / 2 + (size_t)b;
    }
}

static void run_trial(struct trial t, int collective)
{
    t.room = (size_t)t.size * (t.count * 3 / 2 + (size_t)t.size) + GUARD;
    t.send = malloc(t.room * sizeof *t.send);
    t.recv = malloc(t.room * sizeof *t.recv);
    REQUIRE(t.send && t.recv);
    for (size_t i = 0; i < t.room; i++)
        t.send[i] = t.recv[i] = POISON;
    lay_out(&t);
    tries[collective](&t);
    free(t.send);
    free(t.recv);
}

static void run_all(const struct rank *rank, alnico_comm_t comm, int collective, bool far)
{
    size_t counts[] = {0, 1, 2, 7, 1000, far ? 10007 : 20011};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int way = 0; way < 4; way++) {
            struct trial t = {.comm = comm,
                              .rank = rank->rank,
                              .size = rank->size,
                              .root = (int)(i + (size_t)way) % rank->size,
                              .count = counts[i],
                              .in_place = way % 2,
                              .nonblocking = way / 2,
                              .far = far};
            run_trial(t, collective);
        }
}

enum where { INLINE, STREAM, FAR };

/* The host's algorithms only where a CPU's peer backend could not reach the memory. */
static void run_collective(const struct rank *rank, alnico_comm_t comm, int c, bool far)
{
    const struct tuning_backend *backend;
    const struct algorithm *a;
    for (int i = 0; (a = tuning_algorithm_at(ALNICO_DEVICE_CPU, c, i, &backend)); i++) {
        if (far && strcmp(backend->name, "host") != 0)
            continue;
        alnico_status_t status = alnico_comm_set_algorithm(comm, (alnico_collective_t)c, a->name);
        if (status == ALNICO_ERROR_UNSUPPORTED && rank->size == 1)
            continue;
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
        run_all(rank, comm, c, far);
    }
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, (alnico_collective_t)c, NULL), ALNICO_SUCCESS);
    if (!far)
        run_all(rank, comm, c, far);
}

static void every_algorithm(struct rank *rank)
{
    enum where where = *(enum where *)rank->argument;
    alnico_stream_t stream = NULL;
    if (where != INLINE)
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = where == FAR ? far_comm(rank, stream) : ranks_comm(rank, stream);
    if (where != INLINE) /* many chunks */
        comm->family->settings.chunk_bytes = 8192;
    for (int c = 0; c < COLLECTIVES; c++)
        if (tries[c])
            run_collective(rank, comm, c, where == FAR);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void test_every_algorithm_inline(void **state)
{
    (void)state;
    enum where where = INLINE;
    for (int size = ranks_sanitized() ? 3 : 1; size <= SIZES; size += size > 2 ? 2 : 1)
        ranks_run(size, every_algorithm, &where);
}

static void test_every_algorithm_on_a_stream(void **state)
{
    (void)state;
    enum where where = STREAM;
    ranks_run(3, every_algorithm, &where);
}

static void test_every_algorithm_through_pinned_memory(void **state)
{
    (void)state;
    enum where where = FAR;
    for (int size = 1; size <= (ranks_sanitized() ? 1 : 4); size += 3)
        ranks_run(size, every_algorithm, &where);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_algorithm_inline),
        cmocka_unit_test(test_every_algorithm_on_a_stream),
        cmocka_unit_test(test_every_algorithm_through_pinned_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
