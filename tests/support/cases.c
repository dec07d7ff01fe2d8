/* Runs the table of cases. Buffers lie between poisoned margins; the result is checked against the
 * reference, and by a reduction of its hash against the other ranks'. */
#include "cases.h"

#include "comm/algorithm.h"
#include "datatype.h"
#include "ranks.h"
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 64, POISON = 0x5a };

struct guarded {
    char *memory, *data;
    size_t bytes, at;
};

static struct guarded guarded_create(const struct allreduce_case *c)
{
    size_t element = datatype_bytes(c->type);
    struct guarded b = {.bytes = c->count * element, .at = MARGIN + c->offset * element};
    b.memory = malloc(b.at + b.bytes + MARGIN);
    REQUIRE(b.memory != NULL);
    memset(b.memory, POISON, b.at + b.bytes + MARGIN);
    b.data = b.memory + b.at;
    return b;
}

static void guarded_destroy(struct guarded *b)
{
    for (size_t i = 0; i < b->at; i++)
        REQUIRE(b->memory[i] == POISON);
    for (size_t i = 0; i < MARGIN; i++)
        REQUIRE(b->data[b->bytes + i] == POISON);
    free(b->memory);
}

static void call(alnico_comm_t comm, const struct allreduce_case *c, const void *send, void *recv)
{
    alnico_request_t request;
    if (c->how == HOW_BLOCKING) {
        REQUIRE_STATUS(alnico_allreduce(send, recv, c->count, c->type, c->op, comm),
                       ALNICO_SUCCESS);
    } else {
        REQUIRE_STATUS(alnico_iallreduce(send, recv, c->count, c->type, c->op, comm, &request),
                       ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    }
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
}

static void check_same_bits(alnico_comm_t comm, const struct guarded *b)
{
    uint64_t hash = reference_hash(b->data, b->bytes), both[2] = {hash, ~hash};
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, both, 2, ALNICO_UINT64, ALNICO_MAXIMUM, comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    REQUIRE(both[0] == hash && both[1] == ~hash);
}

void cases_run(alnico_comm_t comm, const struct allreduce_case *c, uint64_t seed)
{
    int rank = alnico_comm_rank(comm), size = alnico_comm_size(comm), ranks[256];
    struct guarded send = guarded_create(c), recv = guarded_create(c);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    reference_fill(send.data, c->count, c->type, c->op, seed, rank);
    uint64_t input = reference_hash(send.data, send.bytes);
    if (c->in_place && send.bytes)
        memcpy(recv.data, send.data, send.bytes);
    call(comm, c, c->in_place ? ALNICO_IN_PLACE : send.data, recv.data);
    char text[128];
    if (reference_check(recv.data, c->count, c->type, c->op, seed, ranks, size, text,
                        sizeof text)) {
        fprintf(stderr, "rank %d, seed %llu, %s, in place %d, how %d: %s\n", rank,
                (unsigned long long)seed, datatype_name(c->type), c->in_place, (int)c->how, text);
        REQUIRE(!"right");
    }
    REQUIRE(reference_hash(send.data, send.bytes) == input);
    check_same_bits(comm, &recv);
    guarded_destroy(&send);
    guarded_destroy(&recv);
}

static void run_kind(alnico_comm_t comm, struct allreduce_case c, uint64_t seed)
{
    for (int variant = 0; variant < 2 * HOWS; variant++) {
        c.in_place = variant % 2;
        c.how = (enum how)(variant / 2);
        c.offset = (size_t)variant; /* aligned to the element only */
        cases_run(comm, &c, seed + (uint64_t)variant);
    }
}

void cases_run_all(alnico_comm_t comm, const size_t *counts, int number, uint64_t seed)
{
    for (int type = 0; type < DATATYPES; type++)
        for (int op = 0; op < OPS; op++)
            for (int i = 0; i < number; i++) {
                struct allreduce_case c = {
                    .count = counts[i], .type = (alnico_datatype_t)type, .op = (alnico_op_t)op};
                if (op_supports(c.op, c.type))
                    run_kind(comm, c, seed);
            }
}

bool cases_force(alnico_comm_t comm, const struct algorithm *algorithm)
{
    alnico_status_t status = alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, algorithm->name);
    if (status == ALNICO_ERROR_UNSUPPORTED && alnico_comm_size(comm) == 1)
        return false;
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    return true;
}

void cases_run_algorithms(alnico_comm_t comm, const size_t *counts, int number, uint64_t seed)
{
    for (int i = 0; algorithm_at(i); i++)
        if (cases_force(comm, algorithm_at(i)))
            cases_run_all(comm, counts, number, seed);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL), ALNICO_SUCCESS);
}
