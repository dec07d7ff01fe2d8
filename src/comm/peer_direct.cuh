/* What the kernels on mapped buffers share: the barrier of ranks, slices, vectors of 16 bytes. Included by peer_direct.cu
 * and peer_bulk.cu only. */
#ifndef ALNICO_SRC_PEER_DIRECT_CUH
#define ALNICO_SRC_PEER_DIRECT_CUH

#include "comm/peer_device.cuh"

/* The blocks of this number of all ranks meet; false if they do not. With `release`, what this block wrote
 * before is seen by whoever met it. */
static __device__ __forceinline__ bool meet(const peer_arguments &a, const epoch &e, u64 flags,
                                            bool release)
{
    bool ok = true;
    __syncthreads();
    if (threadIdx.x < 32) {
        int r = (int)threadIdx.x;
        bool other = r < a.world.size && r != a.world.rank;
        u64 at = flags + (u64)blockIdx.x * PEER_CUDA_RANKS * 8;
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

/* Bytes [begin, end) by words, where vectors of 16 bytes do not fit. */
template <int KIND, int RANKS>
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
#pragma unroll 1
        for (int r = 0; r < a.world.size; r++)
            store_word(a.recvs[r], at, end, false, result);
    }
}

/* This rank's slice, bytes [begin, end). Each but the last is a multiple of whole lines of 128 bytes. */
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

#endif
