/*
 * Two-shot allreduce on buffers that all ranks map, as peer_direct.cu, but moved by the bulk copy engine of each
 * multiprocessor (compute capability 9.0): tiles of a slice come from all ranks into shared memory, several stages
 * ahead, are combined there, and the result goes out to all ranks the same way. Fewer blocks fill the links.
 *
 * Thread 0 issues all copies. A stage is filled again when all threads have read it; a result's buffer is written
 * again when the copies out of it have been read. All copies are complete before the last barrier of ranks.
 */
#include "comm/peer_direct.cuh"

enum { TILE_THREADS = 512, TILE_BYTES = TILE_THREADS * 16, RESULTS = 2 };

template <int RANKS> struct tiles {
    enum { STAGES = RANKS == 2 ? 8 : RANKS == 4 ? 5 : 2 };
    char in[STAGES][RANKS][TILE_BYTES];
    char out[RESULTS][TILE_BYTES];
    u64 full[STAGES]; /* a barrier of each stage: its tiles have arrived */
};

#if __CUDA_ARCH__ >= 900

static __device__ __forceinline__ u32 shared_address(const void *at)
{
    return (u32)__cvta_generic_to_shared(at);
}

static __device__ __forceinline__ void barrier_init(u64 *barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"
                 :
                 : "r"(shared_address(barrier))
                 : "memory");
}

static __device__ __forceinline__ void barrier_expect(u64 *barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void barrier_wait(u64 *barrier, u32 parity)
{
    u32 done = 0;
    while (!done)
        asm volatile("{ .reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
}

static __device__ __forceinline__ void copy_in(void *to, const char *from, u32 bytes, u64 *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :
                 : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(barrier))
                 : "memory");
}

static __device__ __forceinline__ void copy_out(char *to, const void *from, u32 bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}

/* All groups but the newest have been read. */
static __device__ __forceinline__ void copies_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 1;" : : : "memory");
}

static __device__ __forceinline__ void copies_wait_all()
{
    asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
}

/* Between ordinary accesses and those of bulk copies. */
static __device__ __forceinline__ void proxy_fence()
{
    asm volatile("fence.proxy.async;" : : : "memory");
}

struct cut {
    u64 begin, end; /* of this rank's slice, in whole vectors of 16 bytes */
    u64 tiles;      /* of this block */
};

static __device__ __forceinline__ u64 tile_at(const cut &c, u64 i)
{
    return c.begin + (blockIdx.x + i * gridDim.x) * TILE_BYTES;
}

static __device__ __forceinline__ u32 tile_bytes(const cut &c, u64 at)
{
    return c.end - at < TILE_BYTES ? (u32)(c.end - at) : TILE_BYTES;
}

/* Thread 0. */
template <int RANKS>
static __device__ __forceinline__ void fill(const peer_arguments &a, const cut &c, u64 i,
                                            tiles<RANKS> &t)
{
    u32 stage = (u32)(i % tiles<RANKS>::STAGES);
    u64 at = tile_at(c, i);
    u32 bytes = tile_bytes(c, at);
    barrier_expect(&t.full[stage], bytes * (u32)a.world.size);
#pragma unroll
    for (int k = 0; k < RANKS; k++)
        if (k < a.world.size) {
            int r = a.world.rank + k;
            r -= r >= a.world.size ? a.world.size : 0;
            copy_in(t.in[stage][r], a.sends[r] + at, bytes, &t.full[stage]);
        }
}

/* Thread 0. */
template <int RANKS>
static __device__ __forceinline__ void drain(const peer_arguments &a, const cut &c, u64 i,
                                             tiles<RANKS> &t)
{
    u64 at = tile_at(c, i);
    u32 bytes = tile_bytes(c, at);
#pragma unroll
    for (int k = 0; k < RANKS; k++)
        if (k < a.world.size) {
            int r = a.world.rank + k;
            r -= r >= a.world.size ? a.world.size : 0;
            copy_out(a.recvs[r] + at, t.out[i % RESULTS], bytes);
        }
    copies_commit();
}

template <int KIND, int RANKS>
static __device__ __forceinline__ void reduce_tiles(const peer_arguments &a, const cut &c,
                                                    tiles<RANKS> &t)
{
    enum { STAGES = tiles<RANKS>::STAGES };
    bool first = threadIdx.x == 0;
    for (u64 i = 0; first && i < STAGES && i < c.tiles; i++)
        fill<RANKS>(a, c, i, t);
    for (u64 i = 0; i < c.tiles; i++) {
        u32 stage = (u32)(i % STAGES);
        uint4 v[RANKS];
        barrier_wait(&t.full[stage], (u32)(i / STAGES) & 1);
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (r < a.world.size)
                v[r] = ((const uint4 *)t.in[stage][r])[threadIdx.x];
        uint4 result = combine_vectors<KIND, RANKS>(a, v);
        if (first)
            copies_wait_read();
        __syncthreads(); /* the stage was read by all, and the result's buffer is free */
        if (first && i + STAGES < c.tiles)
            fill<RANKS>(a, c, i + STAGES, t);
        ((uint4 *)t.out[i % RESULTS])[threadIdx.x] = result;
        proxy_fence();
        __syncthreads(); /* the result is complete */
        if (first)
            drain<RANKS>(a, c, i, t);
    }
    if (first) {
        copies_wait_all();
        proxy_fence();
        __threadfence_system();
    }
}

template <int KIND, int RANKS>
static __device__ __forceinline__ void run(const peer_arguments &a, tiles<RANKS> &t)
{
    epoch e = epoch_begin(a);
    u64 begin, end;
    if (e.broken)
        return;
    slice_of(a, begin, end);
    if (threadIdx.x == 0) {
        for (int i = 0; i < tiles<RANKS>::STAGES; i++)
            barrier_init(&t.full[i]);
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    }
    if (meet(a, e, PEER_AT_STARTS, false)) {
        cut c;
        c.begin = begin;
        c.end = begin + (end - begin) / 16 * 16;
        u64 all = (c.end - c.begin + TILE_BYTES - 1) / TILE_BYTES;
        c.tiles = all > blockIdx.x ? (all - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
        proxy_fence();
        reduce_tiles<KIND, RANKS>(a, c, t);
        reduce_words<KIND, RANKS>(a, c.end, end);
        meet(a, e, PEER_AT_ENDS, true);
    }
    epoch_end(a, e);
}

#endif

template <int KIND, int RANKS>
static __global__ void __launch_bounds__(TILE_THREADS)
    bulk(const __grid_constant__ peer_arguments a)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char memory[];
    run<KIND, RANKS>(a, *(tiles<RANKS> *)memory);
#endif
}

template <int KIND> static const void *of_size(int size)
{
    return size == 2   ? (const void *)bulk<KIND, 2>
           : size <= 4 ? (const void *)bulk<KIND, 4>
                       : (const void *)bulk<KIND, 8>;
}

extern "C" const void *peer_bulk_function(int kind, int size)
{
    return kind == PEER_KIND_FLOAT32    ? of_size<PEER_KIND_FLOAT32>(size)
           : kind == PEER_KIND_FLOAT16  ? of_size<PEER_KIND_FLOAT16>(size)
           : kind == PEER_KIND_BFLOAT16 ? of_size<PEER_KIND_BFLOAT16>(size)
                                        : of_size<PEER_KIND_ANY>(size);
}

extern "C" size_t peer_bulk_shared_bytes(int size)
{
    return size == 2 ? sizeof(tiles<2>) : size <= 4 ? sizeof(tiles<4>) : sizeof(tiles<8>);
}
