/*
 * Bruck's all-to-all, for short blocks: after a rotation, block j is bound for the rank j above,
 * and goes there by the bits of j: in step s each rank sends all blocks whose number has bit s to
 * the one 2^s above, and gets as many in their place. In the end block j is the one from the rank j
 * below. What is sent is packed, four copies a round, and what comes is put in place likewise.
 *
 * Cost: ceil(lg p) alpha + ceil(lg p)/2 n beta, and about three copies of a block for each rank.
 * Source: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications
 * in multiport message-passing systems", IEEE TPDS 8(11), 1997.
 */
#include "comm/algorithms/algorithm.h"

/* WORK: p blocks, then those that are sent, then those that come. */
static size_t work(const struct shape *shape)
{
    return (size_t)(shape->size + 2 * (shape->size / 2)) * shape->count;
}

/* The place of the q-th packed block, among those that are sent or those that come. */
static int packed(const struct shape *shape, int q, bool come)
{
    return shape->size + (come ? shape->size / 2 : 0) + q;
}

/* How many runs of 2^step neighbouring blocks have bit `step`; the last one may be shorter. */
static int runs(int size, int step)
{
    return (((size - 1) >> step) + 1) / 2;
}

static int run_blocks(int size, int step, int run)
{
    int width = 1 << step, left = size - (2 * run + 1) * width;
    return left < width ? left : width;
}

static int turns(int copies)
{
    return (copies + EXCHANGES - 1) / EXCHANGES;
}

static int step_rounds(int size, int step)
{
    return 2 * turns(runs(size, step)) + 1;
}

static int rounds(const struct shape *shape)
{
    int sum = 1 + turns(shape->size);
    for (int step = 0; step < log_above(shape->size); step++)
        sum += step_rounds(shape->size, step);
    return sum;
}

static bool rotate(const struct shape *shape, int k, struct exchange *out)
{
    int r = shape->rank, above = shape->size - r;
    if (k == 0)
        return exchange_copy(shape, out, blocks_from(shape, BUFFER_SEND, r, above),
                             blocks_from(shape, BUFFER_WORK, 0, above));
    return k == 1 && r > 0 &&
           exchange_copy(shape, out, blocks_from(shape, BUFFER_SEND, 0, r),
                         blocks_from(shape, BUFFER_WORK, above, r));
}

/* Packs a run before the exchange, or unpacks it afterwards. */
static bool copy_run(const struct shape *shape, int step, int run, bool unpack,
                     struct exchange *out)
{
    if (run >= runs(shape->size, step))
        return false;
    int width = 1 << step, count = run_blocks(shape->size, step, run);
    struct span loose = blocks_from(shape, BUFFER_WORK, (2 * run + 1) * width, count);
    struct span tight = blocks_from(shape, BUFFER_WORK, packed(shape, run * width, unpack), count);
    return exchange_copy(shape, out, unpack ? tight : loose, unpack ? loose : tight);
}

static bool send_packed(const struct shape *shape, int step, struct exchange *out)
{
    int last = runs(shape->size, step) - 1, width = 1 << step;
    int count = last * width + run_blocks(shape->size, step, last);
    return exchange_both(out, rank_beyond(shape, width),
                         blocks_from(shape, BUFFER_WORK, packed(shape, 0, false), count),
                         rank_beyond(shape, -width),
                         blocks_from(shape, BUFFER_WORK, packed(shape, 0, true), count), false);
}

/* Round i of a step. */
static bool step_round(const struct shape *shape, int step, int i, int k, struct exchange *out)
{
    int packing = turns(runs(shape->size, step));
    if (i == packing)
        return k == 0 && send_packed(shape, step, out);
    bool unpack = i > packing;
    int turn = unpack ? i - packing - 1 : i;
    return k < EXCHANGES && copy_run(shape, step, EXCHANGES * turn + k, unpack, out);
}

static bool place_block(const struct shape *shape, int j, struct exchange *out)
{
    return j < shape->size && exchange_copy(shape, out, blocks_from(shape, BUFFER_WORK, j, 1),
                                            recv_block(shape, rank_beyond(shape, -j)));
}

static bool bruck_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    if (i-- == 0)
        return rotate(shape, k, out);
    for (int step = 0; step < log_above(shape->size); step++) {
        if (i < step_rounds(shape->size, step))
            return step_round(shape, step, i, k, out);
        i -= step_rounds(shape->size, step);
    }
    return k < EXCHANGES && place_block(shape, EXCHANGES * i + k, out);
}

const struct algorithm algorithm_alltoall_bruck = {
    .name = "bruck",
    .about = "ceil(lg p) (alpha + n/2 beta), and copies; for short blocks (Bruck et al. 1997)",
    .work = work,
    .round = bruck_round,
    .rounds = rounds,
    .arrivals = nothing_arrives,
    .whole = true,
};
