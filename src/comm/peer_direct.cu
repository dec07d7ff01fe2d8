/*
 * Two-shot allreduce on buffers that all ranks map: rank r loads slice r from everybody's vector, combines it, and
 * stores the result into everybody's. No staging: (size - 1) / size * bytes come in by loads and go out by stores.
 *
 * Block b of each rank waits for the blocks b of the others twice: before its loads, so that their vectors are
 * there and theirs may be written, and after its stores, so that this rank's vector is complete and no longer
 * read when the kernel ends. Blocks b of all ranks take part in one barrier; all must be resident.
 */
#include "comm/peer_direct.cuh"

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

/* `UNROLL` vectors of 16 bytes a thread, `step` bytes apart; only those below `end`, unless FULL. */
template <int KIND, int RANKS, int UNROLL, bool FULL>
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
#pragma unroll
        for (int k = 0; k < RANKS; k++)
            if (k < a.world.size) {
                int r = a.world.rank + k;
                r -= r >= a.world.size ? a.world.size : 0;
                store_vector(a.recvs[r] + at + u * step, result);
            }
    }
}

template <int KIND, int RANKS, int UNROLL, int THREADS>
static __global__ void __launch_bounds__(THREADS) direct(const __grid_constant__ peer_arguments a)
{
    epoch e = epoch_begin(a);
    u64 begin, end;
    if (e.broken)
        return;
    slice_of(a, begin, end);
    bool ok = meet(a, e, PEER_AT_STARTS, false);
    if (ok) {
        u64 whole = a.aligned == 3 ? begin + (end - begin) / 16 * 16 : begin;
        u64 step = (u64)blockDim.x * 16, tile = step * UNROLL;
        u64 base = begin + blockIdx.x * tile;
        for (; base < whole; base += gridDim.x * tile) {
            u64 at = base + threadIdx.x * 16;
            if (base + tile <= whole)
                reduce_tile<KIND, RANKS, UNROLL, true>(a, at, step, whole);
            else
                reduce_tile<KIND, RANKS, UNROLL, false>(a, at, step, whole);
        }
        reduce_words<KIND, RANKS>(a, whole, end);
        meet(a, e, PEER_AT_ENDS, true);
    }
    epoch_end(a, e);
}

/* ---- By kind, ranks and what was measured ---- */

template <int KIND, int RANKS, int DEEP> static const void *of_variant(int variant)
{
    return variant == 1 ? (const void *)direct<KIND, RANKS, DEEP * 2, 512>
                        : (const void *)direct<KIND, RANKS, DEEP, 512>;
}

template <int KIND> static const void *of_size(int size, int variant)
{
    return size == 2   ? of_variant<KIND, 2, 4>(variant)
           : size <= 4 ? of_variant<KIND, 4, 2>(variant)
                       : of_variant<KIND, 8, 1>(variant);
}

/* More of the kind that matters most. */
static const void *of_float32(int size, int variant)
{
    if (variant == 2)
        return size == 2 ? (const void *)direct<PEER_KIND_FLOAT32, 2, 2, 512>
                         : (const void *)direct<PEER_KIND_FLOAT32, 4, 1, 512>;
    if (variant == 3)
        return size == 2 ? (const void *)direct<PEER_KIND_FLOAT32, 2, 2, 1024>
                         : (const void *)direct<PEER_KIND_FLOAT32, 4, 1, 1024>;
    return of_size<PEER_KIND_FLOAT32>(size, variant);
}

extern "C" const void *peer_direct_function(int kind, int size, int variant)
{
    int common = variant == 1 ? 1 : 0;
    return kind == PEER_KIND_FLOAT32 && size <= 4 ? of_float32(size, variant)
           : kind == PEER_KIND_FLOAT32            ? of_size<PEER_KIND_FLOAT32>(size, common)
           : kind == PEER_KIND_FLOAT16            ? of_size<PEER_KIND_FLOAT16>(size, common)
           : kind == PEER_KIND_BFLOAT16           ? of_size<PEER_KIND_BFLOAT16>(size, common)
                                                  : of_size<PEER_KIND_ANY>(size, common);
}
