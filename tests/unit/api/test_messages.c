/* Messages between two ranks on communicators whose ranks are threads: their order, sizes and
 * errors, to others and to oneself, one by one and in groups of any order. */
#include "comm/communicator/comm.h"
#include "tests/support/far.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/patience.h"

enum { BIG = 300000 };

static unsigned seed;

static void fill(int32_t *to, size_t count, int from, int number)
{
    for (size_t i = 0; i < count; i++)
        to[i] = from * 1000003 + number * 1009 + (int32_t)i;
}

static void expect(const int32_t *got, size_t count, int from, int number)
{
    for (size_t i = 0; i < count; i++)
        if (got[i] != from * 1000003 + number * 1009 + (int32_t)i) {
            fprintf(stderr, "message %d from rank %d: element %zu is %d\n", number, from, i,
                    got[i]);
            REQUIRE(!"right");
        }
}

static int32_t *numbers(size_t count)
{
    int32_t *memory = malloc((count + 1) * sizeof *memory);
    REQUIRE(memory);
    memset(memory, 0x5a, (count + 1) * sizeof *memory);
    return memory;
}

/* On the inline stream, on a real one, or on a device whose memory the host does not reach. */
enum where { INLINE, STREAM, FAR, WHERES };

static const enum where inline_stream = INLINE, real_stream = STREAM, far_away = FAR;
static const enum where *const everywhere[] = {&inline_stream, &real_stream, &far_away};

static _Thread_local bool far;

static alnico_comm_t make(struct rank *rank, alnico_stream_t *stream)
{
    enum where where = *(const enum where *)rank->argument;
    *stream = NULL;
    far = where == FAR;
    if (where != INLINE)
        REQUIRE_STATUS(alnico_stream_create(stream), ALNICO_SUCCESS);
    alnico_comm_t comm = far ? far_comm(rank, *stream) : ranks_comm(rank, *stream);
    comm->transport->sends_first = rank->rank % 2; /* either order meets either */
    return comm;
}

/* What a call gets: the address on the device. */
static void *there(const void *buffer)
{
    return far ? far_of(buffer) : (void *)buffer;
}

static void unmake(alnico_comm_t comm, alnico_stream_t stream)
{
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

/* ---- One by one ---- */

static void back_and_forth(struct rank *rank)
{
    static const size_t counts[] = {0, 1, 31, 32, 33, 1000, 5000, BIG};
    alnico_stream_t stream;
    alnico_comm_t comm = make(rank, &stream);
    int32_t *out = numbers(BIG), *in = numbers(BIG);
    for (int i = 0; i < 40; i++) {
        size_t count = counts[i % 8];
        fill(out, count, rank->rank, i);
        if (rank->rank == 0)
            REQUIRE_STATUS(alnico_send(there(out), count, ALNICO_INT32, 1, comm), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_recv(there(in), count, ALNICO_INT32, 1 - rank->rank, comm),
                       ALNICO_SUCCESS);
        if (rank->rank == 1)
            REQUIRE_STATUS(alnico_send(there(out), count, ALNICO_INT32, 0, comm), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
        expect(in, count, 1 - rank->rank, i);
    }
    free(out);
    free(in);
    unmake(comm, stream);
}

static void test_back_and_forth(void **state)
{
    (void)state;
    for (int w = 0; w < WHERES; w++)
        ranks_run(2, back_and_forth, (void *)everywhere[w]);
}

static void around(struct rank *rank)
{
    static const size_t counts[] = {3, 0, 1000, BIG};
    alnico_stream_t stream;
    alnico_comm_t comm = make(rank, &stream);
    int p = rank->size, next = (rank->rank + 1) % p, previous = (rank->rank + p - 1) % p;
    int32_t *out = numbers(BIG), *in = numbers(BIG);
    for (int i = 0; i < 12; i++) {
        alnico_request_t request;
        size_t count = counts[i % 4];
        fill(out, count, rank->rank, i);
        if (i % 2 == 0) {
            REQUIRE_STATUS(alnico_sendrecv(there(out), count, next, there(in), count, previous,
                                           ALNICO_INT32, comm),
                           ALNICO_SUCCESS);
            REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
        } else {
            REQUIRE_STATUS(alnico_isendrecv(there(out), count, next, there(in), count, previous,
                                            ALNICO_INT32, comm, &request),
                           ALNICO_SUCCESS);
            REQUIRE_STATUS(alnico_request_synchronize(&request), ALNICO_SUCCESS);
        }
        expect(in, count, previous, i);
    }
    free(out);
    free(in);
    unmake(comm, stream);
}

static void test_sendrecv_around_a_ring(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        for (int w = 0; w < WHERES; w++)
            ranks_run(size, around, (void *)everywhere[w]);
}

/* More are under way than the engine polls of collectives; those of one pair come in their
 * order. */
static void many_at_once(struct rank *rank)
{
    enum { MANY = 100, COUNT = 700 };
    alnico_stream_t stream;
    alnico_comm_t comm = make(rank, &stream);
    alnico_request_t sends[MANY], receives[MANY];
    int32_t *out = numbers(MANY * COUNT), *in = numbers(MANY * COUNT);
    int other = 1 - rank->rank;
    for (int i = 0; i < MANY; i++) {
        fill(out + (size_t)i * COUNT, COUNT, rank->rank, i);
        REQUIRE_STATUS(alnico_isend(there(out + (size_t)i * COUNT), COUNT, ALNICO_INT32, other,
                                    comm, &sends[i]),
                       ALNICO_SUCCESS);
    }
    REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS);
    for (int i = 0; i < MANY; i++)
        REQUIRE_STATUS(alnico_irecv(there(in + (size_t)i * COUNT), COUNT, ALNICO_INT32, other, comm,
                                    &receives[i]),
                       ALNICO_SUCCESS);
    for (int i = MANY - 1; i >= 0; i--) {
        REQUIRE_STATUS(alnico_request_synchronize(&receives[i]), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_wait(&sends[i]), ALNICO_SUCCESS);
        expect(in + (size_t)i * COUNT, COUNT, other, i);
    }
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    free(out);
    free(in);
    unmake(comm, stream);
}

static void test_any_number_may_be_under_way(void **state)
{
    (void)state;
    for (int w = 0; w < WHERES; w++)
        ranks_run(2, many_at_once, (void *)everywhere[w]);
}

static void wait_for_go(void *go)
{
    while (!atomic_load((atomic_bool *)go))
        nap_us(50);
}

/* All are called before the stream comes to the first: their gates open while the engine looks at
 * one after the other, and none overtakes one that it looked at too early. */
static void all_behind_one(struct rank *rank)
{
    enum { MANY = 2000 };
    const enum where where = STREAM;
    rank->argument = (void *)&where;
    alnico_stream_t stream;
    alnico_comm_t comm = make(rank, &stream);
    atomic_bool go = false;
    int32_t *memory = numbers(MANY);
    for (int i = 0; i < MANY; i++)
        memory[i] = rank->rank ? -1 : i;
    REQUIRE_STATUS(alnico_stream_enqueue(stream, wait_for_go, &go), ALNICO_SUCCESS);
    for (int i = 0; i < MANY; i++)
        REQUIRE_STATUS(rank->rank ? alnico_recv(&memory[i], 1, ALNICO_INT32, 0, comm)
                                  : alnico_send(&memory[i], 1, ALNICO_INT32, 1, comm),
                       ALNICO_SUCCESS);
    atomic_store(&go, true);
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    for (int i = 0; i < MANY; i++)
        REQUIRE(memory[i] == i);
    free(memory);
    unmake(comm, stream);
}

static void test_none_overtakes_on_a_stream(void **state)
{
    (void)state;
    ranks_run(2, all_behind_one, NULL);
}

/* ---- Groups ---- */

enum { PEERS = 5, EACH = 3, MEMBERS = 2 * PEERS * EACH };

/* Message `number` from one rank to another: none, few or many elements. */
static size_t count_of(int from, int to, int number)
{
    static const size_t counts[] = {0, 1, 40, 3000, 20000};
    return counts[(from * 7 + to * 3 + number) % 5];
}

struct member {
    bool sends;
    int peer, number;
};

/* Between a pair in their order, and otherwise in any. */
static void shuffle(struct member *members, unsigned *state)
{
    int next[2][PEERS] = {{0}}, count = 0;
    while (count < MEMBERS) {
        int peer = rand_r(state) % PEERS;
        bool sends = rand_r(state) % 2;
        if (next[sends][peer] < EACH)
            members[count++] = (struct member){sends, peer, next[sends][peer]++};
    }
}

static void join(struct rank *rank, alnico_comm_t comm, const struct member *m, int32_t *memory)
{
    int me = rank->rank;
    if (m->sends) {
        size_t count = count_of(me, m->peer, m->number);
        fill(memory, count, me, m->number);
        REQUIRE_STATUS(alnico_send(there(memory), count, ALNICO_INT32, m->peer, comm),
                       ALNICO_SUCCESS);
    } else {
        size_t count = count_of(m->peer, me, m->number);
        REQUIRE_STATUS(alnico_recv(there(memory), count, ALNICO_INT32, m->peer, comm),
                       ALNICO_SUCCESS);
    }
}

static void all_to_all(struct rank *rank)
{
    alnico_stream_t stream;
    alnico_comm_t comm = make(rank, &stream);
    unsigned state = seed + (unsigned)rank->rank;
    int32_t *memory[MEMBERS];
    for (int round = 0; round < 10; round++) {
        struct member members[MEMBERS];
        alnico_request_t request;
        shuffle(members, &state);
        REQUIRE_STATUS(alnico_group_begin(comm), ALNICO_SUCCESS);
        for (int i = 0; i < MEMBERS; i++)
            join(rank, comm, &members[i], memory[i] = numbers(20000));
        REQUIRE_STATUS(alnico_group_end(comm, round % 2 ? &request : NULL), ALNICO_SUCCESS);
        if (round % 2)
            REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
        for (int i = 0; i < MEMBERS; i++) {
            const struct member *m = &members[i];
            if (!m->sends)
                expect(memory[i], count_of(m->peer, rank->rank, m->number), m->peer, m->number);
            free(memory[i]);
        }
    }
    unmake(comm, stream);
}

static void test_groups_of_any_order(void **state)
{
    (void)state;
    for (int w = 0; w < WHERES; w++)
        ranks_run(PEERS, all_to_all, (void *)everywhere[w]);
}

/* What one rank sends one by one the other receives in a group, and the reverse. */
static void grouped_and_not(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    alnico_request_t request, empty;
    int32_t in[3][10], out[10];
    if (rank->rank == 0) {
        for (int i = 0; i < 3; i++) {
            fill(out, 10, 0, i);
            REQUIRE_STATUS(alnico_send(out, 10, ALNICO_INT32, 1, comm), ALNICO_SUCCESS);
        }
    } else {
        REQUIRE_STATUS(alnico_group_begin(comm), ALNICO_SUCCESS);
        for (int i = 0; i < 2; i++)
            REQUIRE_STATUS(alnico_recv(in[i], 10, ALNICO_INT32, 0, comm), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_group_end(comm, &request), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_recv(in[2], 10, ALNICO_INT32, 0, comm), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
        for (int i = 0; i < 3; i++)
            expect(in[i], 10, 0, i);
    }
    REQUIRE_STATUS(alnico_group_begin(comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_group_end(comm, &empty), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_wait(&empty), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
}

static void test_groups_match_single_calls(void **state)
{
    (void)state;
    ranks_run(2, grouped_and_not, NULL);
}

/* ---- Errors ---- */

/* The sender of a short message may have returned; then it learns it when it synchronizes. */
static void other_count(struct rank *rank)
{
    size_t count = *(size_t *)rank->argument;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    int32_t *memory = numbers(count + 1);
    alnico_status_t status;
    comm->family->settings.timeout = 20;
    if (rank->rank == 0) {
        status = alnico_send(memory, count, ALNICO_INT32, 1, comm);
        ranks_barrier(rank);
        for (int i = 0; i < 5000 && status == ALNICO_SUCCESS; i++) {
            usleep(1000);
            status = alnico_synchronize(comm);
        }
        REQUIRE_STATUS(status, ALNICO_ERROR_MISMATCH);
    } else {
        if (count < 100)
            ranks_barrier(rank);
        REQUIRE_STATUS(alnico_recv(memory, count + 1, ALNICO_INT32, 0, comm),
                       ALNICO_ERROR_MISMATCH);
        ranks_require_detail("a message from rank 0");
        if (count >= 100)
            ranks_barrier(rank);
    }
    REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_ERROR_MISMATCH);
    alnico_comm_destroy(comm);
    free(memory);
}

static void test_both_learn_of_another_count(void **state)
{
    (void)state;
    size_t counts[] = {0, 5, 20000};
    for (int i = 0; i < 3; i++)
        ranks_run(2, other_count, &counts[i]);
}

static void nobody_sends(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    int32_t value;
    comm->family->settings.timeout = 0.3;
    if (rank->rank == 0) {
        REQUIRE_STATUS(alnico_recv(&value, 1, ALNICO_INT32, 2, comm), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("rank 2 did not come within 0.3 s");
    }
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void test_who_does_not_send_is_named(void **state)
{
    (void)state;
    ranks_run(3, nobody_sends, NULL);
}

#define REFUSED(expr, text)                                                                        \
    do {                                                                                           \
        REQUIRE_STATUS((expr), ALNICO_ERROR_ARGUMENT);                                             \
        ranks_require_detail(text);                                                                \
    } while (0)

static void bad_messages(alnico_comm_t comm)
{
    int32_t a[8] = {0};
    alnico_request_t request = NULL;
    REFUSED(alnico_send(a, 1, ALNICO_INT32, 2, comm), "alnico_send: to 2 is not one of the ranks");
    REFUSED(alnico_recv(a, 1, ALNICO_INT32, -1, comm), "alnico_recv: from -1 is not");
    REFUSED(alnico_send(NULL, 1, ALNICO_INT32, 1, comm), "buffer is NULL with count 1");
    REFUSED(alnico_recv((char *)a + 1, 1, ALNICO_INT32, 1, comm), "is not aligned");
    REFUSED(alnico_recv(ALNICO_IN_PLACE, 1, ALNICO_INT8, 1, comm), "cannot be ALNICO_IN_PLACE");
    REFUSED(alnico_send(a, 1, (alnico_datatype_t)77, 1, comm), "unknown type 77");
    REFUSED(alnico_send(a, SIZE_MAX / 2, ALNICO_INT32, 1, comm), "overflows");
    REFUSED(alnico_isend(a, 1, ALNICO_INT32, 1, comm, NULL), "request is NULL");
    REFUSED(alnico_sendrecv(a, 4, 1, a + 3, 4, 1, ALNICO_INT32, comm), "overlap");
    REFUSED(alnico_wait(&request), "waited for already");
    REFUSED(alnico_group_end(comm, NULL), "no group is open");
    REFUSED(alnico_group_begin(NULL), "is NULL");
}

static void bad_groups(struct rank *rank, alnico_comm_t comm)
{
    int32_t a[4] = {rank->rank}, b[4] = {0};
    alnico_request_t request;
    alnico_comm_t other;
    REQUIRE_STATUS(alnico_group_begin(comm), ALNICO_SUCCESS);
    REFUSED(alnico_group_begin(comm), "a group is open on communicator");
    REFUSED(alnico_barrier(comm), "alnico_barrier: a group is open");
    REFUSED(alnico_allreduce(a, b, 1, ALNICO_INT32, ALNICO_SUM, comm), "a group is open");
    REFUSED(alnico_isend(a, 1, ALNICO_INT32, 1, comm, &request), "a group is open");
    REFUSED(alnico_comm_duplicate(comm, NULL, &other), "a group is open");
    REFUSED(alnico_comm_set_algorithm(comm, ALNICO_BARRIER, NULL), "a group is open");
    REFUSED(alnico_send(a, 1, ALNICO_INT32, 9, comm), "to 9 is not");
    REQUIRE_STATUS(alnico_send(a, 1, ALNICO_INT32, 1 - rank->rank, comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_recv(b, 1, ALNICO_INT32, 1 - rank->rank, comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_group_end(comm, NULL), ALNICO_SUCCESS);
    REQUIRE(b[0] == 1 - rank->rank);
    REFUSED(alnico_group_end(comm, NULL), "no group is open");
}

static void bad_arguments(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    int32_t a[4];
    bad_messages(comm);
    bad_groups(rank, comm);
    REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_group_begin(comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_recv(a, 1, ALNICO_INT32, 0, comm), ALNICO_SUCCESS);
    alnico_comm_destroy(comm); /* logs it, and waits for nobody */
}

static void test_every_bad_argument(void **state)
{
    (void)state;
    ranks_run(2, bad_arguments, NULL);
}

int main(void)
{
    seed = (unsigned)time(NULL);
    printf("seed %u\n", seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back_and_forth),
        cmocka_unit_test(test_sendrecv_around_a_ring),
        cmocka_unit_test(test_any_number_may_be_under_way),
        cmocka_unit_test(test_none_overtakes_on_a_stream),
        cmocka_unit_test(test_groups_of_any_order),
        cmocka_unit_test(test_groups_match_single_calls),
        cmocka_unit_test(test_both_learn_of_another_count),
        cmocka_unit_test(test_who_does_not_send_is_named),
        cmocka_unit_test(test_every_bad_argument),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
