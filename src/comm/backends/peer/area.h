/*
 * What the ranks share and how: the area, its words and marks. For peer_*.c of the CPU.
 *
 * A mark is a turn, or the number of a piece, and 16 bits of signature: ranks that call different
 * things see it at once. Every wait is a look at one rank's word; nothing here blocks. Whoever
 * polls the operation calls.
 */
#ifndef ALNICO_COMM_BACKENDS_PEER_AREA_H
#define ALNICO_COMM_BACKENDS_PEER_AREA_H

#include "base/datatype.h"
#include "base/status.h"
#include "comm/backends/peer/peer.h"

#include <stdatomic.h>
#include <string.h>

enum {
    /* Used in turn, and so are the stages and the slots. With few of them, who writes and does not
     * read asks too often how far the readers are. */
    LINE_SETS = 32,
    STAGES = 2,
    SLOTS =
        32, /* for those who do not wait for each other: a line that is written again has left the
                              reader's nearest caches */
    SLOT_BYTES = 16 << 10, /* all of them together fit the second-level cache */
    LEASES = 32,           /* the most of these; see peer/turns.c */
    LINE_PAYLOAD = 56,
    LINES = 32,  /* that a rank publishes at once: 1.75 KB */
    LEVELS = 2,  /* of recursive multiplying */
    ALONE = 128, /* bytes: processors fetch lines in pairs */
    SIGNATURE_BITS = 16,
    SIGNATURES = 65521 /* prime */
};

struct line {
    _Alignas(64) char payload[LINE_PAYLOAD];
    _Atomic uint64_t mark;
};

struct word {
    _Alignas(ALONE) _Atomic uint64_t value;
};

/* The first lines of all sets are not to compete for one set of the processor's cache. */
struct line_set {
    struct line lines[LEVELS][LINES];
    _Alignas(64) char apart[3 * 64];
};

/* Ranks count turns of lines, pieces in stages, and pieces in slots; each in the same order,
 * whether they take part or not. */
enum peer_count { TURNS, PIECES, FLOWS, COUNTS };

/* What a rank writes, and the others read; its stages, results and slots follow. */
struct part {
    struct line_set sets[LINE_SETS];
    struct line letters[SLOTS]; /* to one rank */
    struct word ready, reduced; /* pieces in stages, and their results */
    struct word flowing;        /* pieces in slots */
    /* Turns and pieces that it needs nothing of any more: so many or more. */
    struct word finished[COUNTS];
};

/* When we wrote to a buffer, and who reads it: a rank, or EVERYBODY. */
enum { EVERYBODY = -1 };
struct lease {
    uint64_t number;
    int reader;
};

struct count {
    uint64_t now;       /* begun so far */
    uint64_t known;     /* all ranks have finished so many; the true number may be higher */
    struct lease asked; /* the one rank that was asked last, and what it has finished */
    struct lease leases[LEASES];
};

/* Who publishes and who reads, and what: a vector, or a block for each rank. */
enum peer_who { ALL, ROOT, OTHERS };
struct peer_pattern {
    enum peer_who writers, readers;
    bool sends_blocks, takes_blocks; /* SEND, RECV has one for each rank */
};

struct peer {
    char *area;
    size_t part_bytes, stage_bytes, result_bytes;
    size_t stages_at, slots_at; /* in a part */
    int rank, size, group;      /* ranks of a group: the least whose square is not below the size */
    struct count counts[COUNTS];
    uint64_t flowed[PEER_RANKS]; /* the word `flowing` of each rank when we last looked */
    char *gathered;              /* LINES * 64 bytes for each rank: lines without their marks */
    char *partial;               /* as much once: what we have combined ourselves */
};

static inline struct part *part_of(const struct peer *peer, int rank)
{
    return (struct part *)(void *)(peer->area + (size_t)rank * peer->part_bytes);
}

static inline struct part *own_part(const struct peer_run *run)
{
    return part_of(run->peer, run->peer->rank);
}

static inline uint64_t mark_of(const struct peer_run *run, uint64_t turn)
{
    return turn << SIGNATURE_BITS | run->signature;
}

/* SUCCESS if a mark that the rank wrote is of the wanted turn or a later one; one of this turn must
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
static inline alnico_status_t check_line(const _Atomic uint64_t *mark, uint64_t wanted, int rank)
{
    return check_seen(atomic_load_explicit(mark, memory_order_acquire), wanted, rank);
}

static inline alnico_status_t check_mark(const struct peer_run *run, const _Atomic uint64_t *mark,
                                         uint64_t turn, int rank)
{
    return check_line(mark, mark_of(run, turn), rank);
}

/* Whom we look at i-th: everybody begins with another rank, so that not all want the same line at
 * once. */
static inline int rank_at(const struct peer *peer, int i)
{
    int rank = peer->rank + 1 + i;
    return rank < peer->size ? rank : rank - peer->size;
}

static inline bool is_among(const struct peer_run *run, enum peer_who who, int rank)
{
    return who == ALL || (who == ROOT) == (rank == run->call.root);
}

static inline bool writes(const struct peer_run *run, int rank)
{
    return is_among(run, run->pattern->writers, rank);
}

static inline bool reads(const struct peer_run *run)
{
    return is_among(run, run->pattern->readers, run->peer->rank);
}

/* Elements before a block. */
static inline size_t block_begin(const struct peer_run *run, const size_t *at, int rank)
{
    return at ? at[rank] : (size_t)rank * run->call.count;
}

/* What we have for ourselves, or for a rank, of the present elements. NULL may have none of
 * them. */
static inline const char *own_send(const struct peer_run *run, int rank)
{
    size_t block = run->pattern->sends_blocks ? block_begin(run, run->call.send_at, rank) : 0;
    return (const char *)((uintptr_t)run->call.send + (block + run->done) * run->width);
}

/* Where what a rank has for us belongs. */
static inline char *own_recv(const struct peer_run *run, int rank)
{
    size_t block = run->pattern->takes_blocks ? block_begin(run, run->call.recv_at, rank) : 0;
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

/* What a rank has for another of the present elements: nothing may be NULL. */
static inline void copy_part(char *to, const char *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
}

/* Copies the present elements of our own block, unless the call is in place. */
void peer_keep_own(const struct peer_run *run);

/* PENDING until everybody has read what we wrote to the buffer of the next turn or piece; see
 * peer_turns.c. */
alnico_status_t peer_reuse(struct peer_run *run, enum peer_count which);

/* Begins the next turn or piece, in whose buffer we write for `reader`. With `written` false we do
 * not. Its number. */
uint64_t peer_begin_next(const struct peer_run *run, enum peer_count which, bool written,
                         int reader);

/* Everybody has begun that turn or piece: we have seen it. */
void peer_all_began(const struct peer_run *run, enum peer_count which, uint64_t number);

/* We need nothing of it any more. Called for every number. */
void peer_finish(const struct peer_run *run, enum peer_count which, uint64_t number);

/* Asks for memory before it is read. */
void peer_fetch(const char *from, size_t bytes);

/* The steps: one try each. PENDING, SUCCESS (the run goes on with run->step, or has ended), or
 * MISMATCH. */
alnico_status_t peer_poll_lines(struct peer_run *run, bool *moved);
alnico_status_t peer_poll_pieces(struct peer_run *run, bool *moved);
alnico_status_t peer_poll_pairs(struct peer_run *run, bool *moved);
alnico_status_t peer_poll_group(struct peer_run *run, bool *moved);
alnico_status_t peer_poll_groups(struct peer_run *run);
alnico_status_t peer_poll_reduce(struct peer_run *run, bool *moved);
alnico_status_t peer_poll_collect(struct peer_run *run);

/* A rank's stage, or slot, of a piece. */
char *peer_stage(const struct peer_run *run, int rank, uint64_t piece);
char *peer_slot(const struct peer_run *run, int rank, uint64_t piece);

/* The most that one rank has for another there, of what goes in pairs. */
size_t peer_pair_room(const struct peer_run *run);

/* Where a part's stages and slots begin. */
size_t peer_stages_at(void);
size_t peer_slots_at(int size);

/* Bytes of a stage and of a block's result; bytes published up to which one-shot takes lines. */
size_t peer_stage_bytes(int size);
size_t peer_result_bytes(int size);
size_t peer_small_bytes(void);

#endif
