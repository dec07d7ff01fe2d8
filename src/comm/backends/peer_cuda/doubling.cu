/*
 * Recursive doubling in lines: log2(size) steps, in each of which two ranks swap their vectors and
 * both combine them; ranks beyond the largest power of two hand theirs to a partner first and get
 * the result last. Cost: the steps one after the other, and bytes * steps from each rank; Thakur,
 * Rabenseifner and Gropp, 2005.
 *
 * A line of the vector stays with one group of lanes through all steps; each step has places of its
 * own, which one rank writes. A step's result has the type of the vector. The lower rank's part is
 * the left operand, on both sides.
 */
#include "comm/backends/peer_cuda/scratch.cuh"

/* Combines both words; y of the last lane is nonsense. */
template <int KIND>
static __device__ __forceinline__ pair combine_two(const peer_arguments &a, pair left, pair right)
{
    sum<KIND> x, y;
    x.set(left.x, a);
    x.add(right.x, a);
    y.set(left.y, a);
    y.add(right.y, a);
    pair v;
    v.x = x.get(a, false);
    v.y = y.get(a, false);
    return v;
}

template <int KIND> static __device__ __forceinline__ pair divided(const peer_arguments &a, pair v)
{
    sum<KIND> x, y;
    x.set(v.x, a);
    y.set(v.y, a);
    v.x = x.get(a);
    v.y = y.get(a);
    return v;
}

/* Ranks 0 to 2 * folded - 1 meet in pairs, whose even ranks go on; so do all others. `rank` counts
 * among those that go on, a power of two of them. */
struct steps {
    u64 lines;
    int folded, rank, power;
};

static __device__ __forceinline__ void send_line(const peer_arguments &a, const epoch &e, int to,
                                                 u64 at, pair v)
{
    store_pair(line_at(line_buffer(a, e, to), at), with_flag(v, line_flag(e, 0)));
}

static __device__ __forceinline__ bool receive_line(const peer_arguments &a, const epoch &e,
                                                    int rank, u64 at, bool have, u32 patience,
                                                    pair &got)
{
    const char *from[1] = {line_at(line_buffer(a, e, a.world.rank), at)};
    u64 flag = line_flag(e, 0);
    spin s = {0, patience, 0};
    for (;;) {
        if (have)
            got = load_pair(from[0]);
        bool missing = have && line_lane() == 7 && got.y != flag;
        if (!__any_sync(~0u, missing))
            return true;
        if (spin_failed(s, a, e, missing ? rank : -1))
            return false;
    }
}

static __device__ __forceinline__ int real_rank(const steps &s, int i)
{
    return i < s.folded ? 2 * i : i + s.folded;
}

/* Line i through all steps. */
template <int KIND>
static __device__ __forceinline__ bool double_line(const peer_arguments &a, const epoch &e,
                                                   const steps &s, u64 i, bool have, pair &v)
{
    int rank = a.world.rank, partner = rank ^ 1;
    u64 step = 1;
    pair got = {};
    if (rank < 2 * s.folded && rank % 2) { /* hands its part over, and waits for the result */
        if (have)
            send_line(a, e, partner, i, v);
        if (!receive_line(a, e, partner, i, have, 4, got))
            return false;
        v = got;
        return true;
    }
    if (rank < 2 * s.folded) {
        if (!receive_line(a, e, partner, i, have, 0, got))
            return false;
        v = combine_two<KIND>(a, v, got);
    }
    for (int bit = 1; bit < s.power; bit *= 2, step++) {
        int other = real_rank(s, s.rank ^ bit);
        if (have)
            send_line(a, e, other, step * s.lines + i, v);
        if (!receive_line(a, e, other, step * s.lines + i, have, (u32)step, got))
            return false;
        v = other < rank ? combine_two<KIND>(a, got, v) : combine_two<KIND>(a, v, got);
    }
    if (rank < 2 * s.folded && have)
        send_line(a, e, partner, i, v);
    return true;
}

template <int KIND>
static __global__ void __launch_bounds__(512, 2) doubling(const __grid_constant__ peer_arguments a)
{
    epoch e = epoch_begin(a);
    steps s;
    s.lines = line_count(a.bytes);
    s.power = a.world.size < 4 ? 2 : a.world.size < 8 ? 4 : 8;
    s.folded = a.world.size - s.power;
    s.rank = a.world.rank < 2 * s.folded ? a.world.rank / 2 : a.world.rank - s.folded;
    bool average = a.op == ALNICO_AVERAGE, floats = a.type >= ALNICO_FLOAT16;
    u64 step = (u64)gridDim.x * blockDim.x / 8;
    u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 8;
    if (e.broken)
        return;
    for (u64 i = first; i - threadIdx.x % 32 / 8 < s.lines; i += step) {
        pair v = {};
        if (i < s.lines)
            v = load_user_line(a, i, 0);
        if (average && floats)
            v = divided<KIND>(a, v);
        if (!double_line<KIND>(a, e, s, i, i < s.lines, v))
            break;
        if (average && !floats)
            v = divided<KIND>(a, v);
        if (i < s.lines)
            store_user_line(a, i, v);
    }
    epoch_end(a, e);
}

template <int KIND> struct kernels {
    static const void *of(int)
    {
        return (const void *)doubling<KIND>;
    }
};

const void *peer_doubling_function(int kind, int size)
{
    return function_by_kind<kernels>(kind, size);
}
