/* The shared-memory protocol under many schedules: one thread polls the ranks in a random order, in
 * which some rest for long while others go on as far as they may. All collectives, by all ways, in
 * sequences in which a few of them follow each other with roots that stay or change, so that ranks
 * run ahead over every buffer. What is overwritten too early is read wrong, and a wait that never
 * ends is seen at once. */
#include "base/datatype.h"
#include "comm/backends/peer/peer.h"

#include "tests/support/reference.h"
#include "tests/unit/backends/peer_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    WAYS = PEER_CPU_MULTIPLYING + 1,
    STRETCH = 60, /* calls */
    FEW = 3,
    STAGE = 64 << 10 /* bytes of a stage of few ranks; some calls fill several to the last line */
};

/* A reduce has three ways. */
static const alnico_collective_t all[] = {
    ALNICO_REDUCE,    ALNICO_REDUCE,     ALNICO_BROADCAST,      ALNICO_GATHER,
    ALNICO_SCATTER,   ALNICO_GATHERV,    ALNICO_SCATTERV,       ALNICO_ALLREDUCE,
    ALNICO_ALLGATHER, ALNICO_ALLGATHERV, ALNICO_REDUCE_SCATTER, ALNICO_REDUCE_SCATTERV,
    ALNICO_ALLTOALL,  ALNICO_ALLTOALLV,  ALNICO_BARRIER};
enum { KINDS = sizeof all / sizeof *all, ROOTED = 7 };

static uint64_t pick(uint64_t a, uint64_t b, uint64_t limit)
{
    return reference_random(trial_seed, a, b) % limit;
}

/* ---- What is called ---- */

/* Of each stretch only one kind or a few, most often of those in which not everybody hears from
 * everybody. */
static alnico_collective_t kind_of(uint64_t i)
{
    uint64_t stretch = i / STRETCH;
    uint64_t which = stretch * FEW + pick(i, 1, 1 + pick(stretch, 4, FEW));
    return all[pick(which, 2, pick(stretch, 3, 4) ? ROOTED : KINDS)];
}

static size_t count_of(uint64_t i, int size)
{
    const size_t most[] = {3, 14, 60, 400, 2000, 30000 / (size_t)size};
    return (size_t)pick(i, 5, most[pick(i / STRETCH, 6, 6)] + 1);
}

static int root_of(uint64_t i, int size)
{
    uint64_t turns[] = {i, i / 7, i / STRETCH};
    uint64_t how = pick(i / STRETCH, 7, 3);
    return (int)pick(turns[how], 8 + how, (uint64_t)size);
}

static struct trial trial_at(uint64_t i, int size)
{
    static const alnico_datatype_t types[] = {ALNICO_INT32, ALNICO_INT8, ALNICO_FLOAT16,
                                              ALNICO_INT64};
    struct trial t = {
        .call = {.collective = kind_of(i), .type = types[pick(i, 12, 4)], .op = ALNICO_SUM},
        .in_place = pick(i, 13, 2),
        .salt = i};
    t.call.count = t.call.collective == ALNICO_BARRIER ? 1 : count_of(i, size);
    if (t.call.collective == ALNICO_ALLREDUCE && pick(i, 16, 4) == 0)
        t.call.count = (1 + pick(i, 17, 4)) * STAGE / datatype_bytes(t.call.type);
    t.call.root = call_has_root(&t.call) ? root_of(i, size) : 0;
    t.way = (enum peer_algorithm)pick(pick(i / STRETCH, 15, 2) ? i : i / STRETCH, 14, WAYS);
    if (!peer_does(t.call.collective, t.way))
        t.way = PEER_CPU_ONE_SHOT;
    return t;
}

/* ---- In which order ---- */

struct seat {
    struct rank rank;
    struct peer *peer;
    struct trial_run *run; /* NULL: between two calls */
    uint64_t done;
    bool rests;
};

struct table {
    struct seat seats[PEER_RANKS];
    int size, left;
    uint64_t first, rounds, drawn;
};

static uint64_t draw(struct table *table, uint64_t limit)
{
    return pick(++table->drawn, 100 + (uint64_t)table->size, limit);
}

/* Whether anything went on. */
static bool poll_seat(struct table *table, struct seat *seat)
{
    bool moved = false;
    if (seat->done == table->rounds)
        return false;
    if (!seat->run) {
        struct trial t = trial_at(table->first + seat->done, table->size);
        seat->run = trial_begin(&seat->rank, seat->peer, &t);
    }
    if (!trial_poll(seat->run, &moved))
        return moved;
    seat->run = NULL;
    table->left -= ++seat->done == table->rounds;
    return true;
}

/* All but one rest, one rests, or about half. */
static void send_to_rest(struct table *table)
{
    uint64_t how = draw(table, 4), one = draw(table, (uint64_t)table->size);
    for (int r = 0; r < table->size; r++)
        table->seats[r].rests = how == 0   ? (uint64_t)r != one
                                : how == 1 ? (uint64_t)r == one
                                           : draw(table, 2);
}

/* Nobody who is awake goes on: the others must. */
static void wake(struct table *table)
{
    bool any = false;
    for (int r = 0; r < table->size; r++)
        any |= poll_seat(table, &table->seats[r]);
    REQUIRE(any);
    send_to_rest(table);
}

static void run_all(struct table *table)
{
    int idle = 0;
    while (table->left) {
        struct seat *seat = &table->seats[draw(table, (uint64_t)table->size)];
        bool moved = !seat->rests && poll_seat(table, seat);
        idle = moved ? 0 : idle + 1;
        if (idle > 4 * table->size) {
            wake(table);
            idle = 0;
        }
    }
}

static void run_sequence(int size, uint64_t rounds)
{
    struct table *table = calloc(1, sizeof *table);
    void *area = aligned_alloc(4096, peer_bytes(size));
    REQUIRE(table && area);
    memset(area, 0, peer_bytes(size));
    *table = (struct table){.size = size, .left = size, .rounds = rounds};
    table->first = (uint64_t)size * 1000 * STRETCH; /* other calls for each size */
    for (int r = 0; r < size; r++) {
        table->seats[r].rank = (struct rank){.rank = r, .size = size};
        REQUIRE_STATUS(peer_create(area, r, size, &table->seats[r].peer), ALNICO_SUCCESS);
    }
    run_all(table);
    for (int r = 0; r < size; r++)
        peer_destroy(table->seats[r].peer);
    free(area);
    free(table);
}

static void test_schedules(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 17, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run_sequence(sizes[i], (sizes[i] > 20 ? 2 : 20) * STRETCH);
}

int main(void)
{
    const char *text = getenv("ALNICO_TEST_SEED");
    trial_seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    printf("seed: ALNICO_TEST_SEED=%llu\n", (unsigned long long)trial_seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
