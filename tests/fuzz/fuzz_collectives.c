/*
 * Any arguments to every collective, on communicators of one and of three ranks, which all are this
 * thread's. What is allowed, and what comes out, is written down once more in call_model.h: a call
 * that is allowed on all ranks is made on all, must succeed and leave what the model says; one that
 * is not is made where it must be refused, with a detail, and changes nothing.
 */
#include "tests/fuzz/call_model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/ranks.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 48, HALF = MODEL_ARENA / 2 };

static _Alignas(64) unsigned char arenas[MODEL_RANKS][MODEL_ARENA];
static unsigned char expected[MODEL_RANKS][MODEL_ARENA];

/* ---- Communicators ---- */

static alnico_comm_t comms[MODEL_RANKS + 1][MODEL_RANKS]; /* by size */

static void make(struct rank *rank)
{
    comms[rank->size][rank->rank] = ranks_comm(rank, NULL);
}

static alnico_comm_t *communicators(int size)
{
    if (!comms[size][0])
        ranks_run(size, make, NULL);
    return comms[size];
}

/* ---- What is passed ---- */

/* Mostly aligned, and mostly with room behind it. */
static int read_place(struct input *in)
{
    int kind = next(in), low = next(in), high = next(in);
    int place = (low + 256 * high) % HALF;
    if (kind % 16 == 0)
        return PLACE_NULL;
    if (kind % 16 == 1)
        return PLACE_IN_PLACE;
    return kind % 16 == 2 ? place : place / 8 * 8;
}

/* Small, or beyond all memory. */
static size_t read_count(struct input *in)
{
    int kind = next(in);
    size_t count = (size_t)next(in) % 20;
    if (kind == 0)
        return (size_t)PTRDIFF_MAX + 1 + count;
    return kind == 1 ? SIZE_MAX - count : count;
}

static void read_blocks(struct input *in, struct model_call *c, int side)
{
    int kind = next(in);
    c->has_counts[side] = kind % 16 != 0;
    c->has_at[side] = kind / 16 % 2;
    for (int b = 0; b < MODEL_RANKS; b++) {
        c->counts[side][b] = read_count(in);
        c->at[side][b] = kind / 32 == 0 ? (size_t)next(in) % 60 : (size_t)next(in) * 20 % 60;
    }
    if (kind / 32 == 7)
        c->at[side][next(in) % MODEL_RANKS] = SIZE_MAX - (size_t)next(in);
}

static struct model_call read_call(struct input *in)
{
    struct model_call c = {.collective = next(in) % ALNICO_SENDRECV,
                           .type = next(in) % 14 - 1,
                           .op = next(in) % 14 - 1,
                           .root = next(in) % 6 - 1,
                           .extra = next(in) % 16 == 0,
                           .count = read_count(in)};
    c.recv = read_place(in);
    c.send = read_place(in);
    if (next(in) % 4 == 0) /* near each other, for what is in place and what overlaps */
        c.send = c.recv < 0 ? c.recv : c.recv + next(in) % 64 - 32;
    if (c.send < PLACE_IN_PLACE)
        c.send = 0;
    read_blocks(in, &c, SENT);
    read_blocks(in, &c, RECEIVED);
    if (next(in) % 4)
        memcpy(c.counts[SENT], c.counts[RECEIVED], sizeof c.counts[SENT]);
    return c;
}

/* ---- Passing it ---- */

static void *pointer(int rank, int place)
{
    if (place < 0)
        return place == PLACE_NULL ? NULL : ALNICO_IN_PLACE;
    return arenas[rank] + place;
}

/* One rank's arguments, and where its request goes. */
struct pass {
    const void *send;
    void *recv;
    size_t counts[2][MODEL_RANKS];
    const size_t *list[2], *at[2];
    size_t own;
    alnico_comm_t comm;
    alnico_request_t request;
};

static void prepare(struct pass *p, const struct model_call *c, int rank, int size)
{
    p->send = pointer(rank, c->send);
    p->recv = pointer(rank, c->recv);
    p->comm = communicators(size)[rank];
    p->own = model_own_count(c, rank, size);
    for (int side = 0; side < 2; side++) {
        model_counts(c, side, rank, size, p->counts[side]);
        p->list[side] = c->has_counts[side] ? p->counts[side] : NULL;
        p->at[side] = c->has_at[side] ? c->at[side] : NULL;
    }
}

/* Of a nonblocking call the name begins with an i, and a request is behind the rest. */
#define CALL(NAME, ...)                                                                            \
    (blocking ? alnico_##NAME(__VA_ARGS__, p->comm)                                                \
              : alnico_i##NAME(__VA_ARGS__, p->comm, &p->request))

static alnico_status_t begin_vector(const struct model_call *c, struct pass *p, bool blocking)
{
    alnico_datatype_t type = (alnico_datatype_t)c->type;
    alnico_op_t op = (alnico_op_t)c->op;
    switch (c->collective) {
    case ALNICO_ALLGATHERV:
        return CALL(allgatherv, p->send, p->own, p->recv, p->list[RECEIVED], p->at[RECEIVED], type);
    case ALNICO_REDUCE_SCATTERV:
        return CALL(reduce_scatterv, p->send, p->recv, p->list[SENT], type, op);
    case ALNICO_GATHERV:
        return CALL(gatherv, p->send, p->own, p->recv, p->list[RECEIVED], p->at[RECEIVED], type,
                    c->root);
    case ALNICO_SCATTERV:
        return CALL(scatterv, p->send, p->list[SENT], p->at[SENT], p->recv, p->own, type, c->root);
    default:
        return CALL(alltoallv, p->send, p->list[SENT], p->at[SENT], p->recv, p->list[RECEIVED],
                    p->at[RECEIVED], type);
    }
}

static alnico_status_t begin(const struct model_call *c, struct pass *p, bool blocking)
{
    alnico_datatype_t type = (alnico_datatype_t)c->type;
    alnico_op_t op = (alnico_op_t)c->op;
    switch (c->collective) {
    case ALNICO_ALLREDUCE:
        return CALL(allreduce, p->send, p->recv, c->count, type, op);
    case ALNICO_REDUCE:
        return CALL(reduce, p->send, p->recv, c->count, type, op, c->root);
    case ALNICO_BROADCAST:
        return CALL(broadcast, p->recv, c->count, type, c->root);
    case ALNICO_ALLGATHER:
        return CALL(allgather, p->send, p->recv, c->count, type);
    case ALNICO_REDUCE_SCATTER:
        return CALL(reduce_scatter, p->send, p->recv, c->count, type, op);
    case ALNICO_GATHER:
        return CALL(gather, p->send, p->recv, c->count, type, c->root);
    case ALNICO_SCATTER:
        return CALL(scatter, p->send, p->recv, c->count, type, c->root);
    case ALNICO_ALLTOALL:
        return CALL(alltoall, p->send, p->recv, c->count, type);
    case ALNICO_BARRIER:
        return blocking ? alnico_barrier(p->comm) : alnico_ibarrier(p->comm, &p->request);
    default:
        return begin_vector(c, p, blocking);
    }
}

/* ---- What comes of it ---- */

static void show_side(const struct model_call *c, const char *name, int side)
{
    fprintf(stderr, "; %s counts%s", name, c->has_counts[side] ? "" : " (NULL)");
    for (int b = 0; b < MODEL_RANKS; b++)
        fprintf(stderr, " %zu", c->counts[side][b]);
    fprintf(stderr, " at%s", c->has_at[side] ? "" : " (NULL)");
    for (int b = 0; b < MODEL_RANKS; b++)
        fprintf(stderr, " %zu", c->at[side][b]);
}

/* The call, on the way to abort. */
static void require(bool right, const struct model_call *c, int rank, int size, const char *what)
{
    if (right)
        return;
    fprintf(stderr,
            "%s: rank %d of %d, collective %d, type %d, op %d, root %d, send %d, recv %d, count "
            "%zu, %zu beyond its own",
            what, rank, size, c->collective, c->type, c->op, c->root, c->send, c->recv, c->count,
            c->extra);
    show_side(c, "send", SENT);
    show_side(c, "recv", RECEIVED);
    fprintf(stderr, "; detail: %s\n", alnico_error_detail());
    abort();
}

static void refuse(const struct model_call *c, int rank, int size, bool blocking)
{
    struct pass pass = {.request = (alnico_request_t)arenas};
    prepare(&pass, c, rank, size);
    alnico_status_t status = begin(c, &pass, blocking);
    require(status == ALNICO_ERROR_ARGUMENT, c, rank, size, "not refused");
    FUZZ_REQUIRE(*alnico_error_detail());
    FUZZ_REQUIRE(blocking || !pass.request);
}

/* In each of the ways to wait. */
static alnico_status_t finish_request(alnico_request_t *request, int how)
{
    bool done = false;
    alnico_status_t status = ALNICO_SUCCESS;
    if (how % 3 == 0)
        return alnico_wait(request);
    if (how % 3 == 1)
        return alnico_request_synchronize(request);
    while (!done && status == ALNICO_SUCCESS)
        status = alnico_test(request, &done);
    return status;
}

/* A blocking call of one rank would wait for the others, which are this thread's too. */
static void carry_out(struct input *in, const struct model_call *c, int size, bool blocking)
{
    struct pass passes[MODEL_RANKS];
    for (int rank = 0; rank < size; rank++) {
        passes[rank].request = NULL;
        prepare(&passes[rank], c, rank, size);
        alnico_status_t status = begin(c, &passes[rank], blocking);
        require(status == ALNICO_SUCCESS, c, rank, size, "refused");
        FUZZ_REQUIRE(blocking || passes[rank].request);
    }
    for (int rank = 0; rank < size && !blocking; rank++) {
        alnico_status_t status = finish_request(&passes[rank].request, next(in));
        require(status == ALNICO_SUCCESS && !passes[rank].request, c, rank, size, "failed");
    }
    model_apply(c, size, expected, arenas);
}

static void fill(unsigned seed)
{
    unsigned char *bytes = &arenas[0][0];
    for (unsigned i = 0; i < sizeof arenas; i++)
        bytes[i] = (unsigned char)((i + seed) * 2654435761u >> 24);
}

static void fuzz_call(struct input *in)
{
    int size = next(in) % 2 ? MODEL_RANKS : 1;
    bool blocking = next(in) % 2;
    struct model_call c = read_call(in);
    fill((unsigned)next(in));
    memcpy(expected, arenas, sizeof arenas);
    if (model_runs(&c, size))
        carry_out(in, &c, size, blocking && size == 1);
    else
        for (int rank = 0; rank < size; rank++)
            if (!model_allows(&c, rank, size))
                refuse(&c, rank, size, blocking);
    for (int rank = 0; rank < MODEL_RANKS; rank++)
        require(memcmp(arenas[rank], expected[rank], MODEL_ARENA) == 0, &c, rank, size,
                "other results");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    for (int i = 0; i < CALLS && in.left; i++)
        fuzz_call(&in);
    for (int rank = 0; rank < MODEL_RANKS; rank++)
        FUZZ_REQUIRE(alnico_comm_status(communicators(MODEL_RANKS)[rank]) == ALNICO_SUCCESS);
    return 0;
}
