/* Ranks on GPUs and one allreduce of them: see seats.h. */
#include "tests/gpu/support/seats.h"

#include "base/datatype.h"
#include "tests/support/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t seats_seed;
static uint64_t hashes[SEATS_MOST]; /* of each rank's result */

/* ---- A rank: its GPU, stream, communicator and two areas ---- */

void seat_open(struct seat *s, struct rank *rank, size_t room, const char *algorithm)
{
    *s = (struct seat){.rank = rank, .room = room};
    GPU(cudaSetDevice(rank->rank));
    GPU(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    GPU(cudaMalloc((void **)&s->send, room));
    GPU(cudaMalloc((void **)&s->recv, room));
    REQUIRE((s->host = malloc(room)) != NULL);
    OK(alnico_comm_create(&rank->bootstrap, ALNICO_DEVICE_CUDA, s->stream, &s->comm));
    if (algorithm)
        OK(alnico_comm_set_algorithm(s->comm, ALNICO_ALLREDUCE, algorithm));
}

void seat_close(struct seat *s)
{
    alnico_comm_destroy(s->comm);
    GPU(cudaFree(s->send));
    GPU(cudaFree(s->recv));
    GPU(cudaStreamDestroy(s->stream));
    free(s->host);
}

/* ---- One case ---- */

void seat_complain(const struct seat *s, const struct one *c, const char *text)
{
    fprintf(stderr,
            "rank %d of %d, %s of %s, %zu at %zu, in place %d, nonblocking %d, seed %llu: %s\n",
            s->rank->rank, s->rank->size, op_name(c->op), datatype_name(c->type), c->count, c->at,
            c->in_place, c->nonblocking, (unsigned long long)(seats_seed + c->salt), text);
    _Exit(1);
}

static size_t offset_of(const struct one *c)
{
    return SEAT_MARGIN + c->at * datatype_bytes(c->type);
}

void seat_put(struct seat *s, const struct one *c, char *area)
{
    size_t bytes = c->count * datatype_bytes(c->type);
    REQUIRE(offset_of(c) + bytes + SEAT_MARGIN <= s->room);
    memset(s->host, SEAT_POISON, s->room);
    reference_fill(s->host + offset_of(c), c->count, c->type, c->op, seats_seed + c->salt,
                   s->rank->rank);
    GPU(cudaMemcpyAsync(area, s->host, offset_of(c) + bytes + SEAT_MARGIN, cudaMemcpyHostToDevice,
                        s->stream));
    GPU(cudaStreamSynchronize(s->stream));
}

static void check_margins(const struct seat *s, const struct one *c)
{
    size_t start = offset_of(c), end = start + c->count * datatype_bytes(c->type);
    for (size_t i = 0; i < end + SEAT_MARGIN; i++)
        if ((i < start || i >= end) && s->host[i] != SEAT_POISON)
            seat_complain(s, c, "wrote outside the buffer");
}

static void check_same_bits(struct seat *s, const struct one *c)
{
    struct rank *rank = s->rank;
    hashes[rank->rank] = reference_hash(s->host + offset_of(c), c->count * datatype_bytes(c->type));
    ranks_barrier(rank);
    if (hashes[rank->rank] != hashes[0])
        seat_complain(s, c, "not the same bits as on rank 0");
    ranks_barrier(rank);
}

void seat_check(struct seat *s, const struct one *c, const char *area)
{
    static const int ranks[SEATS_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};
    char text[160];
    size_t bytes = c->count * datatype_bytes(c->type);
    GPU(cudaMemcpyAsync(s->host, area, offset_of(c) + bytes + SEAT_MARGIN, cudaMemcpyDeviceToHost,
                        s->stream));
    GPU(cudaStreamSynchronize(s->stream));
    if (reference_check(s->host + offset_of(c), c->count, c->type, c->op, seats_seed + c->salt,
                        ranks, s->rank->size, text, sizeof text))
        seat_complain(s, c, text);
    check_margins(s, c);
    check_same_bits(s, c);
}

alnico_status_t seat_begin(struct seat *s, const struct one *c, const char *from, char *to,
                           alnico_request_t *request)
{
    const void *send = c->in_place ? ALNICO_IN_PLACE : from + offset_of(c);
    char *recv = to + offset_of(c);
    if (c->nonblocking)
        return alnico_iallreduce(send, recv, c->count, c->type, c->op, s->comm, request);
    return alnico_allreduce(send, recv, c->count, c->type, c->op, s->comm);
}

void seat_run(struct seat *s, const struct one *c, char *from, char *to)
{
    alnico_request_t request = NULL;
    GPU(cudaMemsetAsync(to, SEAT_POISON,
                        offset_of(c) + c->count * datatype_bytes(c->type) + SEAT_MARGIN,
                        s->stream));
    seat_put(s, c, c->in_place ? to : from);
    OK(seat_begin(s, c, from, to, &request));
    if (c->nonblocking)
        OK(alnico_wait(&request));
    seat_check(s, c, to);
    OK(alnico_comm_status(s->comm));
}
