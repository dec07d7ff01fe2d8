/*
 * What the peer kernels share: an epoch's begin and end, waiting with a deadline, access to slots, lines and
 * users' buffers, and the arithmetic on 8-byte words. Included by peer_*.cu only.
 *
 * All accesses to slots, lines and flags are volatile, that is relaxed at system scope. A slot's 8-byte halves
 * {data, flag} arrive whole; a line's 128 bytes are written by one instruction of 8 neighbouring lanes and arrive
 * in order over NVLink, so that who reads the flag in the same instruction reads the rest.
 */
#ifndef ALNICO_SRC_PEER_DEVICE_CUH
#define ALNICO_SRC_PEER_DEVICE_CUH

#include "comm/peer_cuda.h"

#include <alnico/alnico.h>

#include <cuda_runtime.h>

typedef unsigned long long u64;
typedef unsigned int u32;

struct pair {
    u64 x, y;
};

/* ---- Memory ---- */

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

/* Loads 8 bytes if `whole`, else 0; where it stands, and not when its value is needed. */
static __device__ __forceinline__ u64 load_whole(const char *at, bool whole)
{
    u64 v;
    asm volatile("{ .reg .pred p;\n"
                 "setp.ne.u32 p, %2, 0;\n"
                 "mov.u64 %0, 0;\n"
                 "@p ld.global.u64 %0, [%1]; }"
                 : "=l"(v)
                 : "l"(at), "r"((u32)whole)
                 : "memory");
    return v;
}

/* The first `left` bytes, where they are fewer than 8 or not aligned. */
static __device__ __noinline__ u64 load_odd(const char *from, u32 left)
{
    bool wide = (((u32)(size_t)from | left) & 3) == 0;
    u64 word = 0;
#pragma unroll 1
    for (u32 i = 0; i < left; i += wide ? 4 : 1)
        word |= (wide ? (u64) * (const u32 *)(from + i) : (u64) * (const unsigned char *)(from + i))
                << 8 * i;
    return word;
}

static __device__ __noinline__ void store_odd(char *to, u32 left, u64 word)
{
    bool wide = (((u32)(size_t)to | left) & 3) == 0;
#pragma unroll 1
    for (u32 i = 0; i < left; i += wide ? 4 : 1) {
        if (wide)
            *(u32 *)(to + i) = (u32)(word >> 8 * i);
        else
            *(unsigned char *)(to + i) = (unsigned char)(word >> 8 * i);
    }
}

static __device__ __forceinline__ u32 bytes_left(u64 at, u64 bytes)
{
    return bytes - at < 8 ? (u32)(bytes - at) : 8;
}

/* The 8 bytes, or what is left of them, at byte `at` of a user's vector; zeros behind its end. `aligned`: the
 * vector is, to 8 bytes. */
static __device__ __forceinline__ u64 load_word(const char *vector, u64 at, u64 bytes, bool aligned)
{
    bool whole = aligned && at + 8 <= bytes;
    u64 word = load_whole(vector + at, whole);
    if (!whole && at < bytes)
        word = load_odd(vector + at, bytes_left(at, bytes));
    return word;
}

static __device__ __forceinline__ void store_word(char *vector, u64 at, u64 bytes, bool aligned,
                                                  u64 word)
{
    bool whole = aligned && at + 8 <= bytes;
    if (whole)
        *(u64 *)(vector + at) = word;
    if (!whole && at < bytes)
        store_odd(vector + at, bytes_left(at, bytes), word);
}

/* ---- Epochs ---- */

struct epoch {
    u64 now;
    bool broken;
    u32 was_running; /* thread 0 of block 0: another kernel had not ended */
};

static __device__ __forceinline__ char *own_scratch(const peer_arguments &a)
{
    return a.world.own;
}

/* The flags of slots have 32 bits and 0 is none of them, so an epoch ending in 32 zeros is skipped, and one more to
 * keep the parity. */
static __device__ __forceinline__ u64 epoch_next(u64 epoch)
{
    return (u32)(epoch + 1) == 0 ? epoch + 3 : epoch + 1;
}

/* Twice in 2^32 epochs the slots' flags of old epochs are cleared, lest they come true again. A peer may
 * have begun the next epoch already, but no later one. Compare-and-swap, because peers write meanwhile. */
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

/* The next kernel of the stream may be launched, if it was made to; whatever thread of a block calls first counts. */
static __device__ __forceinline__ void launch_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

/* Every thread, first of all: nothing is read or written before the kernel before this one has ended. */
static __device__ __forceinline__ epoch epoch_begin(const peer_arguments &a)
{
    epoch e;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
    if (a.dependent == PEER_EAGER)
        launch_next();
    char *scratch = own_scratch(a);
    pair state = load_pair(scratch + PEER_AT_BLOCKS + blockIdx.x * sizeof(peer_block));
    e.was_running = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        e.was_running = atomicExch((u32 *)(scratch + PEER_AT_RUNNING), 1u);
    e.now = state.x;
    e.broken = (u32)state.y != 0;
    return e;
}

/* The first to give up: writes why, so that the host and the peers know, and stops all later kernels. */
static __device__ __noinline__ void give_up(const peer_arguments &a, u64 epoch, int fault, int rank)
{
    char *scratch = own_scratch(a);
    if (atomicExch((u32 *)(scratch + PEER_AT_CLAIMED), 1u) != 0)
        return;
    for (int i = 0; i < PEER_CUDA_BLOCKS; i++)
        *(volatile u32 *)(scratch + PEER_AT_BLOCKS + i * sizeof(peer_block) + 8) = 1;
    for (int r = 0; r < a.world.size; r++)
        if (r != a.world.rank && fault != PEER_FAULT_TOLD)
            *(volatile u32 *)(a.world.scratch[r] + PEER_AT_TOLD) =
                PEER_TELL(a.world.rank, fault, rank);
    volatile peer_words *words = a.world.words;
    words->rank = (u32)rank;
    words->heard = *(volatile u32 *)(scratch + PEER_AT_TOLD);
    words->kernel = (u32)a.kernel;
    words->epoch = epoch;
    __threadfence_system();
    words->fault = (u32)fault;
    __threadfence_system();
}

/* How long a warp has waited. Who waits for what other ranks make of the missing one's part is patient for longer, so
 * that those who miss its part itself are the first to say so. */
struct spin {
    u32 tries;
    u32 patience; /* in sixteenths of the timeout, added to it */
    u64 began;
};

enum { SPIN_TRIES = 1024 };

/* What a spinning warp looks at now and then; `rank` is whom it misses. */
static __device__ __noinline__ bool is_hopeless(const peer_arguments &a, u64 epoch, bool busy,
                                                int rank, u64 waited_ns, u32 patience)
{
    char *scratch = own_scratch(a);
    u32 told = *(volatile u32 *)(scratch + PEER_AT_TOLD);
    u64 timeout_ns = a.world.timeout_ns;
    if (*(volatile u32 *)(scratch + PEER_AT_CLAIMED))
        return true;
    if (told)
        give_up(a, epoch, PEER_FAULT_TOLD, PEER_TOLD_BY(told));
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

/* After a failed try, by a whole warp: whether it has to give up. `rank` is whom this lane misses, or -1. */
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

/* Every thread, last of all, unless the communicator was broken at the begin. */
static __device__ __forceinline__ void epoch_end(const peer_arguments &a, const epoch &e)
{
    char *scratch = own_scratch(a);
    if (((u32)e.now & 0x7fffffffu) == 0x40000000u)
        scrub(a, e.now);
    if (a.dependent == PEER_LATE)
        __threadfence();
    __syncthreads(); /* all warps have read the block's epoch */
    if (a.dependent == PEER_LATE)
        launch_next();
    for (u32 i = blockIdx.x + threadIdx.x * gridDim.x; i < PEER_CUDA_BLOCKS;
         i += gridDim.x * blockDim.x)
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

/* ---- Arithmetic: as math_cpu.h says, bit for bit ---- */

static __device__ __forceinline__ float half_to_float(u32 bits)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)bits));
    return f;
}

static __device__ __forceinline__ u32 half_from_float(float f)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    return f != f ? 0x7e00u : (u32)bits;
}

static __device__ __forceinline__ float bfloat_to_float(u32 bits)
{
    return __uint_as_float(bits << 16);
}

static __device__ __forceinline__ u32 bfloat_from_float(float f)
{
    u32 bits = __float_as_uint(f);
    return f != f ? 0x7fc0u : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static __device__ __forceinline__ u32 one_nan(float f)
{
    return f != f ? 0x7fc00000u : __float_as_uint(f);
}

static __device__ __forceinline__ u64 one_nan(double f)
{
    return f != f ? 0x7ff8000000000000ull : (u64)__double_as_longlong(f);
}

/* Where neither is smaller they are equal, zeros of two signs, or one is NaN: the union of the bits is right. */
static __device__ __forceinline__ float smaller(float x, float y)
{
    float other = y < x ? y : __uint_as_float(__float_as_uint(x) | __float_as_uint(y));
    return x < y ? x : other;
}

static __device__ __forceinline__ double smaller(double x, double y)
{
    double other =
        y < x ? y : __longlong_as_double(__double_as_longlong(x) | __double_as_longlong(y));
    return x < y ? x : other;
}

template <class T> static __device__ __forceinline__ T combine_float(T x, T y, int op)
{
    switch (op) {
    case ALNICO_PRODUCT:
        return x * y;
    case ALNICO_MINIMUM:
        return smaller(x, y);
    case ALNICO_MAXIMUM:
        return -smaller(-x, -y);
    default:
        return x + y;
    }
}

template <class T> static __device__ __forceinline__ T combine_integer(T x, T y, int op)
{
    switch (op) {
    case ALNICO_PRODUCT:
        return (T)((u64)x * (u64)y);
    case ALNICO_MINIMUM:
        return x < y ? x : y;
    case ALNICO_MAXIMUM:
        return x > y ? x : y;
    case ALNICO_LOGICAL_AND:
        return (T)(x != 0 && y != 0);
    case ALNICO_LOGICAL_OR:
        return (T)(x != 0 || y != 0);
    case ALNICO_LOGICAL_XOR:
        return (T)((x != 0) != (y != 0));
    case ALNICO_BITWISE_AND:
        return (T)(x & y);
    case ALNICO_BITWISE_OR:
        return (T)(x | y);
    case ALNICO_BITWISE_XOR:
        return (T)(x ^ y);
    default:
        return (T)((u64)x + (u64)y);
    }
}

/* All elements of a word; U is T without a sign. */
template <class U, class T>
static __device__ __forceinline__ u64 combine_integers(u64 a, u64 b, int op)
{
    u64 out = 0;
#pragma unroll 1
    for (int i = 0; i < 64; i += 8 * (int)sizeof(T))
        out |= (u64)(U)combine_integer((T)(a >> i), (T)(b >> i), op) << i;
    return out;
}

template <class U, class T> static __device__ __forceinline__ u64 divide_integers(u64 a, int ranks)
{
    u64 out = 0;
#pragma unroll 1
    for (int i = 0; i < 64; i += 8 * (int)sizeof(T))
        out |= (u64)(U)(T)((T)(a >> i) / (T)ranks) << i;
    return out;
}

/* A word of any type but the 16-bit floats. */
static __device__ __noinline__ u64 combine_any(u64 a, u64 b, int type, int op)
{
    switch (type) {
    case ALNICO_INT8:
        return combine_integers<unsigned char, signed char>(a, b, op);
    case ALNICO_UINT8:
        return combine_integers<unsigned char, unsigned char>(a, b, op);
    case ALNICO_INT32:
        return combine_integers<u32, int>(a, b, op);
    case ALNICO_UINT32:
        return combine_integers<u32, u32>(a, b, op);
    case ALNICO_INT64:
        return combine_integers<u64, long long>(a, b, op);
    case ALNICO_UINT64:
        return combine_integers<u64, u64>(a, b, op);
    case ALNICO_FLOAT64:
        return (u64)__double_as_longlong(combine_float(__longlong_as_double((long long)a),
                                                       __longlong_as_double((long long)b), op));
    default: {
        float x = combine_float(__uint_as_float((u32)a), __uint_as_float((u32)b), op);
        float y =
            combine_float(__uint_as_float((u32)(a >> 32)), __uint_as_float((u32)(b >> 32)), op);
        return (u64)__float_as_uint(y) << 32 | __float_as_uint(x);
    }
    }
}

/* What remains to be done when all are combined: the division of an average, and one NaN for all. */
static __device__ __noinline__ u64 conclude_any(u64 word, const peer_arguments &a, bool divide)
{
    bool average = divide && a.op == ALNICO_AVERAGE;
    switch (a.type) {
    case ALNICO_INT8:
        return average ? divide_integers<unsigned char, signed char>(word, a.world.size) : word;
    case ALNICO_UINT8:
        return average ? divide_integers<unsigned char, unsigned char>(word, a.world.size) : word;
    case ALNICO_INT32:
        return average ? divide_integers<u32, int>(word, a.world.size) : word;
    case ALNICO_UINT32:
        return average ? divide_integers<u32, u32>(word, a.world.size) : word;
    case ALNICO_INT64:
        return average ? divide_integers<u64, long long>(word, a.world.size) : word;
    case ALNICO_UINT64:
        return average ? divide_integers<u64, u64>(word, a.world.size) : word;
    case ALNICO_FLOAT64:
        return one_nan(__longlong_as_double((long long)word) * (divide ? a.scale : 1));
    default: {
        float factor = divide ? a.factor : 1;
        return (u64)one_nan(__uint_as_float((u32)(word >> 32)) * factor) << 32 |
               one_nan(__uint_as_float((u32)word) * factor);
    }
    }
}

/* A running combination of words, in the order in which they are added; `divide`: an average's last step. */
template <int KIND> struct sum;

template <> struct sum<PEER_KIND_FLOAT32> {
    float x, y;

    __device__ __forceinline__ void set(u64 word, const peer_arguments &)
    {
        x = __uint_as_float((u32)word);
        y = __uint_as_float((u32)(word >> 32));
    }
    __device__ __forceinline__ void add(u64 word, const peer_arguments &)
    {
        x += __uint_as_float((u32)word);
        y += __uint_as_float((u32)(word >> 32));
    }
    __device__ __forceinline__ u64 get(const peer_arguments &a, bool divide = true) const
    {
        float factor = divide ? a.factor : 1;
        return (u64)one_nan(y * factor) << 32 | one_nan(x * factor);
    }
};

/* Four 16-bit floats, in float32 until the end. */
template <int KIND> static __device__ __forceinline__ float widen(u32 bits)
{
    return KIND == PEER_KIND_FLOAT16 ? half_to_float(bits) : bfloat_to_float(bits);
}

template <int KIND> static __device__ __forceinline__ u32 narrow(float f)
{
    return KIND == PEER_KIND_FLOAT16 ? half_from_float(f) : bfloat_from_float(f);
}

template <int KIND> struct sum16 {
    float x[4];

    __device__ __forceinline__ void set(u64 word, const peer_arguments &)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = widen<KIND>((u32)(word >> 16 * i) & 0xffff);
    }
    __device__ __forceinline__ void add(u64 word, const peer_arguments &)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] += widen<KIND>((u32)(word >> 16 * i) & 0xffff);
    }
    __device__ __forceinline__ void combine(u64 word, int op)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = combine_float(x[i], widen<KIND>((u32)(word >> 16 * i) & 0xffff), op);
    }
    __device__ __forceinline__ u64 get(const peer_arguments &a, bool divide = true) const
    {
        float factor = divide ? a.factor : 1;
        u32 low = narrow<KIND>(x[0] * factor) | narrow<KIND>(x[1] * factor) << 16;
        u32 high = narrow<KIND>(x[2] * factor) | narrow<KIND>(x[3] * factor) << 16;
        return (u64)high << 32 | low;
    }
};

template <> struct sum<PEER_KIND_FLOAT16> : sum16<PEER_KIND_FLOAT16> {
};
template <> struct sum<PEER_KIND_BFLOAT16> : sum16<PEER_KIND_BFLOAT16> {
};

/* Everything else: type and operation are looked at in each step. */
template <> struct sum<PEER_KIND_ANY> {
    u64 word;
    sum16<PEER_KIND_FLOAT16> halves;
    sum16<PEER_KIND_BFLOAT16> bfloats;

    __device__ __forceinline__ void set(u64 w, const peer_arguments &a)
    {
        word = w;
        halves.set(w, a);
        bfloats.set(w, a);
    }
    __device__ __forceinline__ void add(u64 w, const peer_arguments &a)
    {
        if (a.type == ALNICO_FLOAT16)
            halves.combine(w, a.op);
        else if (a.type == ALNICO_BFLOAT16)
            bfloats.combine(w, a.op);
        else
            word = combine_any(word, w, a.type, a.op);
    }
    __device__ __forceinline__ u64 get(const peer_arguments &a, bool divide = true) const
    {
        if (a.type == ALNICO_FLOAT16)
            return halves.get(a, divide);
        if (a.type == ALNICO_BFLOAT16)
            return bfloats.get(a, divide);
        return conclude_any(word, a, divide);
    }
};

/* Combines one word of every rank in rank order. */
template <int KIND, int RANKS>
static __device__ __forceinline__ u64 combine(const u64 (&words)[RANKS], const peer_arguments &a)
{
    sum<KIND> total;
    total.set(words[0], a);
#pragma unroll
    for (int r = 1; r < RANKS; r++)
        if (r < a.world.size)
            total.add(words[r], a);
    return total.get(a);
}

#endif
