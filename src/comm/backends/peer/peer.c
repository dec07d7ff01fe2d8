/* A rank's view of the area, and the choice of a run's schedule. */
#include "comm/backends/peer/area.h"

#include <stdlib.h>

/* A load waits for an earlier store to an address that is equal in the last twelve bits (4K
 * aliasing). User's buffers mostly begin at a page, so what a rank copies to begins a little before
 * one. */
enum { PAGE = 4096, BEFORE_PAGE = 256 };

enum {
    STAGE_LEAST = 64 << 10, /* two of them fit the second-level cache beside the user's buffers */
    STAGE_MOST = 256 << 10, /* so they do with 2 MB of it; 64 ranks have 34 MB of stages */
    BLOCK_BYTES = 8 << 10, /* between: what a rank combines, so that waiting costs less than work */
    SMALL_LINES = 8        /* above 448 bytes one-shot is faster with stages */
};

static size_t next_place(size_t bytes)
{
    return (bytes + BEFORE_PAGE + PAGE - 1) / PAGE * PAGE - BEFORE_PAGE;
}

/* The view of an area of which only the layout is known. */
static struct peer lay_out(int size)
{
    size_t bytes = (size_t)size * BLOCK_BYTES;
    struct peer peer = {.size = size, .stages_at = next_place(sizeof(struct part))};
    peer.stage_bytes = bytes < STAGE_LEAST ? STAGE_LEAST : bytes > STAGE_MOST ? STAGE_MOST : bytes;
    peer.result_bytes = (peer.stage_bytes / (size_t)size + 64 + ALONE) / ALONE * ALONE;
    peer.slots_at = next_place(peer.stages_at + STAGES * (peer.stage_bytes + peer.result_bytes));
    peer.part_bytes = peer.slots_at + (size_t)SLOTS * SLOT_BYTES + BEFORE_PAGE;
    return peer;
}

size_t peer_bytes(int size)
{
    return (size_t)size * lay_out(size).part_bytes;
}

size_t peer_own_bytes(int size)
{
    return ((size_t)size + 1) * LINES * 64;
}

/* First touch decides the NUMA node of a page, so each rank touches the lines and words of its own
 * that others poll from the start. Pages that are read only after they were written come to their
 * writer's node by themselves. */
static void touch(struct part *part)
{
    for (int i = 0; i < SLOTS; i++)
        atomic_store_explicit(&part->root_lines[i].mark, 0, memory_order_relaxed);
    for (int set = 0; set < LINE_SETS; set++)
        for (int level = 0; level < LEVELS; level++)
            for (int i = 0; i < LINES; i++)
                atomic_store_explicit(&part->sets[set].lines[level][i].mark, 0,
                                      memory_order_relaxed);
    atomic_store_explicit(&part->ready.value, 0, memory_order_relaxed);
}

alnico_status_t peer_create(void *area, int rank, int size, struct peer **out)
{
    struct peer *peer = calloc(1, sizeof *peer);
    char *gathered = aligned_alloc(64, peer_own_bytes(size));
    *out = NULL;
    if (!peer || !gathered) {
        free(peer);
        free(gathered);
        return error_set(ALNICO_ERROR_MEMORY, "no memory for the peer backend");
    }
    *peer = lay_out(size);
    peer->area = area;
    peer->rank = rank;
    peer->group = 1;
    while (peer->group * peer->group < size)
        peer->group++;
    peer->gathered = gathered;
    peer->partial = gathered + (size_t)size * LINES * 64;
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

static struct peer_pattern pattern_of(const struct call *call)
{
    const struct collective *kind = &collectives[call->collective];
    return (struct peer_pattern){.writers = kind->reads_at_root    ? PEER_ROOT
                                            : kind->writes_at_root ? PEER_OTHERS
                                                                   : PEER_ALL,
                                 .readers = kind->writes_at_root  ? PEER_ROOT
                                            : kind->reads_at_root ? PEER_OTHERS
                                                                  : PEER_ALL,
                                 .sends_blocks = kind->reads == ALL_BLOCKS,
                                 .takes_blocks = kind->writes == ALL_BLOCKS};
}

/* A rank that takes blocks, or scatters, has one of its own among them. */
static bool keeps_own(const struct peer_run *run)
{
    if (run->pattern.takes_blocks)
        return reads(run);
    return run->pattern.readers == PEER_OTHERS && run->pattern.sends_blocks &&
           writes(run, run->peer->rank);
}

void peer_keep_own(const struct peer_run *run)
{
    int rank = run->peer->rank;
    if (keeps_own(run) && own_send(run, rank) != own_recv(run, rank))
        copy_part(own_recv(run, rank), own_send(run, rank), bytes_of(run, rank));
}

/* One number for the counts that all ranks know. */
static uint64_t digest(const struct peer_run *run)
{
    uint64_t sum = 0;
    if (!call_is_even(&run->call))
        return 0;
    for (int b = 0; run->counts && b < run->peer->size; b++)
        sum = 31 * sum + run->counts[b];
    return run->counts ? sum % CALL_SIGNATURES : run->call.count;
}

static uint32_t signature_of(const struct peer_run *run, enum peer_algorithm algorithm)
{
    uint64_t kind = call_signature(&run->call, digest(run)) + 30011 * (uint64_t)algorithm;
    return (uint32_t)(kind % CALL_SIGNATURES);
}

/* Elements of all blocks together. */
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
    bool to_root = run->pattern.readers == PEER_ROOT;
    return !call_is_even(&run->call) ||
           (to_root && bytes <= (call_reduces(&run->call) ? LINE_PAYLOAD : peer_pair_room(run)));
}

/* Bytes up to which one-shot takes lines. */
static size_t most_in_lines(const struct peer_run *run)
{
    bool blocks = run->pattern.sends_blocks, all = run->pattern.readers == PEER_ALL;
    if (run->pattern.readers == PEER_ROOT)
        return LINE_PAYLOAD; /* it combines from slots as they stand, and need not copy first */
    if (blocks && !all && run->longest * run->width <= LINE_PAYLOAD / 2)
        return LINES * LINE_PAYLOAD; /* a reader of one line need not poll the root's word, too */
    return (size_t)SMALL_LINES * LINE_PAYLOAD;
}

static const struct peer_steps *choose_steps(const struct peer_run *run,
                                             enum peer_algorithm algorithm)
{
    if (algorithm == PEER_CPU_MULTIPLYING)
        return &peer_groups;
    if (algorithm == PEER_CPU_TWO_SHOT)
        return &peer_two_shot;
    if (goes_in_pairs(run))
        return &peer_pairs;
    size_t elements = run->pattern.sends_blocks ? all_elements(run) : run->longest;
    return elements * run->width <= most_in_lines(run) ? &peer_lines : &peer_pieces;
}

void peer_begin(struct peer_run *run, struct peer *peer, const struct call *call,
                enum peer_algorithm algorithm)
{
    bool barrier = call->collective == ALNICO_BARRIER;
    *run = (struct peer_run){.peer = peer,
                             .call = *call,
                             .pattern = pattern_of(call),
                             .width = barrier ? 0 : datatype_bytes(call->type),
                             .counts = call->send_counts ? call->send_counts : call->recv_counts,
                             .longest = call_longest(call, peer->size),
                             .least = UINT64_MAX};
    if (!call_is_even(call))
        run->counts = call->recv_counts;
    run->ended = run->longest == 0 && call_is_even(call);
    run->signature = signature_of(run, algorithm);
    run->steps = choose_steps(run, algorithm);
}

alnico_status_t peer_poll(struct peer_run *run, bool *moved)
{
    while (!run->ended) {
        if (!run->begun) {
            TRY(run->steps->begin(run));
            run->begun = *moved = true;
        }
        TRY(run->steps->poll(run));
        *moved = true;
    }
    return ALNICO_SUCCESS;
}
