/*
 * Gather and scatter of blocks of any length, which only the root knows: it exchanges them with the
 * ranks above it directly, a few at a time, so that what the others send does not come all at once.
 *
 * Cost: ceil(p/4) alpha + (p-1)/p n beta. Source: the definition of MPI_Gatherv and MPI_Scatterv, by
 * a send and a receive for each rank, in the MPI standard (MPI Forum, 1994).
 */
#include "comm/algorithms/algorithm.h"

static int rounds(const struct shape *shape)
{
    return shape->rank == shape->root ? (shape->size + EXCHANGES - 1) / EXCHANGES : 1;
}

/* The k-th rank that the root serves in round i, itself first; -1: no more. */
static int served(const struct shape *shape, int i, int k)
{
    int place = EXCHANGES * i + k;
    return k < EXCHANGES && place < shape->size ? tree_rank(shape, place) : -1;
}

static bool gather_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int root = shape->root;
    if (shape->rank != root)
        return k == 0 && exchange_send(out, root, (struct span){BUFFER_SEND, 0, shape->count});
    int from = served(shape, i, k);
    if (from < 0)
        return false;
    struct span block = recv_block(shape, from);
    return from == root ? exchange_copy(shape, out, (struct span){BUFFER_SEND, 0, block.len}, block)
                        : exchange_receive(out, from, block, false);
}

static bool scatter_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int root = shape->root;
    if (shape->rank != root)
        return k == 0 &&
               exchange_receive(out, root, (struct span){BUFFER_RECV, 0, shape->count}, false);
    int to = served(shape, i, k);
    if (to < 0)
        return false;
    struct span block = send_block(shape, to);
    return to == root ? exchange_copy(shape, out, block, (struct span){BUFFER_RECV, 0, block.len})
                      : exchange_send(out, to, block);
}

const struct algorithm algorithm_gather_linear = {
    .name = "linear",
    .about = "ceil(p/4) alpha + (p-1)/p n beta; four at a time",
    .round = gather_round,
    .rounds = rounds,
    .arrivals = nothing_arrives,
};

const struct algorithm algorithm_scatter_linear = {
    .name = "linear",
    .about = "ceil(p/4) alpha + (p-1)/p n beta; four at a time",
    .round = scatter_round,
    .rounds = rounds,
    .arrivals = nothing_arrives,
};
