/*
 * Small vectors, in lines. A line is one cache line: 56 bytes and a mark, written last, so that one
 * transfer between two cores brings both. A barrier is a line without bytes.
 *
 * one-shot  Each rank that has something publishes it, and each rank reads what it needs: 1 wait, at most p - 1 reads.
 * recursive multiplying (Ruefenacht, Bull, Booth 2017), in two rounds for up to 64 ranks: a rank combines its group
 *           of sqrt(p), publishes that, and combines it with what one member of each other group published: 2 waits,
 *           2 sqrt(p) reads. Any rank count: the last group may be smaller, and its members are read more often.
 *           A longer vector takes several epochs. Of a reduce only the root reads groups, and only the ranks that it
 *           reads combine theirs; a rank with one reader waits for no other before it writes again. A gather has a
 *           group's blocks one behind the other in place of their sum.
 */
#include "comm/backends/peer/area.h"

#include "device/cpu/math.h"

#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct line *lines_of(const struct peer_run *run, int rank, int level, uint64_t epoch)
{
    return part_of(run->peer, rank)->sets[epoch % LINE_SETS].lines[level];
}

/* Writes at least one line, even without bytes. */
static void publish(struct peer_run *run, int level, const char *from, size_t bytes)
{
    struct line *line = lines_of(run, run->peer->rank, level, run->epoch);
    size_t at = 0;
    do {
        if (at < bytes)
            memcpy(line->payload, from + at, least(bytes - at, LINE_PAYLOAD));
        atomic_store_explicit(&line->mark, mark_of(run, run->epoch), memory_order_release);
        line++;
        at += LINE_PAYLOAD;
    } while (at < bytes);
}

static char *gathered(const struct peer_run *run, int slot)
{
    return run->peer->gathered + (size_t)slot * LINES * 64;
}

/* Copies bytes [begin, end) of what a rank published as they come. */
static alnico_status_t gather_part(struct peer_run *run, int rank, int level, char *to,
                                   size_t begin, size_t end)
{
    const struct line *lines = lines_of(run, rank, level, run->epoch) + begin / LINE_PAYLOAD;
    size_t skip = begin % LINE_PAYLOAD, bytes = end - begin;
    do {
        const struct line *line = &lines[run->line];
        size_t at = run->line * LINE_PAYLOAD, from = at ? 0 : skip;
        TRY(check_mark(&line->mark, mark_of(run, run->epoch), rank));
        if (bytes)
            memcpy(to + (at + from - skip), line->payload + from,
                   least(skip + bytes - (at + from), LINE_PAYLOAD - from));
        run->line++;
    } while (run->line * LINE_PAYLOAD < skip + bytes);
    run->line = 0;
    return ALNICO_SUCCESS;
}

/* Prefetches the next epoch where writers do not wait for their reader: see peer/pairs.c. */
static alnico_status_t gather(struct peer_run *run, int rank, int level, char *to, size_t bytes)
{
    alnico_status_t status = gather_part(run, rank, level, to, 0, bytes);
    run->waited |= status == ALNICO_PENDING;
    if (run->pattern.readers == PEER_ROOT && !run->waited)
        peer_prefetch((const char *)lines_of(run, rank, level, run->epoch + 1),
                      (bytes + LINE_PAYLOAD - 1) / LINE_PAYLOAD * sizeof(struct line));
    return status;
}

/* The offset of block `end` among blocks one behind the other. */
static size_t bytes_before(const struct peer_run *run, int end)
{
    size_t sum = 0;
    for (int b = 0; b < end; b++)
        sum += bytes_of(run, b);
    return sum;
}

static size_t sent_bytes(const struct peer_run *run)
{
    const struct peer *peer = run->peer;
    return run->pattern.sends_blocks ? bytes_before(run, peer->size) : bytes_of(run, peer->rank);
}

static alnico_status_t begin_lines(struct peer_run *run)
{
    bool written = writes(run, run->peer->rank);
    if (written)
        TRY(peer_reuse(run, LINE_EPOCHS));
    run->epoch = peer_begin_next(run, LINE_EPOCHS, written, EVERYBODY);
    run->count = run->longest;
    if (written)
        publish(run, 0, run->call.send, sent_bytes(run));
    peer_keep_own(run);
    return ALNICO_SUCCESS;
}

static void combine_lines(const struct peer_run *run)
{
    const struct call *call = &run->call;
    const struct peer *peer = run->peer;
    const void *sources[PEER_RANKS];
    for (int r = 0; r < peer->size; r++)
        sources[r] = r == peer->rank ? own_send(run, r) : gathered(run, r);
    size_t count = bytes_of(run, peer->rank) / run->width;
    if (count)
        math_combine(call->recv, sources, peer->size, count, call->type, call->op);
}

static alnico_status_t read_lines(struct peer_run *run)
{
    const struct peer *peer = run->peer;
    bool reduces = call_reduces(&run->call);
    bool blocks = run->pattern.sends_blocks;
    bool some = blocks && bytes_of(run, peer->rank); /* there may be no line where nothing begins */
    size_t at = some ? bytes_before(run, peer->rank) : 0;
    for (; run->index < peer->size - 1; run->index++) {
        int rank = rank_at(peer, run->index);
        if (writes(run, rank))
            TRY(gather_part(run, rank, 0, reduces ? gathered(run, rank) : own_recv(run, rank), at,
                            at + bytes_of(run, blocks ? peer->rank : rank)));
    }
    if (run->pattern.writers != PEER_ROOT)
        peer_all_began(run, LINE_EPOCHS, run->epoch);
    if (reduces)
        combine_lines(run);
    return ALNICO_SUCCESS;
}

static alnico_status_t poll_lines(struct peer_run *run)
{
    if (reads(run))
        TRY(read_lines(run));
    peer_finish(run, LINE_EPOCHS, run->epoch);
    run->ended = true;
    return ALNICO_SUCCESS;
}

const struct peer_steps peer_lines = {begin_lines, poll_lines};

/* Partial sums travel in float32 where the type is a shorter float, so that they are rounded once. */
static bool is_widened(const struct call *call)
{
    return datatype_is_short_float(call->type) && call_reduces(call) &&
           call->op != ALNICO_MINIMUM && call->op != ALNICO_MAXIMUM;
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

/* Bytes that travel in this epoch, of a vector or a block. */
static size_t epoch_bytes(const struct peer_run *run)
{
    return run->width ? run->count * datatype_bytes(travelling(&run->call)) : 0;
}

/* Our own part in this epoch, as it travels. */
static const char *own_input(const struct peer_run *run)
{
    if (run->width == 0 || !is_widened(&run->call))
        return own_send(run, run->peer->rank);
    math_widen((float *)(void *)run->peer->partial, own_send(run, run->peer->rank), run->count,
               run->call.type);
    return run->peer->partial;
}

static alnico_status_t end_epoch(struct peer_run *run)
{
    peer_finish(run, LINE_EPOCHS, run->epoch);
    run->done += run->count;
    run->ended = run->done == run->call.count;
    run->begun = run->second = false;
    return ALNICO_SUCCESS;
}

static int members_of(const struct peer *peer, int group)
{
    int left = peer->size - group * peer->group;
    return left < peer->group ? left : peer->group;
}

/* The place in a group that `reader` reads. */
static int place_in(const struct peer *peer, int reader, int group)
{
    return reader % peer->group % members_of(peer, group);
}

/* Whether any rank reads our group's result from us. */
static bool is_wanted(const struct peer_run *run)
{
    const struct peer *peer = run->peer;
    return reads(run) ||
           peer->rank % peer->group == place_in(peer, run->call.root, peer->rank / peer->group);
}

/* The reader of our lines in this epoch: of a reduce one rank, for its root itself. */
static int reader_of(const struct peer_run *run)
{
    const struct peer *peer = run->peer;
    int group = peer->rank / peer->group;
    if (run->pattern.readers == PEER_ALL)
        return EVERYBODY;
    return is_wanted(run) ? run->call.root
                          : group * peer->group + place_in(peer, run->call.root, group);
}

/* Blocks in a group's result: one sum, or of a gather all members' blocks. */
static size_t blocks_of(const struct peer_run *run, int members)
{
    return run->pattern.takes_blocks ? (size_t)members : 1;
}

static alnico_status_t begin_epoch(struct peer_run *run)
{
    size_t most = LINES * LINE_PAYLOAD / datatype_bytes(travelling(&run->call)) /
                  blocks_of(run, run->peer->group);
    int reader = reader_of(run);
    bool written = reader != run->peer->rank;
    if (written)
        TRY(peer_reuse(run, LINE_EPOCHS));
    run->epoch = peer_begin_next(run, LINE_EPOCHS, written, reader);
    run->count = least(run->call.count - run->done, most);
    if (reader == EVERYBODY || !is_wanted(run))
        publish(run, 0, own_input(run), epoch_bytes(run));
    peer_keep_own(run);
    return ALNICO_SUCCESS;
}

/* The destination of a member's part: of a block RECV, or its place among the group's. */
static char *place_of(const struct peer_run *run, int first, int place)
{
    if (!run->pattern.takes_blocks)
        return gathered(run, place);
    return reads(run) ? own_recv(run, first + place)
                      : run->peer->partial + (size_t)place * epoch_bytes(run);
}

static void combine_group(struct peer_run *run, int first, int members)
{
    struct peer *peer = run->peer;
    const void *sources[PEER_RANKS];
    if (run->pattern.takes_blocks) {
        if (!reads(run))
            copy_part(place_of(run, first, peer->rank - first), own_input(run), epoch_bytes(run));
        return;
    }
    for (int i = 0; i < members; i++)
        sources[i] = first + i == peer->rank ? own_input(run) : gathered(run, i);
    combine(run, peer->partial, sources, members);
}

/* Combines, or collects, our group, and publishes that. */
static alnico_status_t poll_group(struct peer_run *run)
{
    struct peer *peer = run->peer;
    int first = peer->rank / peer->group * peer->group;
    int members = members_of(peer, peer->rank / peer->group);
    if (!is_wanted(run))
        return end_epoch(run);
    for (; run->index < members - 1; run->index++) {
        int place = (peer->rank - first + 1 + run->index) % members;
        TRY(gather(run, first + place, 0, place_of(run, first, place), epoch_bytes(run)));
    }
    run->index = 0;
    if (run->width)
        combine_group(run, first, members);
    run->second = true;
    if (reader_of(run) != peer->rank)
        publish(run, 1, peer->partial, epoch_bytes(run) * blocks_of(run, members));
    return reads(run) ? ALNICO_SUCCESS : end_epoch(run);
}

/* Combines the groups' results. */
static void combine_groups(struct peer_run *run, int groups)
{
    const struct call *call = &run->call;
    const struct peer *peer = run->peer;
    char *recv = own_recv(run, peer->rank);
    void *to = is_widened(call) ? peer->partial : recv;
    const void *sources[PEER_RANKS];
    for (int i = 0; i < groups; i++)
        sources[i] = i == peer->rank / peer->group ? peer->partial : gathered(run, i);
    combine(run, to, sources, groups);
    if (call->op == ALNICO_AVERAGE)
        math_divide(to, to, run->count, travelling(call), peer->size);
    if (is_widened(call))
        math_narrow(recv, to, run->count, call->type);
}

/* The destination of a group's result: whole blocks follow one another and go to RECV at once. */
static char *group_place(const struct peer_run *run, int group)
{
    bool whole = run->pattern.takes_blocks && run->count == run->call.count;
    return whole ? own_recv(run, group * run->peer->group) : gathered(run, group);
}

/* Copies parts of a group's blocks each to its own. */
static void scatter_group(const struct peer_run *run, int group, int members)
{
    size_t bytes = epoch_bytes(run);
    for (int i = 0; i < members; i++)
        copy_part(own_recv(run, group * run->peer->group + i),
                  gathered(run, group) + (size_t)i * bytes, bytes);
}

/* Combines, or collects, all groups, from the member of each that has our place in it; then begins
 * the next epoch. */
static alnico_status_t poll_groups(struct peer_run *run)
{
    struct peer *peer = run->peer;
    int groups = (peer->size + peer->group - 1) / peer->group, own = peer->rank / peer->group;
    for (; run->index < groups - 1; run->index++) {
        int group = (own + 1 + run->index) % groups, members = members_of(peer, group);
        int rank = group * peer->group + place_in(peer, peer->rank, group);
        char *to = group_place(run, group);
        TRY(gather(run, rank, 1, to, epoch_bytes(run) * blocks_of(run, members)));
        if (run->pattern.takes_blocks && to == gathered(run, group))
            scatter_group(run, group, members);
    }
    run->index = 0;
    peer_all_began(run, LINE_EPOCHS, run->epoch);
    if (run->width && !run->pattern.takes_blocks)
        combine_groups(run, groups);
    return end_epoch(run);
}

static alnico_status_t poll_multiplying(struct peer_run *run)
{
    return run->second ? poll_groups(run) : poll_group(run);
}

const struct peer_steps peer_groups = {begin_epoch, poll_multiplying};
