/* ALNICO_CHECK of vector forms: blocks that overlap where they are received, and counts that do not
 * fit each other. On the caller's thread. */
#include "comm/api/consistency.h"
#include "comm/communicator/comm.h"
#include "comm/communicator/out_of_band.h"

#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>

struct range {
    size_t begin, end;
    int block;
};

static int compare_ranges(const void *left, const void *right)
{
    const struct range *a = left, *b = right;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static int list_ranges(const struct side *side, struct range *ranges)
{
    int count = 0, b = 0;
    SIDE_EACH(block, side)
    {
        if (block.count)
            ranges[count++] = (struct range){block.at, block.at + block.count, b};
        b++;
    }
    qsort(ranges, (size_t)count, sizeof *ranges, compare_ranges);
    return count;
}

alnico_status_t call_check_blocks(alnico_comm_t comm, const struct call *call, const char *who)
{
    struct side writes = call_writes(call, comm->rank, comm->size);
    if (!writes.at)
        return ALNICO_SUCCESS;
    struct range *ranges = calloc((size_t)writes.blocks, sizeof *ranges);
    if (!ranges)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", who, comm->size);
    int count = list_ranges(&writes, ranges), i = 1;
    while (i < count && ranges[i].begin >= ranges[i - 1].end)
        i++;
    alnico_status_t status = ALNICO_SUCCESS;
    if (i < count)
        status =
            error_set(ALNICO_ERROR_ARGUMENT, "%s: blocks %d and %d overlap where they are received",
                      who, ranges[i - 1].block, ranges[i].block);
    free(ranges);
    return status;
}

/* Elements from rank `from` to rank `to`, as its sender says, or its receiver; all[rank * size +
 * b]. */
struct counts {
    const struct call *call;
    const uint64_t *sent, *received, *own; /* own: by rank */
    int size;
};

static uint64_t entry(const struct counts *c, const uint64_t *all, int rank, int b)
{
    return all[(size_t)rank * (size_t)c->size + (size_t)b];
}

static alnico_status_t differ(const char *who, int from, uint64_t sent, int to, uint64_t received)
{
    return error_set(ALNICO_ERROR_MISMATCH,
                     "%s: rank %d has %llu elements for rank %d, which expects %llu", who, from,
                     (unsigned long long)sent, to, (unsigned long long)received);
}

/* Counts of an allgatherv and a reduce_scatterv are the same on all ranks. */
static alnico_status_t check_equal(const struct counts *c, const uint64_t *all, const char *who)
{
    for (int rank = 1; rank < c->size; rank++)
        for (int b = 0; b < c->size; b++)
            if (entry(c, all, rank, b) != entry(c, all, 0, b))
                return error_set(ALNICO_ERROR_MISMATCH,
                                 "%s: block %d has %llu elements on rank 0, and %llu on rank %d",
                                 who, b, (unsigned long long)entry(c, all, 0, b),
                                 (unsigned long long)entry(c, all, rank, b), rank);
    return ALNICO_SUCCESS;
}

static alnico_status_t check_rooted(const struct counts *c, const char *who)
{
    int root = c->call->root;
    bool gathers = c->call->collective == ALNICO_GATHERV;
    const uint64_t *all = gathers ? c->received : c->sent;
    for (int b = 0; b < c->size; b++) {
        uint64_t at_root = entry(c, all, root, b), own = c->own[b];
        if (at_root != own)
            return gathers ? differ(who, b, own, root, at_root)
                           : differ(who, root, at_root, b, own);
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t check_pairs(const struct counts *c, const char *who)
{
    for (int from = 0; from < c->size; from++)
        for (int to = 0; to < c->size; to++)
            if (entry(c, c->sent, from, to) != entry(c, c->received, to, from))
                return differ(who, from, entry(c, c->sent, from, to), to,
                              entry(c, c->received, to, from));
    return ALNICO_SUCCESS;
}

static alnico_status_t check_counts(const struct counts *c, const char *who)
{
    if (c->call->collective == ALNICO_ALLTOALLV)
        return check_pairs(c, who);
    if (call_has_root(c->call))
        return check_rooted(c, who);
    return check_equal(c, c->call->send_counts ? c->sent : c->received, who);
}

/* A rank that has no counts says zeros. */
static alnico_status_t gather_counts(alnico_comm_t comm, const size_t *counts, uint64_t *mine,
                                     uint64_t *all, const char *who)
{
    for (int b = 0; b < comm->size; b++)
        mine[b] = counts ? counts[b] : 0;
    return comm_allgather(comm, who, mine, all, (size_t)comm->size * sizeof *mine);
}

static alnico_status_t gather_all(alnico_comm_t comm, const struct call *call, uint64_t *memory,
                                  const char *who)
{
    size_t size = (size_t)comm->size;
    uint64_t *mine = memory, *own = mine + size, *sent = own + size, *received = sent + size * size;
    struct counts counts = {call, sent, received, own, comm->size};
    mine[0] = call->count;
    TRY(comm_allgather(comm, who, mine, own, sizeof *mine));
    TRY(gather_counts(comm, call->send_counts, mine, sent, who));
    TRY(gather_counts(comm, call->recv_counts, mine, received, who));
    return check_counts(&counts, who);
}

alnico_status_t call_compare_counts(alnico_comm_t comm, const struct call *call, const char *who)
{
    size_t size = (size_t)comm->size;
    uint64_t *memory = calloc(2 * (size + 1) * size, sizeof *memory);
    alnico_status_t status =
        memory ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "no memory to compare counts");
    status = comm_agree_status(comm, who, status);
    if (status == ALNICO_SUCCESS)
        status = gather_all(comm, call, memory, who);
    free(memory);
    return status;
}
