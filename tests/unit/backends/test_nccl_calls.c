/* What is carried out by groups of NCCL's calls: over a made-up NCCL, which takes only groups whose
 * sends and receives meet, in number and length, every rank ends up with its blocks and nothing
 * else is written. Linked with --wrap. */
#include "comm/backends/nccl/algorithms.h"
#include "comm/backends/nccl/calls.h"
#include "comm/backends/nccl/nccl.h"

#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, MOST = 7, AREA = RANKS * (MOST + 3), DEEDS = 64, UNTOUCHED = -1 };

/* ---- The made-up NCCL ---- */

struct deed {
    int to, from, root; /* -1: not */
    const int *send;
    int *recv;
    size_t count;
};

static struct list {
    struct deed deeds[DEEDS];
    int count;
} lists[RANKS];

static _Thread_local struct rank *me;
static _Thread_local bool open;

static ncclResult_t fake_ncclGroupStart(void)
{
    REQUIRE(!open);
    open = true;
    lists[me->rank].count = 0;
    return ncclSuccess;
}

static void add(struct deed deed)
{
    struct list *list = &lists[me->rank];
    REQUIRE(open && deed.count > 0 && list->count < DEEDS);
    list->deeds[list->count++] = deed;
}

static ncclResult_t fake_ncclSend(const void *send, size_t count, ncclDataType_t type, int to,
                                  ncclComm_t nccl, cudaStream_t stream)
{
    (void)nccl, (void)stream;
    REQUIRE(to >= 0 && to < me->size && (type == ncclInt32 || type == ncclUint8));
    add((struct deed){to, -1, -1, send, NULL, type == ncclUint8 ? count / 4 : count});
    return ncclSuccess;
}

static ncclResult_t fake_ncclRecv(void *recv, size_t count, ncclDataType_t type, int from,
                                  ncclComm_t nccl, cudaStream_t stream)
{
    (void)nccl, (void)stream;
    REQUIRE(from >= 0 && from < me->size);
    add((struct deed){-1, from, -1, NULL, recv, type == ncclUint8 ? count / 4 : count});
    return ncclSuccess;
}

static ncclResult_t fake_ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                    ncclRedOp_t op, int root, ncclComm_t nccl, cudaStream_t stream)
{
    (void)nccl, (void)stream;
    REQUIRE(type == ncclInt32 && op == ncclSum);
    add((struct deed){-1, -1, root, send, recv, count});
    return ncclSuccess;
}

/* The n-th of rank `from`'s list that goes to `to`. */
static const struct deed *nth_send(int from, int to, int n)
{
    for (int i = 0; i < lists[from].count; i++)
        if (lists[from].deeds[i].to == to && n-- == 0)
            return &lists[from].deeds[i];
    return NULL;
}

static void receive_all(int from)
{
    const struct list *own = &lists[me->rank];
    int n = 0;
    for (int i = 0; i < own->count; i++)
        if (own->deeds[i].from == from) {
            const struct deed *sent = nth_send(from, me->rank, n++);
            REQUIRE(sent != NULL && sent->count == own->deeds[i].count);
            memcpy(own->deeds[i].recv, sent->send, sent->count * sizeof(int));
        }
    REQUIRE(!nth_send(from, me->rank, n)); /* it would wait for ever */
}

static void reduce_all(int i)
{
    const struct deed *own = &lists[me->rank].deeds[i];
    for (size_t k = 0; k < own->count; k++) {
        int sum = 0;
        for (int r = 0; r < me->size; r++) {
            REQUIRE(lists[r].deeds[i].root == own->root && lists[r].deeds[i].count == own->count);
            sum += lists[r].deeds[i].send[k];
        }
        own->recv[k] = sum;
    }
}

static ncclResult_t fake_ncclGroupEnd(void)
{
    REQUIRE(open);
    open = false;
    ranks_barrier(me);
    for (int r = 0; r < me->size; r++)
        receive_all(r);
    for (int i = 0; i < lists[me->rank].count; i++)
        if (lists[me->rank].deeds[i].root == me->rank)
            reduce_all(i);
    ranks_barrier(me);
    return ncclSuccess;
}

static const char *fake_ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "made-up error";
}

static const char *fake_ncclGetLastError(ncclComm_t nccl)
{
    (void)nccl;
    return "";
}

const struct nccl_library *__wrap_nccl_library(void);
const struct nccl_library *__wrap_nccl_library(void)
{
    static const struct nccl_library functions = {
        .ncclGetErrorString = fake_ncclGetErrorString,
        .ncclGetLastError = fake_ncclGetLastError,
        .ncclGroupStart = fake_ncclGroupStart,
        .ncclSend = fake_ncclSend,
        .ncclRecv = fake_ncclRecv,
        .ncclReduce = fake_ncclReduce,
        .ncclGroupEnd = fake_ncclGroupEnd,
    };
    return &functions;
}

/* ---- Cases ---- */

/* Who gets how much from whom, the same on all ranks; and where blocks stand, with gaps and in any
 * order. */
struct plan {
    alnico_collective_t collective;
    int root, turn;
    bool gaps;
};

static size_t length(const struct plan *plan, int from, int to)
{
    alnico_collective_t c = plan->collective;
    bool even = c == ALNICO_GATHER || c == ALNICO_SCATTER || c == ALNICO_ALLTOALL;
    bool by_sender = c == ALNICO_ALLGATHERV || c == ALNICO_GATHERV;
    bool by_receiver = c == ALNICO_SCATTERV || c == ALNICO_REDUCE_SCATTERV;
    uint64_t random =
        reference_random((uint64_t)plan->turn, even || by_receiver ? 9 : (uint64_t)from,
                         even || by_sender ? 9 : (uint64_t)to);
    return plan->turn == 0 || random % 3 == 0 ? 0 : random / 3 % MOST;
}

static int value(int from, int to, size_t i)
{
    return (int)(reference_random((uint64_t)from, (uint64_t)to, i) >> 40);
}

static bool goes_to_one(const struct plan *plan)
{
    return plan->collective == ALNICO_ALLGATHERV || plan->collective == ALNICO_GATHER ||
           plan->collective == ALNICO_GATHERV;
}

static bool is_at_root(const struct plan *plan, alnico_collective_t a, alnico_collective_t b)
{
    return plan->collective == a || plan->collective == b;
}

struct lists {
    size_t counts[RANKS], at[RANKS];
};

static void place(const struct plan *plan, struct lists *out, int size)
{
    size_t next = 0;
    for (int k = 0; k < size; k++) {
        int b = plan->gaps ? size - 1 - k : k;
        out->at[b] = next;
        next += out->counts[b] + (plan->gaps ? 2 : 0);
    }
}

static bool has_vectors(const struct plan *plan)
{
    return plan->collective != ALNICO_GATHER && plan->collective != ALNICO_SCATTER &&
           plan->collective != ALNICO_ALLTOALL;
}

static void fill(const struct plan *plan, int *send, const struct lists *sent, int rank, int size)
{
    for (int b = 0; b < size; b++)
        for (size_t i = 0; i < sent->counts[b]; i++)
            send[sent->at[b] + i] = value(rank, goes_to_one(plan) ? 0 : b, i);
}

static int expected(const struct plan *plan, int from, int to, size_t i, int size)
{
    int sum = 0;
    if (plan->collective != ALNICO_REDUCE_SCATTERV)
        return value(from, goes_to_one(plan) ? 0 : to, i);
    for (int r = 0; r < size; r++)
        sum += value(r, to, i);
    return sum;
}

/* Every element of RECV is what it must be; what is in no block, as it was. */
static void check(const struct plan *plan, const int *recv, const struct lists *received, int rank,
                  int size)
{
    int want[AREA];
    for (int i = 0; i < AREA; i++)
        want[i] = UNTOUCHED;
    for (int b = 0; b < size; b++)
        for (size_t i = 0; i < received->counts[b]; i++)
            want[received->at[b] + i] = expected(plan, b, rank, i, size);
    for (int i = 0; i < AREA; i++)
        if (recv[i] != want[i])
            printf("%d: turn %d, rank %d, element %d is %d, not %d\n", (int)plan->collective,
                   plan->turn, rank, i, recv[i], want[i]);
    REQUIRE(memcmp(recv, want, sizeof want) == 0);
}

static void run_plan(const struct rank *rank, alnico_comm_t comm, const struct plan *plan)
{
    int send[AREA] = {0}, recv[AREA], own = rank->rank, scratch[16];
    struct lists sent = {{0}, {0}}, received = {{0}, {0}};
    bool gathers = is_at_root(plan, ALNICO_GATHER, ALNICO_GATHERV),
         scatters = is_at_root(plan, ALNICO_SCATTER, ALNICO_SCATTERV),
         reduces = plan->collective == ALNICO_REDUCE_SCATTERV;
    for (int b = 0; b < rank->size; b++) {
        if (goes_to_one(plan) ? b == 0 : !scatters || own == plan->root)
            sent.counts[b] = length(plan, own, b);
        if (scatters ? b == plan->root : reduces ? b == 0 : !gathers || own == plan->root)
            received.counts[b] = length(plan, b, own);
    }
    place(plan, &sent, goes_to_one(plan) ? 1 : rank->size);
    if (!scatters && !reduces)
        place(plan, &received, rank->size);
    fill(plan, send, &sent, own, goes_to_one(plan) ? 1 : rank->size);
    for (int i = 0; i < AREA; i++)
        recv[i] = UNTOUCHED;
    struct call call = {.collective = plan->collective,
                        .send = send,
                        .recv = recv,
                        .count = scatters || reduces ? length(plan, plan->root, own)
                                                     : length(plan, own, plan->root),
                        .type = ALNICO_INT32,
                        .op = ALNICO_SUM,
                        .root = plan->root};
    if (has_vectors(plan)) {
        bool all_sent = !goes_to_one(plan) && (!scatters || own == plan->root),
             all_received = !scatters && !reduces && (!gathers || own == plan->root);
        call.send_counts = all_sent ? sent.counts : NULL;
        call.send_at = all_sent && !reduces ? sent.at : NULL;
        call.recv_counts = all_received ? received.counts : NULL;
        call.recv_at = all_received ? received.at : NULL;
    }
    REQUIRE(nccl_can(comm, &call, &algorithm_nccl));
    REQUIRE_STATUS(rank->size == 1 ? nccl_copy_alone(comm, &call, NULL)
                                   : nccl_enqueue(comm, &call, NULL, scratch, NULL),
                   ALNICO_SUCCESS);
    check(plan, recv, &received, own, rank->size);
}

static void blocks_body(struct rank *rank)
{
    static const alnico_collective_t tried[] = {
        ALNICO_ALLGATHERV, ALNICO_REDUCE_SCATTERV, ALNICO_GATHER,   ALNICO_GATHERV,
        ALNICO_SCATTER,    ALNICO_SCATTERV,        ALNICO_ALLTOALL, ALNICO_ALLTOALLV};
    me = rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    for (int turn = 0; turn < 200; turn++)
        for (int c = 0; c < (int)(sizeof tried / sizeof *tried); c++) {
            struct plan plan = {tried[c], turn % rank->size, turn, false};
            plan.gaps = has_vectors(&plan) && plan.collective != ALNICO_REDUCE_SCATTERV && turn % 2;
            run_plan(rank, comm, &plan);
        }
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void test_blocks(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS; size++)
        ranks_run(size, blocks_body, NULL);
}

/* ---- In place ---- */

static void in_place_body(struct rank *rank)
{
    int all[RANKS], counts_sum = rank->size;
    size_t counts[RANKS] = {1, 1, 1, 1};
    me = rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    for (int i = 0; i < counts_sum; i++)
        all[i] = i == rank->rank ? 10 + i : UNTOUCHED;
    struct call call = {.collective = ALNICO_ALLGATHERV,
                        .send = all + rank->rank,
                        .recv = all,
                        .count = 1,
                        .type = ALNICO_INT32,
                        .recv_counts = counts};
    REQUIRE_STATUS(rank->size == 1 ? nccl_copy_alone(comm, &call, NULL)
                                   : nccl_enqueue(comm, &call, NULL, NULL, NULL),
                   ALNICO_SUCCESS);
    for (int i = 0; i < rank->size; i++)
        REQUIRE(all[i] == 10 + i);
    struct call exchange = {
        .collective = ALNICO_ALLTOALL, .send = all, .recv = all, .count = 1, .type = ALNICO_INT32};
    REQUIRE(nccl_can(comm, &exchange, &algorithm_nccl_messages) == (rank->size == 1));
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void test_in_place(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS; size++)
        ranks_run(size, in_place_body, NULL);
}

/* ---- Messages ---- */

enum { MESSAGES = 2 * RANKS };

static struct exchange message(bool sends, int peer, size_t at, size_t len)
{
    struct span span = {sends ? BUFFER_SEND : BUFFER_RECV, at * sizeof(int), len * sizeof(int)};
    return sends ? (struct exchange){.to = peer, .from = -1, .send = span}
                 : (struct exchange){.to = -1, .from = peer, .recv = span};
}

/* To and from every rank, this one too; some are empty. */
static void messages_body(struct rank *rank)
{
    struct plan plan = {ALNICO_ALLTOALLV, 0, 1, false};
    struct lists sent, received;
    struct exchange list[MESSAGES];
    int send[AREA], recv[AREA], count = 0, own = rank->rank;
    me = rank;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    for (; plan.turn < 100; plan.turn++) {
        count = 0;
        for (int b = 0; b < rank->size; b++) {
            sent.counts[b] = length(&plan, own, b);
            received.counts[b] = length(&plan, b, own);
        }
        place(&plan, &sent, rank->size);
        place(&plan, &received, rank->size);
        fill(&plan, send, &sent, own, rank->size);
        for (int b = 0; b < rank->size; b++) {
            list[count++] = message(true, b, sent.at[b], sent.counts[b]);
            list[count++] = message(false, b, received.at[b], received.counts[b]);
        }
        for (int i = 0; i < AREA; i++)
            recv[i] = UNTOUCHED;
        struct call call = {.collective = ALNICO_SENDRECV,
                            .send = send,
                            .recv = recv,
                            .type = ALNICO_UINT8,
                            .messages = list,
                            .messages_count = count};
        REQUIRE(nccl_can(comm, &call, &algorithm_nccl_messages));
        REQUIRE_STATUS(rank->size == 1 ? nccl_copy_alone(comm, &call, NULL)
                                       : nccl_enqueue(comm, &call, NULL, NULL, NULL),
                       ALNICO_SUCCESS);
        check(&plan, recv, &received, own, rank->size);
    }
    struct exchange lone = message(true, own, 0, 1);
    struct call call = {.collective = ALNICO_SENDRECV,
                        .type = ALNICO_UINT8,
                        .messages = &lone,
                        .messages_count = 1};
    REQUIRE(!nccl_can(comm, &call, &algorithm_nccl_messages));
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void test_messages(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS; size++)
        ranks_run(size, messages_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
