/*
 * [SEAM algorithm] A collective as a pure function: given a shape and a round, what this rank
 * exchanges. It knows no transport, device, thread or time. The executor (operations/rounds.c), the tests and
 * a simulator run the same functions.
 *
 * Costs are in the usual model: alpha is the latency of a message, beta the time per byte, gamma
 * the time to reduce a byte, n the bytes of the vector or of all blocks together, p the ranks, lg
 * the logarithm to base 2.
 */
#ifndef ALNICO_COMM_ALGORITHMS_ALGORITHM_H
#define ALNICO_COMM_ALGORITHMS_ALGORITHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Buffers of each collective, where "block" is one rank's part, in rank order:
 *
 *                            SEND             RECV
 *     allreduce              as RECV          the vector; begins as a copy of the input
 *     reduce                 the vector       the vector at the root; elsewhere not there
 *     broadcast              as RECV          the vector; at the root it is the input, and read only
 *     allgather, -v          own block        all blocks
 *     gather, -v             own block        all blocks at the root; elsewhere not there
 *     scatter, -v            all at the root  own block
 *     reduce_scatter, -v     all blocks       own block
 *     alltoall, -v           all blocks       all blocks
 *     barrier                not there        not there; count is 1, for messages of one element of WORK
 *     sendrecv               the messages     the messages
 *
 * SEND may be the part of RECV that holds the same block (an allgather in place), and the own block
 * of SEND may be RECV (a reduce_scatter in place): so RECV's own block is only written once SEND's
 * is not read any more. Of a reduce in place SEND is RECV at the root; of an alltoall it never
 * is. */
/* Which rank is on which host. Hosts are numbered by their first ranks. */
struct host_map {
    int hosts, fewest, most; /* ranks of the smallest and of the largest host */
    bool ordered;            /* a host's ranks are neighbours */
    int *host, *place;       /* of each rank; its place is its number among the ranks of its host */
    int *first;              /* of each host, and one more: where its ranks begin in `rank` */
    int *rank;               /* by host, rising */
};

/* A map of `size` ranks by the identities of their hosts, in one piece for free(); NULL: no memory. */
struct host_map *host_map_create(const uint64_t *identities, int size);

struct shape {
    int rank, size, root;
    const struct host_map *map; /* NULL: all ranks are on one host */
    /* Elements of the vector, or of each block; in vector forms of the rank's own block. */
    size_t count;
    /* From one block to the next in SEND and RECV, >= count: a call may be cut into chunks of its
     * blocks. */
    size_t stride;

    /* Vector forms: block b of SEND, and of RECV, has so many elements and begins there. NULL where
     * the side has one block, and for equal blocks. The ranks of an allgatherv or reduce_scatterv
     * have the same counts, those of the others only their own. */
    const size_t *send_counts, *send_at, *recv_counts, *recv_at;

    /* A sendrecv's: each has a `to` or a `from`, and never reduces. */
    const struct exchange *messages;
    int messages_count;
};

/* SEND is the caller's input, read only. RECV holds the result. WORK is scratch. */
enum buffer { BUFFER_SEND, BUFFER_RECV, BUFFER_WORK, BUFFERS };

struct span {
    enum buffer in;
    size_t at, len; /* in elements */
};

/* A step of one rank with up to two others at once. to or from < 0: none; both = rank: a local copy
 * or reduction, which is done at once, in the order of the exchanges; a copy onto itself does
 * nothing. With `reduce` what arrives is combined into `recv`, the lower rank's operand first;
 * without it, it replaces `recv`. Exchanges of one round do not depend on each other. No elements:
 * no message, but in a sendrecv. */
struct exchange {
    int to, from;
    struct span send, recv;
    bool reduce;
};

enum { EXCHANGES = 4 }; /* at most so many in one round of one rank; a sendrecv may have more */

struct algorithm {
    const char *name, *about; /* about: one line with the cost and the source */

    /* Elements of WORK space; NULL: none. */
    size_t (*work)(const struct shape *shape);

    /* The k-th exchange of round i, 0 <= i < rounds(); false: no more in this round. A rank may
     * have rounds without an exchange. */
    bool (*round)(const struct shape *shape, int i, int k, struct exchange *out);

    int (*rounds)(const struct shape *shape);

    /* Elements that arrive to be reduced in any one round, at most; NULL: count. */
    size_t (*arrivals)(const struct shape *shape);

    /* Moves neighbouring blocks in one message: the call is never cut, and stride is count. */
    bool whole;
};

/* The algorithms, and those of each collective in a list that ends with NULL. To add one, add its
 * line here and to table.c. An algorithm for blocks of any length is in two lists. */
extern const struct algorithm algorithm_recursive_doubling;
extern const struct algorithm algorithm_rabenseifner;
extern const struct algorithm algorithm_ring;
extern const struct algorithm algorithm_binomial;
extern const struct algorithm algorithm_hierarchical_leaders;
extern const struct algorithm algorithm_hierarchical_doubling;
extern const struct algorithm algorithm_hierarchical_rabenseifner;
extern const struct algorithm algorithm_hierarchical_ring;

extern const struct algorithm algorithm_reduce_binomial;
extern const struct algorithm algorithm_reduce_hierarchical;
extern const struct algorithm algorithm_reduce_scatter_gather;
extern const struct algorithm algorithm_broadcast_binomial;
extern const struct algorithm algorithm_broadcast_scatter_ring;
extern const struct algorithm algorithm_broadcast_hierarchical_leaders;
extern const struct algorithm algorithm_broadcast_hierarchical_ring;
extern const struct algorithm algorithm_allgather_recursive_doubling;
extern const struct algorithm algorithm_allgather_bruck;
extern const struct algorithm algorithm_allgather_ring;
extern const struct algorithm algorithm_allgather_hierarchical_leaders;
extern const struct algorithm algorithm_allgather_hierarchical_ring;
extern const struct algorithm algorithm_reduce_scatter_recursive_halving;
extern const struct algorithm algorithm_reduce_scatter_pairwise;
extern const struct algorithm algorithm_reduce_scatter_ring;
extern const struct algorithm algorithm_reduce_scatter_hierarchical_leaders;
extern const struct algorithm algorithm_reduce_scatter_hierarchical_ring;
extern const struct algorithm algorithm_gather_binomial;
extern const struct algorithm algorithm_gather_linear;
extern const struct algorithm algorithm_scatter_binomial;
extern const struct algorithm algorithm_scatter_linear;
extern const struct algorithm algorithm_alltoall_bruck;
extern const struct algorithm algorithm_alltoall_pairwise;
extern const struct algorithm algorithm_barrier_dissemination;
extern const struct algorithm algorithm_barrier_hierarchical;
extern const struct algorithm algorithm_sendrecv_direct;

extern const struct algorithm *const algorithms_allreduce[];
extern const struct algorithm *const algorithms_reduce[];
extern const struct algorithm *const algorithms_broadcast[];
extern const struct algorithm *const algorithms_allgather[];
extern const struct algorithm *const algorithms_allgatherv[];
extern const struct algorithm *const algorithms_reduce_scatter[];
extern const struct algorithm *const algorithms_reduce_scatterv[];
extern const struct algorithm *const algorithms_gather[];
extern const struct algorithm *const algorithms_gatherv[];
extern const struct algorithm *const algorithms_scatter[];
extern const struct algorithm *const algorithms_scatterv[];
extern const struct algorithm *const algorithms_alltoall[];
extern const struct algorithm *const algorithms_alltoallv[];
extern const struct algorithm *const algorithms_barrier[];
extern const struct algorithm *const algorithms_sendrecv[];

/* The largest power of two that is not above p, and its exponent; p >= 1. */
int power_below(int p);
int log_below(int p);

/* The logarithm of p, rounded up; p >= 1. */
int log_above(int p);

/* The rank so many above this one, around the ring of all; -size <= distance. */
int rank_beyond(const struct shape *shape, int distance);

/* The beginning of block b of `blocks` nearly equal blocks of `count` elements; block `blocks` is the
 * end. */
size_t block_at(size_t count, int blocks, int b);

/* The elements of blocks [first, last) as a span of RECV. */
struct span block_span(size_t count, int blocks, int first, int last);

/* Rank b's block of SEND or RECV, on a side that has all blocks; of equal blocks or not. */
struct span send_block(const struct shape *shape, int b);
struct span recv_block(const struct shape *shape, int b);

/* Blocks as neighbours, where none is cut: `count` of them, or [first, last). */
struct span blocks_from(const struct shape *shape, enum buffer in, int first, int count);
struct span blocks_between(const struct shape *shape, enum buffer in, int first, int last);

/* The `arrivals` of what does not reduce: none. */
size_t nothing_arrives(const struct shape *shape);

/*
 * Each fills *out and returns true, as round() does. A copy is what the rank does by itself.
 */
bool exchange_send(struct exchange *out, int to, struct span send);
bool exchange_receive(struct exchange *out, int from, struct span recv, bool reduce);
bool exchange_both(struct exchange *out, int to, struct span send, int from, struct span recv,
                   bool reduce);
bool exchange_copy(const struct shape *shape, struct exchange *out, struct span from,
                   struct span to);

/*
 * Binomial trees hang from the root, whose place is 0; a rank's place is its distance above it
 * around the ring. The parent of a place is the place without its lowest set bit, and below a place
 * hang the places [place, place + extent).
 */
int tree_place(const struct shape *shape);
int tree_rank(const struct shape *shape, int place);
int tree_extent(const struct shape *shape, int place);

/*
 * Folding makes any rank count a power of two, as Rabenseifner (2004) does: of the first 2r ranks,
 * r = p - power_below(p), each even one hands its vector to the odd one above it and is out until
 * the end, when it is handed the result. fold_place is a rank's place among those who are in, or -1
 * while it is out; fold_rank the reverse.
 */
int fold_pairs(const struct shape *shape); /* r */
bool fold_needed(const struct shape *shape);
bool fold_has_pair(const struct shape *shape);        /* among the first 2r ranks */
int fold_first(const struct shape *shape, int place); /* the first rank of a place's pair */
int fold_place(const struct shape *shape);
int fold_rank(const struct shape *shape, int place);

/* The exchange of the first round (in) or the last (out) for this rank; false if it has none. */
bool fold_in(const struct shape *shape, struct exchange *out);
bool fold_out(const struct shape *shape, struct exchange *out);

/*
 * Hierarchical algorithms work inside each host, then between hosts, then inside each host. A rank's
 * seat is its place on its host, counted from the root's on the root's host. The vector has so many
 * parts, at most as many as the smallest host has ranks; the rank of seat s owns part s, if there is
 * one, and exchanges it with the ranks of seat s of the other hosts only.
 */
int seat_hosts(const struct shape *shape);
int seat_fewest(const struct shape *shape); /* ranks of the smallest host */
int seat_host(const struct shape *shape, int rank);
int seat_count(const struct shape *shape, int host);
int seat_of(const struct shape *shape, int rank);
int seat_rank(const struct shape *shape, int host, int seat);
int seat_peer(const struct shape *shape, int seat); /* on this rank's host */

/* A seat's part of the vector, a span of RECV; without elements where it owns none. */
struct span seat_part(const struct shape *shape, int parts, int seat);

/* All ranks of a host exchange with each other, a few in each of so many rounds: k counts them, and
 * *apart is how many seats the rank that is sent to is above this one, and this one above the rank
 * that is received from. False: no more in this round. */
int seat_rounds(const struct shape *shape);
bool seat_meet(const struct shape *shape, int i, int k, int *apart, int *to, int *from);
void seat_apart(const struct shape *shape, int apart, int *to, int *from);

/* The shape of the algorithm that the ranks of this seat run between hosts, and its exchange as one
 * of ours, where `at` is what its buffers begin at. */
struct shape seat_between(const struct shape *shape, size_t count);
void seat_translate(const struct shape *shape, const struct span at[BUFFERS], struct exchange *out);

/* The host so many beyond this rank's, around the ring of hosts, -hosts <= distance; and how many
 * ranks so many hosts have, from one on. */
int seat_host_beyond(const struct shape *shape, int distance);
int seat_ranks(const struct shape *shape, int host, int hosts);

/* Owners bring the blocks of all seats between hosts where each rank has a block: the owner of seat s
 * those of the seats s, s + fewest and so on, of each host. Returns the j-th of these ranks of a
 * host, its owner being the first; -1: no more. seat_group_most: how many they are at most. */
int seat_group_rank(const struct shape *shape, int host, int seat, int j);
int seat_group_most(const struct shape *shape);

/* The ranks by hosts, from this rank's host on, in runs of ranks that are neighbours: `count` of them
 * from `rank` on have the places from `at` on in this order. False: no more. Of rooted operations
 * the root must be 0. */
struct rank_run {
    int rank, at, count;
};
int rank_runs(const struct shape *shape);
bool rank_run(const struct shape *shape, int index, struct rank_run *out);

#endif
