/* The allgather beside the collectives: what it gathers, how many messages it sends one after the
 * other, and who is told of a failure. Ranks are threads. */
#include "comm/rendezvous/out_of_band.h"

#include "base/status.h"
#include "comm/api/create.h"
#include "comm/rendezvous/root.h"
#include "device/device.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LARGE = 5000 };

/* A transport of threads that counts what a rank sends, and may break one message. */
struct counting {
    struct transport base;
    struct transport *inner;
    int sends;
    bool breaks; /* the next message that has come is lost */
    bool hides;  /* nothing has come before somebody asks who is gone: rank 2 */
};

static struct counting *counting_of(struct transport *t)
{
    return (struct counting *)t;
}

static alnico_status_t count_isend(struct transport *t, int to, uint32_t tag, const void *buffer,
                                   size_t bytes, struct transfer *out)
{
    struct counting *c = counting_of(t);
    c->sends++;
    return c->inner->ops->isend(c->inner, to, tag, buffer, bytes, out);
}

static alnico_status_t count_irecv(struct transport *t, int from, uint32_t tag, void *buffer,
                                   size_t bytes, struct transfer *out)
{
    struct counting *c = counting_of(t);
    return c->inner->ops->irecv(c->inner, from, tag, buffer, bytes, out);
}

static alnico_status_t count_test(struct transport *t, struct transfer *transfer)
{
    struct counting *c = counting_of(t);
    if (c->hides)
        return ALNICO_PENDING;
    alnico_status_t status = c->inner->ops->test(c->inner, transfer);
    if (status != ALNICO_SUCCESS || !c->breaks)
        return status;
    c->breaks = false;
    return error_set(ALNICO_ERROR_SYSTEM, "rank %d: the wire is cut", t->rank);
}

static bool count_cancel(struct transport *t, struct transfer *transfer)
{
    struct counting *c = counting_of(t);
    return c->inner->ops->cancel(c->inner, transfer);
}

static bool count_gone(struct transport *t, int rank)
{
    struct counting *c = counting_of(t);
    bool gone = c->hides && rank == 2;
    c->hides &= !gone;
    return gone;
}

static void count_destroy(struct transport *t)
{
    struct counting *c = counting_of(t);
    c->inner->ops->destroy(c->inner);
    free(c);
}

static const struct transport_ops counting_ops = {.name = "counting",
                                                  .isend = count_isend,
                                                  .irecv = count_irecv,
                                                  .test = count_test,
                                                  .cancel = count_cancel,
                                                  .gone = count_gone,
                                                  .destroy = count_destroy};

static struct counting *make(struct rank *rank)
{
    struct rendezvous r = ranks_rendezvous(rank, 60);
    struct counting *c = calloc(1, sizeof *c);
    REQUIRE_STATUS(transport_local_meet(&r, &c->inner), ALNICO_SUCCESS);
    c->base = *c->inner;
    c->base.ops = &counting_ops;
    return c;
}

static int log2_up(int size)
{
    int log2 = 0;
    while (1 << log2 < size)
        log2++;
    return log2;
}

/* Ranks whose number modulo 3 is 0 have no memory. */
static void gather_body(struct rank *rank)
{
    static const size_t lengths[] = {0, 1, 100, 300, LARGE};
    struct counting *c = make(rank);
    const struct out_of_band wait = {.transport = &c->base, .timeout = 60, .who = "test"};
    unsigned char mine[LARGE], *all = malloc((size_t)rank->size * LARGE);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        size_t bytes = lengths[l];
        int before = c->sends;
        memset(mine, rank->rank + (int)l + 1, sizeof mine);
        memset(all, 0xee, (size_t)rank->size * LARGE);
        REQUIRE_STATUS(out_of_band_gather(&wait, mine, rank->rank % 3 ? all : NULL, bytes),
                       ALNICO_SUCCESS);
        REQUIRE(c->sends - before == log2_up(rank->size));
        for (size_t i = 0; rank->rank % 3 && i < (size_t)rank->size * bytes; i++)
            REQUIRE(all[i] == (unsigned char)(i / bytes + l + 1));
    }
    ranks_barrier(rank);
    free(all);
    c->base.ops->destroy(&c->base);
}

static void every_size_gathers_in_a_logarithm_of_messages(void **state)
{
    (void)state;
    for (int size = 1; size <= 17; size++)
        ranks_run(size, gather_body, NULL);
    ranks_run(100, gather_body, NULL);
}

/* Ranks 6, 4, ... among themselves, and the others among themselves, as rank 0 the highest. */
static void part_body(struct rank *rank)
{
    struct counting *c = make(rank);
    int members[8], count = 0, place = -1, numbers[8];
    for (int i = rank->size - 1; i >= 0; i--)
        if (i % 2 == rank->rank % 2) {
            place = i == rank->rank ? count : place;
            members[count++] = i;
        }
    const struct out_of_band wait = {.transport = &c->base,
                                     .timeout = 60,
                                     .who = "test",
                                     .members = members,
                                     .count = count,
                                     .place = place};
    REQUIRE_STATUS(out_of_band_gather(&wait, &rank->rank, numbers, sizeof *numbers),
                   ALNICO_SUCCESS);
    REQUIRE(memcmp(numbers, members, (size_t)count * sizeof *numbers) == 0);
    ranks_barrier(rank);
    c->base.ops->destroy(&c->base);
}

static void a_part_of_the_ranks_gathers(void **state)
{
    (void)state;
    ranks_run(7, part_body, NULL);
}

/* Rank 5 does not come: all the others name it, although most do not wait for it. */
static void absent_body(struct rank *rank)
{
    struct counting *c = make(rank);
    const struct out_of_band wait = {.transport = &c->base, .timeout = 0.4, .who = "test"};
    char mine[300] = "", all[11 * 300];
    double before = ranks_seconds();
    if (rank->rank != 5) {
        REQUIRE_STATUS(out_of_band_gather(&wait, mine, all, sizeof mine), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("test: rank 5 did not come within 0.4 s");
        REQUIRE(ranks_seconds() - before < 5);
    }
    ranks_barrier(rank);
    c->base.ops->destroy(&c->base);
}

static void absent_rank_is_named_by_all(void **state)
{
    (void)state;
    ranks_run(11, absent_body, NULL);
}

/* What comes to rank 6 in the first round is lost: it has nothing for ranks 4, 2 and 0, which are told. */
static void broken_body(struct rank *rank)
{
    struct counting *c = make(rank);
    const struct out_of_band wait = {.transport = &c->base, .timeout = 100, .who = "test"};
    char mine[300] = "", all[8 * 300];
    bool lacks = rank->rank % 2 == 0;
    double before = ranks_seconds();
    c->breaks = rank->rank == 6;
    REQUIRE_STATUS(out_of_band_gather(&wait, mine, all, sizeof mine),
                   lacks ? ALNICO_ERROR_SYSTEM : ALNICO_SUCCESS);
    if (lacks)
        ranks_require_detail("test: rank 6: the wire is cut");
    REQUIRE(ranks_seconds() - before < 20);
    ranks_barrier(rank);
    c->base.ops->destroy(&c->base);
}

static void failure_reaches_all_who_lack_something(void **state)
{
    (void)state;
    ranks_run(8, broken_body, NULL);
}

/* Rank 0 finds that rank 2 has ended just before the message of its first round comes. Whoever gets no
 * error has all blocks. */
static void ended_body(struct rank *rank)
{
    struct counting *c = make(rank);
    const struct out_of_band wait = {.transport = &c->base, .timeout = 1, .who = "test"};
    int numbers[4] = {-1, -1, -1, -1};
    c->hides = rank->rank == 0;
    alnico_status_t status = out_of_band_gather(&wait, &rank->rank, numbers, sizeof *numbers);
    REQUIRE(status == ALNICO_SUCCESS || status == ALNICO_ERROR_TIMEOUT);
    for (int i = 0; i < 4 && status == ALNICO_SUCCESS; i++)
        REQUIRE(numbers[i] == i);
    ranks_barrier(rank);
    c->base.ops->destroy(&c->base);
}

static void a_gather_that_ends_early_fails(void **state)
{
    (void)state;
    ranks_run(4, ended_body, NULL);
}

/* With a ring each exchange has 63 messages, one after the other. */
static void creation_body(struct rank *rank)
{
    enum { GATHERS = 10 };
    struct counting *c = make(rank);
    const struct creation made = {.transport = &c->base, .device = &device_cpu, .who = "test"};
    alnico_comm_t comm;
    REQUIRE_STATUS(comm_build(&made, &comm), ALNICO_SUCCESS);
    if (rank->rank == 0)
        printf("%d messages of rank 0\n", c->sends);
    REQUIRE(c->sends > 0 && c->sends <= GATHERS * log2_up(rank->size));
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void creation_has_few_messages(void **state)
{
    (void)state;
    ranks_run(64, creation_body, NULL);
}

/* Messages of the tree go over as many edges as rank 2^20 - 1 has above it, and back. */
static void tree_is_a_logarithm_deep(void **state)
{
    (void)state;
    for (int size = 2; size <= RENDEZVOUS_RANKS; size = 3 * size / 2 + 1)
        for (int rank = size - 1, depth = 0; rank > 0; rank = tree_parent(rank)) {
            assert_true(++depth <= log2_up(size));
            assert_true(rank < tree_parent(rank) + tree_span(tree_parent(rank), size));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_gathers_in_a_logarithm_of_messages),
        cmocka_unit_test(a_part_of_the_ranks_gathers),
        cmocka_unit_test(absent_rank_is_named_by_all),
        cmocka_unit_test(failure_reaches_all_who_lack_something),
        cmocka_unit_test(a_gather_that_ends_early_fails),
        cmocka_unit_test(creation_has_few_messages),
        cmocka_unit_test(tree_is_a_logarithm_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
