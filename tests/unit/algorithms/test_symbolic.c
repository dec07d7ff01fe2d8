/* Groups of messages; and that the machine of the symbolic tests sees every kind of broken rule. */
#include "tests/unit/algorithms/symbolic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Groups of messages ---- */

enum { GROUP_RANKS = 5, GROUP_MESSAGES = 40, LONGEST = 9, SLOT = LONGEST + 1 };

/* Message i goes from one random rank to another, some to itself, and lies at i * SLOT of both
 * sides. */
static int from_of(uint64_t turn, int i)
{
    return (int)(symbolic_token((int)turn, i, 1) % GROUP_RANKS);
}

static int to_of(uint64_t turn, int i)
{
    return (int)(symbolic_token((int)turn, i, 2) % GROUP_RANKS);
}

static struct span span_of(uint64_t turn, int i, enum buffer in)
{
    return (struct span){in, (size_t)i * SLOT, symbolic_token((int)turn, i, 3) % (LONGEST + 1)};
}

/* A rank's sends and receives, each in the order of the messages, but mixed. */
static int list_messages(uint64_t turn, int rank, struct exchange *out)
{
    int count = 0, sent = 0, got = 0;
    while (sent < GROUP_MESSAGES || got < GROUP_MESSAGES) {
        bool sends = got == GROUP_MESSAGES ||
                     (sent < GROUP_MESSAGES &&
                      symbolic_token((int)turn, rank, 9 + (size_t)(sent + got)) % 2);
        int i = sends ? sent++ : got++;
        int from = from_of(turn, i), to = to_of(turn, i);
        struct span send = span_of(turn, i, BUFFER_SEND), recv = span_of(turn, i, BUFFER_RECV);
        if (from == rank && to == rank && sends)
            exchange_both(&out[count++], rank, send, rank, recv, false);
        else if (sends && from == rank && to != rank)
            exchange_send(&out[count++], to, send);
        else if (!sends && to == rank && from != rank)
            exchange_receive(&out[count++], from, recv, false);
    }
    return count;
}

struct group_rank {
    uint64_t send[GROUP_MESSAGES * SLOT], recv[GROUP_MESSAGES * SLOT];
    struct exchange messages[GROUP_MESSAGES];
};

static void begin_group(uint64_t turn, int rank, struct group_rank *g, struct symbolic_rank *out)
{
    *g = (struct group_rank){0};
    for (size_t e = 0; e < GROUP_MESSAGES * SLOT; e++)
        g->send[e] = symbolic_token(rank, 0, e);
    *out =
        (struct symbolic_rank){.shape = {.rank = rank,
                                         .size = GROUP_RANKS,
                                         .messages = g->messages,
                                         .messages_count = list_messages(turn, rank, g->messages)},
                               .buffer = {g->send, g->recv, NULL},
                               .elements = {GROUP_MESSAGES * SLOT, GROUP_MESSAGES * SLOT, 0}};
}

static void check_message(uint64_t turn, int i, const struct group_rank *receiver)
{
    struct span span = span_of(turn, i, BUFFER_RECV);
    for (size_t e = 0; e < SLOT; e++)
        assert_true(
            receiver->recv[span.at + e] ==
            (e < span.len ? symbolic_token(from_of(turn, i), 0, span.at + e) : SYMBOLIC_NOTHING));
}

static void test_messages_of_a_group_meet_in_their_order(void **state)
{
    (void)state;
    static struct group_rank group[GROUP_RANKS];
    struct symbolic_rank ranks[GROUP_RANKS];
    for (uint64_t turn = 0; turn < 300; turn++) {
        for (int r = 0; r < GROUP_RANKS; r++)
            begin_group(turn, r, &group[r], &ranks[r]);
        const char *complaint = symbolic_run(&algorithm_sendrecv_direct, ranks, GROUP_RANKS, false);
        if (complaint)
            fail_msg("group %d: %s", (int)turn, complaint);
        for (int i = 0; i < GROUP_MESSAGES; i++)
            check_message(turn, i, &group[to_of(turn, i)]);
    }
}

/* ---- What must not pass ---- */

enum { RANKS = 5, COUNT = 4, STRIDE = 6, VICTIM = 2 };

/* What goes wrong at one rank in its second round, the first with the number 0. */
static const char *const complaints[] = {
    "reads what is not there yet",
    "sends from outside its buffer",
    "receives outside its buffer",
    "writes SEND",
    "writes what is not the operation's",
    "reads what is not the operation's",
    "overwrites what it sends",
    "a message of another length",
    "waits for ever",
    "too many exchanges in one round",
    "exchanges of one round depend on each other",
    "names a rank that there is not",
    "sends to itself",
    "exchanges with nobody",
    "copies unequal lengths",
    NULL,
};
static int fault;

static bool spoil(const struct shape *shape, struct exchange *x)
{
    struct span own = {BUFFER_SEND, 0, COUNT};
    switch (fault) {
    case 0:
        x->send = recv_block(shape, VICTIM + 1);
        return true;
    case 1:
        x->send.at = RANKS * STRIDE - 2;
        return true;
    case 2:
        x->recv.at = (size_t)-1;
        return true;
    case 3:
        x->recv = own;
        return true;
    case 4:
        x->recv.at++;
        return true;
    case 5:
        x->send.at++;
        return true;
    case 6:
        x->recv = x->send;
        return true;
    case 7:
        x->recv.len--;
        return true;
    case 8:
        x->to = -1;
        return true;
    case 11:
        x->to = RANKS;
        return true;
    case 12:
        x->to = VICTIM;
        return true;
    case 13:
        x->to = x->from = -1;
        return true;
    case 14:
        x->send.len--;
        return exchange_copy(shape, x, x->send, x->recv);
    }
    return true;
}

/* The ring allgather with a fault. */
static bool faulty_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    bool any = algorithm_allgather_ring.round(shape, i, k, out);
    if (shape->rank != VICTIM || i != 1)
        return any;
    if (k == 0)
        return spoil(shape, out);
    struct span own = {BUFFER_SEND, 0, COUNT};
    if (fault == 9)
        return exchange_send(out, VICTIM + 1, own);
    return fault == 10 && k == 1 && exchange_copy(shape, out, own, recv_block(shape, VICTIM - 2));
}

static const char *run_faulty(void)
{
    static uint64_t send[RANKS][COUNT], recv[RANKS][RANKS * STRIDE];
    struct symbolic_rank ranks[RANKS];
    struct algorithm faulty = algorithm_allgather_ring;
    faulty.round = faulty_round;
    for (int r = 0; r < RANKS; r++) {
        for (size_t e = 0; e < COUNT; e++)
            send[r][e] = symbolic_token(r, 0, e);
        for (size_t e = 0; e < RANKS * STRIDE; e++)
            recv[r][e] = e % STRIDE < COUNT ? SYMBOLIC_NOTHING : SYMBOLIC_FOREIGN;
        ranks[r] = (struct symbolic_rank){
            .shape = {.rank = r, .size = RANKS, .count = COUNT, .stride = STRIDE},
            .buffer = {send[r], recv[r], NULL},
            .elements = {COUNT, RANKS * STRIDE, 0}};
    }
    return symbolic_run(&faulty, ranks, RANKS, false);
}

static void test_every_broken_rule_is_seen(void **state)
{
    (void)state;
    for (fault = 0; complaints[fault]; fault++) {
        const char *complaint = run_faulty();
        if (!complaint || !strstr(complaint, complaints[fault]))
            fail_msg("fault %d: %s instead of: %s", fault, complaint ? complaint : "nothing",
                     complaints[fault]);
    }
    assert_null(run_faulty());
}

static void test_room_for_arrivals_is_limited(void **state)
{
    (void)state;
    struct algorithm cramped = algorithm_recursive_doubling;
    struct symbolic_rank ranks[2];
    uint64_t recv[2] = {symbolic_token(0, 0, 0), symbolic_token(1, 0, 0)};
    cramped.arrivals = nothing_arrives;
    for (int r = 0; r < 2; r++)
        ranks[r] = (struct symbolic_rank){.shape = {.rank = r, .size = 2, .count = 1},
                                          .buffer = {NULL, &recv[r], NULL},
                                          .elements = {0, 1, 0}};
    assert_non_null(strstr(symbolic_run(&cramped, ranks, 2, false), "more arrives than"));
    assert_null(symbolic_run(&algorithm_recursive_doubling, ranks, 2, false));
    assert_true(recv[0] == recv[1] && recv[0] == symbolic_token(0, 0, 0) + symbolic_token(1, 0, 0));
}

/* A rank that must keep its vector adds to it. */
static void test_a_kept_vector_is_not_written(void **state)
{
    (void)state;
    struct symbolic_rank ranks[2];
    uint64_t recv[2] = {symbolic_token(0, 0, 0), symbolic_token(1, 0, 0)};
    for (int r = 0; r < 2; r++)
        ranks[r] = (struct symbolic_rank){.shape = {.rank = r, .size = 2, .count = 1},
                                          .buffer = {NULL, &recv[r], NULL},
                                          .elements = {0, 1, 0},
                                          .keeps_recv = r == 1};
    assert_non_null(strstr(symbolic_run(&algorithm_recursive_doubling, ranks, 2, false),
                           "rank 1, round 0: writes a RECV that is kept"));
}

static int fewer_rounds(const struct shape *shape)
{
    return algorithm_barrier_dissemination.rounds(shape) - 1;
}

static void test_a_barrier_hears_of_all(void **state)
{
    (void)state;
    struct algorithm hasty = algorithm_barrier_dissemination;
    struct symbolic_rank ranks[RANKS];
    hasty.rounds = fewer_rounds;
    for (int r = 0; r < RANKS; r++)
        ranks[r] = (struct symbolic_rank){.shape = {.rank = r, .size = RANKS, .count = 1}};
    assert_non_null(strstr(symbolic_run(&hasty, ranks, RANKS, true), "has not heard of all"));
    assert_null(symbolic_run(&algorithm_barrier_dissemination, ranks, RANKS, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_of_a_group_meet_in_their_order),
        cmocka_unit_test(test_every_broken_rule_is_seen),
        cmocka_unit_test(test_room_for_arrivals_is_limited),
        cmocka_unit_test(test_a_kept_vector_is_not_written),
        cmocka_unit_test(test_a_barrier_hears_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
