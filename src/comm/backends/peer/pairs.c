/*
 * Pairs: each reader has a line of its own with the writer's mark. Used by gatherv, scatterv and
 * alltoallv, where only the two ranks know a block's length, and by small gathers and reduces. Up to
 * 56 bytes stand in the line, more in the writer's slot or stage. A block that has no room there goes
 * as a message (peer/backend.c), and the line only says so. For an empty block there is no line and
 * no wait. The mark's signature has the length, so that two ranks that disagree see it.
 *
 * To a root there are as many lines as slots, and a writer goes on until it comes to one that is not
 * read yet. Otherwise the lines are those of an epoch.
 */
#include "comm/backends/peer/area.h"

#include "device/cpu/math.h"

enum {
    PAIR_MOST = 8 << 10, /* above, the kernel copies a message once, which is faster */
    FETCH_AHEAD = 4      /* ranks whose lines are asked for before they are needed */
};

_Static_assert((int)LEVELS *LINES >= PEER_RANKS, "an epoch has a line for each reader");

static bool is_to_root(const struct peer_run *run)
{
    return run->pattern.readers == PEER_ROOT;
}

static enum peer_sequence lines_count(const struct peer_run *run)
{
    return is_to_root(run) ? SLOT_PIECES : LINE_EPOCHS;
}

size_t peer_pair_room(const struct peer_run *run)
{
    const struct peer *peer = run->peer;
    size_t parts = run->pattern.sends_blocks ? (size_t)peer->size - 1 : 1;
    size_t all = piece_sequence(run) == STAGE_PIECES ? peer->stage_bytes : SLOT_BYTES;
    size_t room = all / parts / 64 * 64;
    return room < PAIR_MOST ? room : PAIR_MOST;
}

static bool fits_line(size_t bytes)
{
    return bytes <= LINE_PAYLOAD;
}

static bool fits_place(const struct peer_run *run, size_t bytes)
{
    return !fits_line(bytes) && bytes <= peer_pair_room(run);
}

static int readers(const struct peer_run *run)
{
    return is_to_root(run) ? 1 : run->peer->size - 1;
}

static int reader_at(const struct peer_run *run, int i)
{
    return is_to_root(run) ? run->call.root : rank_at(run->peer, i);
}

static int writers(const struct peer_run *run)
{
    return run->pattern.writers == PEER_ROOT ? 1 : run->peer->size - 1;
}

static int writer_at(const struct peer_run *run, int i)
{
    return run->pattern.writers == PEER_ROOT ? run->call.root : rank_at(run->peer, i);
}

static size_t sent_bytes(const struct peer_run *run, int reader)
{
    const struct call *call = &run->call;
    return (call->send_counts ? call->send_counts[reader] : call->count) * run->width;
}

static uint64_t pair_mark(const struct peer_run *run, size_t bytes)
{
    uint64_t kind = (run->signature + bytes) % CALL_SIGNATURES;
    return run->epoch << SIGNATURE_BITS | kind;
}

static struct line *line_of(const struct peer_run *run, int rank, int reader, uint64_t epoch)
{
    struct part *part = part_of(run->peer, rank);
    if (is_to_root(run))
        return &part->root_lines[epoch % SLOTS];
    return &part->sets[epoch % LINE_SETS].lines[reader / LINES][reader % LINES];
}

static struct line *line_for(const struct peer_run *run, int rank, int reader)
{
    return line_of(run, rank, reader, run->epoch);
}

static char *place_for(const struct peer_run *run, int rank, int reader)
{
    return peer_part(run, rank, reader, run->place, peer_pair_room(run));
}

/* Line by line: memcpy takes 65 to 128 bytes as the first and the last 64, each of which spans two
 * lines of another core. */
static void copy_place(char *to, const char *from, size_t bytes)
{
    if (bytes > 64 && bytes <= 128) {
        memcpy(to, from, 64);
        memcpy(to + 64, from + 64, bytes - 64);
    } else {
        memcpy(to, from, bytes);
    }
}

static void publish(const struct peer_run *run, int reader)
{
    int rank = run->peer->rank;
    size_t bytes = sent_bytes(run, reader);
    struct line *line = line_for(run, rank, reader);
    if (bytes == 0)
        return;
    if (fits_line(bytes))
        memcpy(line->payload, own_send(run, reader), bytes);
    else if (fits_place(run, bytes))
        copy_place(place_for(run, rank, reader), own_send(run, reader), bytes);
    atomic_store_explicit(&line->mark, pair_mark(run, bytes), memory_order_release);
}

static bool needs_place(const struct peer_run *run)
{
    for (int i = 0; i < readers(run); i++)
        if (fits_place(run, sent_bytes(run, reader_at(run, i))))
            return true;
    return false;
}

static alnico_status_t begin_pairs(struct peer_run *run)
{
    enum peer_sequence lines = lines_count(run), places = piece_sequence(run);
    bool written = writes(run, run->peer->rank), placed = written && needs_place(run);
    int reader = is_to_root(run) ? run->call.root : EVERYBODY;
    if (written)
        TRY(peer_reuse(run, lines));
    if (placed)
        TRY(peer_reuse(run, places));
    run->epoch = peer_begin_next(run, lines, written, reader);
    run->place = places == lines ? run->epoch : peer_begin_next(run, places, placed, reader);
    run->count = run->counts ? SIZE_MAX : run->call.count;
    for (int i = 0; written && i < readers(run); i++)
        publish(run, reader_at(run, i));
    peer_keep_own(run);
    return ALNICO_SUCCESS;
}

/* By words: what memcpy does with 16 to 31 bytes took a root 0.20 us instead of 0.16 where its own
 * block, of 4 or 8 bytes, stood before them. */
static void copy_words(char *to, const char *from, size_t bytes)
{
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t)) {
        memcpy(to, from, sizeof(uint64_t));
        to += sizeof(uint64_t);
        from += sizeof(uint64_t);
    }
    if (bytes)
        memcpy(to, from, bytes);
}

static void take(const struct peer_run *run, int rank, size_t bytes)
{
    int own = run->peer->rank;
    if (fits_line(bytes))
        copy_words(own_recv(run, rank), line_for(run, rank, own)->payload, bytes);
    else if (fits_place(run, bytes))
        copy_place(own_recv(run, rank), place_for(run, rank, own), bytes);
}

static void fetch_line(const struct peer_run *run, int i, uint64_t epoch)
{
    peer_prefetch((const char *)line_of(run, writer_at(run, i), run->peer->rank, epoch), 64);
}

/* Writers to a root do not wait for it. As long as it finds what many wrote, all wait for it, and it
 * prefetches each line a whole epoch before it needs it. */
static void fetch_ahead(const struct peer_run *run)
{
    int next = run->index + FETCH_AHEAD;
    if (is_to_root(run) && writers(run) > FETCH_AHEAD && !run->waited)
        fetch_line(run, run->index, run->epoch + 1);
    else if (next < writers(run))
        fetch_line(run, next, run->epoch);
}

/* Whether every rank had something for us. */
static bool got_from_all(const struct peer_run *run)
{
    for (int i = 0; i < writers(run); i++)
        if (bytes_of(run, writer_at(run, i)) == 0)
            return false;
    return run->pattern.writers != PEER_ROOT;
}

/* Combines the vectors of a reduce, which are in the lines. */
static void combine(const struct peer_run *run)
{
    const struct call *call = &run->call;
    const struct peer *peer = run->peer;
    const void *sources[PEER_RANKS];
    for (int r = 0; r < peer->size; r++)
        sources[r] = r == peer->rank ? own_send(run, r) : line_for(run, r, peer->rank)->payload;
    math_combine(call->recv, sources, peer->size, call->count, call->type, call->op);
}

static alnico_status_t check_pair(struct peer_run *run, int rank, size_t bytes)
{
    const struct line *line = line_for(run, rank, run->peer->rank);
    alnico_status_t status = check_mark(&line->mark, pair_mark(run, bytes), rank);
    run->waited |= status == ALNICO_PENDING;
    return status;
}

static alnico_status_t read_pairs(struct peer_run *run)
{
    bool reduces = call_reduces(&run->call);
    for (; run->index < writers(run); run->index++) {
        int rank = writer_at(run, run->index);
        size_t bytes = bytes_of(run, rank);
        if (bytes == 0)
            continue;
        TRY(check_pair(run, rank, bytes));
        fetch_ahead(run);
        if (!reduces)
            take(run, rank, bytes);
    }
    if (reduces)
        combine(run);
    if (got_from_all(run)) {
        peer_all_began(run, lines_count(run), run->epoch);
        peer_all_began(run, piece_sequence(run), run->place);
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t poll_pairs(struct peer_run *run)
{
    if (reads(run))
        TRY(read_pairs(run));
    peer_finish(run, lines_count(run), run->epoch);
    if (piece_sequence(run) != lines_count(run))
        peer_finish(run, piece_sequence(run), run->place);
    run->ended = true;
    return ALNICO_SUCCESS;
}

const struct peer_steps peer_pairs = {begin_pairs, poll_pairs};

static size_t left_of(const struct peer_run *run, size_t count)
{
    return count * run->width > peer_pair_room(run) ? count : 0;
}

/* The counts of the blocks that go as messages; NULL: there are none. */
static const size_t *leave(const struct peer_run *run, const size_t *counts, size_t *list,
                           bool *any)
{
    for (int b = 0; counts && b < run->peer->size; b++) {
        list[b] = b == run->peer->rank ? 0 : left_of(run, counts[b]);
        *any |= list[b] > 0;
    }
    return counts ? list : NULL;
}

bool peer_rest(const struct peer_run *run, struct call *rest, size_t *lists)
{
    const struct call *call = &run->call;
    bool at_root = call->send_counts || call->recv_counts;
    *rest = *call;
    rest->count = at_root ? 0 : left_of(run, call->count);
    bool any = rest->count > 0;
    rest->send_counts = leave(run, call->send_counts, lists, &any);
    rest->recv_counts = leave(run, call->recv_counts, lists + run->peer->size, &any);
    return any;
}
