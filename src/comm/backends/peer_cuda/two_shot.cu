/*
 * Two-shot allreduce in lines: rank r combines slice r, which all push to it, and pushes the result
 * to all. Flags travel with the data: two ways over the link, and 2 (size - 1) / size * bytes *
 * 16/15 from each rank.
 *
 * Groups of 8 lanes take the lines of a slice in turn; item i of group g is line g + i * groups of
 * every slice. An item's lines go through place i % depth of the group's `depth` places in both
 * areas of the receiver's buffer. push(i) comes after gather(i - depth): every peer has sent the
 * result of i - depth, so it has read our push of it. A peer's push(i) came after its own gather(i
 * - depth), so after reduce(i) we may write our result's place at all.
 */
#include "comm/backends/peer_cuda/scratch.cuh"

struct walk {
    u64 lines, slice; /* of the vector, and of each rank's part */
    u64 group, groups;
    u64 depth;
};

/* Line i of rank r's slice for this group; false if there is none. */
static __device__ __forceinline__ bool user_line(const walk &w, int r, u64 i, u64 &line)
{
    u64 j = w.group + i * w.groups;
    line = (u64)r * w.slice + j;
    return j < w.slice && line < w.lines;
}

/* The place of item i from rank r: area 0 is pushed, area 1 are results. */
static __device__ __forceinline__ u64 place(const peer_arguments &a, const walk &w, int area, int r,
                                            u64 i)
{
    return (((u64)area * a.world.size + r) * w.depth + i % w.depth) * w.groups + w.group;
}

template <int RANKS>
static __device__ __forceinline__ void push(const peer_arguments &a, const epoch &e, const walk &w,
                                            u64 i)
{
    u64 flag = line_flag(e, i / w.depth), to = place(a, w, 0, a.world.rank, i);
#pragma unroll
    for (int k = 1; k < RANKS; k++) {
        int r = beyond(a, k);
        u64 line;
        if (k < a.world.size && user_line(w, r, i, line))
            store_pair(line_at(line_buffer(a, e, r), to), load_user_line(a, line, flag));
    }
}

template <int KIND, int RANKS>
static __device__ __forceinline__ bool reduce(const peer_arguments &a, const epoch &e,
                                              const walk &w, u64 i)
{
    u64 line, flag = line_flag(e, i / w.depth);
    bool have = user_line(w, a.world.rank, i, line);
    const char *from[RANKS];
    pair got[RANKS], mine = {};
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        from[r] = line_at(line_buffer(a, e, a.world.rank), place(a, w, 0, r, i));
    if (have)
        mine = load_user_line(a, line, flag);
    if (!receive_lines<RANKS>(a, e, from, flag, have ? all_others(a) : 0, 0, got))
        return false;
    if (!have)
        return true;
    pair result = with_flag(combine_pairs<KIND, RANKS>(a, got, mine), flag);
    u64 to = place(a, w, 1, a.world.rank, i);
#pragma unroll
    for (int k = 1; k < RANKS; k++) {
        int r = beyond(a, k);
        if (k < a.world.size)
            store_pair(line_at(line_buffer(a, e, r), to), result);
    }
    store_user_line(a, line, result);
    return true;
}

template <int RANKS>
static __device__ __forceinline__ bool gather(const peer_arguments &a, const epoch &e,
                                              const walk &w, u64 i)
{
    const char *from[RANKS];
    pair got[RANKS];
    u32 want = 0;
    u64 line;
#pragma unroll
    for (int r = 0; r < RANKS; r++) {
        from[r] = line_at(line_buffer(a, e, a.world.rank), place(a, w, 1, r, i));
        if (r < a.world.size && r != a.world.rank && user_line(w, r, i, line))
            want |= 1u << r;
    }
    if (!receive_lines<RANKS>(a, e, from, line_flag(e, i / w.depth), want, 1, got))
        return false;
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        if (want >> r & 1) {
            user_line(w, r, i, line);
            store_user_line(a, line, got[r]);
        }
    return true;
}

/* Results are gathered one item late, so that they travel meanwhile; with one place there is no
 * room for that. */
template <int KIND, int RANKS>
static __device__ __forceinline__ void run(const peer_arguments &a, const epoch &e, const walk &w)
{
    u64 items = (w.slice + w.groups - 1) / w.groups, late = w.depth > 1 ? 1 : 0;
    for (u64 i = 0; i < items && i < w.depth; i++)
        push<RANKS>(a, e, w, i);
    for (u64 i = 0; i < items + late; i++) {
        if (i < items && !reduce<KIND, RANKS>(a, e, w, i))
            return;
        if (i < late)
            continue;
        if (!gather<RANKS>(a, e, w, i - late))
            return;
        if (i - late + w.depth < items)
            push<RANKS>(a, e, w, i - late + w.depth);
    }
}

template <int KIND, int RANKS>
static __global__ void __launch_bounds__(512, RANKS <= 4 ? 2 : 1)
    two_shot(const __grid_constant__ peer_arguments a)
{
    epoch e = epoch_begin(a);
    walk w;
    w.lines = line_count(a.bytes);
    w.slice = (w.lines + a.world.size - 1) / a.world.size;
    w.group = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 8;
    w.groups = (u64)gridDim.x * blockDim.x / 8;
    w.depth = a.depth;
    if (e.broken)
        return;
    run<KIND, RANKS>(a, e, w);
    epoch_end(a, e);
}

KERNEL_FUNCTION(peer_two_shot_function, two_shot)
