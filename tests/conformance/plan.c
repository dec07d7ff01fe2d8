/* Counts and displacements from the trial's salt, and where blocks stand in place. */
#include "tests/conformance/plan.h"

#include "base/datatype.h"
#include "tests/conformance/operations.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <stdlib.h>

/* What numbers are drawn for. */
enum { FOR_COUNT = 1, FOR_LONE, FOR_PLACE, FOR_GAP, FOR_ORDER };

void *need(size_t number, size_t bytes)
{
    void *memory = calloc(number ? number : 1, bytes);
    REQUIRE(memory != NULL);
    return memory;
}

uint64_t plan_draw(const struct plan *plan, uint64_t a, uint64_t b)
{
    return reference_random(plan->trial->salt, a, b);
}

size_t plan_count(const struct plan *plan, uint64_t b, uint64_t number)
{
    size_t count = plan->trial->count;
    uint64_t random = plan_draw(plan, FOR_COUNT, b);
    switch ((enum pattern)plan->trial->pattern) {
    case PATTERN_RANDOM:
        return random % (2 * count + 1);
    case PATTERN_SPARSE:
        return random % 4 ? 0 : count;
    case PATTERN_LONE:
        return plan_draw(plan, FOR_LONE, 0) % number == b ? count * (size_t)plan->size : 0;
    case PATTERN_RAMP:
        return number > 1 ? 2 * count * b / (number - 1) : count;
    case PATTERN_NONE:
        return 0;
    default:
        return count;
    }
}

/* ---- Blocks in a buffer ---- */

/* In place a rank sends back as much as it gets. */
static size_t pair_count(const struct plan *plan, int from, int to)
{
    size_t size = (size_t)plan->size, a = (size_t)from, b = (size_t)to;
    bool swapped = plan->trial->place != PLACE_APART && a > b;
    return plan_count(plan, swapped ? b * size + a : a * size + b, size * size);
}

static size_t block_count(const struct plan *plan, enum blocks blocks, int side, int b)
{
    const struct operation *o = plan->operation;
    if (!o->counts)
        return plan->trial->count;
    if (o->pairs)
        return side == 0 ? pair_count(plan, plan->rank, b) : pair_count(plan, b, plan->rank);
    return plan_count(plan, (uint64_t)(blocks == ALL ? b : plan->rank), (uint64_t)plan->size);
}

static bool is_displaced(const struct plan *plan)
{
    return plan->operation->at && plan->trial->layout >= LAYOUT_GAPS;
}

/* Which block is the i-th in memory. */
static int block_at(const struct plan *plan, int side, int i)
{
    if (!is_displaced(plan) || plan->trial->layout != LAYOUT_SHUFFLED)
        return i;
    uint64_t random = plan_draw(plan, FOR_ORDER, (uint64_t)(2 * plan->rank + side));
    int shift = (int)(random % (uint64_t)plan->size);
    return (shift + (random >> 32 & 1 ? i : plan->size - i)) % plan->size;
}

static size_t gap_before(const struct plan *plan, int side, int b)
{
    uint64_t which = (uint64_t)((2 * plan->rank + side) * RANKS_MOST + b);
    return is_displaced(plan) ? plan_draw(plan, FOR_GAP, which) % 9 : 0;
}

static void lay(struct plan *plan, struct area *area, enum blocks blocks, int side)
{
    alnico_datatype_t type = (alnico_datatype_t)plan->trial->type;
    size_t element = datatype_bytes(type), next = 0;
    area->number = blocks == ALL ? plan->size : blocks == ONE;
    area->pieces = need((size_t)area->number, sizeof *area->pieces);
    for (int i = 0; i < area->number; i++) {
        int b = blocks == ALL ? block_at(plan, side, i) : 0;
        struct piece *piece = &area->pieces[b];
        next += blocks == ALL ? gap_before(plan, side, b) : 0;
        *piece = (struct piece){
            .at = next * element, .count = block_count(plan, blocks, side, b), .type = type};
        next += piece->count;
        if (piece->count)
            area->bytes = next * element;
    }
}

/* ---- What the blocks hold ---- */

static void name_data(struct plan *plan)
{
    const struct operation *o = plan->operation;
    for (int b = 0; b < plan->reads.number; b++) {
        plan->reads.pieces[b].owner = plan->rank;
        plan->reads.pieces[b].data = (uint64_t)b;
    }
    for (int b = 0; b < plan->writes.number; b++) {
        plan->writes.pieces[b].owner = o->reduces ? REDUCED : o->reads_at_root ? plan->root : b;
        plan->writes.pieces[b].data = o->reads == ALL ? (uint64_t)plan->rank : 0;
    }
}

/* ---- In place ---- */

static enum place place_here(const struct plan *plan)
{
    const struct operation *o = plan->operation;
    bool elsewhere = (o->reads_at_root || o->writes_at_root) && plan->rank != plan->root;
    if (!o->in_place || elsewhere)
        return PLACE_APART;
    if (plan->trial->place != PLACE_MIXED)
        return (enum place)plan->trial->place;
    return (enum place)(plan_draw(plan, FOR_PLACE, (uint64_t)plan->rank) % PLACE_MIXED);
}

const struct piece *plan_own(const struct plan *plan, const struct area *area)
{
    return &area->pieces[area->number > 1 ? plan->rank : 0];
}

/* The area with one block becomes a part of that with all. */
static void join(struct plan *plan)
{
    struct area *reads = &plan->reads, *writes = &plan->writes;
    plan->one = true;
    if (plan->operation->reads == ALL && plan->operation->writes == ALL)
        for (int b = 0; b < reads->number; b++)
            reads->pieces[b] = writes->pieces[b];
    else if (plan->operation->writes == ALL)
        reads->pieces[0].at = plan_own(plan, writes)->at;
    else if (plan->operation->reads == ALL)
        writes->pieces[0].at = plan_own(plan, reads)->at;
}

size_t plan_bytes(const struct plan *plan, int buffer)
{
    size_t reads = plan->reads.bytes, writes = plan->writes.bytes;
    if (!plan->one)
        return buffer == 0 ? reads : writes;
    bool of_reads = plan->operation->writes == ONE; /* the larger */
    return buffer == 0 ? 0 : of_reads && plan->reads.number ? reads : writes;
}

char *plan_address(const struct plan *plan, int buffer, const struct piece *piece)
{
    return plan->buffer[buffer] + piece->at;
}

/* ---- What the call is given ---- */

static size_t *list(const struct area *area, bool at)
{
    size_t *values = need((size_t)area->number, sizeof *values);
    for (int b = 0; b < area->number; b++)
        values[b] =
            at ? area->pieces[b].at / datatype_bytes(area->pieces[b].type) : area->pieces[b].count;
    return values;
}

static void list_all(struct plan *plan)
{
    const struct operation *o = plan->operation;
    bool at = o->at && plan->trial->layout != LAYOUT_NULL;
    if (!o->counts)
        return;
    if (o->reads == ALL && plan->reads.number && !(plan->one && o->writes == ALL)) {
        plan->send_counts = list(&plan->reads, false);
        plan->send_at = at ? list(&plan->reads, true) : NULL;
    }
    if (o->writes == ALL && plan->writes.number) {
        plan->recv_counts = list(&plan->writes, false);
        plan->recv_at = at ? list(&plan->writes, true) : NULL;
    }
}

static void plan_blocks(struct plan *plan)
{
    const struct operation *o = plan->operation;
    bool at_root = plan->rank == plan->root;
    bool reads = !o->reads_at_root || at_root, writes = !o->writes_at_root || at_root;
    if (o->writes_elsewhere)
        writes = !at_root;
    lay(plan, &plan->reads, reads ? o->reads : NONE, 0);
    lay(plan, &plan->writes, writes ? o->writes : NONE, 1);
    plan->one = o->writes_elsewhere;
    if (plan->place != PLACE_APART)
        join(plan);
    name_data(plan);
    list_all(plan);
}

void plan_init(struct plan *plan, const struct trial *trial, alnico_comm_t comm, bool self)
{
    *plan = (struct plan){.trial = trial,
                          .operation = &operations[trial->operation],
                          .comm = comm,
                          .rank = alnico_comm_rank(comm),
                          .size = alnico_comm_size(comm)};
    plan->root = (int)(trial->root % (uint64_t)plan->size);
    plan->place = place_here(plan);
    if (plan->operation->messages)
        plan_messages(plan, self);
    else
        plan_blocks(plan);
}

void plan_finish(struct plan *plan)
{
    free(plan->reads.pieces);
    free(plan->writes.pieces);
    free(plan->send_counts);
    free(plan->send_at);
    free(plan->recv_counts);
    free(plan->recv_at);
    free(plan->messages);
    free(plan->actions);
}
