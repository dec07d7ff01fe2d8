/*
 * A group of sends and receives, all at once: none waits for another, so that no order of theirs
 * can deadlock. Those between one pair of ranks meet in their order.
 *
 * Cost: alpha + n beta, where n are the bytes that a rank sends, or receives if that is more. It is
 * the definition of a group, and has no source.
 */
#include "comm/algorithms/algorithm.h"

static int rounds(const struct shape *shape)
{
    return shape->messages_count > 0;
}

static bool direct_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    (void)i;
    if (k >= shape->messages_count)
        return false;
    *out = shape->messages[k];
    return true;
}

const struct algorithm algorithm_sendrecv_direct = {
    .name = "direct",
    .about = "alpha + n beta; all messages of a group at once",
    .round = direct_round,
    .rounds = rounds,
    .arrivals = nothing_arrives,
};
