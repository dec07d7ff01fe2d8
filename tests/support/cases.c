/* Runs the table of cases. Buffers lie between poisoned margins; the result is checked against the
 * reference, each rank a part of it, and by a reduction of its hash against the other ranks'. */
#include "tests/support/cases.h"

#include "base/datatype.h"
#include "comm/backends/backend.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 256, POISON = 0x5a, VARIANTS = 4 * HOWS };

/* ---- The host's memory ---- */

static void *host_alloc(void *context, size_t bytes, bool registered)
{
    (void)context, (void)registered;
    void *memory;
    return posix_memalign(&memory, 64, bytes) ? NULL : memory;
}

static void host_free(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static void host_copy(void *context, void *to, const void *from, size_t bytes)
{
    (void)context;
    memcpy(to, from, bytes);
}

const struct cases_memory cases_memory_cpu = {
    .alloc = host_alloc, .free = host_free, .put = host_copy, .get = host_copy};

/* ---- Buffers ---- */

struct guarded {
    const struct cases_memory *in;
    char *memory, *image; /* where the call sees it, and the host's copy of all of it */
    size_t bytes, at;     /* of the data */
};

static size_t guarded_total(const struct guarded *b)
{
    return b->at + b->bytes + MARGIN;
}

static struct guarded guarded_create(const struct cases_memory *in, const struct allreduce_case *c,
                                     size_t offset)
{
    size_t element = datatype_bytes(c->type);
    struct guarded b = {.in = in, .bytes = c->count * element, .at = MARGIN + offset * element};
    b.memory = in->alloc(in->context, guarded_total(&b), c->registered);
    b.image = malloc(guarded_total(&b));
    REQUIRE(b.memory && b.image);
    memset(b.image, POISON, guarded_total(&b));
    return b;
}

static void guarded_put(struct guarded *b)
{
    b->in->put(b->in->context, b->memory, b->image, guarded_total(b));
}

static void guarded_get(struct guarded *b)
{
    b->in->get(b->in->context, b->image, b->memory, guarded_total(b));
}

static void guarded_destroy(struct guarded *b)
{
    for (size_t i = 0; i < b->at; i++)
        REQUIRE(b->image[i] == POISON);
    for (size_t i = 0; i < MARGIN; i++)
        REQUIRE(b->image[b->at + b->bytes + i] == POISON);
    b->in->free(b->in->context, b->memory);
    free(b->image);
}

/* ---- One case ---- */

static void describe(alnico_comm_t comm, const struct allreduce_case *c, uint64_t seed,
                     const char *what)
{
    fprintf(stderr,
            "rank %d of %d, seed %llu, %zu %s, %s, in place %d, how %d, offset %zu, registered %d: "
            "%s\n",
            alnico_comm_rank(comm), alnico_comm_size(comm), (unsigned long long)seed, c->count,
            datatype_name(c->type), op_name(c->op), c->in_place, (int)c->how, c->offset,
            c->registered, what);
}

static alnico_status_t start(alnico_comm_t comm, const struct allreduce_case *c, const void *send,
                             void *recv)
{
    alnico_request_t request;
    if (c->how == HOW_BLOCKING)
        return alnico_allreduce(send, recv, c->count, c->type, c->op, comm);
    alnico_status_t status =
        alnico_iallreduce(send, recv, c->count, c->type, c->op, comm, &request);
    return status == ALNICO_SUCCESS ? alnico_wait(&request) : status;
}

/* False: refused. */
static bool call(alnico_comm_t comm, const struct allreduce_case *c, uint64_t seed,
                 const void *send, void *recv)
{
    alnico_status_t status = start(comm, c, send, recv);
    if (status == ALNICO_ERROR_UNSUPPORTED && c->may_refuse)
        return false;
    if (status == ALNICO_SUCCESS)
        status = alnico_synchronize(comm);
    if (status != ALNICO_SUCCESS)
        describe(comm, c, seed, "it fails");
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    return true;
}

static bool is_same(const struct cases_memory *memory, alnico_comm_t comm, uint64_t hash)
{
    alnico_comm_t by = memory->twin ? memory->twin : comm;
    uint64_t both[2] = {hash, ~hash};
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, both, 2, ALNICO_UINT64, ALNICO_MAXIMUM, by),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(by), ALNICO_SUCCESS);
    return both[0] == hash && both[1] == ~hash;
}

/* Elements [first, last) of the result. */
static void check_part(alnico_comm_t comm, const struct allreduce_case *c, uint64_t seed,
                       const char *result, size_t first, size_t last)
{
    int size = alnico_comm_size(comm), ranks[256];
    char text[128];
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    if (!reference_check_part(result, first, last, c->type, c->op, seed, ranks, size, text,
                              sizeof text))
        return;
    describe(comm, c, seed, text);
    REQUIRE(!"right");
}

/* All ranks have the same bits, so each compares its part with the reference; where they do not,
 * each all. */
static void check(const struct cases_memory *memory, alnico_comm_t comm,
                  const struct allreduce_case *c, uint64_t seed, const struct guarded *recv)
{
    size_t rank = (size_t)alnico_comm_rank(comm), size = (size_t)alnico_comm_size(comm);
    const char *result = recv->image + recv->at;
    bool same = is_same(memory, comm, reference_hash(result, recv->bytes));
    if (same && c->count > 4096) {
        check_part(comm, c, seed, result, c->count / size * rank,
                   rank + 1 == size ? c->count : c->count / size * (rank + 1));
        return;
    }
    check_part(comm, c, seed, result, 0, c->count);
    if (!same)
        describe(comm, c, seed, "the ranks have different bits");
    REQUIRE(same);
}

bool cases_run_in(const struct cases_memory *memory, alnico_comm_t comm,
                  const struct allreduce_case *c, uint64_t seed)
{
    struct guarded send = guarded_create(memory, c, c->offset),
                   recv = guarded_create(memory, c, c->offset ^ c->offset >> 1);
    char *input = send.image + send.at, *output = recv.image + recv.at;
    reference_fill(input, c->count, c->type, c->op, seed, alnico_comm_rank(comm));
    uint64_t hash = reference_hash(input, send.bytes);
    if (c->in_place && send.bytes)
        memcpy(output, input, send.bytes);
    guarded_put(&send);
    guarded_put(&recv);
    bool done = call(comm, c, seed, c->in_place ? ALNICO_IN_PLACE : send.memory + send.at,
                     recv.memory + recv.at);
    guarded_get(&send);
    guarded_get(&recv);
    if (done) {
        check(memory, comm, c, seed, &recv);
    } else if (!is_same(memory, comm, 0)) {
        describe(comm, c, seed, "refused here and not on every rank");
        REQUIRE(!"refused by all");
    }
    REQUIRE(reference_hash(input, send.bytes) == hash);
    guarded_destroy(&recv);
    guarded_destroy(&send);
    return done;
}

void cases_run(alnico_comm_t comm, const struct allreduce_case *c, uint64_t seed)
{
    cases_run_in(&cases_memory_cpu, comm, c, seed);
}

/* ---- The table ---- */

static void run_variant(struct cases *cases, struct allreduce_case c, int variant)
{
    c.in_place = variant % 2;
    c.how = (enum how)(variant / 2 % HOWS);
    c.registered = variant / 2 / HOWS;
    c.may_refuse = cases->may_refuse && cases->may_refuse(&c, cases->argument);
    bool done = cases_run_in(cases->memory, cases->comm, &c, cases->seed + (uint64_t)cases->run);
    cases->run++;
    cases->refused += !done;
}

static void run_kind(struct cases *cases, struct allreduce_case c)
{
    int variants = cases->memory->registers ? VARIANTS : VARIANTS / 2;
    for (int i = 0; i < cases->number; i++)
        for (int variant = 0; variant < variants; variant++) {
            c.count = cases->counts[i];
            c.offset = (size_t)variant; /* aligned to the element only */
            run_variant(cases, c, variant);
        }
}

/* Counts and variants go through all of their pairs; whole rounds of variants are aligned. */
static void run_next(struct cases *cases, struct allreduce_case c, int turn)
{
    int variants = cases->memory->registers ? VARIANTS : VARIANTS / 2;
    c.count = cases->counts[turn % cases->number];
    c.offset = turn / variants % 2 ? (size_t)(turn % 7) : 0;
    run_variant(cases, c, turn % variants);
}

void cases_run_table(struct cases *cases)
{
    int turn = 0;
    for (int type = 0; type < DATATYPES; type++)
        for (int op = 0; op < OPS; op++) {
            struct allreduce_case c = {.type = (alnico_datatype_t)type, .op = (alnico_op_t)op};
            if (!op_supports(c.op, c.type))
                continue;
            if (cases->thin)
                run_next(cases, c, turn++);
            else
                run_kind(cases, c);
        }
}

void cases_run_all(alnico_comm_t comm, const size_t *counts, int number, uint64_t seed)
{
    struct cases cases = {.memory = &cases_memory_cpu,
                          .comm = comm,
                          .counts = counts,
                          .number = number,
                          .seed = seed};
    cases_run_table(&cases);
}

bool cases_force(alnico_comm_t comm, const struct algorithm *algorithm)
{
    alnico_status_t status = alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, algorithm->name);
    if (status == ALNICO_ERROR_UNSUPPORTED && alnico_comm_size(comm) == 1)
        return false;
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    return true;
}

const struct algorithm *cases_algorithm(int i)
{
    return backend_algorithm_at(ALNICO_DEVICE_CPU, ALNICO_ALLREDUCE, i, NULL);
}

void cases_run_algorithms(alnico_comm_t comm, const size_t *counts, int number, uint64_t seed)
{
    for (int i = 0; cases_algorithm(i); i++)
        if (cases_force(comm, cases_algorithm(i)))
            cases_run_all(comm, counts, number, seed);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL), ALNICO_SUCCESS);
}
