/*
 * Small vectors, in lines: a line is one cache line, 56 bytes and a mark, written last. Who sees the mark of this turn
 * sees the bytes, so that one transfer between two cores brings both.
 *
 * one-shot  Every rank reads the lines of all others: 1 wait, p - 1 reads.
 * recursive multiplying (Ruefenacht, Bull, Booth 2017), in two rounds for up to 64 ranks: a rank combines
 *           its group of sqrt(p), publishes that, and combines it with what one member of each other group
 *           published: 2 waits, 2 sqrt(p) reads. It goes with any rank count: the last group may be smaller, and its
 *           members are read more often. A longer vector takes several turns.
 *
 * A rank has two sets of lines, used in turn. A set is written again two turns later; whoever gets that far has
 * ended the turn between, for which every rank had to begin it, and so had done with the earlier set.
 */
#include "comm/peer_area.h"

#include "device/math_cpu.h"

#include <string.h>

enum { SMALL_LINES = 8 }; /* above 448 bytes one-shot is faster with stages */

size_t peer_small_bytes(void)
{
    return (size_t)SMALL_LINES * LINE_PAYLOAD;
}

/* ---- Publishing and gathering ---- */

static void publish(struct peer_run *run, int level, const char *from, size_t bytes)
{
    struct line *line = own_part(run)->lines[run->turn % 2][level];
    for (size_t at = 0; at < bytes; at += LINE_PAYLOAD, line++) {
        memcpy(line->payload, from + at, bytes - at < LINE_PAYLOAD ? bytes - at : LINE_PAYLOAD);
        atomic_store_explicit(&line->mark, mark_of(run, run->turn), memory_order_release);
    }
}

static char *gathered(const struct peer_run *run, int slot)
{
    return run->peer->gathered + (size_t)slot * LINES * 64;
}

/* Copies the lines of one rank to a slot as they come. */
static alnico_status_t gather(struct peer_run *run, int rank, int level, int slot, size_t bytes)
{
    const struct line *lines = part_of(run->peer, rank)->lines[run->turn % 2][level];
    for (; run->line * LINE_PAYLOAD < bytes; run->line++) {
        const struct line *line = &lines[run->line];
        size_t at = run->line * LINE_PAYLOAD;
        TRY(check_mark(run, &line->mark, run->turn, rank));
        memcpy(gathered(run, slot) + at, line->payload,
               bytes - at < LINE_PAYLOAD ? bytes - at : LINE_PAYLOAD);
    }
    run->line = 0;
    return ALNICO_SUCCESS;
}

/* ---- One-shot ---- */

alnico_status_t peer_poll_lines(struct peer_run *run, bool *moved)
{
    const struct call *call = &run->call;
    const struct peer *peer = run->peer;
    size_t bytes = call->count * datatype_bytes(call->type);
    const void *sources[PEER_RANKS];
    if (!run->begun) {
        run->turn = ++run->peer->turns;
        publish(run, 0, call->send, bytes);
        *moved = run->begun = true;
    }
    for (; run->index < peer->size - 1; run->index++) {
        int rank = rank_at(peer, run->index);
        TRY(gather(run, rank, 0, rank, bytes));
    }
    for (int r = 0; r < peer->size; r++)
        sources[r] = r == peer->rank ? call->send : gathered(run, r);
    math_combine(call->recv, sources, peer->size, call->count, call->type, call->op);
    run->done = call->count;
    return ALNICO_SUCCESS;
}

/* ---- Recursive multiplying ---- */

/* Partial sums travel in float32 where the type is a half, so that they are rounded once. */
static bool is_widened(const struct call *call)
{
    bool half = call->type == ALNICO_FLOAT16 || call->type == ALNICO_BFLOAT16;
    return half && call->op != ALNICO_MINIMUM && call->op != ALNICO_MAXIMUM;
}

static alnico_datatype_t travelling(const struct call *call)
{
    return is_widened(call) ? ALNICO_FLOAT32 : call->type;
}

/* Sums travel, and are divided at the end. */
static void combine(const struct peer_run *run, void *to, const void *const *sources, int number)
{
    const struct call *call = &run->call;
    alnico_op_t op = call->op == ALNICO_AVERAGE ? ALNICO_SUM : call->op;
    math_combine(to, sources, number, run->count, travelling(call), op);
}

/* Our own part of this turn, as it travels. */
static const char *own_input(const struct peer_run *run)
{
    const struct call *call = &run->call;
    const char *send = (const char *)call->send + run->done * datatype_bytes(call->type);
    if (!is_widened(call))
        return send;
    math_widen((float *)(void *)run->peer->partial, send, run->count, call->type);
    return run->peer->partial;
}

static void begin_turn(struct peer_run *run)
{
    size_t each = datatype_bytes(travelling(&run->call)), most = LINES * LINE_PAYLOAD / each;
    size_t left = run->call.count - run->done;
    run->turn = ++run->peer->turns;
    run->count = left < most ? left : most;
    publish(run, 0, own_input(run), run->count * each);
    run->begun = true;
}

static int members_of(const struct peer *peer, int group)
{
    int left = peer->size - group * peer->group;
    return left < peer->group ? left : peer->group;
}

/* Combines our group, and publishes that. */
alnico_status_t peer_poll_group(struct peer_run *run, bool *moved)
{
    struct peer *peer = run->peer;
    int first = peer->rank / peer->group * peer->group;
    int members = members_of(peer, peer->rank / peer->group);
    const void *sources[PEER_RANKS];
    if (!run->begun) {
        begin_turn(run);
        *moved = true;
    }
    size_t bytes = run->count * datatype_bytes(travelling(&run->call));
    for (; run->index < members - 1; run->index++) {
        int place = (peer->rank - first + 1 + run->index) % members;
        TRY(gather(run, first + place, 0, place, bytes));
    }
    run->index = 0;
    for (int i = 0; i < members; i++)
        sources[i] = first + i == peer->rank ? own_input(run) : gathered(run, i);
    combine(run, peer->partial, sources, members);
    publish(run, 1, peer->partial, bytes);
    run->step = PEER_GROUPS;
    return ALNICO_SUCCESS;
}

static void deliver(struct peer_run *run, const void *const *sources, int number)
{
    const struct call *call = &run->call;
    char *recv = (char *)call->recv + run->done * datatype_bytes(call->type);
    void *to = is_widened(call) ? run->peer->partial : recv;
    combine(run, to, sources, number);
    if (call->op == ALNICO_AVERAGE)
        math_divide(to, to, run->count, travelling(call), run->peer->size);
    if (is_widened(call))
        math_narrow(recv, to, run->count, call->type);
}

/* Combines all groups, from the member of each that has our place in it; then the next turn. */
alnico_status_t peer_poll_groups(struct peer_run *run)
{
    struct peer *peer = run->peer;
    int groups = (peer->size + peer->group - 1) / peer->group;
    int own = peer->rank / peer->group, place = peer->rank % peer->group;
    size_t bytes = run->count * datatype_bytes(travelling(&run->call));
    const void *sources[PEER_RANKS];
    for (; run->index < groups - 1; run->index++) {
        int group = (own + 1 + run->index) % groups;
        int rank = group * peer->group + place % members_of(peer, group);
        TRY(gather(run, rank, 1, group, bytes));
    }
    run->index = 0;
    for (int i = 0; i < groups; i++)
        sources[i] = i == own ? peer->partial : gathered(run, i);
    deliver(run, sources, groups);
    run->done += run->count;
    run->begun = false;
    run->step = PEER_GROUP;
    return ALNICO_SUCCESS;
}
