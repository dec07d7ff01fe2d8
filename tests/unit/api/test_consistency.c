/* ALNICO_CHECK: whatever ranks call differently, all of them refuse it with what differs, and can
 * go on. */
#include "comm/communicator/comm.h"
#include "comm/communicator/out_of_band.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, ODD = 1, AREA = 256, COUNT = 8 };

struct trial {
    const char *detail; /* what every rank says; NULL: all is well */
    size_t count, send, recv;
    alnico_datatype_t type;
    alnico_op_t op;
    bool nonblocking, in_other; /* the second registration */
};

/* The odd rank's call; the others make the first one. */
static const struct trial trials[] = {
    {NULL, COUNT, 0, 128, ALNICO_FLOAT32, ALNICO_SUM, false, false},
    {"count is 8 on rank 0 and 7 on rank 1", 7, 0, 128, ALNICO_FLOAT32, ALNICO_SUM, false, false},
    {"type is float32 on rank 0 and int32 on rank 1", COUNT, 0, 128, ALNICO_INT32, ALNICO_SUM,
     false, false},
    {"op is sum on rank 0 and maximum on rank 1", COUNT, 0, 128, ALNICO_FLOAT32, ALNICO_MAXIMUM,
     false, false},
    {"rank 0 calls alnico_allreduce, and rank 1 alnico_iallreduce", COUNT, 0, 128, ALNICO_FLOAT32,
     ALNICO_SUM, true, false},
    {"send's offset in its registration is 0 on rank 0 and 64 on rank 1", COUNT, 64, 128,
     ALNICO_FLOAT32, ALNICO_SUM, false, false},
    {"recv's offset in its registration is 128 on rank 0 and 132 on rank 1", COUNT, 0, 132,
     ALNICO_FLOAT32, ALNICO_SUM, false, false},
    {"send's registration (-1: not registered) is 0 on rank 0 and 1 on rank 1", COUNT, 0, 128,
     ALNICO_FLOAT32, ALNICO_SUM, false, true},
    {"recv's registration (-1: not registered) is 0 on rank 0 and -1 on rank 1", COUNT, 0, AREA - 4,
     ALNICO_FLOAT32, ALNICO_SUM, false, false},
};

enum { TRIALS = sizeof trials / sizeof *trials };

/* Two registrations, and behind them what is in none. */
static char areas[RANKS][3 * AREA] __attribute__((aligned(64)));

static alnico_status_t call(const struct trial *t, char *area, alnico_comm_t comm)
{
    alnico_request_t request;
    char *base = area + (t->in_other ? AREA : 0);
    if (!t->nonblocking)
        return alnico_allreduce(base + t->send, base + t->recv, t->count, t->type, t->op, comm);
    alnico_status_t status =
        alnico_iallreduce(base + t->send, base + t->recv, t->count, t->type, t->op, comm, &request);
    return status == ALNICO_SUCCESS ? alnico_wait(&request) : status;
}

static void require_ones(alnico_comm_t comm, char *area)
{
    float *send = (float *)area, *recv = (float *)(area + 128);
    for (int i = 0; i < COUNT; i++)
        send[i] = 1;
    REQUIRE_STATUS(call(&trials[0], area, comm), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(recv[i] == RANKS);
}

static void body(struct rank *rank)
{
    char *area = areas[rank->rank];
    alnico_registration_t first, second;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    comm->family->settings.check = true;
    REQUIRE_STATUS(alnico_comm_register(comm, area, AREA, &first), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_register(comm, area + AREA, AREA, &second), ALNICO_SUCCESS);
    for (int i = 0; i < TRIALS; i++) {
        const struct trial *t = &trials[rank->rank == ODD ? i : 0];
        REQUIRE_STATUS(call(t, area, comm),
                       trials[i].detail ? ALNICO_ERROR_MISMATCH : ALNICO_SUCCESS);
        if (trials[i].detail)
            ranks_require_detail(trials[i].detail);
        require_ones(comm, area);
    }
    void *send = rank->rank == ODD ? NULL : area;
    REQUIRE_STATUS(alnico_allreduce(send, area + 128, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail(rank->rank == ODD ? "send is NULL" : "rank 1 refuses its own arguments");
    require_ones(comm, area);
    alnico_comm_destroy(comm);
}

static void test_what_differs_is_said_on_all_ranks(void **state)
{
    (void)state;
    ranks_run(RANKS, body, NULL);
}

/* ---- A collective against what else all ranks call ---- */

struct others {
    alnico_comm_t comm, out;
    char *memory;
    alnico_registration_t before, registration;
};

static alnico_status_t duplicate(struct others *o)
{
    return alnico_comm_duplicate(o->comm, NULL, &o->out);
}

static alnico_status_t split(struct others *o)
{
    return alnico_comm_split(o->comm, 0, 0, NULL, &o->out);
}

static alnico_status_t force(struct others *o)
{
    return alnico_comm_set_algorithm(o->comm, ALNICO_ALLREDUCE, "ring");
}

static alnico_status_t enroll(struct others *o)
{
    return alnico_comm_register(o->comm, o->memory + AREA, AREA, &o->registration);
}

static alnico_status_t forget(struct others *o)
{
    return alnico_comm_deregister(o->comm, o->before);
}

static const struct {
    const char *name;
    alnico_status_t (*call)(struct others *);
} others[] = {{"alnico_comm_duplicate", duplicate},
              {"alnico_comm_split", split},
              {"alnico_comm_set_algorithm", force},
              {"alnico_comm_register", enroll},
              {"alnico_comm_deregister", forget}};

enum { OTHERS = sizeof others / sizeof *others };

static alnico_status_t call_reduction(struct others *o)
{
    return call(&trials[0], o->memory, o->comm);
}

/* The odd rank calls one thing, all others the second. */
static void require_refusal(struct others *o, bool odd, int i, int j)
{
    char expected[128];
    const char *there = j < 0 ? "alnico_allreduce" : others[j].name;
    alnico_status_t (*usual)(struct others *) = j < 0 ? call_reduction : others[j].call;
    REQUIRE_STATUS(odd ? others[i].call(o) : usual(o), ALNICO_ERROR_MISMATCH);
    snprintf(expected, sizeof expected, "%s: rank 0 calls %s, and rank %d %s",
             odd ? others[i].name : there, there, ODD, others[i].name);
    ranks_require_detail(expected);
    REQUIRE(o->out == NULL && o->registration == NULL);
    REQUIRE_STATUS(alnico_comm_status(o->comm), ALNICO_SUCCESS);
    require_ones(o->comm, o->memory);
}

static void others_body(struct rank *rank)
{
    bool odd = rank->rank == ODD;
    struct others o = {.comm = ranks_comm(rank, NULL), .memory = areas[rank->rank]};
    REQUIRE_STATUS(alnico_comm_register(o.comm, o.memory, AREA, &o.before), ALNICO_SUCCESS);
    for (int i = 0; i < OTHERS; i++)
        require_refusal(&o, odd, i, (i + 1) % OTHERS);
    o.comm->family->settings.check = true;
    for (int i = 0; i < OTHERS; i++)
        require_refusal(&o, odd, i, -1);
    REQUIRE_STATUS(alnico_comm_deregister(o.comm, o.before), ALNICO_SUCCESS);
    alnico_comm_destroy(o.comm);
}

static void test_other_calls_are_refused_too(void **state)
{
    (void)state;
    ranks_run(RANKS, others_body, NULL);
}

/* Ranks that exchange different sizes all the same name the call that they are in. */
static void sizes_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    uint64_t mine[2] = {0}, all[4];
    REQUIRE_STATUS(comm_allgather(comm, "this call", mine, all, rank->rank ? 16 : 8),
                   ALNICO_ERROR_MISMATCH);
    ranks_require_detail("this call: ");
    alnico_comm_destroy(comm);
}

static void test_other_sizes_name_the_call(void **state)
{
    (void)state;
    ranks_run(2, sizes_body, NULL);
}

/* Then a rank's own block lies elsewhere on each. */
static void in_place_body(struct rank *rank)
{
    float *area = (float *)(void *)areas[rank->rank], *own = area + rank->rank * COUNT;
    alnico_registration_t registration;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    comm->family->settings.check = true;
    REQUIRE_STATUS(alnico_comm_register(comm, area, AREA, &registration), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        own[i] = (float)(rank->rank + 1);
    REQUIRE_STATUS(alnico_allgather(own, area, COUNT, ALNICO_FLOAT32, comm), ALNICO_SUCCESS);
    for (int i = 0; i < RANKS * COUNT; i++)
        REQUIRE(area[i] == (float)(i / COUNT + 1));
    REQUIRE_STATUS(alnico_reduce_scatter(area, own, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(own[i] == (float)(RANKS * (rank->rank + 1)));
    /* The blocks of all must still be where they are on the others. */
    float *all = area + (rank->rank == ODD ? COUNT : 0);
    REQUIRE_STATUS(alnico_allgather(all + rank->rank * COUNT, all, COUNT, ALNICO_FLOAT32, comm),
                   ALNICO_ERROR_MISMATCH);
    ranks_require_detail("recv's offset in its registration is 0 on rank 0 and 32 on rank 1");
    alnico_comm_destroy(comm);
}

static void test_own_blocks_may_lie_anywhere(void **state)
{
    (void)state;
    ranks_run(RANKS, in_place_body, NULL);
}

/* A rank that does not call is waited for until the deadline, and then nothing can be trusted any
 * more. */
static void absent_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    comm->family->settings.check = true;
    comm->family->settings.timeout = 2; /* long, or a rank that is held up is missing too */
    if (rank->rank != ODD) {
        REQUIRE_STATUS(call(&trials[0], areas[rank->rank], comm), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("rank 1 did not come");
        REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_ERROR_TIMEOUT);
    }
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void test_who_does_not_call_is_named(void **state)
{
    (void)state;
    ranks_run(RANKS, absent_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_differs_is_said_on_all_ranks),
        cmocka_unit_test(test_other_calls_are_refused_too),
        cmocka_unit_test(test_other_sizes_name_the_call),
        cmocka_unit_test(test_own_blocks_may_lie_anywhere),
        cmocka_unit_test(test_who_does_not_call_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
