/*
 * The area that the ranks share, its words and marks; for peer/ only.
 *
 * A mark is the number of an epoch or piece and 16 bits of signature, so that ranks that call
 * different things see it at once. A wait is a look at one rank's word; nothing here blocks. Called
 * by whoever polls the operation.
 */
#ifndef ALNICO_COMM_BACKENDS_PEER_AREA_H
#define ALNICO_COMM_BACKENDS_PEER_AREA_H

#include "base/datatype.h"
#include "base/status.h"
#include "comm/backends/peer/peer.h"

#include <stdatomic.h>
#include <string.h>

enum {
    /* Buffers are used round-robin, stages and slots too. With few of them a rank that writes and
     * does not read asks too often how far the readers are. */
    LINE_SETS = 32,
    STAGES = 2,
    SLOTS = 32, /* for writers that do not wait for each other; a line that is written again has
                   left the reader's nearest caches */
    SLOT_BYTES = 16 << 10, /* all of them together fit the second-level cache */
    BUFFERS_MOST = 32,     /* the most of these; see peer/reuse.c */
    LINE_PAYLOAD = 56,
    LINES = 32,      /* that a rank publishes at once: 1.75 KB */
    LEVELS = 2,      /* of recursive multiplying */
    ALONE = 128,     /* bytes: processors fetch lines in pairs */
    FETCH_RANKS = 8, /* above: blocks are too short for the processor's own prefetching */
    SIGNATURE_BITS = 16
};

struct line {
    _Alignas(64) char payload[LINE_PAYLOAD];
    _Atomic uint64_t mark;
};

struct word {
    _Alignas(ALONE) _Atomic uint64_t value;
};

/* Padding keeps the first lines of all sets out of one set of the processor's cache. */
struct line_set {
    struct line lines[LEVELS][LINES];
    _Alignas(64) char padding[3 * 64];
};

/* Every rank numbers epochs of lines, pieces in stages, and pieces in slots, each in the same order,
 * whether it takes part or not. */
enum peer_sequence { LINE_EPOCHS, STAGE_PIECES, SLOT_PIECES, SEQUENCES };

/* The part that a rank writes and the others read; its stages, results and slots follow. */
struct part {
    struct line_set sets[LINE_SETS];
    struct line root_lines[SLOTS]; /* to one rank */
    struct word ready, reduced;    /* pieces in stages, and their results */
    struct word slots_ready;       /* pieces in slots */
    /* Epochs and pieces that the rank needs nothing of any more: so many or more. */
    struct word finished[SEQUENCES];
};

/* The last number that we wrote to a buffer for, and its reader: a rank, or EVERYBODY. */
enum { EVERYBODY = -1 };
struct written {
    uint64_t number;
    int reader;
};

struct sequence {
    uint64_t now;         /* begun so far */
    uint64_t known;       /* all ranks have finished so many; the true number may be higher */
    struct written asked; /* the one rank that was asked last, and what it has finished */
    struct written written[BUFFERS_MOST];
};

/* How a schedule goes on: begin publishes our own part of an epoch or piece, poll reads the others'.
 * Each is one try: PENDING, SUCCESS (it goes on, unless the run has ended), or MISMATCH. */
struct peer_steps {
    alnico_status_t (*begin)(struct peer_run *run);
    alnico_status_t (*poll)(struct peer_run *run);
};
extern const struct peer_steps peer_lines, peer_pieces, peer_pairs, peer_groups, peer_two_shot;

struct peer {
    char *area;
    size_t part_bytes, stage_bytes, result_bytes;
    size_t stages_at, slots_at; /* in a part */
    int rank, size, group;      /* ranks of a group: the least whose square is not below the size */
    struct sequence sequences[SEQUENCES];
    uint64_t slots_seen[PEER_RANKS]; /* each rank's word `slots_ready` at our last look */
    char *gathered;                  /* LINES * 64 bytes for each rank: lines without their marks */
    char *partial;                   /* as much once: what we have combined ourselves */
};

static inline struct part *part_of(const struct peer *peer, int rank)
{
    return (struct part *)(void *)(peer->area + (size_t)rank * peer->part_bytes);
}

static inline struct part *own_part(const struct peer_run *run)
{
    return part_of(run->peer, run->peer->rank);
}

static inline uint64_t mark_of(const struct peer_run *run, uint64_t epoch)
{
    return epoch << SIGNATURE_BITS | run->signature;
}

/* SUCCESS if a mark that the rank wrote is of the wanted epoch or a later one; one of this epoch must
 * be the wanted mark. */
static inline alnico_status_t check_seen(uint64_t seen, uint64_t wanted, int rank)
{
    if (seen >> SIGNATURE_BITS < wanted >> SIGNATURE_BITS)
        return ALNICO_PENDING;
    if (seen >> SIGNATURE_BITS == wanted >> SIGNATURE_BITS && seen != wanted)
        return error_set(ALNICO_ERROR_MISMATCH, "rank %d calls another operation, type or count",
                         rank);
    return ALNICO_SUCCESS;
}

/* Acquires what the rank wrote before it. */
static inline alnico_status_t check_mark(const _Atomic uint64_t *mark, uint64_t wanted, int rank)
{
    return check_seen(atomic_load_explicit(mark, memory_order_acquire), wanted, rank);
}

/* The i-th rank that we look at: everybody begins with another one, so that not all want the same
 * line at once. */
static inline int rank_at(const struct peer *peer, int i)
{
    int rank = peer->rank + 1 + i;
    return rank < peer->size ? rank : rank - peer->size;
}

static inline bool is_among(const struct peer_run *run, enum peer_who who, int rank)
{
    return who == PEER_ALL || (who == PEER_ROOT) == (rank == run->call.root);
}

static inline bool writes(const struct peer_run *run, int rank)
{
    return is_among(run, run->pattern.writers, rank);
}

static inline bool reads(const struct peer_run *run)
{
    return is_among(run, run->pattern.readers, run->peer->rank);
}

/* Elements before a block. */
static inline size_t block_begin(const struct peer_run *run, const size_t *at, int rank)
{
    return at ? at[rank] : (size_t)rank * run->call.count;
}

/* The present elements of our vector, or of our block for a rank. SEND may be NULL if there are
 * none. */
static inline const char *own_send(const struct peer_run *run, int rank)
{
    size_t block = run->pattern.sends_blocks ? block_begin(run, run->call.send_at, rank) : 0;
    return (const char *)((uintptr_t)run->call.send + (block + run->done) * run->width);
}

/* The place of what a rank has for us. */
static inline char *own_recv(const struct peer_run *run, int rank)
{
    size_t block = run->pattern.takes_blocks ? block_begin(run, run->call.recv_at, rank) : 0;
    return (char *)((uintptr_t)run->call.recv + (block + run->done) * run->width);
}

/* Bytes of the present elements that a block has. */
static inline size_t bytes_of(const struct peer_run *run, int block)
{
    size_t count = run->count;
    if (run->counts) {
        size_t left = run->counts[block] > run->done ? run->counts[block] - run->done : 0;
        count = left < count ? left : count;
    }
    return count * run->width;
}

/* Pieces go through stages where all ranks wait for all, and through slots where they do not. */
static inline enum peer_sequence piece_sequence(const struct peer_run *run)
{
    return run->pattern.readers == PEER_ALL ? STAGE_PIECES : SLOT_PIECES;
}

/* NULL is fine where there are no bytes. */
static inline void copy_part(char *to, const char *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
}

/* Copies the present elements of our own block, unless the call is in place. */
void peer_keep_own(const struct peer_run *run);

/* PENDING until everybody has read what we wrote to the buffer of the next epoch or piece. */
alnico_status_t peer_reuse(struct peer_run *run, enum peer_sequence which);

/* Begins the next epoch or piece, in whose buffer we write for `reader`, or, with `written` false,
 * nothing. Its number. */
uint64_t peer_begin_next(const struct peer_run *run, enum peer_sequence which, bool written,
                         int reader);

/* We have seen that everybody has begun that epoch or piece. */
void peer_all_began(const struct peer_run *run, enum peer_sequence which, uint64_t number);

/* We need nothing of it any more. Called for every number. */
void peer_finish(const struct peer_run *run, enum peer_sequence which, uint64_t number);

/* Elements of the next piece of `left`, each of at most `most` bytes: nearly equal pieces, of whole
 * lines but for the last. */
size_t peer_piece_count(const struct peer_run *run, size_t left, size_t most);

/* Prefetches memory that is read soon. */
void peer_prefetch(const char *from, size_t bytes);

/* A rank's stage, or slot, of a piece; and its part there for `reader`, if parts have such a room. */
char *peer_stage(const struct peer_run *run, int rank, uint64_t piece);
char *peer_slot(const struct peer_run *run, int rank, uint64_t piece);
char *peer_part(const struct peer_run *run, int rank, int reader, uint64_t piece, size_t room);

/* The most bytes that one rank has for another there, of what goes in pairs. */
size_t peer_pair_room(const struct peer_run *run);

#endif
