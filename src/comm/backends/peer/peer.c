/* A rank's view of the area, and one run after another: peer/lines.c, peer/pieces.c, peer/pairs.c
 * and peer/stages.c have the steps. */
#include "comm/backends/peer/area.h"

#include <stdlib.h>
#include <string.h>

/* A load waits for an earlier store, still on its way to memory that another core had, whose
 * address is the same in the last twelve bits. So what a rank copies to stands a little before
 * where its user's buffers mostly begin: at a page. */
enum { PAGE = 4096, BEFORE_PAGE = 256 };

static size_t next_place(size_t bytes)
{
    return (bytes + BEFORE_PAGE + PAGE - 1) / PAGE * PAGE - BEFORE_PAGE;
}

size_t peer_stages_at(void)
{
    return next_place(sizeof(struct part));
}

size_t peer_slots_at(int size)
{
    return next_place(peer_stages_at() +
                      STAGES * (peer_stage_bytes(size) + peer_result_bytes(size)));
}

static size_t part_bytes(int size)
{
    return peer_slots_at(size) + (size_t)SLOTS * SLOT_BYTES + BEFORE_PAGE;
}

size_t peer_bytes(int size)
{
    return (size_t)size * part_bytes(size);
}

/* A page belongs to the memory of whoever touches it first. What others only read after it was
 * written comes to its writer by itself; the lines and words they look at from the start. */
static void touch(struct part *part)
{
    for (int i = 0; i < SLOTS; i++)
        atomic_store_explicit(&part->letters[i].mark, 0, memory_order_relaxed);
    for (int set = 0; set < LINE_SETS; set++)
        for (int level = 0; level < LEVELS; level++)
            for (int i = 0; i < LINES; i++)
                atomic_store_explicit(&part->sets[set].lines[level][i].mark, 0,
                                      memory_order_relaxed);
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
                          .stages_at = peer_stages_at(),
                          .slots_at = peer_slots_at(size),
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

/* ---- What each collective publishes and reads ---- */

static const struct peer_pattern patterns[] = {
    [ALNICO_ALLREDUCE] = {ALL, ALL, false, false},
    [ALNICO_REDUCE] = {OTHERS, ROOT, false, false},
    [ALNICO_BROADCAST] = {ROOT, OTHERS, false, false},
    [ALNICO_ALLGATHER] = {ALL, ALL, false, true},
    [ALNICO_ALLGATHERV] = {ALL, ALL, false, true},
    [ALNICO_REDUCE_SCATTER] = {ALL, ALL, true, false},
    [ALNICO_REDUCE_SCATTERV] = {ALL, ALL, true, false},
    [ALNICO_GATHER] = {OTHERS, ROOT, false, true},
    [ALNICO_GATHERV] = {OTHERS, ROOT, false, true},
    [ALNICO_SCATTER] = {ROOT, OTHERS, true, false},
    [ALNICO_SCATTERV] = {ROOT, OTHERS, true, false},
    [ALNICO_ALLTOALL] = {ALL, ALL, true, true},
    [ALNICO_ALLTOALLV] = {ALL, ALL, true, true},
    [ALNICO_BARRIER] = {ALL, ALL, false, false},
};

bool peer_does(alnico_collective_t collective, enum peer_way way)
{
    bool vector = collective == ALNICO_ALLREDUCE || collective == ALNICO_REDUCE;
    bool groups = collective == ALNICO_BARRIER || collective == ALNICO_GATHER;
    if (vector || (groups && way != PEER_TWO_SHOT))
        return true;
    return way == PEER_ONE_SHOT && collective != ALNICO_SENDRECV;
}

/* What takes blocks has one of its own among them, and so has who scatters. */
static bool keeps_own(const struct peer_run *run)
{
    if (run->pattern->takes_blocks)
        return reads(run);
    return run->pattern->readers == OTHERS && run->pattern->sends_blocks &&
           writes(run, run->peer->rank);
}

void peer_keep_own(const struct peer_run *run)
{
    int rank = run->peer->rank;
    if (keeps_own(run) && own_send(run, rank) != own_recv(run, rank))
        copy_part(own_recv(run, rank), own_send(run, rank), bytes_of(run, rank));
}

/* ---- Runs ---- */

/* Of the counts that all ranks know. */
static uint64_t digest(const struct peer_run *run)
{
    uint64_t sum = 0;
    if (!call_is_even(&run->call))
        return 0;
    for (int b = 0; run->counts && b < run->peer->size; b++)
        sum = 31 * sum + run->counts[b];
    return run->counts ? sum % SIGNATURES : run->call.count;
}

static uint32_t signature_of(const struct peer_run *run)
{
    const struct call *call = &run->call;
    enum peer_way way = run->way;
    uint64_t kind = digest(run) + 7919 * (uint64_t)call->type + 30011 * (uint64_t)call->op +
                    104729 * (uint64_t)way + 15485863 * (uint64_t)call->collective +
                    32452843 * (uint64_t)call->root;
    return (uint32_t)(kind % SIGNATURES);
}

/* Of all blocks together. */
static size_t all_elements(const struct peer_run *run)
{
    size_t sum = 0;
    if (!run->counts)
        return run->longest * (size_t)run->peer->size;
    for (int b = 0; b < run->peer->size; b++)
        sum += run->counts[b];
    return sum;
}

static bool goes_in_pairs(const struct peer_run *run)
{
    size_t bytes = run->longest * run->width;
    bool to_root = run->pattern->readers == ROOT;
    return !call_is_even(&run->call) ||
           (to_root && bytes <= (call_reduces(&run->call) ? LINE_PAYLOAD : peer_pair_room(run)));
}

/* Bytes up to which one-shot takes lines. */
static size_t most_in_lines(const struct peer_run *run)
{
    bool blocks = run->pattern->sends_blocks, all = run->pattern->readers == ALL;
    if (run->pattern->readers == ROOT)
        return LINE_PAYLOAD; /* it combines from slots as they stand, and need not copy first */
    if (blocks && !all && run->longest * run->width <= LINE_PAYLOAD / 2)
        return LINES * LINE_PAYLOAD; /* who reads one line need not look at the root's word, too */
    return peer_small_bytes();
}

static enum peer_step first_step(const struct peer_run *run)
{
    bool blocks = run->pattern->sends_blocks;
    if (run->way == PEER_MULTIPLYING)
        return PEER_GROUP;
    if (run->way == PEER_TWO_SHOT)
        return PEER_REDUCE;
    if (goes_in_pairs(run))
        return PEER_PAIRS;
    size_t elements = blocks ? all_elements(run) : run->longest;
    return elements * run->width <= most_in_lines(run) ? PEER_LINES : PEER_PIECES;
}

void peer_begin(struct peer_run *run, struct peer *peer, const struct call *call, enum peer_way way)
{
    bool barrier = call->collective == ALNICO_BARRIER;
    *run = (struct peer_run){.peer = peer,
                             .call = *call,
                             .way = way,
                             .pattern = &patterns[call->collective],
                             .width = barrier ? 0 : datatype_bytes(call->type),
                             .counts = call->send_counts ? call->send_counts : call->recv_counts,
                             .longest = call_longest(call, peer->size),
                             .least = UINT64_MAX};
    if (!call_is_even(call))
        run->counts = call->recv_counts;
    run->ended = run->longest == 0 && call_is_even(call);
    run->signature = signature_of(run);
    run->step = first_step(run);
}

static alnico_status_t poll_step(struct peer_run *run, bool *moved)
{
    switch (run->step) {
    case PEER_LINES:
        return peer_poll_lines(run, moved);
    case PEER_PIECES:
        return peer_poll_pieces(run, moved);
    case PEER_PAIRS:
        return peer_poll_pairs(run, moved);
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
    while (!run->ended) {
        TRY(poll_step(run, moved));
        *moved = true;
    }
    return ALNICO_SUCCESS;
}
