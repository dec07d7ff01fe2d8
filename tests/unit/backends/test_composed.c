/* The composed backend, which captures what no other backend does: every such collective leaves on
 * every rank what it leaves eagerly, and nothing else is written. The communicators are the CPU's
 * with the rows of CUDA, whose allreduce and messages are made up here: the ranks meet and read each
 * other's buffers, one after the other. */
#include "comm/backends/composed/composed.h"
#include "comm/communicator/comm.h"
#include "comm/operations/stream_operation.h"

#include "base/status.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, COUNT = 5, AREA = 64 };

/* ---- The made-up backend ---- */

/* A call that a rank has begun; on a stream it outlives the call. */
struct post {
    struct call call;
    struct exchange *messages;
    int rank;
};

static struct rank *ranks[RANKS];
static const struct call *posted[RANKS];
static atomic_int allreduces, groups;

/* Whether messages of a rank were prepared, which their backend asks for before the first. */
static bool ready[RANKS];
static atomic_int made;

static void reduce_all(const struct post *post)
{
    const struct call *call = &post->call;
    int32_t *sum = malloc(call->count * sizeof *sum);
    REQUIRE(sum && call->count > 0 && call->type == ALNICO_INT32);
    memcpy(sum, posted[0]->send, call->count * sizeof *sum);
    for (int r = 1; r < RANKS; r++) {
        REQUIRE(posted[r]->count == call->count && posted[r]->op == call->op);
        device_cpu.reduce(sum, sum, posted[r]->send, call->count, call->type, call->op, NULL);
    }
    ranks_barrier(ranks[post->rank]);
    memcpy(call->recv, sum, call->count * sizeof *sum);
    free(sum);
    atomic_fetch_add(&allreduces, 1);
}

/* The message from the rank that is the so manieth to this one. */
static const struct exchange *find_message(int from, int to, int number)
{
    for (int i = 0; i < posted[from]->messages_count; i++)
        if (posted[from]->messages[i].to == to && number-- == 0)
            return &posted[from]->messages[i];
    return NULL;
}

static void receive(const struct post *post)
{
    int received[RANKS] = {0};
    for (int i = 0; i < post->call.messages_count; i++) {
        const struct exchange *x = &post->call.messages[i];
        if (x->from < 0)
            continue;
        const struct exchange *sent = find_message(x->from, post->rank, received[x->from]++);
        REQUIRE(sent && sent->send.len == x->recv.len && x->recv.len > 0);
        memcpy((char *)post->call.recv + x->recv.at,
               (const char *)posted[x->from]->send + sent->send.at, x->recv.len);
    }
    atomic_fetch_add(&groups, 1);
}

static void meet(void *argument)
{
    struct post *post = argument;
    posted[post->rank] = &post->call;
    ranks_barrier(ranks[post->rank]);
    if (post->call.collective == ALNICO_ALLREDUCE)
        reduce_all(post);
    for (int r = 0; r < RANKS; r++) { /* what is overwritten too early is seen by who comes later */
        if (r == post->rank && post->call.collective == ALNICO_SENDRECV)
            receive(post);
        ranks_barrier(ranks[post->rank]);
    }
    free(post->messages);
    free(post);
}

static alnico_status_t launch(alnico_comm_t comm, const struct call *call,
                              const struct choice *choice, void *stream)
{
    struct post *post = malloc(sizeof *post);
    size_t bytes = (size_t)call->messages_count * sizeof *call->messages;
    (void)choice;
    REQUIRE(post != NULL);
    *post = (struct post){*call, malloc(bytes + 1), comm->rank};
    REQUIRE(post->messages != NULL);
    if (bytes)
        memcpy(post->messages, call->messages, bytes);
    post->call.messages = post->messages;
    REQUIRE(call->collective == ALNICO_ALLREDUCE || ready[comm->rank]);
    if (stream)
        return alnico_stream_enqueue(stream, meet, post);
    meet(post);
    return ALNICO_SUCCESS;
}

static bool prepared(alnico_comm_t comm, const struct algorithm *algorithm)
{
    (void)algorithm;
    return ready[comm->rank];
}

static alnico_status_t prepare(alnico_comm_t comm, const struct algorithm *algorithm,
                               const char *who)
{
    (void)algorithm, (void)who;
    ready[comm->rank] = true;
    atomic_fetch_add(&made, 1);
    return ALNICO_SUCCESS;
}

static const struct backend_ops made_up_ops = {.capturable = true,
                                               .prepared = prepared,
                                               .prepare = prepare,
                                               .start = stream_operation_start,
                                               .launch = launch};
static const struct backend made_up = {.name = "made-up", .ops = &made_up_ops};

static uint64_t capturing(void *stream)
{
    (void)stream;
    return 1;
}

/* A communicator that is being captured, for which there is an allreduce, and messages. */
static alnico_comm_t open_captured(struct rank *rank, struct device_ops *device, bool reduces,
                                   bool sends)
{
    const struct choice choice = {.backend = &made_up, .chunk_bytes = 1024};
    alnico_comm_t comm = ranks_comm(rank, NULL);
    *device = device_cpu;
    device->kind = ALNICO_DEVICE_CUDA;
    device->capturing = capturing;
    comm->device = device;
    tuning_steps_finish(&comm->tuning);
    REQUIRE_STATUS(tuning_steps_init(&comm->tuning, NULL, ALNICO_DEVICE_CUDA, comm->size, 1),
                   ALNICO_SUCCESS);
    if (reduces)
        tuning_steps_force(&comm->tuning, ALNICO_ALLREDUCE, &choice);
    if (sends)
        tuning_steps_force(&comm->tuning, ALNICO_SENDRECV, &choice);
    ready[comm->rank] = false;
    return comm;
}

static void close_captured(alnico_comm_t comm)
{
    comm->device = &device_cpu;
    alnico_comm_destroy(comm);
}

/* ---- Calls ---- */

struct buffers {
    int32_t send[AREA], recv[AREA];
    int rank;
};

/* The blocks of `buffers`, from the last one down, with gaps; counts between two ranks are equal. */
static const size_t counts[RANKS] = {3, 0, 7}, at[RANKS] = {20, 13, 2};
static const size_t pairs[RANKS][RANKS] = {{2, 5, 0}, {5, 1, 4}, {0, 4, 3}};
static const size_t pairs_at[RANKS] = {20, 10, 1};

typedef alnico_status_t call_function(alnico_comm_t comm, struct buffers *b, alnico_request_t *r);

#define CALL(NAME, ...)                                                                            \
    static alnico_status_t NAME(alnico_comm_t comm, struct buffers *b, alnico_request_t *r)        \
    {                                                                                              \
        (void)r;                                                                                   \
        return __VA_ARGS__;                                                                        \
    }
#define I32 ALNICO_INT32
#define XOR ALNICO_BITWISE_XOR
#define SEND_AT(ROOT) (b->rank == (ROOT) ? (const void *)ALNICO_IN_PLACE : b->send)

CALL(reduce, alnico_reduce(b->send, b->recv, COUNT, I32, XOR, 1, comm))
CALL(reduce_in_place, alnico_reduce(SEND_AT(2), b->recv, COUNT, I32, ALNICO_PRODUCT, 2, comm))
CALL(reduce_later, alnico_ireduce(b->send, b->recv, COUNT, I32, ALNICO_LOGICAL_OR, 0, comm, r))
CALL(reduce_nothing, alnico_reduce(b->send, b->recv, 0, I32, XOR, 1, comm))
CALL(scatter_sums, alnico_reduce_scatter(b->send, b->recv, COUNT, I32, XOR, comm))
CALL(scatter_sums_in_place,
     alnico_reduce_scatter(ALNICO_IN_PLACE, b->recv, COUNT, I32, ALNICO_BITWISE_AND, comm))
CALL(scatter_sums_later, alnico_ireduce_scatter(b->send, b->recv, COUNT, I32, XOR, comm, r))
CALL(scatter_uneven_sums, alnico_reduce_scatterv(b->send, b->recv, counts, I32, XOR, comm))
CALL(broadcast, alnico_broadcast(b->recv, COUNT, I32, 2, comm))
CALL(broadcast_to, alnico_broadcast_to(b->send, b->recv, COUNT, I32, 1, comm))
CALL(allgather, alnico_allgather(b->send, b->recv, COUNT, I32, comm))
CALL(allgather_in_place, alnico_allgather(ALNICO_IN_PLACE, b->recv, COUNT, I32, comm))
CALL(allgatherv, alnico_allgatherv(b->send, counts[b->rank], b->recv, counts, at, I32, comm))
CALL(gather, alnico_gather(b->send, b->recv, COUNT, I32, 1, comm))
CALL(gather_in_place, alnico_gather(SEND_AT(0), b->recv, COUNT, I32, 0, comm))
CALL(gatherv, alnico_gatherv(b->send, counts[b->rank], b->recv, counts, at, I32, 2, comm))
CALL(scatter, alnico_scatter(b->send, b->recv, COUNT, I32, 2, comm))
CALL(scatterv, alnico_scatterv(b->send, counts, at, b->recv, counts[b->rank], I32, 0, comm))
CALL(alltoall, alnico_alltoall(b->send, b->recv, COUNT, I32, comm))
CALL(alltoall_in_place, alnico_alltoall(ALNICO_IN_PLACE, b->recv, COUNT, I32, comm))
CALL(alltoall_in_place_later, alnico_ialltoall(ALNICO_IN_PLACE, b->recv, COUNT, I32, comm, r))
CALL(alltoallv,
     alnico_alltoallv(b->send, pairs[b->rank], pairs_at, b->recv, pairs[b->rank], NULL, I32, comm))
CALL(alltoallv_in_place,
     alnico_alltoallv(ALNICO_IN_PLACE, NULL, NULL, b->recv, pairs[b->rank], pairs_at, I32, comm))

static const struct test_call {
    const char *name;
    call_function *function;
    bool reduces, later;
} calls[] = {
    {"reduce", reduce, true, false},
    {"reduce in place", reduce_in_place, true, false},
    {"ireduce", reduce_later, true, true},
    {"reduce of nothing", reduce_nothing, true, false},
    {"reduce_scatter", scatter_sums, true, false},
    {"reduce_scatter in place", scatter_sums_in_place, true, false},
    {"ireduce_scatter", scatter_sums_later, true, true},
    {"reduce_scatterv", scatter_uneven_sums, true, false},
    {"broadcast", broadcast, false, false},
    {"broadcast_to", broadcast_to, false, false},
    {"allgather", allgather, false, false},
    {"allgather in place", allgather_in_place, false, false},
    {"allgatherv", allgatherv, false, false},
    {"gather", gather, false, false},
    {"gather in place", gather_in_place, false, false},
    {"gatherv", gatherv, false, false},
    {"scatter", scatter, false, false},
    {"scatterv", scatterv, false, false},
    {"alltoall", alltoall, false, false},
    {"alltoall in place", alltoall_in_place, false, false},
    {"ialltoall in place", alltoall_in_place_later, false, true},
    {"alltoallv", alltoallv, false, false},
    {"alltoallv in place", alltoallv_in_place, false, false},
};
enum { CALLS = sizeof calls / sizeof *calls };

static void fill(struct buffers *b, int rank)
{
    b->rank = rank;
    for (size_t i = 0; i < AREA; i++) {
        b->send[i] = (int32_t)reference_random(1, (uint64_t)rank, i);
        b->recv[i] = (int32_t)reference_random(2, (uint64_t)rank, i);
    }
}

static void carry_out(const struct test_call *call, alnico_comm_t comm, struct buffers *b)
{
    alnico_request_t request = NULL;
    fill(b, comm->rank);
    REQUIRE_STATUS(call->function(comm, b, &request), ALNICO_SUCCESS);
    if (request)
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
}

static void compare_all(struct rank *rank)
{
    static struct device_ops devices[RANKS];
    struct buffers eager, captured;
    ranks[rank->rank] = rank;
    ranks_barrier(rank);
    alnico_comm_t plain = ranks_comm(rank, NULL);
    alnico_comm_t comm = open_captured(rank, &devices[rank->rank], true, true);
    for (int i = 0; i < CALLS; i++) {
        carry_out(&calls[i], plain, &eager);
        carry_out(&calls[i], comm, &captured);
        if (memcmp(&eager, &captured, sizeof eager))
            fprintf(stderr, "rank %d: %s\n", rank->rank, calls[i].name);
        REQUIRE(memcmp(&eager, &captured, sizeof eager) == 0);
    }
    close_captured(comm);
    alnico_comm_destroy(plain);
}

static void what_is_composed_is_what_runs_eagerly(void **state)
{
    int sums = 0;
    (void)state;
    ranks_run(RANKS, compare_all, NULL);
    assert_int_equal(atomic_load(&made), RANKS);
    for (int i = 0; i < CALLS; i++)
        sums += calls[i].reduces;
    assert_int_equal(atomic_load(&allreduces), RANKS * (sums - 1)); /* one has no elements */
    assert_int_equal(atomic_load(&groups), RANKS * (CALLS - sums));
}

/* Without what it would be made of a call is refused, and the communicator goes on. */
static void refuse(struct rank *rank)
{
    static struct device_ops devices[RANKS];
    struct buffers b;
    ranks[rank->rank] = rank;
    ranks_barrier(rank);
    for (int reduces = 0; reduces < 2; reduces++) {
        alnico_comm_t comm = open_captured(rank, &devices[rank->rank], reduces, !reduces);
        for (int i = 0; i < CALLS; i++) {
            alnico_request_t request = NULL;
            if (calls[i].reduces == (bool)reduces) {
                carry_out(&calls[i], comm, &b);
                continue;
            }
            fill(&b, rank->rank);
            REQUIRE_STATUS(calls[i].function(comm, &b, &request), ALNICO_ERROR_UNSUPPORTED);
            ranks_require_detail("while a graph is captured");
            REQUIRE(!request);
        }
        REQUIRE_STATUS(alnico_barrier(comm), ALNICO_ERROR_UNSUPPORTED);
        REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_SUCCESS);
        close_captured(comm);
    }
}

static void without_parts_it_is_refused(void **state)
{
    (void)state;
    ranks_run(RANKS, refuse, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_composed_is_what_runs_eagerly),
        cmocka_unit_test(without_parts_it_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
