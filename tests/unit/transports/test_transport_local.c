/* Messages between ranks of one process: matching by sender and tag in order, either side first,
 * sizes, cancelling, small messages that outlive their sender, and many threads at once. */
#include "comm/rendezvous/out_of_band.h"
#include "comm/transports/transport.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 3, SMALL = 16, LARGE = 5000 };

struct world {
    struct transport *rank[SIZE];
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct local_hub *hub = local_hub_create(SIZE);
    assert_true(w && hub);
    for (int r = 0; r < SIZE; r++)
        assert_int_equal(transport_local_create(hub, r, &w->rank[r]), ALNICO_SUCCESS);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    for (int r = 0; r < SIZE; r++)
        if (w->rank[r])
            w->rank[r]->ops->destroy(w->rank[r]);
    free(w);
    return 0;
}

static struct transfer send(struct transport *t, int to, uint32_t tag, const void *data,
                            size_t bytes)
{
    struct transfer transfer;
    assert_int_equal(t->ops->isend(t, to, tag, data, bytes, &transfer), ALNICO_SUCCESS);
    return transfer;
}

static struct transfer receive(struct transport *t, int from, uint32_t tag, void *data,
                               size_t bytes)
{
    struct transfer transfer;
    assert_int_equal(t->ops->irecv(t, from, tag, data, bytes, &transfer), ALNICO_SUCCESS);
    return transfer;
}

static alnico_status_t test(struct transport *t, struct transfer *transfer)
{
    return t->ops->test(t, transfer);
}

static void test_either_side_may_be_first(void **state)
{
    struct world *w = *state;
    static char out[LARGE], in[LARGE];
    size_t sizes[] = {0, 1, SMALL, LARGE};
    for (int i = 0; i < 8; i++) {
        size_t bytes = sizes[i / 2];
        memset(out, i + 1, sizeof out);
        memset(in, 0, sizeof in);
        struct transfer a, b;
        if (i % 2) {
            a = send(w->rank[0], 1, 7, out, bytes);
            b = receive(w->rank[1], 0, 7, in, bytes);
        } else {
            b = receive(w->rank[1], 0, 7, in, bytes);
            assert_int_equal(test(w->rank[1], &b), ALNICO_PENDING);
            a = send(w->rank[0], 1, 7, out, bytes);
        }
        assert_int_equal(test(w->rank[1], &b), ALNICO_SUCCESS);
        assert_int_equal(test(w->rank[0], &a), ALNICO_SUCCESS);
        assert_memory_equal(in, out, bytes);
        assert_true(bytes == LARGE || in[bytes] == 0);
    }
}

static void test_sender_and_tag_select_and_order_holds(void **state)
{
    struct world *w = *state;
    int values[4] = {10, 11, 12, 13}, got[4] = {0};
    struct transfer sends[4], receives[4];
    sends[0] = send(w->rank[0], 2, 1, &values[0], sizeof(int));
    sends[1] = send(w->rank[0], 2, 1, &values[1], sizeof(int));
    sends[2] = send(w->rank[1], 2, 1, &values[2], sizeof(int));
    sends[3] = send(w->rank[0], 2, 5, &values[3], sizeof(int));
    receives[3] = receive(w->rank[2], 0, 5, &got[3], sizeof(int));
    receives[2] = receive(w->rank[2], 1, 1, &got[2], sizeof(int));
    receives[0] = receive(w->rank[2], 0, 1, &got[0], sizeof(int));
    receives[1] = receive(w->rank[2], TRANSPORT_ANY, 1, &got[1], sizeof(int));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(test(w->rank[2], &receives[i]), ALNICO_SUCCESS);
        assert_int_equal(test(w->rank[i == 2 ? 1 : 0], &sends[i]), ALNICO_SUCCESS);
        assert_int_equal(got[i], values[i]);
    }
}

static void test_sizes_must_agree(void **state)
{
    struct world *w = *state;
    static char out[LARGE], in[LARGE];
    struct transfer a = send(w->rank[0], 1, 1, out, LARGE);
    struct transfer b = receive(w->rank[1], 0, 1, in, LARGE - 1);
    assert_int_equal(test(w->rank[0], &a), ALNICO_ERROR_MISMATCH);
    assert_int_equal(test(w->rank[1], &b), ALNICO_ERROR_MISMATCH);
    a = send(w->rank[0], 1, 1, out, SMALL); /* takes its bytes along: only the receiver can tell */
    b = receive(w->rank[1], 0, 1, in, SMALL + 1);
    assert_int_equal(test(w->rank[1], &b), ALNICO_ERROR_MISMATCH);
    assert_int_equal(test(w->rank[0], &a), ALNICO_SUCCESS);
}

static void test_cancelled_sides_do_not_match(void **state)
{
    struct world *w = *state;
    static char out[LARGE], in[LARGE], other[LARGE];
    struct transfer a = send(w->rank[0], 1, 1, out, LARGE);
    assert_int_equal(test(w->rank[0], &a), ALNICO_PENDING);
    assert_true(w->rank[0]->ops->cancel(w->rank[0], &a));
    struct transfer b = receive(w->rank[1], 0, 1, in, LARGE);
    assert_int_equal(test(w->rank[1], &b), ALNICO_PENDING);
    assert_true(w->rank[1]->ops->cancel(w->rank[1], &b));
    memset(out, 3, sizeof out);
    b = receive(w->rank[1], 0, 1, other, LARGE);
    a = send(w->rank[0], 1, 1, out, LARGE);
    assert_int_equal(test(w->rank[1], &b), ALNICO_SUCCESS);
    assert_int_equal(test(w->rank[0], &a), ALNICO_SUCCESS);
    assert_int_equal(in[0], 0);
    assert_memory_equal(other, out, LARGE);
}

static void test_a_small_message_outlives_its_sender(void **state)
{
    struct world *w = *state;
    int value = 42, got = 0;
    struct transfer a = send(w->rank[0], 1, 1, &value, sizeof value);
    assert_int_equal(test(w->rank[0], &a), ALNICO_SUCCESS);
    send(w->rank[0], 2, 1, &value, sizeof value); /* nobody takes it: freed with the hub */
    w->rank[0]->ops->destroy(w->rank[0]);
    w->rank[0] = NULL;
    value = 0;
    struct transfer b = receive(w->rank[1], 0, 1, &got, sizeof got);
    assert_int_equal(test(w->rank[1], &b), ALNICO_SUCCESS);
    assert_int_equal(got, 42);
}

static void test_a_message_to_oneself(void **state)
{
    struct world *w = *state;
    static char out[LARGE] = "self", in[LARGE];
    struct transfer a = send(w->rank[1], 1, 1, out, LARGE);
    struct transfer b = receive(w->rank[1], 1, 1, in, LARGE);
    assert_int_equal(test(w->rank[1], &a), ALNICO_SUCCESS);
    assert_int_equal(test(w->rank[1], &b), ALNICO_SUCCESS);
    assert_string_equal(in, "self");
}

static alnico_status_t gather_part(void *wait, const void *mine, void *all, size_t bytes)
{
    return out_of_band_gather(wait, mine, all, bytes);
}

static const int part_ranks[] = {2, 1};

static alnico_status_t make_part(struct transport *t, int place, double timeout,
                                 struct transport **out)
{
    struct out_of_band wait = {.transport = t,
                               .timeout = timeout,
                               .who = "part",
                               .called = part_ranks,
                               .members = part_ranks,
                               .count = 2,
                               .place = place};
    struct rendezvous r = {.allgather = gather_part,
                           .context = &wait,
                           .rank = place,
                           .size = 2,
                           .called = part_ranks,
                           .who = "part",
                           .timeout = timeout};
    return t->ops->subset(t, &r, out);
}

static void part_body(struct rank *rank)
{
    struct world *w = rank->argument;
    struct transport *part;
    char out[SMALL] = "part", in[SMALL] = "";
    REQUIRE_STATUS(make_part(w->rank[part_ranks[rank->rank]], rank->rank, 20, &part),
                   ALNICO_SUCCESS);
    if (rank->rank == 0) {
        struct transfer a = send(part, 1, 1, out, SMALL);
        while (part->ops->test(part, &a) == ALNICO_PENDING)
            sched_yield();
    } else {
        struct transfer b = receive(part, 0, 1, in, SMALL);
        while (part->ops->test(part, &b) == ALNICO_PENDING)
            sched_yield();
        REQUIRE(strcmp(in, "part") == 0);
    }
    ranks_barrier(rank);
    part->ops->destroy(part);
}

/* Ranks 2 and 1, of which 2 is the first, comes later than 1 waits for, and then again. */
static void test_a_part_waits_until_its_deadline(void **state)
{
    struct world *w = *state;
    struct transport *part;
    double start = ranks_seconds();
    assert_int_equal(make_part(w->rank[1], 1, 0.1, &part), ALNICO_ERROR_TIMEOUT);
    assert_non_null(strstr(alnico_error_detail(), "rank 2 did not come within 0.1 s"));
    assert_true(ranks_seconds() - start >= 0.1);
    ranks_run(2, part_body, w);
}

/* Each rank sends to each with two tags, from two threads, and cancels some receives that never
 * match. */
struct traffic {
    struct transport *transport;
    uint32_t tag;
};

static void finish(struct transport *t, struct transfer *transfer)
{
    alnico_status_t status;
    while ((status = t->ops->test(t, transfer)) == ALNICO_PENDING)
        sched_yield();
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
}

static void *run_traffic(void *argument)
{
    struct traffic *traffic = argument;
    struct transport *t = traffic->transport;
    uint64_t out[SIZE][64], in[SIZE][64], never;
    struct transfer sends[SIZE], receives[SIZE], lost;
    for (uint64_t i = 0; i < 300; i++) {
        size_t count = reference_random(i, traffic->tag, 0) % 64;
        REQUIRE_STATUS(t->ops->irecv(t, 0, 999, &never, sizeof never, &lost), ALNICO_SUCCESS);
        for (int peer = 0; peer < SIZE; peer++) {
            for (size_t k = 0; k < count; k++)
                out[peer][k] = reference_random(i, traffic->tag, (uint64_t)(t->rank * SIZE + peer));
            REQUIRE_STATUS(t->ops->isend(t, peer, traffic->tag, out[peer], count * 8, &sends[peer]),
                           ALNICO_SUCCESS);
            REQUIRE_STATUS(
                t->ops->irecv(t, peer, traffic->tag, in[peer], count * 8, &receives[peer]),
                ALNICO_SUCCESS);
        }
        REQUIRE(t->ops->cancel(t, &lost));
        for (int peer = 0; peer < SIZE; peer++) {
            finish(t, &receives[peer]);
            finish(t, &sends[peer]);
            for (size_t k = 0; k < count; k++)
                REQUIRE(in[peer][k] ==
                        reference_random(i, traffic->tag, (uint64_t)(peer * SIZE + t->rank)));
        }
    }
    return NULL;
}

static void test_many_threads_at_once(void **state)
{
    struct world *w = *state;
    struct traffic traffic[2 * SIZE];
    pthread_t threads[2 * SIZE];
    for (int i = 0; i < 2 * SIZE; i++) {
        traffic[i] = (struct traffic){w->rank[i % SIZE], (uint32_t)(TAG_OPERATIONS + i / SIZE)};
        assert_int_equal(pthread_create(&threads[i], NULL, run_traffic, &traffic[i]), 0);
    }
    for (int i = 0; i < 2 * SIZE; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_either_side_may_be_first),
        CASE(test_sender_and_tag_select_and_order_holds),
        CASE(test_sizes_must_agree),
        CASE(test_cancelled_sides_do_not_match),
        CASE(test_a_small_message_outlives_its_sender),
        CASE(test_a_message_to_oneself),
        CASE(test_a_part_waits_until_its_deadline),
        CASE(test_many_threads_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
