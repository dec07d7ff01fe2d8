/* The scratch on the device: how an epoch ends, and lines of 128 bytes. 8 neighbouring lanes of a
 * warp access a line together, 16 bytes each: 15 words of a vector and the flag, which is the second
 * word of the last lane. Included by this backend's .cu files only; whole warps call. */
#ifndef ALNICO_COMM_BACKENDS_PEER_CUDA_SCRATCH_CUH
#define ALNICO_COMM_BACKENDS_PEER_CUDA_SCRATCH_CUH

#include "comm/backends/peer_cuda/peer_cuda.h"
#include "comm/gpumem/kernel.cuh"

/* Twice in 2^32 epochs the slots' flags of old epochs are cleared, lest they come true again. A
 * peer may have begun the next epoch already, but no later one. Compare-and-swap, because peers
 * write meanwhile. */
static __device__ __noinline__ void scrub(const peer_arguments &a, u64 epoch)
{
    u64 *slots = (u64 *)(own_scratch(a) + PEER_AT_LL);
    u32 now = (u32)epoch, next = (u32)epoch_next(epoch);
    u32 count = 2 * PEER_LL_BYTES / 8, step = gridDim.x * blockDim.x;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        u64 slot = *(volatile u64 *)&slots[i];
        u32 flag = (u32)(slot >> 32);
        if (flag != 0 && flag != now && flag != next)
            atomicCAS(&slots[i], slot, 0ull);
    }
}

/* Every thread, last of all, unless the communicator was broken at the begin. */
static __device__ __forceinline__ void epoch_end(const peer_arguments &a, const epoch &e)
{
    if (((u32)e.now & 0x7fffffffu) == 0x40000000u)
        scrub(a, e.now);
    epoch_close(a, e);
}

static __device__ __forceinline__ u32 line_lane()
{
    return threadIdx.x % 8;
}

/* This lane's part of line i in an array of lines. */
static __device__ __forceinline__ char *line_at(char *lines, u64 i)
{
    return lines + i * 128 + line_lane() * 16;
}

/* An epoch's flag: `ticket` tells apart what is written to one line in the same epoch. */
static __device__ __forceinline__ u64 line_flag(const epoch &e, u64 ticket)
{
    return e.now << 16 | ticket;
}

static __device__ __forceinline__ char *line_buffer(const peer_arguments &a, const epoch &e,
                                                    int rank)
{
    return (rank == a.world.rank ? a.world.own : a.world.scratch[rank]) + PEER_AT_LINES +
           parity_of(e) * (u64)a.world.line_bytes;
}

static __device__ __forceinline__ u64 line_count(u64 bytes)
{
    return (bytes + PEER_LINE_PAYLOAD - 1) / PEER_LINE_PAYLOAD;
}

/* A user's vector, or block of one, as lines; zeros behind its end and in the flag's place. */
static __device__ __forceinline__ pair load_line(const char *vector, u64 line, u64 bytes,
                                                 bool aligned)
{
    u64 at = line * PEER_LINE_PAYLOAD + line_lane() * 16;
    pair v;
    v.x = load_word(vector, at, bytes, aligned);
    v.y = line_lane() < 7 ? load_word(vector, at + 8, bytes, aligned) : 0;
    return v;
}

static __device__ __forceinline__ void store_line(char *vector, u64 line, u64 bytes, bool aligned,
                                                  pair v)
{
    u64 at = line * PEER_LINE_PAYLOAD + line_lane() * 16;
    store_word(vector, at, bytes, aligned, v.x);
    if (line_lane() < 7)
        store_word(vector, at + 8, bytes, aligned, v.y);
}

/* The last lane's second word is the flag. */
static __device__ __forceinline__ pair with_flag(pair v, u64 flag)
{
    if (line_lane() == 7)
        v.y = flag;
    return v;
}

/* A line of the call's own vector, not by load_line: in the hottest kernels the flag takes its place
 * at the load. */
static __device__ __forceinline__ pair load_user_line(const peer_arguments &a, u64 line, u64 flag)
{
    u64 at = line * PEER_LINE_PAYLOAD + line_lane() * 16;
    pair v;
    v.x = load_word(a.send, at, a.bytes, a.aligned & 1);
    v.y = line_lane() < 7 ? load_word(a.send, at + 8, a.bytes, a.aligned & 1) : flag;
    return v;
}

static __device__ __forceinline__ void store_user_line(const peer_arguments &a, u64 line, pair v)
{
    u64 at = line * PEER_LINE_PAYLOAD + line_lane() * 16;
    store_word(a.recv, at, a.bytes, a.aligned & 2, v.x);
    if (line_lane() < 7)
        store_word(a.recv, at + 8, a.bytes, a.aligned & 2, v.y);
}

/* Waits for the line `from[r]` (line_at) of every rank r whose bit is in `want`, with so much
 * patience (struct spin). False: give up. */
template <int RANKS>
static __device__ __forceinline__ bool receive_lines(const peer_arguments &a, const epoch &e,
                                                     const char *const (&from)[RANKS], u64 flag,
                                                     u32 want, u32 patience, pair (&got)[RANKS])
{
    spin s = {0, patience, 0};
    for (;;) {
        int missing = -1;
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (want >> r & 1)
                got[r] = load_pair(from[r]);
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if ((want >> r & 1) && line_lane() == 7 && got[r].y != flag)
                missing = r;
        if (__all_sync(~0u, missing < 0))
            return true;
        if (spin_failed(s, a, e, missing))
            return false;
    }
}

/* All ranks but this one. */
static __device__ __forceinline__ u32 all_others(const peer_arguments &a)
{
    return ((1u << a.world.size) - 1) & ~(1u << a.world.rank);
}

#endif
