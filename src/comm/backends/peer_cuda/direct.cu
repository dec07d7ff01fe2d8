/*
 * Collectives on buffers that all ranks map, without staging. Two-shot allreduce: rank r loads
 * slice r from everybody's vector, combines it, and stores the result into everybody's; (size - 1)
 * / size * bytes come in by loads and go out by stores. Reduce-scatter is its first half, whose
 * slices are the blocks, and allgather and alltoall store blocks into everybody's buffer.
 *
 * Block b of each rank waits for the blocks b of the others twice: before its loads, so that their
 * vectors are there and theirs may be written, and after its stores, so that this rank's vector is
 * complete and no longer read when the kernel ends. Blocks b of all ranks take part in one barrier;
 * all must be resident.
 */
#include "comm/backends/peer_cuda/scratch.cuh"

static __device__ __forceinline__ uint4 load_vector(const char *at)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

static __device__ __forceinline__ void store_vector(char *at, uint4 v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}

/* The blocks of this number of all ranks meet; false if they do not. With `release`, what this
 * block wrote before is seen by whoever met it. */
static __device__ __forceinline__ bool meet(const peer_arguments &a, const epoch &e, u64 flags,
                                            bool release)
{
    bool ok = true;
    __syncthreads();
    if (threadIdx.x < 32) {
        int r = (int)threadIdx.x;
        bool other = r < a.world.size && r != a.world.rank;
        u64 at = flags + (u64)blockIdx.x * PEER_GPUS * 8;
        if (other) {
            if (release)
                __threadfence_system();
            store_relaxed(a.world.scratch[r] + at + a.world.rank * 8, e.now);
        }
        spin s = {};
        for (;;) {
            bool missing = other && load_acquire(own_scratch(a) + at + r * 8) != e.now;
            if (!__any_sync(~0u, missing))
                break;
            if (spin_failed(s, a, e, missing ? r : -1)) {
                ok = false;
                break;
            }
        }
    }
    return !__syncthreads_or(!ok);
}

static __device__ __forceinline__ u64 word_of(const uint4 &v, int half)
{
    return half ? (u64)v.w << 32 | v.z : (u64)v.y << 32 | v.x;
}

template <int KIND, int RANKS>
static __device__ __forceinline__ uint4 combine_vectors(const peer_arguments &a,
                                                        const uint4 (&v)[RANKS])
{
    u64 low[RANKS], high[RANKS];
#pragma unroll
    for (int r = 0; r < RANKS; r++) {
        low[r] = word_of(v[r], 0);
        high[r] = word_of(v[r], 1);
    }
    u64 x = combine<KIND, RANKS>(low, a), y = combine<KIND, RANKS>(high, a);
    return make_uint4((u32)x, (u32)(x >> 32), (u32)y, (u32)(y >> 32));
}

/* The result goes to this rank only, or to everybody. */
enum result { MINE, EVERYBODYS };

/* Bytes [begin, end) by words, where vectors of 16 bytes do not fit. */
template <int KIND, int RANKS, int RESULT>
static __device__ __forceinline__ void reduce_words(const peer_arguments &a, u64 begin, u64 end)
{
    u64 step = (u64)gridDim.x * blockDim.x * 8;
    u64 first = begin + ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    for (u64 at = first; at < end; at += step) {
        u64 words[RANKS];
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (r < a.world.size)
                words[r] = load_word(a.sends[r], at, end, false);
        u64 result = combine<KIND, RANKS>(words, a);
        if (RESULT == MINE)
            store_word(a.recv, at, end, false, result);
#pragma unroll 1
        for (int r = 0; RESULT == EVERYBODYS && r < a.world.size; r++)
            store_word(a.recvs[r], at, end, false, result);
    }
}

/* This rank's slice, bytes [begin, end). Each but the last is a multiple of whole lines of 128
 * bytes. */
static __device__ __forceinline__ void slice_of(const peer_arguments &a, u64 &begin, u64 &end)
{
    u64 lines = (a.bytes + 127) / 128;
    u64 slice = (lines + a.world.size - 1) / a.world.size * 128;
    begin = slice * a.world.rank;
    end = begin + slice;
    if (end > a.bytes)
        end = a.bytes;
    if (begin > end)
        begin = end;
}

/* `UNROLL` vectors of 16 bytes a thread, `step` bytes apart; only those below `end`, unless
 * FULL. */
template <int KIND, int RANKS, int RESULT, int UNROLL, bool FULL>
static __device__ __forceinline__ void reduce_tile(const peer_arguments &a, u64 at, u64 step,
                                                   u64 end)
{
    uint4 v[UNROLL][RANKS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (r < a.world.size && (FULL || at + u * step < end))
                v[u][r] = load_vector(a.sends[r] + at + u * step);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        if (!FULL && at + u * step >= end)
            break;
        uint4 result = combine_vectors<KIND, RANKS>(a, v[u]);
        if (RESULT == MINE)
            store_vector(a.recv + at + u * step, result);
#pragma unroll
        for (int k = 0; k < RANKS; k++)
            if (RESULT == EVERYBODYS && k < a.world.size)
                store_vector(a.recvs[beyond(a, k)] + at + u * step, result);
    }
}

template <int KIND, int RANKS, int RESULT, int UNROLL>
static __global__ void __launch_bounds__(512, RANKS <= 4 ? 2 : 1)
    direct(const __grid_constant__ peer_arguments a)
{
    epoch e = epoch_begin(a);
    u64 begin = 0, end = a.bytes;
    if (e.broken)
        return;
    if (RESULT == EVERYBODYS)
        slice_of(a, begin, end);
    bool ok = meet(a, e, PEER_AT_STARTS, false);
    if (ok) {
        u64 whole = a.aligned == 3 ? begin + (end - begin) / 16 * 16 : begin;
        u64 step = (u64)blockDim.x * 16, tile = step * UNROLL;
        u64 base = begin + blockIdx.x * tile;
        for (; base < whole; base += gridDim.x * tile) {
            u64 at = base + threadIdx.x * 16;
            if (base + tile <= whole)
                reduce_tile<KIND, RANKS, RESULT, UNROLL, true>(a, at, step, whole);
            else
                reduce_tile<KIND, RANKS, RESULT, UNROLL, false>(a, at, step, whole);
        }
        reduce_words<KIND, RANKS, RESULT>(a, whole, end);
        meet(a, e, PEER_AT_ENDS, true);
    }
    epoch_end(a, e);
}

enum { MOVE_UNROLL = 4 };

/* A block that goes to every rank is loaded once. */
static __device__ __forceinline__ void move_tile(const peer_arguments &a, u64 at, u64 step, u64 end)
{
    uint4 v[MOVE_UNROLL];
    const char *loaded = NULL;
#pragma unroll 1
    for (int k = 0; k < a.world.size; k++) {
        const char *from = a.sends[beyond(a, k)];
        char *to = a.recvs[beyond(a, k)];
        if (from != loaded) {
#pragma unroll
            for (int u = 0; u < MOVE_UNROLL; u++)
                if (at + u * step < end)
                    v[u] = load_vector(from + at + u * step);
        }
        loaded = from;
#pragma unroll
        for (int u = 0; u < MOVE_UNROLL; u++)
            if (to != from && at + u * step < end)
                store_vector(to + at + u * step, v[u]);
    }
}

static __device__ __forceinline__ void move_words(const peer_arguments &a)
{
    u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
#pragma unroll 1
    for (int k = 0; k < a.world.size; k++) {
        int r = beyond(a, k);
        if (a.recvs[r] == a.sends[r])
            continue;
        for (u64 at = first; at < a.bytes; at += (u64)gridDim.x * blockDim.x * 8)
            store_word(a.recvs[r], at, a.bytes, false, load_word(a.sends[r], at, a.bytes, false));
    }
}

static __global__ void __launch_bounds__(512, 2) move(const __grid_constant__ peer_arguments a)
{
    epoch e = epoch_begin(a);
    if (e.broken)
        return;
    bool ok = meet(a, e, PEER_AT_STARTS, false);
    if (ok) {
        u64 step = (u64)blockDim.x * 16, tile = step * MOVE_UNROLL;
        u64 base = blockIdx.x * tile, end = a.aligned == 3 ? a.bytes : 0;
        for (; base < end; base += gridDim.x * tile)
            move_tile(a, base + threadIdx.x * 16, step, end);
        if (end == 0)
            move_words(a);
        meet(a, e, PEER_AT_ENDS, true);
    }
    epoch_end(a, e);
}

/* Vectors that a thread loads at once, measured on 4 GPUs: more is slower, and bulk copies through
 * shared memory were no faster, since the links are full. */
template <int KIND, int RESULT> static const void *of_size(int size)
{
    enum { LESS = KIND == PEER_KIND_ANY ? 2 : 1 }; /* what looks at the type needs the registers */
    return size == 2   ? (const void *)direct<KIND, 2, RESULT, 4 / LESS>
           : size <= 4 ? (const void *)direct<KIND, 4, RESULT, 2 / LESS>
                       : (const void *)direct<KIND, 8, RESULT, 1>;
}

template <int KIND> struct allreducers {
    static const void *of(int size)
    {
        return of_size<KIND, EVERYBODYS>(size);
    }
};

template <int KIND> struct reduce_scatterers {
    static const void *of(int size)
    {
        return of_size<KIND, MINE>(size);
    }
};

const void *peer_two_shot_direct_function(int kind, int size)
{
    return function_by_kind<allreducers>(kind, size);
}

const void *peer_reduce_scatter_direct_function(int kind, int size)
{
    return function_by_kind<reduce_scatterers>(kind, size);
}

const void *peer_move_direct_function(int, int)
{
    return (const void *)move;
}
