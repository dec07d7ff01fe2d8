/*
 * Kernels on the device: an epoch's begin and end, waiting with a deadline, access to slots, lines
 * and users' buffers. Included by the backends' .cu files only.
 *
 * All accesses to slots, lines and flags are volatile, that is relaxed at system scope. A slot's
 * 8-byte halves {data, flag} arrive whole. A line's 128 bytes are written by one instruction of 8
 * neighbouring lanes and arrive in order over NVLink: who reads the flag in the same instruction
 * reads the rest.
 */
#ifndef ALNICO_COMM_GPUMEM_KERNEL_CUH
#define ALNICO_COMM_GPUMEM_KERNEL_CUH

#include "comm/gpumem/arithmetic.cuh"

#include <cuda_runtime.h>

struct pair {
    u64 x, y;
};

static __device__ __forceinline__ uint4 load_slot(const void *at)
{
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

static __device__ __forceinline__ void store_slot(void *at, u64 word, u32 flag)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};"
                 :
                 : "l"(at), "r"((u32)word), "r"(flag), "r"((u32)(word >> 32))
                 : "memory");
}

static __device__ __forceinline__ pair load_pair(const void *at)
{
    pair v;
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(v.x), "=l"(v.y)
                 : "l"(at)
                 : "memory");
    return v;
}

static __device__ __forceinline__ void store_pair(void *at, pair v)
{
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};"
                 :
                 : "l"(at), "l"(v.x), "l"(v.y)
                 : "memory");
}

static __device__ __forceinline__ u64 load_acquire(const void *at)
{
    u64 v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
    return v;
}

static __device__ __forceinline__ void store_relaxed(void *at, u64 v)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(at), "l"(v) : "memory");
}

static __device__ __forceinline__ u64 now_ns()
{
    u64 v;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(v));
    return v;
}

/* Loads 8 bytes if `whole`, else 4 for each half that is asked for and 0 for the other; where it
 * stands, and not when its value is needed. */
static __device__ __forceinline__ u64 load_parts(const char *at, bool whole, bool low, bool high)
{
    u32 x, y;
    asm volatile("{ .reg .pred p, q, r;\n"
                 "setp.ne.u32 p, %3, 0;\n"
                 "setp.ne.u32 q, %4, 0;\n"
                 "setp.ne.u32 r, %5, 0;\n"
                 "mov.u32 %0, 0;\n"
                 "mov.u32 %1, 0;\n"
                 "@p ld.global.v2.u32 {%0, %1}, [%2];\n"
                 "@q ld.global.u32 %0, [%2];\n"
                 "@r ld.global.u32 %1, [%2 + 4]; }"
                 : "=&r"(x), "=&r"(y)
                 : "l"(at), "r"((u32)whole), "r"((u32)low), "r"((u32)high)
                 : "memory");
    return (u64)y << 32 | x;
}

static __device__ __noinline__ u64 load_bytes(const char *from, u32 left)
{
    u64 word = 0;
#pragma unroll 1
    for (u32 i = 0; i < left; i++)
        word |= (u64) * (const unsigned char *)(from + i) << 8 * i;
    return word;
}

static __device__ __noinline__ void store_bytes(char *to, u32 left, u64 word)
{
#pragma unroll 1
    for (u32 i = 0; i < left; i++)
        *(unsigned char *)(to + i) = (unsigned char)(word >> 8 * i);
}

/* Access to the 8 bytes at byte `at` of a user's vector, or to the rest of it: as one, by fours, or
 * byte by byte. `aligned`: the vector is, to 8 bytes. */
struct access {
    u32 left; /* if any is */
    bool whole, low, high, odd;
};

static __device__ __forceinline__ access access_of(const char *vector, u64 at, u64 bytes,
                                                   bool aligned)
{
    access a;
    a.left = bytes - at < 8 ? (u32)(bytes - at) : 8;
    a.whole = aligned && at + 8 <= bytes;
    bool parts = !a.whole && at < bytes;
    a.low = parts && (((u32)(size_t)(vector + at) | a.left) & 3) == 0;
    a.high = a.low && a.left == 8;
    a.odd = parts && !a.low;
    return a;
}

/* Zeros behind the vector's end. */
static __device__ __forceinline__ u64 load_word(const char *vector, u64 at, u64 bytes, bool aligned)
{
    access a = access_of(vector, at, bytes, aligned);
    u64 word = load_parts(vector + at, a.whole, a.low, a.high);
    if (a.odd)
        word = load_bytes(vector + at, a.left);
    return word;
}

static __device__ __forceinline__ void store_word(char *vector, u64 at, u64 bytes, bool aligned,
                                                  u64 word)
{
    access a = access_of(vector, at, bytes, aligned);
    if (a.whole)
        *(u64 *)(vector + at) = word;
    if (a.low)
        *(u32 *)(vector + at) = (u32)word;
    if (a.high)
        *(u32 *)(vector + at + 4) = (u32)(word >> 32);
    if (a.odd)
        store_bytes(vector + at, a.left, word);
}

/* The k-th behind this one: who begins with different ones spreads over the links. */
static __device__ __forceinline__ int beyond(const peer_arguments &a, int k)
{
    int r = a.world.rank + k;
    return r >= a.world.size ? r - a.world.size : r;
}

struct epoch {
    u64 now;
    bool broken;
    u32 was_running; /* thread 0 of block 0: another kernel had not ended */
};

static __device__ __forceinline__ char *own_scratch(const peer_arguments &a)
{
    return a.world.own;
}

/* The flags of slots have 32 bits and 0 is none of them, so an epoch ending in 32 zeros is skipped,
 * and one more to keep the parity. */
static __device__ __forceinline__ u64 epoch_next(u64 epoch)
{
    return (u32)(epoch + 1) == 0 ? epoch + 3 : epoch + 1;
}

static __device__ __forceinline__ void prefetch(const void *at)
{
    asm volatile("prefetch.global.L2 [%0];" : : "l"(at) : "memory");
}

/* Before epoch_begin, where neighbouring threads begin with so many bytes each of the user's
 * vector: what may be done while the kernel before this one ends. The arguments come into the cache
 * of constants, and what is read first into the second-level cache, which all writes to this GPU's
 * memory pass; no value is looked at. The thread's place is read for this only, lest it takes
 * registers later. */
static __device__ __forceinline__ void fetch_ahead(const peer_arguments &a, u32 width)
{
    u32 thread, block;
    asm volatile("mov.u32 %0, %tid.x;" : "=r"(thread));
    asm volatile("mov.u32 %0, %ctaid.x;" : "=r"(block));
    u32 at = (block * blockDim.x + thread) * width;
    if (at < a.bytes)
        prefetch(a.send + at);
    prefetch(own_scratch(a) + PEER_AT_BLOCKS + block * sizeof(peer_block));
}

/* Every thread, first of all: no value is read or written before the kernel before this one has
 * ended. */
static __device__ __forceinline__ epoch epoch_begin(const peer_arguments &a)
{
    epoch e;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
    char *scratch = own_scratch(a);
    pair state = load_pair(scratch + PEER_AT_BLOCKS + blockIdx.x * sizeof(peer_block));
    e.was_running = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        e.was_running = atomicExch((u32 *)(scratch + PEER_AT_RUNNING), 1u);
    e.now = state.x;
    e.broken = (u32)state.y != 0;
    return e;
}

/* The word of a rank's scratch in which the others say that they gave up, in the part that they
 * reach. */
static __device__ __forceinline__ volatile u32 *report_word(const peer_arguments &a, int rank)
{
    return (volatile u32 *)(a.world.scratch[rank] + PEER_AT_REPORT);
}

/* The first to give up: writes why, so that the host and the peers know, and stops all later
 * kernels. */
static __device__ __noinline__ void give_up(const peer_arguments &a, u64 epoch, int fault, int rank,
                                            u64 sent = 0, u64 received = 0)
{
    char *scratch = own_scratch(a);
    if (atomicExch((u32 *)(scratch + PEER_AT_CLAIMED), 1u) != 0)
        return;
    for (int i = 0; i < PEER_BLOCKS; i++)
        *(volatile u32 *)(scratch + PEER_AT_BLOCKS + i * sizeof(peer_block) + 8) = 1;
    for (int r = 0; r < a.world.size; r++)
        if (r != a.world.rank && fault != PEER_FAULT_REPORTED)
            *report_word(a, r) = PEER_REPORT(a.world.rank, fault, rank);
    volatile peer_words *words = a.world.words;
    words->rank = (u32)rank;
    words->report = *report_word(a, a.world.rank);
    words->kernel = (u32)a.kernel;
    words->epoch = epoch;
    words->sent = sent;
    words->received = received;
    __threadfence_system();
    words->fault = (u32)fault;
    __threadfence_system();
}

/* The wait of a warp. A warp that waits for what other ranks make of a missing one's part has more
 * patience, so that those that miss the part itself report first. */
struct spin {
    u32 tries;
    u32 patience; /* in sixteenths of the timeout, added to it */
    u64 began;
};

enum { SPIN_TRIES = 1024 };

/* A spinning warp's occasional look at abort, faults and deadline; `rank` is whom it misses. */
static __device__ __noinline__ bool is_hopeless(const peer_arguments &a, u64 epoch, bool busy,
                                                int rank, u64 waited_ns, u32 patience)
{
    char *scratch = own_scratch(a);
    u32 report = *report_word(a, a.world.rank);
    u64 timeout_ns = a.world.timeout_ns;
    if (*(volatile u32 *)(scratch + PEER_AT_CLAIMED))
        return true;
    if (report)
        give_up(a, epoch, PEER_FAULT_REPORTED, PEER_REPORT_BY(report));
    else if (*(volatile u32 *)&a.world.words->abort)
        give_up(a, epoch, PEER_FAULT_ABORTED, a.world.rank);
    else if (busy)
        give_up(a, epoch, PEER_FAULT_BUSY, a.world.rank);
    else if (waited_ns > timeout_ns && waited_ns - timeout_ns > timeout_ns / 16 * patience)
        give_up(a, epoch, PEER_FAULT_TIMEOUT, rank);
    else
        return false;
    return true;
}

/* After a failed try, by a whole warp: whether it has to give up. `rank` is whom this lane misses,
 * or -1. */
static __device__ __forceinline__ bool spin_failed(spin &s, const peer_arguments &a, const epoch &e,
                                                   int rank)
{
    if (++s.tries % SPIN_TRIES)
        return false;
    u64 now = now_ns();
    if (s.tries == SPIN_TRIES)
        s.began = now;
    u32 missing = __ballot_sync(~0u, rank >= 0);
    int whom = __shfl_sync(~0u, rank, missing ? __ffs((int)missing) - 1 : 0);
    bool hopeless = threadIdx.x % 32 == 0 &&
                    is_hopeless(a, e.now, e.was_running != 0, whom, now - s.began, s.patience);
    return __any_sync(~0u, hopeless);
}

/* Every thread, last of all, unless the communicator was broken at the begin; stale slots are the
 * backend's to clear before. */
static __device__ __forceinline__ void epoch_close(const peer_arguments &a, const epoch &e)
{
    char *scratch = own_scratch(a);
    __syncthreads(); /* all warps have read the block's epoch */
    for (u32 i = blockIdx.x + threadIdx.x * gridDim.x; i < PEER_BLOCKS; i += gridDim.x * blockDim.x)
        *(volatile u64 *)(scratch + PEER_AT_BLOCKS + i * sizeof(peer_block)) = epoch_next(e.now);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (e.was_running)
            give_up(a, e.now, PEER_FAULT_BUSY, a.world.rank);
        *(volatile u32 *)(scratch + PEER_AT_RUNNING) = 0;
    }
}

static __device__ __forceinline__ u32 parity_of(const epoch &e)
{
    return (u32)e.now & 1;
}

/* Waits for the slot at(r) of every other rank r; nothing is wanted where `want` is false. False:
 * give up. */
template <int RANKS, class At>
static __device__ __forceinline__ bool receive_slots(const peer_arguments &a, const epoch &e,
                                                     bool want, At at, u64 (&got)[RANKS])
{
    spin s = {};
    u32 flag = (u32)e.now;
    for (;;) {
        uint4 slots[RANKS];
        int missing = -1;
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (r < a.world.size && r != a.world.rank && want)
                slots[r] = load_slot(at(r));
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (r < a.world.size && r != a.world.rank && want) {
                if (slots[r].y != flag || slots[r].w != flag)
                    missing = r;
                got[r] = (u64)slots[r].z << 32 | slots[r].x;
            }
        if (__all_sync(~0u, missing < 0))
            return true;
        if (spin_failed(s, a, e, missing))
            return false;
    }
}

/* Combines everybody's 16 bytes, `mine` in this rank's place. A flag's place is filled with
 * nonsense. */
template <int KIND, int RANKS>
static __device__ __forceinline__ pair combine_pairs(const peer_arguments &a,
                                                     const pair (&got)[RANKS], pair mine)
{
    u64 x[RANKS], y[RANKS];
#pragma unroll
    for (int r = 0; r < RANKS; r++) {
        x[r] = r == a.world.rank ? mine.x : got[r].x;
        y[r] = r == a.world.rank ? mine.y : got[r].y;
    }
    pair v;
    v.x = combine<KIND, RANKS>(x, a);
    v.y = combine<KIND, RANKS>(y, a);
    return v;
}

/* SET<KIND>::of(size) for a kind that is known at run time only. */
template <template <int> class SET> static const void *function_by_kind(int kind, int size)
{
    return kind == PEER_KIND_FLOAT32    ? SET<PEER_KIND_FLOAT32>::of(size)
           : kind == PEER_KIND_FLOAT16  ? SET<PEER_KIND_FLOAT16>::of(size)
           : kind == PEER_KIND_BFLOAT16 ? SET<PEER_KIND_BFLOAT16>::of(size)
                                        : SET<PEER_KIND_ANY>::of(size);
}

/* Defines function(kind, size), which returns kernel<KIND, RANKS>. */
#define KERNEL_FUNCTION(function, kernel)                                                          \
    template <int KIND> struct function##_set {                                                    \
        static const void *of(int size)                                                            \
        {                                                                                          \
            return size <= 4 ? (const void *)kernel<KIND, 4> : (const void *)kernel<KIND, 8>;      \
        }                                                                                          \
    };                                                                                             \
    const void *function(int kind, int size)                                                       \
    {                                                                                              \
        return function_by_kind<function##_set>(kind, size);                                       \
    }

#endif
