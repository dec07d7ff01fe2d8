/* The table of calls, and how each is called and waited for. */
#include "tests/support/calls.h"

#include "tests/support/ranks.h"

#include <stdlib.h>

#define F32 ALNICO_FLOAT32
#define EITHER(name, ...)                                                                          \
    (r ? alnico_i##name(__VA_ARGS__, comm, r) : alnico_##name(__VA_ARGS__, comm))
#define CALL(name, ...)                                                                            \
    static alnico_status_t name(alnico_comm_t comm, const struct calls_buffers *b,                 \
                                alnico_request_t *r)                                               \
    {                                                                                              \
        (void)b;                                                                                   \
        return EITHER(name, __VA_ARGS__);                                                          \
    }

CALL(allreduce, b->send, b->recv, b->count, F32, ALNICO_SUM)
CALL(reduce, b->send, b->recv, b->count, F32, ALNICO_SUM, 0)
CALL(broadcast, b->send, b->count, F32, 0)
CALL(allgather, b->send, b->recv, b->count, F32)
CALL(allgatherv, b->send, b->count, b->recv, b->counts, NULL, F32)
CALL(reduce_scatter, b->recv, b->send, b->count, F32, ALNICO_SUM)
CALL(reduce_scatterv, b->recv, b->send, b->counts, F32, ALNICO_SUM)
CALL(gather, b->send, b->recv, b->count, F32, 0)
CALL(gatherv, b->send, b->count, b->recv, b->counts, NULL, F32, 0)
CALL(scatter, b->recv, b->send, b->count, F32, 0)
CALL(scatterv, b->recv, b->counts, NULL, b->send, b->count, F32, 0)
CALL(alltoall, b->send, b->recv, b->count / (size_t)b->size, F32)
CALL(alltoallv, b->send, b->shares, NULL, b->recv, b->shares, NULL, F32)

static alnico_status_t barrier(alnico_comm_t comm, const struct calls_buffers *b,
                               alnico_request_t *r)
{
    (void)b;
    return r ? alnico_ibarrier(comm, r) : alnico_barrier(comm);
}

/* Around the ring, so that everybody waits for the victim sooner or later. */
static alnico_status_t sendrecv(alnico_comm_t comm, const struct calls_buffers *b,
                                alnico_request_t *r)
{
    int rank = alnico_comm_rank(comm);
    return EITHER(sendrecv, b->send, b->count, (rank + 1) % b->size, b->recv, b->count,
                  (rank + b->size - 1) % b->size, F32);
}

static alnico_status_t group(alnico_comm_t comm, const struct calls_buffers *b, alnico_request_t *r)
{
    alnico_status_t status = alnico_group_begin(comm);
    for (int i = 0; i < b->size && status == ALNICO_SUCCESS; i++)
        if (i != alnico_comm_rank(comm)) {
            alnico_send(b->send, b->count, F32, i, comm);
            alnico_recv(b->recv + (size_t)i * b->count, b->count, F32, i, comm);
        }
    return status == ALNICO_SUCCESS ? alnico_group_end(comm, r) : status;
}

/* Calls that block and have no stream. */
static alnico_status_t duplicate(alnico_comm_t comm, const struct calls_buffers *b,
                                 alnico_request_t *r)
{
    alnico_comm_t other;
    (void)b, (void)r;
    alnico_status_t status = alnico_comm_duplicate(comm, NULL, &other);
    alnico_comm_destroy(other);
    return status;
}

static alnico_status_t split(alnico_comm_t comm, const struct calls_buffers *b, alnico_request_t *r)
{
    alnico_comm_t other;
    (void)b, (void)r;
    alnico_status_t status = alnico_comm_split(comm, 0, -alnico_comm_rank(comm), NULL, &other);
    alnico_comm_destroy(other);
    return status;
}

static alnico_status_t set_algorithm(alnico_comm_t comm, const struct calls_buffers *b,
                                     alnico_request_t *r)
{
    (void)b, (void)r;
    return alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL);
}

static alnico_status_t enroll(alnico_comm_t comm, const struct calls_buffers *b,
                              alnico_request_t *r)
{
    alnico_registration_t registration;
    (void)r;
    alnico_status_t status =
        alnico_comm_register(comm, b->send, b->count * sizeof(float), &registration);
    return status == ALNICO_SUCCESS ? alnico_comm_deregister(comm, registration) : status;
}

const struct calls_row calls_rows[] = {
    {"allreduce", allreduce, ALNICO_ALLREDUCE, NULL, CALLS_WAYS},
    {"allreduce", allreduce, ALNICO_ALLREDUCE, "recursive_doubling", CALLS_WAYS},
    {"allreduce", allreduce, ALNICO_ALLREDUCE, "ring", CALLS_WAYS},
    {"allreduce", allreduce, ALNICO_ALLREDUCE, "one_shot", CALLS_WAYS},
    {"allreduce", allreduce, ALNICO_ALLREDUCE, "two_shot", CALLS_WAYS},
    {"allreduce", allreduce, ALNICO_ALLREDUCE, "recursive_multiplying", CALLS_WAYS},
    {"reduce", reduce, ALNICO_REDUCE, NULL, CALLS_WAYS},
    {"reduce", reduce, ALNICO_REDUCE, "binomial", CALLS_WAYS},
    {"broadcast", broadcast, ALNICO_BROADCAST, NULL, CALLS_WAYS},
    {"broadcast", broadcast, ALNICO_BROADCAST, "binomial", CALLS_WAYS},
    {"allgather", allgather, ALNICO_ALLGATHER, NULL, CALLS_WAYS},
    {"allgather", allgather, ALNICO_ALLGATHER, "ring", CALLS_WAYS},
    {"allgatherv", allgatherv, ALNICO_ALLGATHERV, NULL, CALLS_WAYS},
    {"allgatherv", allgatherv, ALNICO_ALLGATHERV, "ring", CALLS_WAYS},
    {"reduce_scatter", reduce_scatter, ALNICO_REDUCE_SCATTER, NULL, CALLS_WAYS},
    {"reduce_scatter", reduce_scatter, ALNICO_REDUCE_SCATTER, "ring", CALLS_WAYS},
    {"reduce_scatterv", reduce_scatterv, ALNICO_REDUCE_SCATTERV, NULL, CALLS_WAYS},
    {"gather", gather, ALNICO_GATHER, NULL, CALLS_WAYS},
    {"gather", gather, ALNICO_GATHER, "binomial", CALLS_WAYS},
    {"gatherv", gatherv, ALNICO_GATHERV, NULL, CALLS_WAYS},
    {"scatter", scatter, ALNICO_SCATTER, NULL, CALLS_WAYS},
    {"scatter", scatter, ALNICO_SCATTER, "binomial", CALLS_WAYS},
    {"scatterv", scatterv, ALNICO_SCATTERV, NULL, CALLS_WAYS},
    {"alltoall", alltoall, ALNICO_ALLTOALL, NULL, CALLS_WAYS},
    {"alltoall", alltoall, ALNICO_ALLTOALL, "pairwise", CALLS_WAYS},
    {"alltoallv", alltoallv, ALNICO_ALLTOALLV, NULL, CALLS_WAYS},
    {"barrier", barrier, ALNICO_BARRIER, NULL, CALLS_WAYS},
    {"barrier", barrier, ALNICO_BARRIER, "dissemination", CALLS_WAYS},
    {"sendrecv", sendrecv, ALNICO_SENDRECV, NULL, CALLS_WAYS},
    {"group", group, ALNICO_SENDRECV, NULL, CALLS_WAYS},
    {"duplicate", duplicate, ALNICO_ALLREDUCE, NULL, 1},
    {"split", split, ALNICO_ALLREDUCE, NULL, 1},
    {"set_algorithm", set_algorithm, ALNICO_ALLREDUCE, NULL, 1},
    {"register", enroll, ALNICO_ALLREDUCE, NULL, 1},
    {NULL, NULL, ALNICO_ALLREDUCE, NULL, 0},
};

int calls_count(void)
{
    int count = 0;
    while (calls_rows[count].name)
        count++;
    return count;
}

struct calls_buffers calls_buffers_make(int size, size_t count)
{
    struct calls_buffers b = {.count = count, .size = size};
    REQUIRE(size <= CALLS_RANKS);
    b.send = calloc((size_t)size * count, sizeof *b.send);
    b.recv = calloc((size_t)size * count, sizeof *b.recv);
    REQUIRE(b.send && b.recv);
    for (int i = 0; i < size; i++) {
        b.counts[i] = count;
        b.shares[i] = count / (size_t)size;
    }
    return b;
}

void calls_buffers_free(struct calls_buffers *b)
{
    free(b->send);
    free(b->recv);
}

void calls_prepare(alnico_comm_t comm, const struct calls_row *row)
{
    if (row->algorithm)
        REQUIRE_STATUS(alnico_comm_set_algorithm(comm, row->collective, row->algorithm),
                       ALNICO_SUCCESS);
}

alnico_status_t calls_once(alnico_comm_t comm, const struct calls_row *row, enum calls_way way,
                           const struct calls_buffers *b)
{
    alnico_request_t request;
    alnico_status_t status = row->call(comm, b, way == CALLS_NONBLOCKING ? &request : NULL);
    if (status != ALNICO_SUCCESS || way == CALLS_BLOCKING)
        return status;
    return way == CALLS_ON_A_STREAM ? alnico_synchronize(comm)
                                    : alnico_request_synchronize(&request);
}
