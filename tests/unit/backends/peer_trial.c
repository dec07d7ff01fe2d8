#include "tests/unit/backends/peer_trial.h"

#include "base/datatype.h"
#include "tests/support/reference.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t trial_seed;

bool peer_does(alnico_collective_t collective, enum peer_algorithm algorithm)
{
    bool vector = collective == ALNICO_ALLREDUCE || collective == ALNICO_REDUCE;
    bool groups = collective == ALNICO_BARRIER || collective == ALNICO_GATHER;
    if (vector || (groups && algorithm != PEER_CPU_TWO_SHOT))
        return true;
    return algorithm == PEER_CPU_ONE_SHOT && collective != ALNICO_SENDRECV;
}

alnico_status_t trial_run(struct peer *peer, const struct call *call, enum peer_algorithm way)
{
    struct peer_run run;
    alnico_status_t status;
    bool moved = false;
    peer_begin(&run, peer, call, way);
    while ((status = peer_poll(&run, &moved)) == ALNICO_PENDING)
        sched_yield();
    return status;
}

/* ---- Inputs and results ---- */

static bool has(const struct trial *t, alnico_collective_t a, alnico_collective_t b)
{
    return t->call.collective == a || t->call.collective == b;
}

static bool gathers(const struct trial *t)
{
    return has(t, ALNICO_GATHER, ALNICO_GATHERV);
}

static bool scatters(const struct trial *t)
{
    return has(t, ALNICO_SCATTER, ALNICO_SCATTERV);
}

static bool exchanges(const struct trial *t)
{
    return has(t, ALNICO_ALLTOALL, ALNICO_ALLTOALLV);
}

static bool sends_blocks(const struct trial *t)
{
    return has(t, ALNICO_REDUCE_SCATTER, ALNICO_REDUCE_SCATTERV) || scatters(t) || exchanges(t);
}

static bool takes_blocks(const struct trial *t)
{
    return has(t, ALNICO_ALLGATHER, ALNICO_ALLGATHERV) || gathers(t) || exchanges(t);
}

/* What pairs of ranks exchange as messages is not the protocol's. */
static size_t most(const struct trial *t)
{
    size_t room = (t->size > 3 ? 256 : 8192) / datatype_bytes(t->call.type);
    return call_is_even(&t->call) || t->call.count < room ? t->call.count : room;
}

/* Elements that `from` has for `to`: in vector forms anything, and often nothing. An alltoallv in
 * place sends as many as it takes. */
static size_t length(const struct trial *t, int from, int to)
{
    uint64_t block = (uint64_t)(sends_blocks(t) ? to : from);
    uint64_t low = (uint64_t)(from < to ? from : to), high = (uint64_t)(from < to ? to : from);
    if (!call_is_vector(&t->call))
        return t->call.count;
    if (exchanges(t))
        block = t->in_place ? low * PEER_RANKS + high : (uint64_t)(from * PEER_RANKS + to);
    uint64_t random = reference_random(trial_seed + t->salt, block, 11);
    return random % 4 ? (random >> 8) % (most(t) + 1) : 0;
}

static struct layout layout_of(const struct trial *t, int rank, int size, bool sends)
{
    struct layout l = {.end = 0};
    bool blocks = sends ? sends_blocks(t) : takes_blocks(t);
    bool gaps = call_is_vector(&t->call) && !has(t, ALNICO_REDUCE_SCATTERV, ALNICO_BARRIER);
    for (int b = 0; b < (blocks ? size : 1); b++) {
        int other = blocks ? b : rank;
        l.counts[b] = sends ? length(t, rank, other) : length(t, other, rank);
        l.at[b] = l.end;
        l.end += l.counts[b] + (gaps ? (size_t)(b % 3) : 0);
    }
    return l;
}

/* What a rank has in the block for `to`. */
static void fill(const struct trial *t, char *block, int from, int to)
{
    uint64_t which = trial_seed + t->salt + 1000003 * (uint64_t)to;
    reference_fill(block, length(t, from, to), t->call.type, t->call.op, which, from);
}

static void complain(struct rank *rank, const struct trial *t, const char *what)
{
    char text[128];
    fprintf(stderr, "rank %d of %d, %s, way %d%s, seed %llu + %llu: %s\n", rank->rank, rank->size,
            call_describe(&t->call, text, sizeof text), (int)t->way,
            t->in_place ? ", in place" : "", (unsigned long long)trial_seed,
            (unsigned long long)t->salt, what);
    REQUIRE(!"right");
}

static void check_sum(struct rank *rank, const struct trial *t, const char *result)
{
    int ranks[PEER_RANKS], block = sends_blocks(t) ? rank->rank : 0;
    char text[128];
    for (int i = 0; i < rank->size; i++)
        ranks[i] = i;
    if (reference_check(result, length(t, 0, rank->rank), t->call.type, t->call.op,
                        trial_seed + t->salt + 1000003 * (uint64_t)block, ranks, rank->size, text,
                        sizeof text))
        complain(rank, t, text);
}

static void check_block(struct rank *rank, const struct trial *t, const char *result, int from)
{
    int to = sends_blocks(t) ? rank->rank : 0;
    size_t bytes = length(t, from, rank->rank) * datatype_bytes(t->call.type);
    char *expected = malloc(bytes + 1);
    REQUIRE(expected);
    fill(t, expected, from, to);
    if (memcmp(result, expected, bytes) != 0)
        complain(rank, t, "other bytes than were sent");
    free(expected);
}

static bool takes(struct rank *rank, const struct trial *t)
{
    bool at_root = has(t, ALNICO_REDUCE, ALNICO_REDUCE) || gathers(t);
    return !has(t, ALNICO_BARRIER, ALNICO_BARRIER) && !(at_root && rank->rank != t->call.root);
}

static void check(struct rank *rank, const struct trial *t, const char *result)
{
    struct layout l = layout_of(t, rank->rank, rank->size, false);
    if (!takes(rank, t))
        return;
    if (call_reduces(&t->call))
        check_sum(rank, t, result);
    else if (has(t, ALNICO_BROADCAST, ALNICO_BROADCAST) || scatters(t))
        check_block(rank, t, result, t->call.root);
    else
        for (int from = 0; from < rank->size; from++)
            check_block(rank, t, result + l.at[from] * datatype_bytes(t->call.type), from);
}

/* ---- One call ---- */

static char *poisoned(size_t bytes)
{
    char *buffer = malloc(bytes + 1);
    REQUIRE(buffer);
    memset(buffer, 0x5a, bytes + 1);
    return buffer;
}

static void fill_all(struct rank *rank, const struct trial *t, char *send)
{
    struct layout l = layout_of(t, rank->rank, rank->size, true);
    if (has(t, ALNICO_BROADCAST, ALNICO_BROADCAST) && rank->rank != t->call.root)
        return;
    for (int to = 0; to < (sends_blocks(t) ? rank->size : 1); to++)
        fill(t, send + l.at[to] * datatype_bytes(t->call.type), rank->rank, to);
}

/* Where in place has the two: see struct shape. */
static void point(struct rank *rank, const struct trial *t, struct buffers *b, struct call *call)
{
    bool at_root = rank->rank == t->call.root, spread = gathers(t) || scatters(t);
    bool in_place = t->in_place && (at_root || !spread);
    struct layout l = layout_of(t, rank->rank, rank->size, sends_blocks(t));
    size_t block = l.at[rank->rank] * datatype_bytes(t->call.type);
    call->send = b->send;
    call->recv = b->recv;
    if (has(t, ALNICO_BROADCAST, ALNICO_BROADCAST) ||
        (in_place && sends_blocks(t) == takes_blocks(t)))
        call->recv = b->send;
    else if (in_place && takes_blocks(t))
        call->send = b->recv + block;
    else if (in_place)
        call->recv = b->send + block;
    if (has(t, ALNICO_BARRIER, ALNICO_BARRIER))
        call->send = call->recv = NULL;
    if ((has(t, ALNICO_REDUCE, ALNICO_REDUCE) || gathers(t)) && !at_root)
        call->recv = NULL;
    if (scatters(t) && !at_root)
        call->send = NULL;
}

/* As a rank has them that calls a vector form: of one with a root only that has all of them. */
static void set_counts(const struct rank *rank, const struct trial *t, const struct layout *sent,
                       const struct layout *taken, struct call *call)
{
    bool at_root = rank->rank == t->call.root || call_is_even(&t->call) || exchanges(t);
    if (!call_is_vector(&t->call))
        return;
    call->count = exchanges(t) ? 0 : sends_blocks(t) ? taken->counts[0] : sent->counts[0];
    if (sends_blocks(t) && at_root) {
        call->send_counts = sent->counts;
        call->send_at = sent->at;
    }
    if (takes_blocks(t) && at_root) {
        call->recv_counts = taken->counts;
        call->recv_at = taken->at;
    }
}

/* Nothing was written between the blocks and behind them. */
static void check_gaps(struct rank *rank, const struct trial *t, const struct layout *l,
                       const char *recv)
{
    size_t bytes = datatype_bytes(t->call.type);
    for (int b = 0; takes_blocks(t) && b < rank->size; b++) {
        size_t end = b + 1 < rank->size ? l->at[b + 1] : l->end;
        for (size_t i = (l->at[b] + l->counts[b]) * bytes; i < end * bytes; i++)
            if (recv[i] != 0x5a)
                complain(rank, t, "wrote between blocks");
    }
}

struct trial_run *trial_begin(struct rank *rank, struct peer *peer, const struct trial *t)
{
    size_t bytes = datatype_bytes(t->call.type);
    struct trial_run *r = malloc(sizeof *r);
    REQUIRE(r);
    *r = (struct trial_run){.rank = rank, .trial = *t};
    t = &r->trial;
    r->trial.size = rank->size;
    r->sent = layout_of(t, rank->rank, rank->size, true);
    r->taken = layout_of(t, rank->rank, rank->size, false);
    r->buffers =
        (struct buffers){.send_end = r->sent.end * bytes, .recv_end = r->taken.end * bytes};
    r->buffers.send = poisoned(r->buffers.send_end);
    r->buffers.recv = poisoned(r->buffers.recv_end);
    struct call call = t->call;
    point(rank, t, &r->buffers, &call);
    set_counts(rank, t, &r->sent, &r->taken, &call);
    fill_all(rank, t, call.send ? (char *)(uintptr_t)call.send : r->buffers.send);
    peer_begin(&r->run, peer, &call, t->way);
    return r;
}

bool trial_poll(struct trial_run *r, bool *moved)
{
    const struct buffers *b = &r->buffers;
    const struct call *call = &r->run.call;
    alnico_status_t status = peer_poll(&r->run, moved);
    if (status == ALNICO_PENDING)
        return false;
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    REQUIRE(b->send[b->send_end] == 0x5a && b->recv[b->recv_end] == 0x5a);
    check(r->rank, &r->trial, call->recv);
    if (takes(r->rank, &r->trial))
        check_gaps(r->rank, &r->trial, &r->taken, call->recv);
    free(b->send);
    free(b->recv);
    free(r);
    return true;
}

void trial_one(struct rank *rank, struct peer *peer, const struct trial *t)
{
    struct trial_run *run = trial_begin(rank, peer, t);
    bool moved = false;
    while (!trial_poll(run, &moved))
        sched_yield();
}
