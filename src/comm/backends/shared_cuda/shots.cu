/*
 * Allreduce by GPUs of one host that reach no memory of each other: through parts of host memory
 * that all of them map. A rank stores to its own part and loads from everybody's, so that each byte
 * goes over its bus once for each reader.
 *
 * One-shot: a rank posts its vector in slots that carry their flags, and combines everybody's
 * itself: 2 bytes out and 2 (size - 1) in for each of the vector. Slot i of every rank is for
 * thread i of the others.
 *
 * Two-shot: rank r combines slice r of what all have posted and posts the result for all: about 1
 * byte out and 1.5 in. Item i of block b is piece i * blocks + b of every slice. It goes through
 * place i % SHARED_DEPTH of that block number in the areas, and two flags of the block say how many
 * items have been posted and combined. They are written when the items have arrived (a fence of all
 * the block's stores before the store), and read with acquire semantics before the items. No access
 * is wider than 16 bytes, and none but a slot's relies on more than 8 to arrive together.
 *
 * post(i) comes after gather(i - SHARED_DEPTH), when everybody has combined what it overwrites.
 * Everybody's post(i) came after its own gather(i - SHARED_DEPTH), so after waiting for those,
 * combine(i) may overwrite our result. A kernel begins after the rank's kernel before has ended,
 * and ends after everybody's has begun.
 *
 * Blocks wait for the blocks of the same number only; all must be resident.
 */
#include "comm/backends/shared_cuda/shared_cuda.h"
#include "comm/gpumem/kernel.cuh"

static __device__ __forceinline__ char *part_of(const peer_arguments &a, int rank)
{
    return a.world.scratch[rank];
}

/* Twice in 2^32 epochs the flags of old ones are cleared, lest they come true again: in two epochs
 * running, in each those of the buffer that is not in use. Late ranks may still read the slots of
 * the epoch before; nobody else writes here. */
static __device__ __noinline__ void scrub_other_slots(const peer_arguments &a, const epoch &e)
{
    char *slots =
        part_of(a, a.world.rank) + SHARED_AT_SLOTS + (1 - parity_of(e)) * (u64)SHARED_SLOTS_BYTES;
    u32 before = (u32)e.now - 1, step = gridDim.x * blockDim.x;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < SHARED_SLOTS_BYTES / 16; i += step) {
        uint4 slot = load_slot(slots + (u64)i * 16);
        if (slot.y != before && slot.y != 0)
            store_slot(slots + (u64)i * 16, 0, 0);
    }
}

static __device__ __forceinline__ void shared_end(const peer_arguments &a, const epoch &e)
{
    if (((u32)e.now & 0x7ffffffeu) == 0x40000000u)
        scrub_other_slots(a, e);
    epoch_close(a, e);
}

template <int KIND, int RANKS>
static __global__ void __launch_bounds__(512, RANKS <= 4 ? 2 : 1)
    one_shot(const __grid_constant__ peer_arguments a)
{
    epoch e = epoch_begin(a);
    u64 words = (a.bytes + 7) / 8, step = (u64)gridDim.x * blockDim.x;
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 slots = SHARED_AT_SLOTS + parity_of(e) * (u64)SHARED_SLOTS_BYTES;
    u64 mine = load_word(a.send, first * 8, a.bytes, a.aligned & 1);
    if (e.broken)
        return;
    char *own = part_of(a, a.world.rank) + slots;
    for (u64 i = first; i < words; i += step) {
        u64 word = i == first ? mine : load_word(a.send, i * 8, a.bytes, a.aligned & 1);
        store_slot(own + i * 16, word, (u32)e.now);
    }
    /* Whole warps take part; lanes behind the end have nothing to do. */
    for (u64 i = first; i - threadIdx.x % 32 < words; i += step) {
        u64 got[RANKS], parts[RANKS];
        u64 word = i == first ? mine : load_word(a.send, i * 8, a.bytes, a.aligned & 1);
        auto at = [&](int r) { return part_of(a, r) + slots + i * 16; };
        if (!receive_slots<RANKS>(a, e, i < words, at, got))
            break;
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            parts[r] = r == a.world.rank ? word : got[r];
        if (i < words)
            store_word(a.recv, i * 8, a.bytes, a.aligned & 2, combine<KIND, RANKS>(parts, a));
    }
    shared_end(a, e);
}

enum phase { POSTED, COMBINED };

struct walk {
    u64 slice; /* bytes of a rank's part of the vector, a multiple of 128 */
    u64 first,
        step; /* where this thread's 16 bytes of item 0 are in a slice, and from item to item */
    u64 items;
};

/* This thread's 16 bytes of item i of slice r; false if they are behind the end. */
static __device__ __forceinline__ bool find(const peer_arguments &a, const walk &w, int r, u64 i,
                                            u64 &at)
{
    u64 inside = w.first + i * w.step;
    at = (u64)r * w.slice + inside;
    return inside < w.slice && at < a.bytes;
}

static __device__ __forceinline__ u64 place_of(u64 i)
{
    return (i % SHARED_DEPTH * SHARED_BLOCKS + blockIdx.x) * SHARED_PLACE_BYTES + threadIdx.x * 16;
}

/* The place of slice r's item in every rank's part. */
static __device__ __forceinline__ u64 input_at(int r, u64 i)
{
    return SHARED_AT_INPUTS + (u64)r * SHARED_AREA_BYTES + place_of(i);
}

static __device__ __forceinline__ u64 result_at(u64 i)
{
    return SHARED_AT_RESULTS + place_of(i);
}

static __device__ __forceinline__ pair load_user(const peer_arguments &a, u64 at)
{
    pair v;
    v.x = load_word(a.send, at, a.bytes, a.aligned & 1);
    v.y = load_word(a.send, at + 8, a.bytes, a.aligned & 1);
    return v;
}

static __device__ __forceinline__ void store_user(const peer_arguments &a, u64 at, pair v)
{
    store_word(a.recv, at, a.bytes, a.aligned & 2, v.x);
    store_word(a.recv, at + 8, a.bytes, a.aligned & 2, v.y);
}

static __device__ __forceinline__ u64 flag_at(int phase)
{
    return SHARED_AT_FLAGS + (blockIdx.x * 2 + phase) * 64;
}

static __device__ __forceinline__ u64 flag_of(const epoch &e, u64 i)
{
    return e.now << 20 | i;
}

/* The block has done item i. */
static __device__ __forceinline__ void mark(const peer_arguments &a, const epoch &e, int phase,
                                            u64 i)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        store_relaxed(part_of(a, a.world.rank) + flag_at(phase), flag_of(e, i));
    }
}

/* Until all other ranks' blocks of this number have done it. False: give up. */
static __device__ __forceinline__ bool await(const peer_arguments &a, const epoch &e, int phase,
                                             u64 i, u32 patience)
{
    bool ok = true;
    if (threadIdx.x < 32) {
        int r = (int)threadIdx.x;
        bool missing = r < a.world.size && r != a.world.rank;
        const char *flag = missing ? part_of(a, r) + flag_at(phase) : nullptr;
        spin s = {0, patience, 0};
        for (;;) {
            if (missing)
                missing = (long long)(load_acquire(flag) - flag_of(e, i)) < 0;
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

template <int RANKS>
static __device__ __forceinline__ void post(const peer_arguments &a, const epoch &e, const walk &w,
                                            u64 i)
{
    char *own = part_of(a, a.world.rank);
    pair v[RANKS];
    u64 at;
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        if (r < a.world.size && r != a.world.rank && find(a, w, r, i, at))
            v[r] = load_user(a, at);
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        if (r < a.world.size && r != a.world.rank && find(a, w, r, i, at))
            store_pair(own + input_at(r, i), v[r]);
    mark(a, e, POSTED, i);
}

template <int KIND, int RANKS>
static __device__ __forceinline__ bool combine_item(const peer_arguments &a, const epoch &e,
                                                    const walk &w, u64 i)
{
    u64 at;
    bool have = find(a, w, a.world.rank, i, at);
    pair mine = {};
    if (have)
        mine = load_user(a, at);
    if (!await(a, e, POSTED, i, 0))
        return false;
    if (have) {
        pair got[RANKS];
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (r < a.world.size && r != a.world.rank)
                got[r] = load_pair(part_of(a, r) + input_at(a.world.rank, i));
        pair result = combine_pairs<KIND, RANKS>(a, got, mine);
        store_pair(part_of(a, a.world.rank) + result_at(i), result);
        store_user(a, at, result);
    }
    mark(a, e, COMBINED, i);
    return true;
}

template <int RANKS>
static __device__ __forceinline__ bool gather(const peer_arguments &a, const epoch &e,
                                              const walk &w, u64 i)
{
    pair got[RANKS];
    u64 at;
    if (!await(a, e, COMBINED, i, 1))
        return false;
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        if (r < a.world.size && r != a.world.rank && find(a, w, r, i, at))
            got[r] = load_pair(part_of(a, r) + result_at(i));
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        if (r < a.world.size && r != a.world.rank && find(a, w, r, i, at))
            store_user(a, at, got[r]);
    return true;
}

/* Results are gathered one item late, so that they travel meanwhile. */
template <int KIND, int RANKS>
static __device__ __forceinline__ void run(const peer_arguments &a, const epoch &e, const walk &w)
{
    for (u64 i = 0; i < w.items && i < SHARED_DEPTH; i++)
        post<RANKS>(a, e, w, i);
    for (u64 i = 0; i <= w.items; i++) {
        if (i < w.items && !combine_item<KIND, RANKS>(a, e, w, i))
            return;
        if (i == 0)
            continue;
        if (!gather<RANKS>(a, e, w, i - 1))
            return;
        if (i - 1 + SHARED_DEPTH < w.items)
            post<RANKS>(a, e, w, i - 1 + SHARED_DEPTH);
    }
}

template <int KIND, int RANKS>
static __global__ void __launch_bounds__(512, RANKS <= 4 ? 2 : 1)
    two_shot(const __grid_constant__ peer_arguments a)
{
    epoch e = epoch_begin(a);
    walk w;
    w.slice = ((a.bytes + 127) / 128 + a.world.size - 1) / a.world.size * 128;
    w.first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 16;
    w.step = (u64)gridDim.x * blockDim.x * 16;
    w.items = (w.slice + w.step - 1) / w.step;
    if (e.broken)
        return;
    run<KIND, RANKS>(a, e, w);
    shared_end(a, e);
}

KERNEL_FUNCTION(shared_one_shot_function, one_shot)
KERNEL_FUNCTION(shared_two_shot_function, two_shot)
