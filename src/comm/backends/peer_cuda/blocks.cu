/*
 * Allgather, alltoall, broadcast and reduce-scatter in one shot: every rank pushes what the others
 * get of it into their scratch, in lines that carry their flag, and receives its own. Of p ranks
 * each sends (p - 1) * bytes times 16/15, the bytes being those of one block.
 *
 * Line i of rank r is written by r's group of lanes i and read by the same of the peer; blocks wait
 * for the block of the same number of the peers only, and all blocks must be resident. Each kernel
 * needs a line of every rank: in a broadcast those that have nothing to send push an empty one, so
 * that no rank is two epochs ahead here either.
 */
#include "comm/backends/peer_cuda/scratch.cuh"

enum move { ALLGATHER, ALLTOALL, BROADCAST };

/* This rank's block for rank r, and the place of the block from it. */
template <int MOVE>
static __device__ __forceinline__ const char *block_for(const peer_arguments &a, int r)
{
    return MOVE == ALLTOALL ? a.send + (u64)r * a.bytes : a.send;
}

template <int MOVE>
static __device__ __forceinline__ char *block_from(const peer_arguments &a, int r)
{
    return MOVE == BROADCAST ? a.recv : a.recv + (u64)r * a.bytes;
}

/* Whether rank r pushes line i, and whether it is one of its block. */
template <int MOVE>
static __device__ __forceinline__ bool pushes(const peer_arguments &a, int r, u64 i)
{
    return MOVE != BROADCAST || r == a.root || i == 0;
}

template <int MOVE> static __device__ __forceinline__ bool has_block(const peer_arguments &a, int r)
{
    return MOVE != BROADCAST || r == a.root;
}

static __device__ __forceinline__ void push_line(const peer_arguments &a, const epoch &e, int r,
                                                 u64 lines, u64 i, pair v, u64 flag)
{
    store_pair(line_at(line_buffer(a, e, r), (u64)a.world.rank * lines + i), with_flag(v, flag));
}

template <int MOVE, int RANKS>
static __device__ __forceinline__ void push(const peer_arguments &a, const epoch &e, u64 lines,
                                            u64 i, u64 flag)
{
    pair v[RANKS];
    if (!pushes<MOVE>(a, a.world.rank, i))
        return;
#pragma unroll
    for (int k = 0; k < RANKS; k++) {
        v[k].x = v[k].y = 0;
        if (MOVE != ALLTOALL && k > 0)
            v[k] = v[0];
        else if (k < a.world.size && has_block<MOVE>(a, a.world.rank))
            v[k] = load_line(block_for<MOVE>(a, beyond(a, k)), i, a.bytes, a.aligned & 1);
    }
#pragma unroll
    for (int k = 1; k < RANKS; k++)
        if (k < a.world.size)
            push_line(a, e, beyond(a, k), lines, i, v[k], flag);
    char *own = block_from<MOVE>(a, a.world.rank);
    if (MOVE != BROADCAST && own != block_for<MOVE>(a, a.world.rank))
        store_line(own, i, a.bytes, a.aligned & 2, v[0]);
}

/* This rank's places of line i of all ranks. */
template <int RANKS>
static __device__ __forceinline__ void find_lines(const peer_arguments &a, const epoch &e,
                                                  u64 lines, u64 i, const char *(&from)[RANKS])
{
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        from[r] = line_at(line_buffer(a, e, a.world.rank), (u64)r * lines + i);
}

template <int MOVE, int RANKS>
static __device__ __forceinline__ bool receive(const peer_arguments &a, const epoch &e, u64 lines,
                                               u64 i, u64 flag)
{
    const char *from[RANKS];
    pair got[RANKS];
    u32 want = 0;
    find_lines<RANKS>(a, e, lines, i, from);
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        if (i < lines && r < a.world.size && r != a.world.rank && pushes<MOVE>(a, r, i))
            want |= 1u << r;
    if (!receive_lines<RANKS>(a, e, from, flag, want, 0, got))
        return false;
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        if ((want >> r & 1) && has_block<MOVE>(a, r))
            store_line(block_from<MOVE>(a, r), i, a.bytes, a.aligned & 2, got[r]);
    return true;
}

/* In place a lane writes where it alone has read before. */
template <int MOVE, int RANKS>
static __global__ void __launch_bounds__(512, RANKS <= 4 ? 2 : 1)
    move_blocks(const __grid_constant__ peer_arguments a)
{
    fetch_ahead(a, PEER_LINE_PAYLOAD / 8);
    epoch e = epoch_begin(a);
    u64 lines = line_count(a.bytes), step = (u64)gridDim.x * blockDim.x / 8;
    u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 8, flag = line_flag(e, 0);
    if (e.broken)
        return;
    for (u64 i = first; i < lines; i += step)
        push<MOVE, RANKS>(a, e, lines, i, flag);
    /* Whole warps take part; lanes behind the end have nothing to do. */
    for (u64 i = first; i - threadIdx.x % 32 / 8 < lines; i += step)
        if (!receive<MOVE, RANKS>(a, e, lines, i, flag))
            break;
    epoch_end(a, e);
}

template <int RANKS>
static __device__ __forceinline__ void push_all(const peer_arguments &a, const epoch &e, u64 lines,
                                                u64 i, u64 flag)
{
    pair v[RANKS];
#pragma unroll
    for (int k = 1; k < RANKS; k++)
        if (k < a.world.size)
            v[k] = load_line(a.send + (u64)beyond(a, k) * a.bytes, i, a.bytes, a.aligned & 1);
#pragma unroll
    for (int k = 1; k < RANKS; k++)
        if (k < a.world.size)
            push_line(a, e, beyond(a, k), lines, i, v[k], flag);
}

template <int KIND, int RANKS>
static __global__ void __launch_bounds__(512, RANKS <= 4 ? 2 : 1)
    reduce_scatter(const __grid_constant__ peer_arguments a)
{
    fetch_ahead(a, PEER_LINE_PAYLOAD / 8);
    epoch e = epoch_begin(a);
    u64 lines = line_count(a.bytes), step = (u64)gridDim.x * blockDim.x / 8;
    u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 8, flag = line_flag(e, 0);
    if (e.broken)
        return;
    for (u64 i = first; i < lines; i += step)
        push_all<RANKS>(a, e, lines, i, flag);
    for (u64 i = first; i - threadIdx.x % 32 / 8 < lines; i += step) {
        const char *from[RANKS];
        pair got[RANKS];
        find_lines<RANKS>(a, e, lines, i, from);
        pair mine = load_line(a.send + (u64)a.world.rank * a.bytes, i, a.bytes, a.aligned & 1);
        if (!receive_lines<RANKS>(a, e, from, flag, i < lines ? all_others(a) : 0, 0, got))
            break;
        if (i < lines)
            store_line(a.recv, i, a.bytes, a.aligned & 2, combine_pairs<KIND, RANKS>(a, got, mine));
    }
    epoch_end(a, e);
}

template <int MOVE> static const void *mover_of(int size)
{
    return size <= 4 ? (const void *)move_blocks<MOVE, 4> : (const void *)move_blocks<MOVE, 8>;
}

KERNEL_FUNCTION(peer_reduce_scatter_line_function, reduce_scatter)

const void *peer_allgather_line_function(int, int size)
{
    return mover_of<ALLGATHER>(size);
}

const void *peer_alltoall_line_function(int, int size)
{
    return mover_of<ALLTOALL>(size);
}

const void *peer_broadcast_line_function(int, int size)
{
    return mover_of<BROADCAST>(size);
}
