/* A rank's view of the area, and one run after another: peer_lines.c and peer_stages.c have the steps. */
#include "comm/peer_area.h"

#include <stdlib.h>

enum { PAGE = 4096 };

static size_t part_bytes(int size)
{
    size_t bytes = sizeof(struct part) + 2 * peer_stage_bytes(size) + 2 * peer_result_bytes(size);
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

size_t peer_bytes(int size)
{
    return (size_t)size * part_bytes(size);
}

/* A page belongs to the memory of whoever touches it first. What others only read after it was written comes to its
 * writer by itself; the lines and words they look at from the start. */
static void touch(struct part *part)
{
    for (int set = 0; set < 2; set++)
        for (int level = 0; level < LEVELS; level++)
            for (int i = 0; i < LINES; i++)
                atomic_store_explicit(&part->lines[set][level][i].mark, 0, memory_order_relaxed);
    atomic_store_explicit(&part->ready.value, 0, memory_order_relaxed);
}

static int group_size(int size)
{
    int group = 1;
    while (group * group < size)
        group++;
    return group;
}

alnico_status_t peer_create(void *area, int rank, int size, struct peer **out)
{
    struct peer *peer = calloc(1, sizeof *peer);
    char *gathered = aligned_alloc(64, ((size_t)size + 1) * LINES * 64);
    *out = NULL;
    if (!peer || !gathered) {
        free(peer);
        free(gathered);
        return error_set(ALNICO_ERROR_MEMORY, "no memory for the peer backend");
    }
    *peer = (struct peer){.area = area,
                          .part_bytes = part_bytes(size),
                          .stage_bytes = peer_stage_bytes(size),
                          .result_bytes = peer_result_bytes(size),
                          .rank = rank,
                          .size = size,
                          .group = group_size(size),
                          .gathered = gathered,
                          .partial = gathered + (size_t)size * LINES * 64};
    touch(part_of(peer, rank));
    *out = peer;
    return ALNICO_SUCCESS;
}

void peer_destroy(struct peer *peer)
{
    if (!peer)
        return;
    free(peer->gathered);
    free(peer);
}

void peer_begin(struct peer_run *run, struct peer *peer, const struct call *call, enum peer_way way)
{
    size_t bytes = call->count * datatype_bytes(call->type);
    size_t kind =
        call->count + 7919 * (size_t)call->type + 30011 * (size_t)call->op + 104729 * (size_t)way;
    bool small = way == PEER_ONE_SHOT && bytes <= peer_small_bytes();
    *run = (struct peer_run){.peer = peer,
                             .call = *call,
                             .way = way,
                             .step = small                     ? PEER_LINES
                                     : way == PEER_MULTIPLYING ? PEER_GROUP
                                                               : PEER_REDUCE,
                             .signature = (uint32_t)(kind % 65521)};
}

static alnico_status_t poll_step(struct peer_run *run, bool *moved)
{
    switch (run->step) {
    case PEER_LINES:
        return peer_poll_lines(run, moved);
    case PEER_GROUP:
        return peer_poll_group(run, moved);
    case PEER_GROUPS:
        return peer_poll_groups(run);
    case PEER_REDUCE:
        return peer_poll_reduce(run, moved);
    case PEER_COLLECT:
        return peer_poll_collect(run);
    }
    return ALNICO_ERROR_SYSTEM;
}

alnico_status_t peer_poll(struct peer_run *run, bool *moved)
{
    while (run->done < run->call.count) {
        TRY(poll_step(run, moved));
        *moved = true;
    }
    return ALNICO_SUCCESS;
}
